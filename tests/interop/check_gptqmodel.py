"""Folders that GPTQModel makes of a small model on this processor (v1, symmetric, groups of 32; 4 and 8 bits), evaluated by
narrow: perplexity of the same windows of the same ids, in narrow's reference tier and with GPTQModel's own unpacking, within
0.1 %. Also what narrow writes as GPTQ, in GPTQModel. Control: the perplexity of the folder of other bits must be farther
off.

usage: check_gptqmodel.py NARROW WRITE_LOGITS SCRATCH MODEL TEXT      (MODEL: of 128 positions at least)
SPDX-License-Identifier: Apache-2.0"""
import os
import shutil
import subprocess
import sys

os.environ.update(TQDM_DISABLE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="",
                  GPTQMODEL_CPU_WORKERS="2")  # it takes half of the processors, and fails where that is one

import torch
from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

from perplexity import LIMIT, ids_of, ours, perplexity

RECIPE = "activations: a16\ntargets:\n  - {{match: '.*_proj', weights: int{0}-g32}}\n"


def quantize(source, bits, windows, out):
    shutil.rmtree(out, ignore_errors=True)
    config = QuantizeConfig(bits=bits, group_size=32, sym=True, desc_act=False)
    model = GPTQModel.load(source, config)
    model.quantize([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in windows], batch_size=1)
    model.save(out)


def by_narrow(narrow, source, bits, out):
    with open(out + ".yaml", "w", encoding="ascii") as f:
        f.write(RECIPE.format(bits))
    subprocess.run([narrow, "quantize", source, "-r", out + ".yaml", "-o", out, "-f", "gptq", "--force", "-q"], check=True,
                   stdout=subprocess.DEVNULL)


def theirs(folder):
    """Their reading of the folder, weights unpacked by their kernel, multiplied in float32 (the kernel itself takes 16 bits)."""
    model = GPTQModel.load(folder, backend=BACKEND.TORCH, device="cpu", dtype=torch.float16).model.eval()
    kernels = [(name, m) for name, m in model.named_modules() if hasattr(m, "dequantize_weight")]
    assert kernels, "no quantized matrix"
    for name, m in kernels:
        m.scales.data = m.scales.data.float()
        weight = m.dequantize_weight().float().T.contiguous()  # [out][in]
        plain = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        plain.weight.data = weight
        parent, _, part = name.rpartition(".")
        setattr(model.get_submodule(parent), part, plain)
    model = model.float()

    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].numpy()
    return logits


def main():
    narrow, program, scratch, model, text = sys.argv[1:6]
    torch.set_num_threads(1)
    os.makedirs(scratch, exist_ok=True)
    source = scratch + "/source"
    subprocess.run([narrow, "convert", model, "-o", source, "--force", "-q"], check=True, stdout=subprocess.DEVNULL)
    windows = ids_of(narrow, model, text)
    got, bad = {}, 0
    for maker in ("GPTQModel", "narrow"):
        for bits in (4, 8):
            folder = f"{scratch}/{maker}-{bits}"
            if maker == "narrow":
                by_narrow(narrow, source, bits, folder)
            else:
                quantize(source, bits, windows, folder)
            a, b = perplexity(theirs(folder), windows), perplexity(ours(program, folder, "a16"), windows)
            got[maker, bits] = b
            failed = not abs(b / a - 1) < LIMIT
            bad += failed
            print(f"GPTQ of {bits} bits by {maker}: GPTQModel {a:.5f}, narrow {b:.5f}, {100 * (b / a - 1):+.4f} % (limit "
                  f"{100 * LIMIT:g}){'  FAILED' if failed else ''}", flush=True)
    apart = abs(got["GPTQModel", 4] / got["GPTQModel", 8] - 1)
    bad += not apart > LIMIT
    print(f"4 against 8 bits: {100 * apart:.3f} %{'' if apart > LIMIT else '  FAILED: all the same'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
