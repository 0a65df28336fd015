"""GGUF files that narrow writes, read by gguf-py: types of all keys, names, shapes, and the values that gguf-py
decodes, which must be those of narrow's own F32 file of the same model within what the type loses. A twin with the nibbles of one tensor exchanged must be noticed.

usage: check_gguf.py NARROW MODEL WORK
SPDX-License-Identifier: Apache-2.0"""
import os
import subprocess
import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType
from gguf.quants import dequantize

# recipe, type of the matrices (no column count here is a multiple of 256: K-quants fall back), lowest signal
# to noise in dB that its codes reach on these weights
ROWS = [("int4-g32", "Q4_0", 15), ("int4-g32-min", "Q4_1", 15), ("int4-g32-zp", "Q5_0", 15), ("int8-g32", "Q8_0", 38),
        ("q4_0", "Q4_0", 15), ("q4_1", "Q4_1", 17), ("q5_0", "Q5_0", 21), ("q5_1", "Q5_1", 23), ("q8_0", "Q8_0", 38),
        ("q4_k", "Q5_0", 21), ("q5_k", "Q5_1", 23), ("q6_k", "Q8_0", 38), ("mxfp4", "MXFP4", 13),
        ("bf16", "BF16", 45)]
U32, F32 = GGUFValueType.UINT32, GGUFValueType.FLOAT32
KEYS = {"llama.block_count": U32, "llama.context_length": U32, "llama.embedding_length": U32,
        "llama.feed_forward_length": U32, "llama.attention.head_count": U32, "llama.attention.head_count_kv": U32,
        "llama.attention.layer_norm_rms_epsilon": F32, "llama.rope.freq_base": F32, "general.file_type": U32,
        "general.quantization_version": U32}


def values(tensor):
    if tensor.tensor_type.name in ("F32", "F16"):
        return np.asarray(tensor.data, np.float32)
    return dequantize(tensor.data, tensor.tensor_type)


def read(path):
    reader = GGUFReader(path)
    return reader, {t.name: t for t in reader.tensors}


def sqnr(want, got):
    err = float(((want - got) ** 2).sum())
    return 99.0 if err == 0 else 10 * np.log10(float((want ** 2).sum()) / err)


def write(narrow, model, recipe, out):
    subprocess.run([narrow, "quantize", model, "-r", recipe, "-o", out, "-f", "gguf", "--no-tokenizer", "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    return os.path.join(out, "model.gguf")


def check_keys(reader):
    bad = 0
    for key, kind in KEYS.items():
        field = reader.get_field(key)
        wrong = field is None or field.types != [kind]
        bad += wrong
        if wrong:
            print(f"key {key}: {field and field.types}, wanted {kind}  FAULT")
    return bad


def check_recipe(narrow, model, work, row, exact):
    recipe, kind, least = row
    path = write(narrow, model, recipe, os.path.join(work, recipe))
    reader, tensors = read(path)
    bad = check_keys(reader)
    worst = 99.0
    for name, want in exact.items():
        got = values(tensors[name]).reshape(want.shape)
        layer = name.startswith("blk.") and want.ndim == 2
        db = sqnr(want, got)
        right = tensors[name].tensor_type.name == kind if layer else db > 45
        worst = min(worst, db) if layer else worst
        bad += not right
        if not right:
            print(f"{recipe}: {name} is {tensors[name].tensor_type.name}, {db:.1f} dB  FAULT")
    bad += worst < least
    print(f"{recipe}: {kind}, lowest {worst:.2f} dB{'  FAULT' if worst < least else ''}")
    return bad, path


def check_twin(path, exact):
    """Codes j and j + 16 of one tensor change places: its values must be far off."""
    reader, tensors = read(path)
    t = tensors["blk.0.ffn_up.weight"]
    data = bytearray(open(path, "rb").read())
    for b in range(t.data_offset, t.data_offset + t.n_bytes, 18):
        data[b + 2:b + 18] = bytes((q >> 4 | q << 4) & 255 for q in data[b + 2:b + 18])
    del reader, tensors
    with open(path, "wb") as f:
        f.write(data)
    want = exact[t.name]
    db = sqnr(want, values(read(path)[1][t.name]).reshape(want.shape))
    print(f"twin with exchanged nibbles: {db:.2f} dB{'' if db < 3 else '  FAULT: not noticed'}")
    return db >= 3


def main():
    narrow, model, work = sys.argv[1:4]
    out = os.path.join(work, "f32")
    subprocess.run([narrow, "convert", model, "-o", out, "-f", "gguf", "--dtype", "f32", "--no-tokenizer", "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    exact = {n: values(t) for n, t in read(os.path.join(out, "model.gguf"))[1].items()}
    bad, path = 0, ""
    for row in ROWS:
        faults, written = check_recipe(narrow, model, work, row, exact)
        bad += faults
        path = written if row[0] == "q4_0" else path
    bad += check_twin(path, exact)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
