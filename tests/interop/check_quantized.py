"""Folders that narrow wrote, in transformers with compressed-tensors: logits against narrow's reference
tier, and weights after their decompression against narrow's own decoding.

Logits (--logits), in float32: the largest KL divergence over a text of 64 tokens, held to 1e-4 nats.
With rounded activations (W8A8, FP8) a difference in the last bit of a sum turns one rounding somewhere, and
every layer behind it carries that on: transformers differs by as much from itself with another attention,
which is printed beside it. There each layer is held alone, on the input that transformers gave it: what it
adds may differ by 1e-2 of its norm in the median layer (its four roundings follow one another), with compressed-tensors' rule for activations
(INT8: absmax / 127.5); under another rule it must differ by five times that; and the first token of
the whole model, which has met few roundings, is held to 1e-4 nats.
Weights (--weights): every value of every quantized matrix as compressed-tensors decompresses it equals
narrow's, rounded to the type it computes in. Control of both: a twin of the folder with its codes in another
order must fail.

usage: check_quantized.py WRITE_LOGITS WRITE_LAYERS WRITE_F32 SCRATCH [--tier T] [--logits DIR]... [--weights DIR]...
SPDX-License-Identifier: Apache-2.0"""
import argparse
import os
import subprocess
import sys

os.environ["TQDM_DISABLE"] = "1"

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from mispack import TEXT, activations, twin

N_TOKENS, MAX_KL, MIN_KL, MAX_LAYER, APART = 64, 1e-4, 1e-2, 1e-2, 5


def load(folder, dtype, attention="eager"):
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.set_num_threads(1)  # more wait spinning, which a machine with other work pays for
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()


def their_logits(folder, ids, attention="eager"):
    """Logits, and the input of each layer with the output of the last but one behind it."""
    model = load(folder, torch.float32, attention)
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_hidden_states=True)
    return out.logits[0].double().numpy(), [h[0].numpy() for h in out.hidden_states]


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


def layer_error(args, folder, tier, ids, hidden):
    """What a layer adds, ours against theirs, as a share of its norm: the median layer. The last layer's
    output stands behind the final norm there and is left out."""
    x = np.stack(hidden[:-1])
    ours = run(args.write_layers, folder, tier, *ids, stdin=x.tobytes()).reshape(x.shape)[:-1]
    added = x[1:] - x[:-1]
    return float(np.median([np.linalg.norm(o - t) / np.linalg.norm(a) for o, t, a in zip(ours, x[1:], added)]))


def check_rounded(args, folder, ids, theirs, hidden):
    rule, other = ("a8-ct", "a8") if activations(folder)["type"] == "int" else ("fp8", "a16")
    d = kl(theirs, our_logits(args, folder, "ref/" + rule, ids))
    itself = kl(theirs, their_logits(folder, ids, "sdpa")[0])
    alone, wrong = (layer_error(args, folder, "ref/" + r, ids, hidden) for r in (rule, other))
    bad = not (d[0] < MAX_KL and alone < MAX_LAYER and wrong > APART * alone)
    print(f"{folder}: layers alone differ by {alone:.2e} of what they add (limit {MAX_LAYER:g}), under {other} by "
          f"{wrong:.2e}; first token KL {d[0]:.2e} (limit {MAX_KL:g}), whole text {d.max():.2e}, transformers to itself "
          f"with another attention {itself.max():.2e}", flush=True)
    return bad


def check_logits(args, folder):
    ids = AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"][:N_TOKENS]
    assert len(ids) == N_TOKENS, len(ids)
    theirs, hidden = their_logits(folder, ids)
    plain = our_logits(args, folder, "ref", ids)
    if activations(folder) is None:
        d = kl(theirs, plain).max()
        bad = not d < MAX_KL
        print(f"{folder}: KL to transformers {d:.2e} (limit {MAX_KL:g})", flush=True)
    else:
        bad = check_rounded(args, folder, ids, theirs, hidden)
    broken = kl(their_logits(twin(folder, args.scratch), ids)[0], plain).max()
    fast = kl(theirs, our_logits(args, folder, args.tier, ids)).max()
    bad = bad or not broken > MIN_KL
    print(f"    {args.tier} tier {fast:.2e}; mis-packed twin {broken:.2e}{'  FAILED' if bad else ''}", flush=True)
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
    for name in ("write_logits", "write_layers", "write_f32", "scratch"):
        p.add_argument(name)
    p.add_argument("--tier", default="ref")
    p.add_argument("--logits", action="append", default=[])
    p.add_argument("--weights", action="append", default=[])
    args = p.parse_args()
    os.makedirs(args.scratch, exist_ok=True)
    bad = sum(check_logits(args, folder) for folder in args.logits)
    bad += sum(check_weights(args, folder) for folder in args.weights)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
