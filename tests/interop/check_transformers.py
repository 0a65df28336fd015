"""Greedy text and logits of narrow's reference tier against transformers in float32, on folders that
`narrow convert` wrote.

Greedy: 64 tokens after each prompt; ids may part only where the two best logits lie closer than 1e-3,
on either side. Also how the fast tier agrees with the reference tier: how many of the 64 come before the
first difference, and how often its best token is the reference's after the reference's own tokens.
Logits: the largest difference over one text of 64 tokens, held to 1e-3 of the largest logit.

usage: check_transformers.py NARROW WRITE_LOGITS [--greedy DIR]... [--logits DIR]...
SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import subprocess
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

N_TOKENS, MAX_GAP, MAX_DELTA = 64, 1e-3, 1e-3
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "Water boils at a lower temperature on a mountain because",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "Three ways to save energy at home:\n1.",
    "Dear Ms. Alvarez,\n\nThank you for your letter of 12 March.",
    "Q: What is the difference between a virus and a bacterium?\nA:",
    "In 1969 the first people walked on the Moon. In the years after,",
    "Ingredients: 200 g flour, 2 eggs, 100 ml milk, salt. Method:",
    "La bibliothèque municipale est ouverte",
]
TEXT = ("The lighthouse keeper wrote down the weather every evening for thirty-one years. When his notebooks "
        "were read again in 1987, they turned out to be the longest unbroken record of the coast: wind, rain "
        "and pressure at 6 p.m., with only 4 days missing, all of them in the winter of the great storm.")


def ours(narrow, folder, prompt, tier=None):
    command = [narrow, "generate", folder, prompt, "-n", str(N_TOKENS), "--json", "--quiet"]
    exact = ["--tier", tier, "--kv", "f32"] if tier else []  # keys and values in BF16 turn gaps of .03
    out = subprocess.run(command + exact, check=True, stdout=subprocess.PIPE)
    row = json.loads(out.stdout)
    return row["ids"], row["tier"]


def our_logits(program, folder, tier, ids):
    out = subprocess.run([program, folder, tier, *map(str, ids)], check=True, stdout=subprocess.PIPE)
    return np.frombuffer(out.stdout, np.float32).reshape(len(ids), -1)


def load(folder):
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # more wait spinning, which a machine with other work pays for
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return AutoTokenizer.from_pretrained(folder), model.eval()


def their_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def greedy(model, ids):
    """The greedy loop written out, so that no generation setting has a say; ends at EOS as narrow does."""
    ends = model.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    out, past, step = [], None, torch.tensor([ids])
    while len(out) < N_TOKENS:
        with torch.no_grad():
            result = model(step, past_key_values=past, use_cache=True)
        past, best = result.past_key_values, int(result.logits[0, -1].argmax())
        if best in ends:
            break
        out.append(best)
        step = torch.tensor([[best]])
    return out


def gap(row):
    second, best = np.sort(row)[-2:]
    return float(best - second)


def first_difference(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return at if at < max(len(a), len(b)) else None


def fast_tier(args, folder, prompt, ids, ref):
    """Its name; tokens before its own text differs from ref; tokens of ref that are its best choice there."""
    text, tier = ours(args.narrow, folder, prompt)
    at = first_difference(ref, text)
    best = our_logits(args.write_logits, folder, tier, ids + ref)[len(ids) - 1:-1].argmax(1)
    return tier, len(ref) if at is None else at, int((best == np.array(ref)).sum())


def check_prompt(args, folder, model, prompt, ids, ref):
    """True where the ids are equal, or part at a tie."""
    theirs = greedy(model, ids)
    at = first_difference(ref, theirs)
    if at is None:
        print(f"  {len(ref)} of {len(ref)} ids equal: {prompt!r}", flush=True)
        return True
    context = ids + theirs[:at]
    gaps = [gap(our_logits(args.write_logits, folder, "ref", context)[-1]), gap(their_logits(model, context)[-1])]
    print(f"  differs at {at}: gap of the best two {gaps[0]:.2e} in narrow, {gaps[1]:.2e} in transformers: {prompt!r}",
          flush=True)
    return min(gaps) < MAX_GAP


def check_greedy(args, folder):
    tok, model = load(folder)
    bad = total = prefix = best = 0
    for prompt in PROMPTS:
        ids = tok(prompt)["input_ids"]
        ref, _ = ours(args.narrow, folder, prompt, "ref")
        bad += not check_prompt(args, folder, model, prompt, ids, ref)
        tier, n_prefix, n_best = fast_tier(args, folder, prompt, ids, ref)
        print(f"    {tier}: {n_prefix} before its text differs, {n_best} best after the reference's tokens", flush=True)
        total, prefix, best = total + len(ref), prefix + n_prefix, best + n_best
    print(f"{folder}: greedy text of {len(PROMPTS)} prompts, {total} tokens, {bad} differences where the gap is "
          f"{MAX_GAP:g} or more; {tier} against ref: {prefix} before the first difference ({100 * prefix / total:.1f} "
          f"%), {best} best after the reference's tokens ({100 * best / total:.1f} %)", flush=True)
    return bad


def check_logits(args, folder):
    tok, model = load(folder)
    ids = tok(TEXT)["input_ids"][:N_TOKENS]
    assert len(ids) == N_TOKENS, len(ids)
    want, got = their_logits(model, ids), our_logits(args.write_logits, folder, "ref", ids)
    delta, top = float(np.abs(want - got).max()), float(np.abs(want).max())
    agree = int((want.argmax(1) == got.argmax(1)).sum())
    print(f"{folder}: logits of {N_TOKENS} tokens, max |difference| {delta:.2e} where the largest is {top:.1f}, "
          f"top-1 equal at {agree}", flush=True)
    return int(delta > MAX_DELTA * top)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("narrow")
    p.add_argument("write_logits")
    p.add_argument("--greedy", action="append", default=[])
    p.add_argument("--logits", action="append", default=[])
    args = p.parse_args()
    bad = sum(check_logits(args, folder) for folder in args.logits)
    bad += sum(check_greedy(args, folder) for folder in args.greedy)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
