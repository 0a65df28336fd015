"""GGUF files that narrow writes, in llama.cpp: every block type of two models loads in llama-perplexity, and its
perplexity is within 0.1 % of narrow's own on the same file, or of llama.cpp's on the same weights as F32 (on
quantized weights llama.cpp quantizes the activations too, and so differs from itself). The same for what
llama-quantize makes of our BF16 file. A twin of each model with
the nibbles of its blocks exchanged, and one with the rows of q and k in the other order, must be far off.

usage: check_gguf.py NARROW SHARED --llama BIN --work DIR --models GGUF... [--types q4_0,...] [--chunks N]
SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import struct
import subprocess
import sys

import check_perplexity as peer

TYPES = ["bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "mxfp4", "nvfp4"]
# absmax: the reference encoders, which are fast; what is tested is the file, not how good the codes are
RECIPE = """name: {0}
scale: absmax
targets:
  - {{match: 'model\\.layers\\.\\d+\\.(self_attn|mlp)\\.\\w+_proj', weights: {0}}}
"""
SIZES = {2: (32, 18)}  # of the type whose twin is made: elements and bytes of a block
FAR = 0.05
BY_LLAMA = ["Q4_0", "Q5_1", "Q8_0", "Q4_K_M", "Q6_K", "IQ4_NL"]


class Gguf:
    """Where the tensors of a file lie, read without any package."""

    def __init__(self, path):
        self.data = bytearray(open(path, "rb").read())
        self.at = 8
        n_tensors, n_keys = self.take("<QQ")
        for _ in range(n_keys):
            self.text()
            self.value(self.take("<I")[0])
        self.tensors = {}
        infos = []
        for _ in range(n_tensors):
            name = self.text()
            ne = self.take(f"<{self.take('<I')[0]}Q")
            infos.append((name, ne, *self.take("<IQ")))
        base = (self.at + 31) // 32 * 32
        for name, ne, kind, offset in infos:
            self.tensors[name] = (ne, kind, base + offset)

    def take(self, layout):
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def text(self):
        n, = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode(errors="replace")

    def value(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            item, n = self.take("<IQ")
            for _ in range(n):
                self.value(item)
        else:
            self.at += [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][kind]


def swap_nibbles(g):
    """Element j and j + 16 of every Q4_0 block change places."""
    turned = bytes((q >> 4 | q << 4) & 255 for q in range(256))
    for ne, kind, at in g.tensors.values():
        if kind == 2:
            elems, size = SIZES[kind]
            end = at + ne[0] * ne[1] // elems * size
            blocks = g.data[at:end]
            swapped = bytearray(blocks.translate(turned))
            for i in (0, 1):  # the scale stays
                swapped[i::size] = blocks[i::size]
            g.data[at:end] = swapped


def plain_rows(g, head):
    """Rows of q and k as Hugging Face has them: the first half of a head, then the second."""
    for name, (ne, kind, at) in g.tensors.items():
        if kind == 2 and (name.endswith("attn_q.weight") or name.endswith("attn_k.weight")):
            elems, size = SIZES[kind]
            row = ne[0] // elems * size
            rows = [bytes(g.data[at + r * row:at + (r + 1) * row]) for r in range(ne[1])]
            for r in range(ne[1]):
                h, i = r // head, r % head
                half = head // 2
                source = h * head + 2 * (i % half) + i // half
                g.data[at + r * row:at + (r + 1) * row] = rows[source]


def stem_of(args, model, kind):
    return os.path.join(args.work, "gguf-" + os.path.basename(model).split("-")[0] + "-" + kind)


def write(args, model, kind):
    stem = stem_of(args, model, kind)
    with open(stem + ".yaml", "w", encoding="ascii") as f:
        f.write(RECIPE.format(kind))
    subprocess.run([args.narrow, "quantize", model, "-r", stem + ".yaml", "-o", stem, "-f", "gguf", "-q", "--force"],
                   check=True, stdout=subprocess.DEVNULL)
    return os.path.join(stem, "model.gguf")


def ours(args, path):
    return peer.narrow(args.narrow, path, args.text, peer.N_CTX, args.chunks)["perplexity"]


def theirs(args, path):
    return peer.llama(args.llama, path, args.text, args.chunks)


def quantize(args, path, kind):
    """llama-quantize on a file of ours."""
    out = os.path.join(args.work, os.path.basename(os.path.dirname(path)) + "-by-llama-" + kind + ".gguf")
    subprocess.run([os.path.join(args.llama, "llama-quantize"), path, out, kind], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return out


def compare(args, label, path):
    """One file in both programs: whether they are apart, and narrow's perplexity."""
    want, got = ours(args, path), theirs(args, path)
    off = got / want - 1
    line, best = f"llama.cpp {100 * off:+.4f} %", abs(off)
    if best > peer.LIMIT:
        f32 = peer.as_f32(args.llama, path, args.work, "exact")
        exact = theirs(args, f32) / want - 1
        os.unlink(f32)
        line, best = line + f", on F32 {100 * exact:+.4f} %", min(best, abs(exact))
    fault = best > peer.LIMIT
    print(f"{label}: narrow {want:.5f}; {line}{'  FAULT' if fault else ''}", flush=True)
    return fault, want


def check_type(args, model, kind):
    path = write(args, model, kind)
    fault, want = compare(args, f"{os.path.basename(model).split('-')[0]} {kind}", path)
    return fault, path, want


def check_quantized(args, model, kind):
    path = quantize(args, os.path.join(stem_of(args, model, "bf16"), "model.gguf"), kind)
    fault, _ = compare(args, f"{os.path.basename(model).split('-')[0]} by llama-quantize {kind}", path)
    os.unlink(path)
    return fault


def tokenizer(args, path):
    out = subprocess.run([args.narrow, "tokenize", path, "x", "--json"], check=True, stdout=subprocess.PIPE)
    return json.loads(out.stdout)["hash"]


def check_tokenizer(args, model, path):
    """From the source to the artifact's Hugging Face files and back into keys: the same ids."""
    fault = tokenizer(args, model) != tokenizer(args, path)
    print(f"  tokenizer {'differs  FAULT' if fault else 'the same'}", flush=True)
    return fault


def check_twin(args, path, want, what, change):
    g = Gguf(path)
    change(g)
    twin = os.path.join(args.work, "twin.gguf")
    with open(twin, "wb") as f:
        f.write(g.data)
    off = theirs(args, twin) / want - 1
    os.unlink(twin)
    fault = not abs(off) > FAR  # a perplexity that is no number is far off as well
    fault = fault and off == off
    print(f"  twin, {what}: llama.cpp {100 * off:+.1f} %{'  FAULT: not noticed' if fault else ''}", flush=True)
    return fault


def main():
    p = argparse.ArgumentParser()
    p.add_argument("narrow")
    p.add_argument("shared")
    p.add_argument("--models", nargs="*", default=[])
    p.add_argument("--llama")
    p.add_argument("--work", default=".")
    p.add_argument("--types", default=",".join(TYPES))
    p.add_argument("--by-llama", default=",".join(BY_LLAMA))
    p.add_argument("--chunks", type=int, default=8)
    args = p.parse_args()
    args.text = os.path.join(args.shared, "data/text/wiki.test.raw")
    bad = 0
    for model in args.models:
        for kind in args.types.split(","):
            fault, path, want = check_type(args, model, kind)
            bad += fault
            if kind == "bf16":
                bad += sum(check_quantized(args, model, k) for k in args.by_llama.split(",") if k)
            if kind == "q4_0":
                bad += check_tokenizer(args, model, path)
                bad += check_twin(args, path, want, "nibbles exchanged", swap_nibbles)
                if "SmolLM2" in model:
                    bad += check_twin(args, path, want, "rows of q and k in the other order",
                                      lambda g: plain_rows(g, 64))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
