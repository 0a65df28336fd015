"""Folders that narrow wrote, in transformers with compressed-tensors: logits against narrow's reference
tier, and weights after their decompression against narrow's own decoding.

Logits, in float32: the largest KL divergence over a text of 64 tokens, held to 1e-4 nats; W8A8 with
compressed-tensors' scale of activations (absmax / 127.5). The fast tier is reported beside it. Weights
(--weights): every value of every quantized matrix equal, or within one rounding of the type that the
other side computes in. Controls: a twin of the folder with its codes in another order must fail the same
check, and so must W8A8 under the other rule for activations when it differs.

usage: check_quantized.py WRITE_LOGITS WRITE_F32 SCRATCH [--logits DIR]... [--weights DIR]...
SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

N_TOKENS, MAX_KL, MIN_KL = 64, 1e-4, 1e-2
TEXT = ("The lighthouse keeper wrote down the weather every evening for thirty-one years. When his notebooks "
        "were read again in 1987, they turned out to be the longest unbroken record of the coast: wind, rain "
        "and pressure at 6 p.m., with only 4 days missing, all of them in the winter of the great storm.")


def scheme(folder):
    """The first group of quantization_config."""
    with open(folder + "/config.json", encoding="utf-8") as f:
        groups = json.load(f)["quantization_config"]["config_groups"]
    return next(iter(groups.values()))


def turned(name, dtype, data, cols):
    """Codes in another order: nibbles of a byte, or columns of a row, swapped."""
    if name.endswith(("weight_packed", "qweight")):
        return (data << 4 | data >> 4).astype(np.uint8)
    if name.endswith(".weight") and dtype in ("I8", "F8_E4M3"):
        return data.reshape(-1, cols)[:, ::-1].reshape(-1)
    return data


def twin(folder, scratch):
    """A copy whose quantized matrices are mis-packed."""
    out = scratch + "/twin"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out)
    path = out + "/model.safetensors"
    with open(path, "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        for name, t in header.items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                f.seek(8 + n + begin)
                data = np.frombuffer(f.read(end - begin), np.uint8)
                f.seek(8 + n + begin)
                f.write(turned(name, t["dtype"], data, t["shape"][-1] if t["shape"] else 1).tobytes())
    return out


def load(folder, dtype):
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def their_logits(folder, ids):
    model = load(folder, torch.float32)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double().numpy()


def our_logits(args, folder, tier, ids):
    out = subprocess.run([args.write_logits, folder, tier, *map(str, ids)], check=True, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL)
    return np.frombuffer(out.stdout, np.float32).reshape(len(ids), -1).astype(np.float64)


def max_kl(p, q):
    """Nats, the largest over positions, of log-softmaxed rows."""
    p = p - p.max(1, keepdims=True)
    q = q - q.max(1, keepdims=True)
    p -= np.log(np.exp(p).sum(1, keepdims=True))
    q -= np.log(np.exp(q).sum(1, keepdims=True))
    return float((np.exp(p) * (p - q)).sum(1).max())


def rules(folder):
    """narrow's name for the rule of compressed-tensors, and one that differs from it (None: there is none)."""
    acts = scheme(folder)["input_activations"]
    if acts is None:
        return "a16", None
    return ("a8-ct", "a8") if acts["type"] == "int" else ("fp8", "a16")


def check_logits(args, folder, ids):
    rule, other = rules(folder)
    theirs = their_logits(folder, ids)
    kl = max_kl(theirs, our_logits(args, folder, "ref/" + rule, ids))
    broken = max_kl(their_logits(twin(folder, args.scratch), ids), our_logits(args, folder, "ref/" + rule, ids))
    line = f"{folder}: KL to transformers {kl:.2e} (limit {MAX_KL:g}); mis-packed twin {broken:.2e}"
    bad = not kl < MAX_KL or not broken > MIN_KL
    if other is not None:
        wrong = max_kl(theirs, our_logits(args, folder, "ref/" + other, ids))
        line += f"; activations as {other} {wrong:.2e}"
        bad = bad or not wrong > 2 * kl
    fast = max_kl(theirs, our_logits(args, folder, args.tier + "/" + rule, ids))
    print(f"{line}; {args.tier} {fast:.2e}{'  FAILED' if bad else ''}", flush=True)
    return bad


def our_weights(args, folder):
    path = args.scratch + "/values.safetensors"
    subprocess.run([args.write_f32, folder, path], check=True, stderr=subprocess.DEVNULL)
    values = load_file(path)
    os.unlink(path)
    return values


def their_weights(folder):
    """Decompressed by compressed-tensors, in the type it computes in (bfloat16 for the four-bit floats)."""
    from compressed_tensors.compressors import ModelCompressor
    model = load(folder, torch.bfloat16)
    ModelCompressor.from_pretrained_model(model).decompress_model(model)
    return {n: p.detach() for n, p in model.named_parameters() if n.endswith("_proj.weight")}


def n_unequal(ours, theirs):
    """Values that differ after ours are rounded to bfloat16, and the values in all."""
    bad = total = 0
    for name, w in theirs.items():
        mine = torch.from_numpy(ours[name].copy()).to(torch.bfloat16)
        bad += int((mine.float() != w.float()).sum())
        total += w.numel()
    return bad, total


def check_weights(args, folder):
    bad, total = n_unequal(our_weights(args, folder), their_weights(folder))
    broken, _ = n_unequal(our_weights(args, folder), their_weights(twin(folder, args.scratch)))
    failed = bad > 0 or broken < total // 4 or total == 0
    print(f"{folder}: {bad} of {total} decompressed weights differ; mis-packed twin {broken}"
          f"{'  FAILED' if failed else ''}", flush=True)
    return failed


def main():
    p = argparse.ArgumentParser()
    p.add_argument("write_logits")
    p.add_argument("write_f32")
    p.add_argument("scratch")
    p.add_argument("--tier", default="avx512")
    p.add_argument("--logits", action="append", default=[])
    p.add_argument("--weights", action="append", default=[])
    args = p.parse_args()
    os.makedirs(args.scratch, exist_ok=True)
    bad = 0
    for folder in args.logits:
        ids = AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"][:N_TOKENS]
        assert len(ids) == N_TOKENS, len(ids)
        bad += check_logits(args, folder, ids)
    bad += sum(check_weights(args, folder) for folder in args.weights)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
