"""Rules for activations of folders that compressed-tensors itself makes, of a tiny random Llama: scales of inputs
that stand in the file, zero points, groups of 128 columns, NVFP4 under a global scale.

For each scheme, logits of a text: narrow's reference tier on their folder, and transformers on the folder that
`narrow convert -f compressed-tensors` writes of it, both against transformers on their folder, in float32.
A difference in the last bit of a sum turns a rounding now and then, so the median position is held to 1e-6
nats and the largest to 1e-2; the folder written anew must give equal logits. Control: rounded by token, or
not at all, narrow must be a hundred times farther away. Also FP8 blocks that narrow makes of the wide model.

usage: check_acts.py NARROW WRITE_LOGITS WRITE_F32 SCRATCH
SPDX-License-Identifier: Apache-2.0"""
import os
import shutil
import subprocess
import sys

os.environ["TQDM_DISABLE"] = "1"

import numpy as np
import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme, preset_name_to_scheme
from compressed_tensors.quantization.utils import generate_gparam
from safetensors.numpy import load_file
from transformers import LlamaForCausalLM
from transformers.utils import logging

from check_quantized import kl, run
from check_theirs import quantize, save, tiny

N_TOKENS, MEDIAN, LARGEST, APART = 64, 1e-6, 1e-2, 100
IDS = [(7 * i * i + 3 * i) % 256 for i in range(N_TOKENS)]


def int8(symmetric):
    weights = QuantizationArgs(num_bits=8, type="int", strategy="channel", symmetric=True)
    acts = QuantizationArgs(num_bits=8, type="int", strategy="tensor", symmetric=symmetric, dynamic=False)
    return QuantizationScheme(targets=["Linear"], weights=weights, input_activations=acts)


def preset(name):
    return lambda: preset_name_to_scheme(name, ["Linear"])


# scheme: how narrow is told to round, and another rule that must be far off
SCHEMES = {
    "INT8 static": (lambda: int8(True), "a8-ct", "a16"),
    "INT8 static with zero points": (lambda: int8(False), "a8-ct", "a16"),
    "FP8": (preset("FP8"), "fp8", "a16"),
    "FP8_BLOCK": (preset("FP8_BLOCK"), "fp8-g128", "fp8"),
    "NVFP4": (preset("NVFP4"), "nvfp4", "a16"),
}


def calibrate(model):
    """The smallest and largest input of each module of the text."""
    seen = {}
    hooks = []
    for name, m in model.named_modules():
        if name.endswith("_proj"):
            hooks.append(m.register_forward_pre_hook(
                lambda m, a, name=name: seen.__setitem__(name, (float(a[0].min()), float(a[0].max())))))
    with torch.no_grad():
        model(torch.tensor([IDS]))
    for h in hooks:
        h.remove()
    return seen


def fix_inputs(model, seen):
    """Scales of inputs; the text's own extremes, so that some values are held."""
    for name, m in model.named_modules():
        args = getattr(getattr(m, "quantization_scheme", None), "input_activations", None)
        if args is None or args.dynamic is True:
            continue
        low, high = (0.8 * v for v in seen[name])
        most = max(-low, high)
        if args.dynamic == "local":
            m.input_global_scale.data = generate_gparam(torch.tensor(low), torch.tensor(high))
        elif args.symmetric:
            m.input_scale.data = torch.tensor([most / (448 if args.type == "float" else 127.5)])
        else:
            scale = (high - low) / 255
            m.input_scale.data = torch.tensor([scale])
            m.input_zero_point.data = torch.tensor([round(-128 - low / scale)]).to(torch.int8)


def tiny_f32(seed):
    """Its BF16 values moved off their grid: ratios of few bits, which norms keep, are ties of E4M3 all over."""
    model = tiny(seed).float()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 1e-3 * torch.randn(p.shape))
    return model


def make(scheme, folder):
    model = tiny_f32(11)
    seen = calibrate(model)
    quantize(model, scheme)
    fix_inputs(model, seen)
    save(model, folder)


def widen(model, values):
    """FP4 weights come unpacked into bfloat16, which float32 does not multiply; narrow's values in their place, which
    are the same ones before that rounding."""
    for name, p in model.named_parameters():
        if name.endswith("_proj.weight"):
            mine = torch.from_numpy(values[name].copy())
            assert torch.equal(mine.to(torch.bfloat16), p.data), name
            p.data = mine


def their_logits(args, folder):
    _, _, write_f32, scratch = args
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        try:
            model(torch.tensor([[1]]))  # unpacks the weights
        except RuntimeError:
            subprocess.run([write_f32, folder, scratch + "/values.safetensors"], check=True, stderr=subprocess.DEVNULL)
            widen(model, load_file(scratch + "/values.safetensors"))
        return model(torch.tensor([IDS])).logits[0].double().numpy()


def our_logits(program, folder, rule):
    return run(program, folder, "ref/" + rule, *IDS).reshape(N_TOKENS, -1).astype(np.float64)


def convert(narrow, folder, form, out):
    subprocess.run([narrow, "convert", folder, "-f", form, "-o", out, "--force", "--no-tokenizer", "-q",
                    "--dtype", "f32"], check=True,
                   stdout=subprocess.DEVNULL)


def check_folder(args, name, folder, rule, other):
    narrow, program, _, scratch = args
    theirs = their_logits(args, folder)
    d, wrong = (kl(theirs, our_logits(program, folder, r)) for r in (rule, other))
    said = kl(theirs, run(program, folder, "ref", *IDS).reshape(N_TOKENS, -1).astype(np.float64))
    convert(narrow, folder, "compressed-tensors", scratch + "/again")
    again = float(np.abs(their_logits(args, scratch + "/again") - theirs).max())
    bad = not (np.median(d) < MEDIAN and d.max() < LARGEST and again == 0 and
               np.median(wrong) > APART * max(np.median(d), 1e-9) and np.median(said) < 1e-2)
    print(f"{name}: KL to transformers {np.median(d):.2e} in the median, largest {d.max():.2e}; as the file says "
          f"{np.median(said):.2e}; under {other} {np.median(wrong):.2e}; written again its logits differ by {again:g}"
          f"{'  FAILED' if bad else ''}", flush=True)
    return bad


def main():
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    scratch = sys.argv[4] + "/acts"
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    args = (*sys.argv[1:4], scratch)
    bad = 0
    for name, (scheme, rule, other) in SCHEMES.items():
        make(scheme(), scratch + "/theirs")
        bad += check_folder(args, name, scratch + "/theirs", rule, other)
    tiny_f32(12).save_pretrained(scratch + "/wide")
    convert(args[0], scratch + "/wide", "fp8-block", scratch + "/blocks")
    bad += check_folder(args, "FP8 blocks of narrow", scratch + "/blocks", "fp8-g128", "fp8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
