"""Writes a GGUF file of BF16 random weights in the shape of a Llama: for measuring speed, nothing else.
A million normal values are drawn from a fixed seed and laid end to end, so a file of 6 GB takes seconds.

usage: make_shape.py NAME OUT.gguf      NAME: see SHAPES
SPDX-License-Identifier: Apache-2.0"""
import array
import os
import random
import struct
import sys

# d_model, d_ff, layers, heads, kv heads, d_head, vocabulary
SHAPES = {
    "1b": (2048, 8192, 16, 32, 8, 64, 32000),
    "3b": (3072, 8192, 28, 24, 8, 128, 32000),
    "7b": (4096, 11008, 32, 32, 32, 128, 32000),
    "tiny": (256, 512, 2, 4, 2, 64, 2000),
}
N_CTX = 32768
U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5  # GGUF value types
TYPE_F32, TYPE_BF16 = 0, 30                   # ggml tensor types
ALIGN = 32
POOL = 1000003  # values; a prime, so that rows of a matrix differ


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, x):
    if kind == ARRAY:
        of, items = x
        return struct.pack("<IQ", of, len(items)) + b"".join(value(of, i) for i in items)
    if kind == STRING:
        return text(x)
    return struct.pack({U32: "<I", F32: "<f", I32: "<i"}[kind], x)


def vocabulary(n):
    """A SentencePiece-like vocabulary: three control tokens, the 256 bytes, and n - 259 made-up words."""
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [f"\u2581w{i}" for i in range(n - 259)]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (n - 259)
    scores = [0.0] * 259 + [-float(i) for i in range(n - 259)]
    return names, kinds, scores


def header(shape):
    d, ff, layers, heads, kv, d_head, vocab = shape
    names, kinds, scores = vocabulary(vocab)
    return [
        ("general.architecture", STRING, "llama"), ("general.name", STRING, f"random {layers} x {d}"),
        ("llama.context_length", U32, N_CTX), ("llama.embedding_length", U32, d),
        ("llama.block_count", U32, layers), ("llama.feed_forward_length", U32, ff),
        ("llama.attention.head_count", U32, heads), ("llama.attention.head_count_kv", U32, kv),
        ("llama.attention.key_length", U32, d_head), ("llama.attention.value_length", U32, d_head),
        ("llama.rope.dimension_count", U32, d_head), ("llama.rope.freq_base", F32, 500000.0),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), ("llama.vocab_size", U32, vocab),
        ("general.file_type", U32, 32), ("general.alignment", U32, ALIGN),
        ("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.tokens", ARRAY, (STRING, names)),
        ("tokenizer.ggml.scores", ARRAY, (F32, scores)), ("tokenizer.ggml.token_type", ARRAY, (I32, kinds)),
        ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
    ]


def tensors(shape):
    d, ff, layers, heads, kv, d_head, vocab = shape
    out = [("token_embd.weight", (d, vocab), TYPE_BF16)]
    for i in range(layers):
        p = f"blk.{i}."
        out += [(p + "attn_norm.weight", (d,), TYPE_F32), (p + "attn_q.weight", (d, heads * d_head), TYPE_BF16),
                (p + "attn_k.weight", (d, kv * d_head), TYPE_BF16), (p + "attn_v.weight", (d, kv * d_head), TYPE_BF16),
                (p + "attn_output.weight", (heads * d_head, d), TYPE_BF16), (p + "ffn_norm.weight", (d,), TYPE_F32),
                (p + "ffn_gate.weight", (d, ff), TYPE_BF16), (p + "ffn_up.weight", (d, ff), TYPE_BF16),
                (p + "ffn_down.weight", (ff, d), TYPE_BF16)]
    return out + [("output_norm.weight", (d,), TYPE_F32), ("output.weight", (d, vocab), TYPE_BF16)]


def n_bytes(dims, kind):
    n = 4 if kind == TYPE_F32 else 2
    for x in dims:
        n *= x
    return n


def pool():
    """Normal values of sigma 0.02 as BF16 bytes, rounded to nearest."""
    rng = random.Random(1)
    bits = array.array("I", array.array("f", (rng.gauss(0, 0.02) for _ in range(POOL))).tobytes())
    return array.array("H", ((b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits)).tobytes()


def write_repeated(f, data, at, n):
    """n bytes of the endless repetition of data from byte `at` on; returns where it stopped."""
    while n > 0:
        piece = data[at:at + n]
        f.write(piece)
        n -= len(piece)
        at = (at + len(piece)) % len(data)
    return at


def write(shape, path):
    keys, rows = header(shape), tensors(shape)
    with open(path + ".tmp", "wb") as f:
        f.write(struct.pack("<4sIQQ", b"GGUF", 3, len(rows), len(keys)))
        for key, kind, x in keys:
            f.write(text(key) + struct.pack("<I", kind) + value(kind, x))
        at = 0
        for name, dims, kind in rows:
            f.write(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at))
            at += -(-n_bytes(dims, kind) // ALIGN) * ALIGN
        f.write(b"\0" * (-f.tell() % ALIGN))
        data, where = pool(), 0
        for _, dims, kind in rows:
            n = n_bytes(dims, kind)
            if kind == TYPE_F32:
                f.write(struct.pack("<f", 1.0) * dims[0])
            else:
                where = write_repeated(f, data, where, n)
            f.write(b"\0" * (-n % ALIGN))
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        raise SystemExit(__doc__)
    write(SHAPES[sys.argv[1]], sys.argv[2])
