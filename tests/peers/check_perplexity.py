"""Perplexity of the very same GGUF files in narrow and in llama-perplexity, and in llama-perplexity on the
same weights as F32; and of the small shared models, against the figures in their NOTICE.md, with KL(model,
itself) = 0 at every token.

narrow must be within 0.1 % of llama-perplexity on the file or on the same weights as F32: on quantized
weights llama.cpp quantizes the activations too, which narrow does not, and so differs from itself.

usage: check_perplexity.py NARROW SHARED [--llama BIN --work DIR --models GGUF...]
SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import re
import subprocess
import sys

N_CTX, CHUNKS, LIMIT, TRIES = 512, 40, 1e-3, 8
SMALL = [("tiny1m", 256, 7529, 2.902), ("stories260K/stories260K.bin", 512, 9686, 3.720)]


def narrow(program, model, text, n_ctx, chunks, *options):
    out = subprocess.run([program, "eval", model, "--layer", "perplexity", "--text", text, "--context", str(n_ctx),
                          "--chunks", str(chunks), "--kv", "f32", "--json", "--quiet", *options], check=True, stdout=subprocess.PIPE)
    return json.loads(out.stdout)


def llama(bin_dir, model, text, chunks=CHUNKS):
    """Tries again where the last lines are lost, which happens to about half of short runs. One thread:
    llama.cpp's threads wait spinning, and a machine with other work pays for that many times over."""
    command = [os.path.join(bin_dir, "llama-perplexity"), "-m", model, "-f", text, "-c", str(N_CTX), "--chunks",
               str(chunks), "-t", "1"]
    for _ in range(TRIES):
        out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode()
        found = re.search(r"Final estimate: PPL = ([0-9.]+)", out)
        if found:
            return float(found[1])
    raise SystemExit(f"llama-perplexity gave no final estimate of {model} in {TRIES} runs")


def as_f32(bin_dir, model, work, stem=None):
    out = os.path.join(work, (stem or os.path.basename(model)[:-len(".gguf")]) + ".f32.gguf")
    if not os.path.exists(out):
        subprocess.run([os.path.join(bin_dir, "llama-quantize"), "--allow-requantize", model, out + ".tmp", "F32"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.replace(out + ".tmp", out)
    return out


def check_small(program, shared):
    bad, text = 0, os.path.join(shared, "data/text/tinystories_1000.json")
    for name, n_ctx, n_tokens, want in SMALL:
        model = os.path.join(shared, "data/models", name)
        row = narrow(program, model, text, n_ctx, 30, "--baseline", model)
        off = row["perplexity"] / want - 1
        itself = row["kl_mean"] == 0 and row["kl_max"] == 0 and row["top1"] == 1 and row["ln_ratio"] == 0
        fault = abs(off) > LIMIT or row["tokens_scored"] != n_tokens or not itself
        bad += fault
        print(f"{name}: {row['perplexity']:.5f} on {row['tokens_scored']} tokens, published {want} on {n_tokens}: "
              f"{100 * off:+.4f} %; max KL to itself {row['kl_max']}{'  FAULT' if fault else ''}", flush=True)
    return bad


def check_peer(args, model):
    text = os.path.join(args.shared, "data/text/wiki.test.raw")
    ours = narrow(args.narrow, model, text, N_CTX, CHUNKS)["perplexity"]
    peer = llama(args.llama, model, text)
    exact = llama(args.llama, as_f32(args.llama, model, args.work), text)
    off, off_exact, own = ours / peer - 1, ours / exact - 1, exact / peer - 1
    fault = min(abs(off), abs(off_exact)) > LIMIT
    print(f"{os.path.basename(model)}, {CHUNKS} x {N_CTX}: narrow {ours:.5f}; llama-perplexity {peer:.4f}, on the same "
          f"weights as F32 {exact:.4f}\n  narrow to llama.cpp {100 * off:+.4f} %, to llama.cpp on F32 "
          f"{100 * off_exact:+.4f} %, llama.cpp on F32 to itself {100 * own:+.4f} %"
          f"{'  FAULT' if fault else ''}", flush=True)
    return fault


def main():
    p = argparse.ArgumentParser()
    p.add_argument("narrow")
    p.add_argument("shared")
    p.add_argument("--models", nargs="*", default=[])
    p.add_argument("--llama")
    p.add_argument("--work", default=".")
    args = p.parse_args()
    bad = check_small(args.narrow, args.shared)
    bad += sum(check_peer(args, m) for m in args.models)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
