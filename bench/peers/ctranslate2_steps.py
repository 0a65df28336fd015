"""CTranslate2's part in bench/peers: a Llama of INT8 random weights, a scale a row, INT8 activations, made in the shape
asked for when it is first wanted. Answers on stdin like bench/steps.c:
    decode N 1    N steps after a prompt of one token (N + 1 steps less one)     seconds
    prefill N     a prompt of N tokens and one step                             seconds
usage: ctranslate2_steps.py SHAPE FOLDER threads
SPDX-License-Identifier: Apache-2.0"""
import os
import sys
import time

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

from make_shape import SHAPES


def make(shape, folder):
    d, ff, layers, heads, kv, d_head, vocab = SHAPES[shape]
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        layers, heads, activation=common_spec.Activation.SWISH, pre_norm=True, ffn_glu=True, rms_norm=True,
        rotary_dim=0, rotary_interleave=False, rotary_base=500000.0, num_heads_kv=kv, head_dim=d_head)
    pool = np.random.default_rng(1).normal(0, 0.02, 5000011).astype(np.float32)

    def random(rows, cols):
        return np.resize(pool, (rows, cols))

    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight, decoder.projection.weight = random(vocab, d), random(vocab, d)
    decoder.layer_norm.gamma = np.ones(d, np.float32)
    for layer in decoder.layer:
        layer.self_attention.layer_norm.gamma = layer.ffn.layer_norm.gamma = np.ones(d, np.float32)
        layer.self_attention.linear[0].weight = random((heads + 2 * kv) * d_head, d)
        layer.self_attention.linear[1].weight = random(d, heads * d_head)
        layer.ffn.linear_0.weight, layer.ffn.linear_0_noact.weight = random(ff, d), random(ff, d)
        layer.ffn.linear_1.weight = random(d, ff)
    spec.register_vocabulary(["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(vocab - 3)])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    spec.optimize(quantization="int8")
    os.makedirs(folder, exist_ok=True)
    spec.save(folder)


def seconds(generator, prompt, n):
    start = time.perf_counter()
    generator.generate_batch([prompt], max_length=n, min_length=n, sampling_topk=1, include_prompt_in_result=False,
                             end_token=[])
    return time.perf_counter() - start


def main():
    shape, folder, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if not os.path.exists(os.path.join(folder, "model.bin")):
        make(shape, folder)
    generator = ctranslate2.Generator(folder, compute_type="int8", inter_threads=1, intra_threads=threads)
    seconds(generator, ["w1"], 2)
    for line in sys.stdin:
        command, n = line.split()[:2]
        if command == "decode":
            print(seconds(generator, ["w1"], int(n) + 1) - seconds(generator, ["w1"], 1), flush=True)
        elif command == "prefill":
            print(seconds(generator, [f"w{i}" for i in range(int(n))], 1), flush=True)
        else:
            print("error: no such command", flush=True)


if __name__ == "__main__":
    main()
