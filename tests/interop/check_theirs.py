"""Quantized folders that compressed-tensors itself makes, of a tiny random Llama, read by narrow: every weight
equals the one that transformers decompresses from the same file, in float32.

Its presets, and groups and widths that narrow does not write. Control: the folder of another seed must
differ. usage: check_theirs.py NARROW WRITE_F32 SCRATCH
SPDX-License-Identifier: Apache-2.0"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys

os.environ["TQDM_DISABLE"] = "1"

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (QuantizationArgs, QuantizationConfig, QuantizationScheme, QuantizationStatus,
                                             apply_quantization_config, preset_name_to_scheme)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch, save_file as save_torch
from transformers import FineGrainedFP8Config, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging


def group(bits, size, symmetric=True):
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(num_bits=bits, type="int", strategy="group",
                                                                         group_size=size, symmetric=symmetric))


def channel(bits, symmetric=True, strategy="channel", activations=None):
    return QuantizationScheme(targets=["Linear"], input_activations=activations,
                              weights=QuantizationArgs(num_bits=bits, type="int", strategy=strategy, symmetric=symmetric))


def token():
    return QuantizationArgs(num_bits=8, type="int", strategy="token", dynamic=True)


SCHEMES = {
    "W8A8": ("ct-int8", lambda: preset_name_to_scheme("W8A8", ["Linear"])),
    "FP8_DYNAMIC": ("ct-fp8", lambda: preset_name_to_scheme("FP8_DYNAMIC", ["Linear"])),
    "int4, groups of 64": ("ct-int4-g64", lambda: group(4, 64)),
    "int4, groups of 128, asymmetric": ("ct-int4-g128-zp", lambda: group(4, 128, False)),
    "int4, groups of 16": ("ct-int4-g16", lambda: group(4, 16)),
    "int4, a scale a row, asymmetric": ("ct-int4-zp", lambda: channel(4, False)),
    "int4, one scale, asymmetric": ("ct-int4-tensor-zp", lambda: channel(4, False, "tensor")),
    "int4, groups of 256, asymmetric": ("ct-int4-g256-zp", lambda: group(4, 256, False)),
    "int8, groups of 32, asymmetric": ("ct-int8-g32-zp", lambda: group(8, 32, False)),
    "int8, a scale a row, asymmetric": ("ct-int8-zp", lambda: channel(8, False)),
    "int8 as bytes, a scale a row, asymmetric": ("ct-int8-zp", lambda: channel(8, False, activations=token())),
    "int2, groups of 32": ("ct-int2-g32", lambda: group(2, 32)),
}


TENSOR_SCALE = 448 * 6 / 0.125  # what NVFP4's scales are multiplied by; weights of std 0.02 stay below


def tiny(seed):
    torch.manual_seed(seed)
    config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, vocab_size=256, max_position_embeddings=128, tie_word_embeddings=False)
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def blocks(weight, args):
    """Values that share a scale, last."""
    if args.strategy in ("group", "tensor_group"):
        return weight.unflatten(-1, (-1, args.group_size))
    if args.strategy == "block":
        rows, cols = args.block_structure
        return weight.unflatten(-1, (-1, cols)).unflatten(0, (-1, rows)).transpose(1, 2).flatten(-2)
    return weight.flatten() if args.strategy == "tensor" else weight


def quantize(model, scheme):
    """Scales of the smallest and largest values, as BF16 where the format has no type of its own for them."""
    apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"]))
    for _, m in model.named_modules():
        if getattr(m, "quantization_scheme", None) is None or m.quantization_scheme.weights is None:
            continue
        args = m.quantization_scheme.weights
        b = blocks(m.weight.detach().float(), args)
        keep = args.strategy == "channel"
        g = None
        if args.strategy == "tensor_group":
            g = m.weight_global_scale.data = torch.tensor([TENSOR_SCALE])  # one for all: fused matrices share it
        scale, zero = calculate_qparams(b.amin(-1, keepdim=keep), b.amax(-1, keepdim=keep), args, global_scale=g)
        m.weight_scale.data = scale.to(torch.bfloat16).reshape(m.weight_scale.shape)
        if getattr(m, "weight_zero_point", None) is not None:
            m.weight_zero_point.data = zero.to(m.weight_zero_point.dtype).reshape(m.weight_zero_point.shape)
        m.quantization_status = QuantizationStatus.FROZEN


def save(model, folder):
    shutil.rmtree(folder, ignore_errors=True)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)


def decompressed(folder):
    """The weights as transformers has them once a token has passed."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        model(torch.tensor([[1]]))
    return {n: p.detach() for n, p in model.named_parameters() if n.endswith("_proj.weight")}


def read(write_f32, folder, scratch):
    path = scratch + "/values.safetensors"
    subprocess.run([write_f32, folder, path], check=True)
    return load_file(path)


def n_wrong(want, got):
    return sum(int((torch.from_numpy(got[n].copy()) != w).sum()) for n, w in want.items())


def formats(narrow, folder):
    out = subprocess.run([narrow, "inspect", folder, "--json", "-q"], check=True, stdout=subprocess.PIPE).stdout
    return {f["format"] for f in json.loads(out)["formats"]}


def check(args, name, seed):
    form, scheme = SCHEMES[name]
    narrow, write_f32, scratch = args
    folder = scratch + "/theirs"
    model = tiny(seed)
    quantize(model, scheme())
    save(model, folder)
    want, ours = decompressed(folder), read(write_f32, folder, scratch)
    bad, total = n_wrong(want, ours), sum(w.numel() for w in want.values())
    model = tiny(seed + 1)
    quantize(model, scheme())
    save(model, folder)
    other = n_wrong(decompressed(folder), ours)
    failed = bad > 0 or total == 0 or other < total // 2 or form not in formats(narrow, folder)
    print(f"{name}: {bad} of {total} weights differ, {form}; of another seed {other}{'  FAILED' if failed else ''}",
          flush=True)
    return failed


def as_fp8_method(folder):
    """Blocks of compressed-tensors as folders of quant_method "fp8" have them (Qwen3, DeepSeek)."""
    tensors = {n.replace("weight_scale", "weight_scale_inv"): t.float() if n.endswith("weight_scale") else t
               for n, t in load_torch(folder + "/model.safetensors").items()}
    save_torch(tensors, folder + "/model.safetensors", {"format": "pt"})
    with open(folder + "/config.json", encoding="utf-8") as f:
        config = json.load(f)
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                     "weight_block_size": [128, 128]}
    with open(folder + "/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)


def check_fp8_method(args):
    """transformers dequantizes these where no GPU is, into BF16."""
    if importlib.util.find_spec("accelerate") is None:
        print("quant_method fp8: skipped: transformers opens such folders with accelerate only", flush=True)
        return 0
    narrow, write_f32, scratch = args
    folder = scratch + "/theirs"
    rows = {}
    for seed in (7, 8):
        model = tiny(seed)
        quantize(model, preset_name_to_scheme("FP8_BLOCK", ["Linear"]))
        save(model, folder)
        as_fp8_method(folder)
        theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16,
                                                  quantization_config=FineGrainedFP8Config(dequantize=True))
        rows[seed] = {n: p.detach() for n, p in theirs.named_parameters() if n.endswith("_proj.weight")}
        if seed == 7:
            ours, names = read(write_f32, folder, scratch), formats(narrow, folder)
    rounded = {n: torch.from_numpy(ours[n].copy()).to(p.dtype) for n, p in rows[7].items()}
    bad, other = (sum(int((rounded[n] != p).sum()) for n, p in rows[seed].items()) for seed in (7, 8))
    total = sum(p.numel() for p in rows[7].values())
    failed = bad > 0 or total == 0 or other < total // 2 or "hf-fp8-128x128" not in names
    print(f"quant_method fp8: {bad} of {total} weights differ, {sorted(names)}; of another seed {other}"
          f"{'  FAILED' if failed else ''}", flush=True)
    return failed


def main():
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    os.makedirs(sys.argv[3], exist_ok=True)
    bad = sum(check(sys.argv[1:4], name, 7) for name in SCHEMES) + check_fp8_method(sys.argv[1:4])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
