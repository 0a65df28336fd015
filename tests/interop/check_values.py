"""Every value of real checkpoints, as narrow reads them, against gguf-py's dequantization, the safetensors
package and numpy: bit for bit, after the changes of convention (row order of q and k, gemma's norms) are
made here with numpy. narrow's values come through its safetensors writer, so the package reads that too.
usage: check_values.py WRITE_F32 SHARED [MODEL.gguf...]    exit 77: packages or files are absent
SPDX-License-Identifier: Apache-2.0"""
import os
import struct
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
    from gguf.quants import dequantize
    from safetensors.numpy import load_file
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)

HF = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
      "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
      "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
      "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
      "ffn_down": "mlp.down_proj", "post_attention_norm": "post_attention_layernorm",
      "post_ffw_norm": "post_feedforward_layernorm"}


def to_half_split(w, n_heads):
    """Rows of interleaved RoPE pairs to Hugging Face's two halves."""
    d = w.shape[0] // n_heads
    return w.reshape(n_heads, d // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def rotated(name, w, n_heads, n_kv_heads):
    if "q_proj" in name:
        return to_half_split(w, n_heads)
    return to_half_split(w, n_kv_heads) if "k_proj" in name else w


def from_gguf(path):
    r = gguf.GGUFReader(path)
    arch = bytes(r.fields["general.architecture"].parts[-1]).decode()
    heads = [int(r.fields[f"{arch}.attention.{k}"].parts[-1][0]) for k in ("head_count", "head_count_kv")]
    out = {}
    for t in r.tensors:
        parts = t.name[:-len(".weight")].split(".")
        key = parts[-1]
        name = HF.get(key, "post_attention_layernorm" if arch == "llama" else "pre_feedforward_layernorm")
        name = (f"model.layers.{parts[1]}." if parts[0] == "blk" else "") + name + ".weight"
        w = dequantize(t.data, t.tensor_type).astype(np.float32)
        if arch == "llama":
            w = rotated(name, w, *heads)
        out[name] = w - np.float32(1) if arch == "gemma3" and "norm" in name else w
    return out


def from_llama2c(path):
    b = open(path, "rb").read()
    d, ff, layers, heads, kv, vocab, ctx = struct.unpack("<7i", b[:28])
    hd, at, out = d // heads, 28, {}

    def take(*shape):
        nonlocal at
        n = int(np.prod(shape))
        at += 4 * n
        return np.frombuffer(b, np.float32, n, at - 4 * n).reshape(shape)
    out["model.embed_tokens.weight"] = take(abs(vocab), d)
    for name, shape in (("input_layernorm", (d,)), ("self_attn.q_proj", (d, d)), ("self_attn.k_proj", (kv * hd, d)),
                        ("self_attn.v_proj", (kv * hd, d)), ("self_attn.o_proj", (d, d)),
                        ("post_attention_layernorm", (d,)), ("mlp.gate_proj", (ff, d)),
                        ("mlp.down_proj", (d, ff)), ("mlp.up_proj", (ff, d))):
        for i in range(layers):
            out[f"model.layers.{i}.{name}.weight"] = rotated(name, take(*shape), heads, kv)
    out["model.norm.weight"] = take(d)
    at += 4 * ctx * hd
    if vocab < 0:
        out["lm_head.weight"] = take(-vocab, d)
    assert at == len(b), "size of the llama2.c file"
    return out


def reference(path):
    if os.path.isdir(path):
        return load_file(os.path.join(path, "model.safetensors"))
    return from_gguf(path) if path.endswith(".gguf") else from_llama2c(path)


def check(program, path):
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "out.safetensors")
        subprocess.run([program, path, out], check=True)
        got, want = load_file(out), reference(path)
    assert set(got) == set(want), sorted(set(got) ^ set(want))[:5]
    worst = 0.0
    for name, w in want.items():
        assert got[name].shape == w.shape, (name, got[name].shape, w.shape)
        worst = max(worst, float(np.abs(got[name] - w).max()))
        assert np.array_equal(got[name], w), name
    print(f"{os.path.basename(path.rstrip('/'))}: {len(want)} tensors, {sum(w.size for w in want.values())} values, "
          f"max abs difference {worst}")


def main():
    program, shared, *models = sys.argv[1:]
    rel = ("tiny1m", "stories260K/stories260K.bin", "babyllama-tok105/model5000.bin")
    paths = [p for p in [os.path.join(shared, "data/models", r) for r in rel] + models if os.path.exists(p)]
    if not paths:
        print("skipped: no shared models in", shared)
        sys.exit(77)
    for p in paths:
        check(program, p)


main()
