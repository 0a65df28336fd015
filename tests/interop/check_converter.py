"""Quantized folders that narrow wrote, read by llama.cpp's own convert_hf_to_gguf: every weight of the GGUF file equals
narrow's own decoding of the folder, in float32. A tiny random Llama: W4A16, W8A8, FP8 by rows and in blocks, NVFP4
with and without activations (kept as NVFP4 there: its factor is the divisor's reciprocal, a rounding apart).

Control: of a twin of the folder with its codes in another order more than half the weights differ.
LLAMA_CPP is the source folder of llama.cpp. usage: check_converter.py NARROW WRITE_F32 SCRATCH LLAMA_CPP
SPDX-License-Identifier: Apache-2.0"""
import json
import logging
import os
import shutil
import subprocess
import sys

os.environ["TQDM_DISABLE"] = "1"
sys.path[1:1] = [sys.argv[4], sys.argv[4] + "/gguf-py"]

import conversion.base
import convert_hf_to_gguf
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import load_file

from check_acts import SCHEMES, convert, make, tiny_f32
from mispack import twin

LAYOUTS = {"W4A16": ("int4-g32", "a16"), "W4A16 with zero points": ("int4-g32-zp", "a16"), "W8A8": ("int8", "a8"),
           "FP8": ("fp8-e4m3", "fp8"), "NVFP4A16": ("nvfp4", "a16")}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
HEADS = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}  # of check_theirs.tiny
ROUNDING = 2.0 ** -22


def byte_tokenizer(folder):
    """256 tokens, no merges: enough for the converter."""
    order = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in order]
    vocab = {chr(b): b for b in order} | {chr(256 + i): b for i, b in enumerate(rest)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}
    with open(folder + "/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                   "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model}, f)
    with open(folder + "/tokenizer_config.json", "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, f)


def interleaved(w, n_heads):
    """The row order of llama.cpp's rotary embedding."""
    return w.reshape(n_heads, 2, w.shape[0] // n_heads // 2, -1).swapaxes(1, 2).reshape(w.shape)


def converted(folder, out):
    """{hf name: values} of the converter's file, and its types."""
    byte_tokenizer(folder)
    sys.argv = ["convert", folder, "--outfile", out, "--outtype", "f32"]
    convert_hf_to_gguf.main()
    tensors, values, types = {t.name: t for t in GGUFReader(out).tensors}, {}, set()
    for layer in range(2):
        for name, short in NAMES.items():
            t = tensors[f"blk.{layer}.{short}.weight"]
            scale = tensors.get(f"blk.{layer}.{short}.scale")
            x = dequantize(t.data, t.tensor_type).astype(np.float32)
            types.add(t.tensor_type.name)
            values[f"model.layers.{layer}.{name}.weight"] = x if scale is None else x * scale.data[0]
    return values, types


def n_unequal(ours, theirs, exact):
    bad = total = 0
    for name, x in theirs.items():
        module = name.split(".", 3)[3][:-len(".weight")]
        w = interleaved(ours[name], HEADS[module]) if module in HEADS else ours[name]
        bad += int((np.abs(x - w) > (0 if exact else ROUNDING) * np.abs(w)).sum())
        total += w.size
    return bad, total


def check(write_f32, scratch, name, folder):
    subprocess.run([write_f32, folder, scratch + "/ours.st"], check=True, stderr=subprocess.DEVNULL)
    ours = load_file(scratch + "/ours.st")
    theirs, types = converted(folder, scratch + "/theirs.gguf")
    bad, total = n_unequal(ours, theirs, "NVFP4" not in types)
    broken, _ = n_unequal(ours, converted(twin(folder, scratch), scratch + "/twin.gguf")[0], True)
    failed = bad > 0 or total == 0 or broken < total // 2
    print(f"{name}: {bad} of {total} weights differ in llama.cpp's conversion ({', '.join(sorted(types))}); mis-packed twin "
          f"{broken}{'  FAILED' if failed else ''}", flush=True)
    return failed


def main():
    narrow, write_f32, scratch = sys.argv[1], sys.argv[2], sys.argv[3] + "/converter"
    logging.disable(logging.WARNING)
    conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "smollm"  # this one it cannot know
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    wide, out = scratch + "/wide", scratch + "/folder"
    tiny_f32(12).save_pretrained(wide)
    bad = 0
    for name, (layout, acts) in LAYOUTS.items():
        with open(scratch + "/recipe.yaml", "w", encoding="utf-8") as f:
            f.write(f"activations: {acts}\ntargets:\n  - {{match: '.*_proj', weights: {layout}}}\n")
        subprocess.run([narrow, "quantize", wide, "-r", scratch + "/recipe.yaml", "-o", out, "-f", "compressed-tensors",
                        "--force", "--no-tokenizer", "-q"], check=True, stdout=subprocess.DEVNULL)
        bad += check(write_f32, scratch, name, out)
    convert(narrow, wide, "fp8-block", out)
    bad += check(write_f32, scratch, "FP8 blocks", out)
    make(SCHEMES["NVFP4"][0](), scratch + "/theirs")
    convert(narrow, scratch + "/theirs", "compressed-tensors", out)
    bad += check(write_f32, scratch, "NVFP4", out)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
