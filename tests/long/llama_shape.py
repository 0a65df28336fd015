"""Writes a Hugging Face folder of a Llama shape: BF16 shards of seeded gaussian weights, no tokenizer.

usage: llama_shape.py LAYERS DIR      32 layers are a 7B model, 13.5 GB

Values come from one table of 2^20 gaussians (sigma 0.02), each row from another place in it, so that
writing is bound by the disk. Standard library only.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import random
import struct
import sys

HIDDEN, FFN, VOCAB, HEADS = 4096, 11008, 32000, 32
SHARD_BYTES = 5 * 10**9


def tensors(n_layers):
    """(name, shape) in the order in which transformers writes them."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(n_layers):
        base = f"model.layers.{i}."
        for name in "q_proj", "k_proj", "v_proj", "o_proj":
            yield f"{base}self_attn.{name}.weight", (HIDDEN, HIDDEN)
        yield base + "mlp.gate_proj.weight", (FFN, HIDDEN)
        yield base + "mlp.up_proj.weight", (FFN, HIDDEN)
        yield base + "mlp.down_proj.weight", (HIDDEN, FFN)
        yield base + "input_layernorm.weight", (HIDDEN,)
        yield base + "post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def n_bytes(shape):
    n = 2
    for d in shape:
        n *= d
    return n


def shards(n_layers):
    """Lists of tensors, none of more than SHARD_BYTES."""
    lists, size = [[]], 0
    for t in tensors(n_layers):
        if lists[-1] and size + n_bytes(t[1]) > SHARD_BYTES:
            lists.append([])
            size = 0
        lists[-1].append(t)
        size += n_bytes(t[1])
    return lists


def gaussian_table(rng):
    values = (rng.gauss(0, 0.02) for _ in range(1 << 20))
    table = b"".join(struct.pack("<f", v)[2:] for v in values)
    return memoryview(table + table)


def write_shard(path, items, table, rng):
    header, at = {}, 0
    for name, shape in items:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n_bytes(shape)]}
        at += n_bytes(shape)
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with open(path, "wb", buffering=1 << 22) as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in items:
            if len(shape) == 1:
                f.write(b"\x80\x3f" * shape[0])  # norms of 1
                continue
            left = n_bytes(shape)
            while left > 0:
                n = min(left, 2 * HIDDEN)
                start = 2 * rng.randrange(1 << 20)
                f.write(table[start:start + n])
                left -= n
        f.flush()
        os.fsync(f.fileno())


def main():
    n_layers, folder = int(sys.argv[1]), sys.argv[2]
    rng = random.Random(1)
    table = gaussian_table(rng)
    os.makedirs(folder)
    lists = shards(n_layers)
    weight_map = {}
    for i, items in enumerate(lists):
        name = f"model-{i + 1:05}-of-{len(lists):05}.safetensors"
        write_shard(os.path.join(folder, name), items, table, rng)
        weight_map.update((t, name) for t, _ in items)
    total = sum(n_bytes(shape) for _, shape in tensors(n_layers))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
              "intermediate_size": FFN, "num_hidden_layers": n_layers,
              "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": VOCAB,
              "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
              "bos_token_id": 1, "eos_token_id": 2}
    for name, doc in ("model.safetensors.index.json", index), ("config.json", config):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(doc, f)
    print(total)


if __name__ == "__main__":
    main()
