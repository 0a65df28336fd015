"""Folders with fixed scales of FP8 keys and values (kv_cache_scheme) that narrow wrote, in transformers with
compressed-tensors, in float32. A key that differs in its last bit may round to another code, and every layer
behind carries that on, so each layer is held alone, on the input that transformers gave it: what it adds differs by at most 1e-2 of its norm in the median layer, and
without rounded keys and values by five times that. The first token of the whole model is held to 1e-4 nats.

Twice: with the scales as they are, and with a sixteenth of them, where most keys and values are clipped, so
that scales that are not used show. There, and only there, the original scales must fail.

usage: check_kv.py WRITE_LOGITS WRITE_LAYERS SCRATCH FOLDER...
SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import os
import shutil
import sys

os.environ["TQDM_DISABLE"] = "1"

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from check_quantized import MAX_KL, N_TOKENS, kl, load, our_logits, run
from mispack import TEXT

OURS = "ref//fp8"  # spec.h

MAX_LAYER, APART = 1e-2, 5


def their_logits(folder, ids):
    """Logits, and the input of each layer with the output of the last but one behind it."""
    with torch.no_grad():
        out = load(folder, torch.float32)(torch.tensor([ids]), output_hidden_states=True)
    return out.logits[0].double().numpy(), [h[0].numpy() for h in out.hidden_states]


def layer_error(args, folder, tier, ids, hidden):
    """What a layer adds, ours against theirs, as a share of its norm: the median layer. The last layer's
    output stands behind the final norm there and is left out."""
    x = np.stack(hidden[:-1])
    ours = run(args.write_layers, folder, tier, *ids, stdin=x.tobytes()).reshape(x.shape)[:-1]
    added = x[1:] - x[:-1]
    return float(np.median([np.linalg.norm(o - t) / np.linalg.norm(a) for o, t, a in zip(ours, x[1:], added)]))


def scaled(folder, scratch, factor):
    """A copy whose scales of keys and values are multiplied."""
    out = f"{scratch}/kv-scaled"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out)
    tensors = load_file(f"{out}/model.safetensors")
    names = [n for n in tensors if n.endswith(("k_scale", "v_scale"))]
    assert names, folder
    for n in names:
        tensors[n] = tensors[n] * factor
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})
    return out


def check(args, folder, original):
    """original: the folder whose scales must not do; None: float keys and values must not."""
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        assert json.load(f)["quantization_config"]["kv_cache_scheme"]["num_bits"] == 8
    ids = AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"][:N_TOKENS]
    theirs, hidden = their_logits(folder, ids)
    d = kl(theirs, our_logits(args, folder, OURS, ids))
    alone = layer_error(args, folder, OURS, ids, hidden)
    wrong = layer_error(args, original or folder, OURS if original else "ref//f32", ids, hidden)
    bad = not (d[0] < MAX_KL and alone < MAX_LAYER and wrong > APART * alone)
    print(f"{folder}{' (a sixteenth of the scales)' if original else ''}: layers alone differ by {alone:.2e} of what "
          f"they add (limit {MAX_LAYER:g}), with {'the scales before' if original else 'float keys and values'} by "
          f"{wrong:.2e}; first token KL {d[0]:.2e} (limit {MAX_KL:g}), whole text {d.max():.2e}"
          f"{'  FAILED' if bad else ''}", flush=True)
    return bad


def main():
    p = argparse.ArgumentParser()
    for name in ("write_logits", "write_layers", "scratch"):
        p.add_argument(name)
    p.add_argument("folders", nargs="+")
    args = p.parse_args()
    os.makedirs(args.scratch, exist_ok=True)
    bad = 0
    for folder in args.folders:
        bad += check(args, folder, None)
        bad += check(args, scaled(folder, args.scratch, 1 / 16), folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
