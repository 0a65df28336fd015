"""Folders that narrow wrote, in transformers with compressed-tensors: logits against narrow's reference
tier, and weights after their decompression against narrow's own decoding.

Logits (--logits), in float32: the largest KL divergence over a text of 64 tokens, held to 1e-4 nats. Where
activations are rounded (W8A8, FP8) the two programs share the decisions of rounding: each matrix there is given the
input that narrow rounded, and the KL divergence over the whole text is held to the same 1e-4. What transformers
would have decided by itself, from an input of its own that only the last bits of sums set apart, is counted:
decisions may differ in one of a thousand values, and only at ties, that is where the value lies within 5e-2 of a step from
the middle of the two results: the smallest step of E4M3 is 2^-9 / 448 = 4.4e-6 of the largest value of its scale, and what
long sums of such values give differs by some 2e-7 of it (1.6e-2 of a step was seen, half a step is what another rule gives).
(Rule 127.5 of compressed-tensors puts the largest value of every token on such a tie,
-127.5.) Without shared decisions a turned one is carried on by every layer behind it: the
KL divergence then is printed, and that of transformers to itself with another attention.
Weights (--weights): every value of every quantized matrix as compressed-tensors decompresses it equals
narrow's, rounded to the type it computes in. Control of both: a twin of the folder with its codes in another
order must fail.

usage: check_quantized.py WRITE_LOGITS WRITE_INPUTS WRITE_F32 SCRATCH [--tier T] [--logits DIR]... [--weights DIR]...
SPDX-License-Identifier: Apache-2.0"""
import argparse
import os
import subprocess
import sys

os.environ["TQDM_DISABLE"] = "1"

import numpy as np
import torch
from compressed_tensors.quantization.lifecycle.forward import forward_quantize
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from mispack import TEXT, activations, twin

N_TOKENS, MAX_KL, MIN_KL, MAX_SHARE, MAX_TIE = 64, 1e-4, 1e-2, 1e-3, 5e-2
READS = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "o_proj": 1, "gate_proj": 2, "up_proj": 2, "down_proj": 3}


def load(folder, dtype, attention="eager"):
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.set_num_threads(1)  # more wait spinning, which a machine with other work pays for
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double().numpy()


def their_logits(folder, ids, attention="eager"):
    return logits_of(load(folder, torch.float32, attention), ids)


def run(program, *args, stdin=None):
    return np.frombuffer(subprocess.run([program, *map(str, args)], check=True, input=stdin, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL).stdout, np.float32)


def our_logits(args, folder, tier, ids):
    return run(args.write_logits, folder, tier, *ids).reshape(len(ids), -1).astype(np.float64)


def kl(p, q):
    """Nats at each position, of log-softmaxed rows."""
    p = p - p.max(1, keepdims=True)
    q = q - q.max(1, keepdims=True)
    p -= np.log(np.exp(p).sum(1, keepdims=True))
    q -= np.log(np.exp(q).sum(1, keepdims=True))
    return (np.exp(p) * (p - q)).sum(1)


def our_inputs(args, folder, tier, ids, c):
    """[layer][q, o, gate, down] as narrow rounds them, [tokens][columns]."""
    raw = run(args.write_inputs, folder, tier, *ids)
    widths = (c.hidden_size, c.num_attention_heads * c.head_dim, c.hidden_size, c.intermediate_size)
    parts = np.split(raw.reshape(c.num_hidden_layers, -1), np.cumsum([w * len(ids) for w in widths])[:-1], axis=1)
    return [[p[i].reshape(len(ids), -1) for p in parts] for i in range(c.num_hidden_layers)]


def share_rounding(m, mine, seen):
    """Has the module read `mine`, and notes of its own rounding: values, other decisions, farthest from a tie."""
    args = m.quantization_scheme.input_activations

    def forward(x):
        theirs = forward_quantize(m, x, "input", args)[0].double()
        o, x = torch.from_numpy(mine.copy()), x[0].double()
        step = (theirs - o).abs()
        other = step > 1e-5 * torch.maximum(theirs.abs(), o.abs())
        off = ((x - (theirs + o) / 2).abs() / step)[other]
        seen.append((x.numel(), int(other.sum()), float(off.max()) if off.numel() else 0.0))
        return torch.nn.functional.linear(o[None], m.weight, m.bias)
    m.forward = forward


def shared(args, folder):
    """Loads transformers' model once. A function of a tier and ids: its logits with narrow's decisions of rounding, the
    share of its own decisions that differ, and the farthest of those from a tie."""
    model = load(folder, torch.float32)
    logits_of(model, [1])  # unpacks the weights
    readers = [(m, int(name.split(".")[2]), READS[name.rsplit(".", 1)[-1]]) for name, m in model.named_modules()
               if name.rsplit(".", 1)[-1] in READS]

    def logits(tier, ids):
        mine, seen = our_inputs(args, folder, tier, ids, model.config), []
        for m, layer, part in readers:
            share_rounding(m, mine[layer][part], seen)
        out = logits_of(model, ids)
        n, other, tie = (f(column) for f, column in zip((sum, sum, max), zip(*seen)))
        return out, other / n, tie
    return logits


def check_rounded(args, folder, ids, theirs):
    asked = activations(folder)
    rule, wrong = ("a8-ct", "a8") if asked["type"] == "int" else ("fp8", "fp8-g128")
    wrong = wrong if asked["dynamic"] else "a16"  # both INT8 rules round by the file's scale
    ours = our_logits(args, folder, "ref/" + rule, ids)
    by = shared(args, folder)
    out, other, tie = by("ref/" + rule, ids)
    d, free = kl(out, ours), kl(theirs, ours)
    itself = kl(theirs, their_logits(folder, ids, "sdpa"))
    _, other_wrong, tie_wrong = by("ref/" + wrong, ids)
    bad = not (d.max() < MAX_KL and other < MAX_SHARE and tie < MAX_TIE and other_wrong > MAX_SHARE
               and tie_wrong > MAX_TIE)
    print(f"{folder}: KL with shared rounding {d.max():.2e} (limit {MAX_KL:g}); {other:.1e} of its own decisions differ, "
          f"at most {tie:.1e} of a step from a tie (limits {MAX_SHARE:g}, {MAX_TIE:g}); under {wrong} {other_wrong:.1e}, "
          f"{tie_wrong:.1e}", flush=True)
    print(f"    decisions not shared: KL largest {free.max():.2e}, mean {free.mean():.2e}, first token {free[0]:.2e}; "
          f"transformers to itself with another attention: largest {itself.max():.2e}, mean {itself.mean():.2e}",
          flush=True)
    return bad


def check_logits(args, folder):
    ids = AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"][:N_TOKENS]
    assert len(ids) == N_TOKENS, len(ids)
    theirs = their_logits(folder, ids)
    plain = our_logits(args, folder, "ref", ids)
    if activations(folder) is None:
        d = kl(theirs, plain).max()
        bad = not d < MAX_KL
        print(f"{folder}: KL to transformers {d:.2e} (limit {MAX_KL:g})", flush=True)
    else:
        bad = check_rounded(args, folder, ids, theirs)
    broken = kl(their_logits(twin(folder, args.scratch), ids), plain).max()
    fast = kl(theirs, our_logits(args, folder, args.tier, ids)).max()
    bad = bad or not broken > MIN_KL
    print(f"    {args.tier} tier, decisions its own: {fast:.2e}; mis-packed twin {broken:.2e}{'  FAILED' if bad else ''}",
          flush=True)
    return bad


def our_weights(args, folder):
    path = args.scratch + "/values.safetensors"
    subprocess.run([args.write_f32, folder, path], check=True, stderr=subprocess.DEVNULL)
    values = load_file(path)
    os.unlink(path)
    return values


def n_unequal(ours, folder, dtype):
    """Values that differ once ours have the type theirs are computed in, and the values in all. transformers
    decompresses the folder as it loads it."""
    model = load(folder, dtype)
    with torch.no_grad():
        model(torch.tensor([[1]]))
    bad = total = 0
    for name, p in model.named_parameters():
        if name.endswith("_proj.weight"):
            mine = torch.from_numpy(ours[name].copy()).to(p.dtype)
            bad += int((mine != p.detach()).sum())
            total += p.numel()
    return bad, total


def check_weights(args, folder):
    ours = our_weights(args, folder)
    bad, total = n_unequal(ours, folder, torch.bfloat16)
    broken, _ = n_unequal(ours, twin(folder, args.scratch), torch.bfloat16)
    failed = bad > 0 or broken < total // 4 or total == 0
    print(f"{folder}: {bad} of {total} decompressed weights differ; mis-packed twin {broken}"
          f"{'  FAILED' if failed else ''}", flush=True)
    return failed


def main():
    p = argparse.ArgumentParser()
    for name in ("write_logits", "write_inputs", "write_f32", "scratch"):
        p.add_argument(name)
    p.add_argument("--tier", default="best")
    p.add_argument("--logits", action="append", default=[])
    p.add_argument("--weights", action="append", default=[])
    args = p.parse_args()
    os.makedirs(args.scratch, exist_ok=True)
    bad = sum(check_logits(args, folder) for folder in args.logits)
    bad += sum(check_weights(args, folder) for folder in args.weights)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
