"""Random and edge blocks of every block format that narrow decodes, against gguf-py: decoded values bit for
bit, also by way of narrow's panels, and the bytes of the plain encoders.
usage: check_blocks.py BLOCK_CODEC    exit 77: packages are absent
SPDX-License-Identifier: Apache-2.0"""
import subprocess
import sys

try:
    import numpy as np
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize, quantize
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)

ROWS, COLS = 4000, 256
DECODED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "NVFP4", "BF16")
ENCODED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", "BF16")
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2),
          "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,)}


def run(codec, what, name, data, dtype):
    out = subprocess.run([codec, what, name], input=data.tobytes(), stdout=subprocess.PIPE, check=True).stdout
    return np.frombuffer(out, dtype)


def blocks(name, rng):
    """Random bytes, every byte value in some rows, finite scales."""
    elems, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    b = rng.integers(0, 256, (ROWS, COLS // elems, size), dtype=np.uint8)
    for i in range(256):
        b[i] = i
    for at in HALVES.get(name, ()):
        high = b[:, :, at + 1]
        high[(high & 0x7C) == 0x7C] ^= 0x40
    if name == "BF16":
        b[:, :, 1] &= 0xBF
    return b.reshape(ROWS, -1)


def same(got, want, what):
    want = np.ascontiguousarray(want, np.float32).reshape(-1)
    equal = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    assert equal.all(), (what, got[~equal][:4], want[~equal][:4])


def decoders(codec, rng):
    for name in DECODED:
        raw = blocks(name, rng)
        with np.errstate(all="ignore"):
            want = dequantize(raw, GGMLQuantizationType[name])
        same(run(codec, "decode", name, raw, np.float32), want, name)
        # what a panel cannot hold: MXFP4's values that overflow, NVFP4's scale of 480
        keep = np.ones(ROWS, bool)
        if name == "MXFP4":
            keep = (raw.reshape(ROWS, -1, 17)[:, :, 0] <= 252).all(axis=1)
        if name == "NVFP4":
            keep = (raw.reshape(ROWS, -1, 36)[:, :, :4] != 255).all(axis=(1, 2))
        assert keep.sum() > ROWS / 2
        same(run(codec, "panel", name, raw[keep], np.float32), want[keep], name + " panel")
        print(f"{name}: {want.size} values equal, {int(keep.sum()) * COLS} of them through panels")


def encoders(codec, rng):
    x = rng.normal(0, 1, (ROWS, COLS)).astype(np.float32)
    x *= np.exp2(rng.integers(-12, 12, (ROWS, 1))).astype(np.float32)
    x[:64] = 0
    x[64:128] = 1
    x[128:1000] = (x[128:1000].view(np.uint32) & 0xFFFF0000).view(np.float32)
    x[1000:1500] = rng.integers(-24, 25, (500, COLS)) / 16
    for name in ENCODED:
        want = quantize(x, GGMLQuantizationType[name]).reshape(-1).view(np.uint8)
        got = run(codec, "encode", name, x, np.uint8)
        assert got.size == want.size and (got == want).all(), (name, int((got != want).sum()))
        print(f"{name}: {want.size} bytes equal")


def main():
    rng = np.random.default_rng(1)
    decoders(sys.argv[1], rng)
    encoders(sys.argv[1], rng)


main()
