"""Perplexity of windows of ids, for the checks of folders that other programs make of a small model.
SPDX-License-Identifier: Apache-2.0"""
import json
import subprocess

import numpy as np

WINDOW, N_WINDOWS, LIMIT = 128, 24, 1e-3


def ids_of(narrow, model, text):
    with open(text, encoding="utf-8") as f:
        stories = json.load(f)
    out = subprocess.run([narrow, "tokenize", model, "\n".join(stories[:40]), "--json"], check=True,
                         stdout=subprocess.PIPE).stdout
    ids = [t["id"] if isinstance(t, dict) else t for t in json.loads(out)["ids"]]
    assert len(ids) >= WINDOW * N_WINDOWS, len(ids)
    return [ids[i * WINDOW:(i + 1) * WINDOW] for i in range(N_WINDOWS)]


def perplexity(logits_of, windows):
    """Of all tokens of a window but the first."""
    total = 0.0
    for ids in windows:
        z = logits_of(ids).astype(np.float64)
        z -= z.max(1, keepdims=True)
        z -= np.log(np.exp(z).sum(1, keepdims=True))
        total -= z[np.arange(WINDOW - 1), ids[1:]].sum()
    return float(np.exp(total / (len(windows) * (WINDOW - 1))))


def ours(program, folder, rule):
    def logits(ids):
        out = subprocess.run([program, folder, "ref/" + rule, *map(str, ids)], check=True, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL).stdout
        return np.frombuffer(out, np.float32).reshape(len(ids), -1)
    return logits
