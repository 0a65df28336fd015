"""Folders that narrow wrote, served by vLLM's CPU build: log-probabilities of a text against narrow's reference
tier.

For each folder the largest and the mean difference, in nats, over the tokens that vLLM lists at each position
(its 20 best and the text's own). Bounds:
  the BF16 baseline in float32   the largest below 1e-3
  4-bit weights in float16       the largest below 0.15 (in bfloat16 vLLM is 0.28 from the reference with
                                 weights that are not quantized at all)
  W8A8, FP8 in float32           the largest below 1e-3 where the two share the decisions of rounding: each
                                 matrix is given the input that narrow rounded, whose codes and scale vLLM finds
                                 again (check_quantized.py says why). Without that the first token, which few
                                 roundings have moved, below 0.01, and the mean at most 1.5 times what rounding
                                 activations costs in narrow itself, with against without (two independent
                                 errors: √2)
Controls: a twin of each quantized folder with its codes in another order must be out of its bound. A folder that
vLLM has no kernel for on this processor is skipped, with the reason.

usage: check_vllm.py WRITE_LOGITS WRITE_INPUTS SCRATCH BASELINE DTYPE:DIR...      (DTYPE float16 or float32)
SPDX-License-Identifier: Apache-2.0"""
import json
import os
import subprocess
import sys

import numpy as np

from mispack import TEXT, activations, twin
from vllm_kernels import ENVIRONMENT, lacks, without_amx

N_TOKENS, N_BEST = 64, 20
MAX_EXACT, MAX_WIDE, MAX_SHARE, MAX_FIRST = 1e-3, 0.15, 1.5, 0.01


def share_rounding(model, path):
    """Has each quantized matrix read what narrow rounded: rows of a file, layer after layer (write_inputs)."""
    import torch
    raw, c, at = np.fromfile(path, np.float32), model.config, 0
    modules = dict(model.named_modules())
    for layer in range(c.num_hidden_layers):
        for name, width in (("self_attn.qkv_proj", c.hidden_size), ("self_attn.o_proj", c.num_attention_heads * c.head_dim),
                            ("mlp.gate_up_proj", c.hidden_size), ("mlp.down_proj", c.intermediate_size)):
            mine = torch.from_numpy(raw[at:at + N_TOKENS * width].reshape(N_TOKENS, width).copy())
            at += N_TOKENS * width
            modules[f"model.layers.{layer}.{name}"].register_forward_pre_hook(
                lambda m, a, mine=mine: (mine.to(a[0].dtype), *a[1:]) if len(a[0]) == N_TOKENS else None)
    assert at == raw.size, "layers of the model and of the file"


def serve(folder, dtype, out, rounded):
    """Runs in a process of its own: {"ids": [...], "rows": [{id: logprob}, ...], "shared": as rows, or null} of the text.
    rounded: "", or what sharing the decisions of rounding takes."""
    os.environ.update(ENVIRONMENT, VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR",
                      VLLM_ALLOW_INSECURE_SERIALIZATION="1")
    without_amx()
    from vllm import LLM, SamplingParams
    llm = LLM(model=folder, dtype=dtype, enforce_eager=True, max_model_len=256, max_num_seqs=1,
              enable_prefix_caching=False)
    ids = llm.get_tokenizer()(TEXT)["input_ids"][:N_TOKENS]

    def rows():
        o = llm.generate([{"prompt_token_ids": ids}],
                         SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=N_BEST))[0]
        return [{str(t): lp.logprob for t, lp in d.items()} for d in o.prompt_logprobs[1:]]
    answer = {"ids": ids, "rows": rows(), "shared": None}
    if rounded:
        with open(out + ".inputs", "wb") as f:
            subprocess.run([rounded, folder, "ref", *map(str, ids)], check=True, stdout=f, stderr=subprocess.DEVNULL)
        llm.apply_model(lambda model: share_rounding(model, out + ".inputs"))
        answer["shared"] = rows()
    with open(out, "w", encoding="utf-8") as f:
        json.dump(answer, f)


def their_rows(folder, dtype, scratch, rounded=""):
    out = scratch + "/vllm.json"
    p = subprocess.run([sys.executable, __file__, "--serve", folder, dtype, out, rounded], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, check=False)
    if p.returncode != 0:
        print(p.stdout[-2000:])
        raise SystemExit(f"{folder}: vLLM does not load it")
    with open(out, encoding="utf-8") as f:
        d = json.load(f)
    return d["ids"], d["rows"], d["shared"]


def our_logprobs(program, folder, ids, tier="ref"):
    out = subprocess.run([program, folder, tier, *map(str, ids)], check=True, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL)
    z = np.frombuffer(out.stdout, np.float32).reshape(len(ids), -1).astype(np.float64)
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def distances(ours, rows):
    """|difference| of each listed token, by position."""
    return [np.array([abs(ours[i, int(t)] - lp) for t, lp in row.items()]) for i, row in enumerate(rows)]


def within(d, noise):
    """noise: what rounded activations cost; None where they are not rounded."""
    if noise is None:
        return np.concatenate(d).max() < MAX_WIDE
    return d[0].max() < MAX_FIRST and np.concatenate(d).mean() <= MAX_SHARE * noise


def measure(program, folder, dtype, scratch, rounded=""):
    ids, rows, shared = their_rows(folder, dtype, scratch, rounded)
    ours = our_logprobs(program, folder, ids)
    d = distances(ours, rows)
    all_of = np.concatenate(d)
    print(f"{folder} in {dtype}: largest difference {all_of.max():.3g}, mean {all_of.mean():.3g}, first token "
          f"{d[0].max():.2g}", flush=True)
    return ids, rows, ours, d, np.concatenate(distances(ours, shared)).max() if shared else None


def check(program, inputs, folder, dtype, scratch):
    is_rounded = activations(folder) is not None
    ids, rows, ours, d, shared = measure(program, folder, dtype, scratch, inputs if is_rounded else "")
    noise = None
    if is_rounded:
        print(f"    largest with shared rounding {shared:.3g} (limit {MAX_EXACT:g})", flush=True)
        wide = our_logprobs(program, folder, ids, "ref/a16")
        noise = np.concatenate(distances(wide, [{t: ours[i, int(t)] for t in row} for i, row in enumerate(rows)])).mean()
    _, rows, _ = their_rows(twin(folder, scratch), dtype, scratch)
    e = distances(ours, rows)
    bad = not within(d, noise) or within(e, noise) or (is_rounded and not shared < MAX_EXACT)
    bound = f"{MAX_WIDE} for the largest" if noise is None else f"{MAX_SHARE * noise:.3g} for the mean"
    print(f"    bound {bound}; mis-packed twin {np.concatenate(e).mean():.3g} in the mean{'  FAILED' if bad else ''}",
          flush=True)
    return bad


def main():
    if sys.argv[1] == "--serve":
        serve(*sys.argv[2:6])
        return 0
    program, inputs, scratch, baseline = sys.argv[1:5]
    os.makedirs(scratch, exist_ok=True)
    *_, exact, _ = measure(program, baseline, "float32", scratch)
    bad = int(np.concatenate(exact).max() >= MAX_EXACT)
    for a in sys.argv[5:]:
        dtype, folder = a.split(":", 1)
        why = lacks(folder)
        if why:
            print(f"{folder}: skipped: {why}", flush=True)
            continue
        bad += check(program, inputs, folder, dtype, scratch)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
