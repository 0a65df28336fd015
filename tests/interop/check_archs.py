"""Architectures against the published equations: tiny checkpoints of random weights, written here with
the config keys and tensor names of transformers, and the logits that a float64 reference in numpy gives
for them. narrow reads each as a Hugging Face folder and, where llama.cpp has the architecture, as GGUF
written by gguf-py (where it is installed). Where torch and transformers are installed they are asked as well.
Each feature has a control: with it switched off in the reference the logits must differ.

usage: check_archs.py WRITE_LOGITS WORK_DIR
SPDX-License-Identifier: Apache-2.0"""
import json
import os
import subprocess
import sys

import numpy as np
from safetensors.numpy import save_file

try:
    import gguf
except ImportError:  # the environment of transformers
    gguf = None

N_IDS, MAX_DELTA, MIN_CONTROL = 96, 1e-4, 1e-2  # shares of the largest logit
VOCAB = 211

COMMON = {'hidden_size': 48, 'intermediate_size': 80, 'num_hidden_layers': 3, 'num_attention_heads': 6,
          'num_key_value_heads': 2, 'vocab_size': VOCAB, 'max_position_embeddings': 512,
          'rms_norm_eps': 1e-6, 'hidden_act': 'silu', 'tie_word_embeddings': False, 'torch_dtype': 'float32',
          'bos_token_id': 1, 'eos_token_id': 2}
# name: (config, control keys of the reference)
MODELS = {
    'llama': ({'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'rope_theta': 500000.0}, {}),
    'qwen2': ({'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2', 'rope_theta': 1000000.0,
               'use_sliding_window': False, 'sliding_window': 4096, 'max_window_layers': 3}, {'bias': False}),
    'qwen2-window': ({'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2', 'rope_theta': 10000.0,
                      'tie_word_embeddings': True, 'use_sliding_window': True, 'sliding_window': 24,
                      'max_window_layers': 1}, {'window': False}),
    'qwen3': ({'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3', 'rope_theta': 1000000.0,
               'head_dim': 20, 'tie_word_embeddings': True}, {'qk_norm': False}),
    'mistral': ({'architectures': ['MistralForCausalLM'], 'model_type': 'mistral', 'rope_theta': 10000.0,
                 'sliding_window': 24}, {'window': False}),
    'mistral-nemo': ({'architectures': ['MistralForCausalLM'], 'model_type': 'mistral', 'rope_theta': 1e6,
                      'sliding_window': None, 'head_dim': 10}, {}),
}


def shapes(c):
    """HF names and shapes, from the models' published code."""
    d, hd = c['hidden_size'], c.get('head_dim') or c['hidden_size'] // c['num_attention_heads']
    q, kv = c['num_attention_heads'] * hd, c['num_key_value_heads'] * hd
    yield 'model.embed_tokens.weight', (VOCAB, d)
    yield 'model.norm.weight', (d,)
    if not c['tie_word_embeddings']:
        yield 'lm_head.weight', (VOCAB, d)
    for i in range(c['num_hidden_layers']):
        p = f'model.layers.{i}.'
        yield p + 'input_layernorm.weight', (d,)
        yield p + 'post_attention_layernorm.weight', (d,)
        for name, rows in (('q', q), ('k', kv), ('v', kv)):
            yield p + f'self_attn.{name}_proj.weight', (rows, d)
            if c['model_type'] == 'qwen2':
                yield p + f'self_attn.{name}_proj.bias', (rows,)
        if c['model_type'] == 'qwen3':
            yield p + 'self_attn.q_norm.weight', (hd,)
            yield p + 'self_attn.k_norm.weight', (hd,)
        yield p + 'self_attn.o_proj.weight', (d, q)
        yield p + 'mlp.gate_proj.weight', (c['intermediate_size'], d)
        yield p + 'mlp.up_proj.weight', (c['intermediate_size'], d)
        yield p + 'mlp.down_proj.weight', (d, c['intermediate_size'])


def make(c, seed):
    rng = np.random.default_rng(seed)
    w = {}
    for name, shape in shapes(c):
        if len(shape) == 2:
            w[name] = rng.normal(0, 1 / np.sqrt(shape[1]), shape).astype(np.float32)
        else:
            base = 0 if name.endswith('.bias') else 1
            w[name] = (base + rng.normal(0, 0.5, shape)).astype(np.float32)
    return w


# ---- the reference ------------------------------------------------------------------------------

def rms(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def rope(x, theta):
    """Halves of a head rotated against each other by position * theta^(-2i/d)."""
    n, _, d = x.shape
    a = np.arange(n)[:, None] * theta ** (-2.0 * np.arange(d // 2) / d)
    cos, sin = np.cos(a)[:, None], np.sin(a)[:, None]
    lo, hi = x[..., :d // 2], x[..., d // 2:]
    return np.concatenate([lo * cos - hi * sin, hi * cos + lo * sin], -1)


def window_of(c, layer):
    """Tokens a layer sees, itself included; None: all."""
    if c['model_type'] == 'mistral':
        return c.get('sliding_window')
    if c['model_type'] == 'qwen2' and c.get('use_sliding_window') and layer >= c['max_window_layers']:
        return c['sliding_window']
    return None


def logits(c, w, ids, bias=True, qk_norm=True, window=True):
    w = {k: v.astype(np.float64) for k, v in w.items()}
    eps, n = c['rms_norm_eps'], len(ids)
    heads, kv_heads = c['num_attention_heads'], c['num_key_value_heads']
    hd = c.get('head_dim') or c['hidden_size'] // heads
    x = w['model.embed_tokens.weight'][ids]
    at = np.arange(n)
    for i in range(c['num_hidden_layers']):
        p = f'model.layers.{i}.'
        h = rms(x, w[p + 'input_layernorm.weight'], eps)
        q, k, v = (h @ w[p + f'self_attn.{m}_proj.weight'].T
                   + (w[p + f'self_attn.{m}_proj.bias'] if bias and p + f'self_attn.{m}_proj.bias' in w else 0)
                   for m in 'qkv')
        q, k, v = q.reshape(n, heads, hd), k.reshape(n, kv_heads, hd), v.reshape(n, kv_heads, hd)
        if qk_norm and p + 'self_attn.q_norm.weight' in w:
            q, k = rms(q, w[p + 'self_attn.q_norm.weight'], eps), rms(k, w[p + 'self_attn.k_norm.weight'], eps)
        q, k = rope(q, c['rope_theta']), rope(k, c['rope_theta'])
        k, v = (np.repeat(t, heads // kv_heads, 1) for t in (k, v))
        s = np.einsum('thd,shd->hts', q, k) / np.sqrt(hd)
        seen = at[None] <= at[:, None]
        span = window_of(c, i) if window else None
        if span is not None:
            seen &= at[None] > at[:, None] - span
        s = np.where(seen, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        o = np.einsum('hts,shd->thd', e / e.sum(-1, keepdims=True), v).reshape(n, heads * hd)
        x = x + o @ w[p + 'self_attn.o_proj.weight'].T
        h = rms(x, w[p + 'post_attention_layernorm.weight'], eps)
        g = h @ w[p + 'mlp.gate_proj.weight'].T
        x = x + (g / (1 + np.exp(-g)) * (h @ w[p + 'mlp.up_proj.weight'].T)) @ w[p + 'mlp.down_proj.weight'].T
    head = w['model.embed_tokens.weight' if c['tie_word_embeddings'] else 'lm_head.weight']
    return rms(x, w['model.norm.weight'], eps) @ head.T


# ---- files --------------------------------------------------------------------------------------

def write_hf(folder, c, w):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'config.json'), 'w') as f:
        json.dump(c, f, indent=1)
    save_file(w, os.path.join(folder, 'model.safetensors'), metadata={'format': 'pt'})


GGUF_NAMES = {'model.embed_tokens': 'token_embd', 'model.norm': 'output_norm', 'lm_head': 'output',
              'input_layernorm': 'attn_norm', 'post_attention_layernorm': 'ffn_norm',
              'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v',
              'self_attn.o_proj': 'attn_output', 'self_attn.q_norm': 'attn_q_norm',
              'self_attn.k_norm': 'attn_k_norm', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up',
              'mlp.down_proj': 'ffn_down'}


def gguf_name(name):
    stem, kind = name.rsplit('.', 1)
    if stem.startswith('model.layers.'):
        _, _, i, rest = stem.split('.', 3)
        return f'blk.{i}.{GGUF_NAMES[rest]}.{kind}'
    return f'{GGUF_NAMES[stem]}.{kind}'


def pairs(x, n_heads):
    """The row order of arch llama: the two halves of a head interleaved."""
    return x.reshape(n_heads, 2, x.shape[0] // n_heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write_gguf(path, c, w):
    arch = {'mistral': 'llama'}.get(c['model_type'], c['model_type'])
    g = gguf.GGUFWriter(path, arch)
    g.add_block_count(c['num_hidden_layers'])
    g.add_context_length(c['max_position_embeddings'])
    g.add_embedding_length(c['hidden_size'])
    g.add_feed_forward_length(c['intermediate_size'])
    g.add_head_count(c['num_attention_heads'])
    g.add_head_count_kv(c['num_key_value_heads'])
    g.add_layer_norm_rms_eps(c['rms_norm_eps'])
    g.add_rope_freq_base(c['rope_theta'])
    if c.get('head_dim'):
        g.add_key_length(c['head_dim'])
        g.add_value_length(c['head_dim'])
    for name, x in w.items():
        for m, heads in (('q', c['num_attention_heads']), ('k', c['num_key_value_heads'])):
            if arch == 'llama' and name.endswith(f'self_attn.{m}_proj.weight'):
                x = pairs(x, heads)
        g.add_tensor(gguf_name(name), np.ascontiguousarray(x))
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


# ---- the comparison -----------------------------------------------------------------------------

def ours(program, path, ids):
    out = subprocess.run([program, path, 'ref', *map(str, ids)], check=True, stdout=subprocess.PIPE)
    return np.frombuffer(out.stdout, np.float32).reshape(len(ids), -1)


def theirs(folder, ids):
    """transformers' logits in float32, or None where it is not installed."""
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError:
        return None
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager').eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def check(program, work, name, seed):
    extra, controls = MODELS[name]
    c = {**COMMON, **extra}
    w = make(c, seed)
    folder, path = os.path.join(work, name), os.path.join(work, name + '.gguf')
    write_hf(folder, c, w)
    ids = np.random.default_rng(seed + 1).integers(0, VOCAB, N_IDS).tolist()
    want = logits(c, w, ids)
    top = np.abs(want).max()
    found = {'folder': ours(program, folder, ids)}
    # GGUF has no keys for the windows of these architectures: only models without one are the same there
    if gguf and all(window_of(c, i) is None for i in range(c['num_hidden_layers'])):
        write_gguf(path, c, w)
        found['gguf'] = ours(program, path, ids)
    reference = theirs(folder, ids)
    if reference is not None:
        found['transformers'] = reference
    deltas = {k: float(np.abs(v - want).max() / top) for k, v in found.items()}
    off = float(np.abs(logits(c, w, ids, **controls) - want).max() / top) if controls else None
    bad = [k for k, v in deltas.items() if not v <= MAX_DELTA]
    if off is not None and not off >= MIN_CONTROL:
        bad.append('control')
    print(f"{name}: largest difference from the reference, as a share of the largest logit {top:.2f}: "
          + ', '.join(f'{k} {v:.1e}' for k, v in deltas.items())
          + (f'; without {", ".join(controls)}: {off:.1e}' if controls else '')
          + (f'  WRONG: {", ".join(bad)}' if bad else ''), flush=True)
    return len(bad)


def main():
    program, work = sys.argv[1:3]
    bad = sum(check(program, work, name, 7 + i) for i, name in enumerate(MODELS))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
