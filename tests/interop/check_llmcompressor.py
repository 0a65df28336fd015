"""Folders that llm-compressor makes of a small model on this processor, evaluated by narrow: perplexity of the same
windows of the same ids, in narrow's reference tier and in transformers in float32, within 0.1 %. Where activations
are rounded the two share the decisions of rounding (check_quantized.py says why); what transformers gets by its own, and
with another attention, is printed beside it. Control: the perplexity of another scheme's folder must be farther off.

Schemes: W4A16 in groups of 32, W8A8, FP8_DYNAMIC, NVFP4A16, rounded to nearest. FP4 weights come unpacked as
bfloat16, the only type that compressed-tensors unpacks them to.

usage: check_llmcompressor.py NARROW WRITE_LOGITS WRITE_INPUTS SCRATCH MODEL TEXT      (MODEL: of 128 positions at least)
SPDX-License-Identifier: Apache-2.0"""
import os
import shutil
import subprocess
import sys
import types

os.environ.update(TQDM_DISABLE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from loguru import logger
from transformers import AutoModelForCausalLM
from transformers.utils import logging

import check_quantized
from perplexity import LIMIT, ids_of, ours, perplexity


def group_of_32():
    args = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True)
    return {"config_groups": {"group_0": QuantizationScheme(targets=["Linear"], weights=args)}}


def preset(name):
    return lambda: {"targets": "Linear", "scheme": name}


SCHEMES = {"W4A16": (group_of_32, "a16"), "W8A8": (preset("W8A8"), "a8-ct"), "FP8_DYNAMIC": (preset("FP8_DYNAMIC"), "fp8"),
           "NVFP4A16": (preset("NVFP4A16"), "a16")}


def quantize(source, scheme, out):
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    oneshot(model=model, recipe=QuantizationModifier(ignore=["lm_head"], **scheme()))
    shutil.rmtree(out, ignore_errors=True)
    model.save_pretrained(out, save_compressed=True)


def theirs(folder, attention="eager"):
    """transformers in float32, weights unpacked by compressed-tensors."""
    kind = torch.bfloat16 if "NVFP4" in folder else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, attn_implementation=attention).eval()
    with torch.no_grad():
        model(torch.tensor([[1]]))
    for tensor in (*model.parameters(), *model.buffers()):  # a quantized model refuses float()
        tensor.data = tensor.data.float() if tensor.dtype == torch.bfloat16 else tensor.data

    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].numpy()
    return logits


def shared(program, inputs, folder, rule):
    """theirs, with narrow's decisions of rounding."""
    by = check_quantized.shared(types.SimpleNamespace(write_logits=program, write_inputs=inputs), folder)
    return lambda ids: by("ref/" + rule, ids)[0]


def main():
    narrow, program, inputs, scratch, model, text = sys.argv[1:7]
    logging.set_verbosity_error()
    logger.remove()
    torch.set_num_threads(1)
    os.makedirs(scratch, exist_ok=True)
    source = scratch + "/source"
    subprocess.run([narrow, "convert", model, "-o", source, "--force", "-q"], check=True, stdout=subprocess.DEVNULL)
    windows = ids_of(narrow, model, text)
    plain = perplexity(theirs(source), windows)
    got = {}
    bad = 0
    for name, (scheme, rule) in SCHEMES.items():
        folder = f"{scratch}/{name}"
        quantize(source, scheme, folder)
        a, b = perplexity(theirs(folder), windows), perplexity(ours(program, folder, rule), windows)
        got[name] = b
        if rule != "a16":
            itself = perplexity(theirs(folder, "sdpa"), windows)
            print(f"    {name}, decisions not shared: transformers {a:.5f}, with another attention {itself:.5f}, narrow "
                  f"{100 * (b / a - 1):+.4f} %", flush=True)
            a = perplexity(shared(program, inputs, folder, rule), windows)
        failed = not abs(b / a - 1) < LIMIT
        bad += failed
        print(f"{name} by llm-compressor: transformers {a:.5f}, narrow {b:.5f}, {100 * (b / a - 1):+.4f} % (limit "
              f"{100 * LIMIT:g}); not quantized {plain:.5f}{'  FAILED' if failed else ''}", flush=True)
    apart = abs(got["W4A16"] / got["W8A8"] - 1)
    bad += not apart > LIMIT
    print(f"W4A16 against W8A8: {100 * apart:.3f} %{'' if apart > LIMIT else '  FAILED: all the same'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
