#!/usr/bin/env python3
"""GPTQ beside llm-compressor's, on the same samples: a model, 4 bits in symmetric groups, the same token windows.
Prints seconds, processor seconds and peak memory of both, and what each loses on other text.
Run it with a Python that has llmcompressor and torch (--theirs runs that half alone, in a process of its own).
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time


def theirs(args):
    """GPTQ by llm-compressor over the windows in args.ids; a compressed-tensors folder."""
    import torch
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    with open(args.ids, encoding="utf-8") as f:
        rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in json.load(f)]
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                                                "group_size": args.group}}
    before = time.process_time(), time.monotonic()
    oneshot(model=model, dataset=Dataset.from_list(rows), max_seq_length=len(rows[0]["input_ids"]),
            num_calibration_samples=len(rows),
            recipe=GPTQModifier(config_groups={"group_0": group}, ignore=["lm_head"]))
    after = time.process_time(), time.monotonic()
    model.save_pretrained(args.out, save_compressed=True)
    print(json.dumps({"cpu_s": after[0] - before[0], "s": after[1] - before[1],
                      "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def measured(words, limit=None):
    """Runs a command: seconds, processor seconds and most memory of that process; None in place of its output where
    the limit (seconds) ended it."""
    start = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(limit, child.kill) if limit else None
    if timer:
        timer.start()
    out = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if timer:
        timer.cancel()
    if child.returncode and not (limit and child.returncode == -signal.SIGKILL):
        raise subprocess.CalledProcessError(child.returncode, words)
    return {"s": time.monotonic() - start, "cpu_s": used.ru_utime + used.ru_stime,
            "peak_mb": used.ru_maxrss / 1024}, None if child.returncode else out


def passages(args):
    """Texts of at least n_ctx tokens each where the source is a text: a token has some 4 characters."""
    with open(args.calibration, encoding="utf-8") as f:
        if args.calibration.endswith(".json"):
            return json.load(f)[args.skip:args.skip + args.samples]
        text = f.read()
    length = 8 * args.n_ctx
    step = max(length, len(text) // args.samples)
    return [text[i * step:i * step + length] for i in range(args.samples)]


def samples(args):
    """The passages as tokens, for theirs; the same passages as a log, for ours."""
    log, ids = os.path.join(args.work, "log.jsonl"), []
    texts = passages(args)
    with open(log, "w", encoding="utf-8") as f:
        for text in texts:
            f.write(json.dumps({"text": text}) + "\n")
    for text in texts:
        out = subprocess.run([args.narrow, "tokenize", args.model, text, "--json"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
        ids.append(json.loads(out)["ids"][:args.n_ctx])
    with open(os.path.join(args.work, "ids.json"), "w", encoding="utf-8") as f:
        json.dump(ids, f)
    print(f"{len(ids)} samples, {sum(map(len, ids))} tokens", flush=True)
    return log


def loss(args, artifact):
    out = subprocess.run([args.narrow, "eval", artifact, "--baseline", args.model, "--layer", "perplexity", "--text",
                          args.text, "--context", str(args.context), "--chunks", str(args.chunks), "-q", "--json"],
                         check=True, text=True, stdout=subprocess.PIPE).stdout
    r = json.loads(out)
    return f"KL {r['kl_mean']:.5f} [{r['kl_mean_lo']:.5f}, {r['kl_mean_hi']:.5f}], top-1 {100 * r['top1']:.1f} %"


def run_theirs(args, limit):
    own = os.path.join(args.work, "theirs")
    cost, out = measured([sys.executable, __file__, "--theirs", "--ids", os.path.join(args.work, "ids.json"), "--out", own,
                          "--model", args.model, "--group", str(args.group), "--threads", str(args.threads)], limit)
    if out is None:
        print(f"llm-compressor: not done after {cost['s']:.1f} s, {cost['cpu_s']:.1f} s of processors, "
              f"{cost['peak_mb']:.0f} MB", flush=True)
        return
    gptq = json.loads(out.strip().splitlines()[-1])
    for name in os.listdir(args.model):
        if "token" in name:
            shutil.copy(os.path.join(args.model, name), own)
    print(f"llm-compressor: {gptq['s']:.1f} s, {gptq['cpu_s']:.1f} s of processors without loading and writing, "
          f"{gptq['peak_mb']:.0f} MB; {loss(args, own)}", flush=True)


def run_ours(args, log):
    """From the checkpoint to the artifact by GPTQ. Seconds."""
    stats = os.path.join(args.work, "stats")
    first, _ = measured([args.narrow, "calibrate", args.model, "--log", log, "--samples", str(args.samples), "--n-ctx",
                         str(args.n_ctx), "-o", stats, "-t", str(args.threads), "-q", "--force"])
    second = quantize_ours(args, "gptq")
    whole = first["s"] + second["s"]
    print(f"narrow gptq: {whole:.1f} s ({first['s']:.1f} of them statistics), {first['cpu_s'] + second['cpu_s']:.1f} s of "
          f"processors, {max(first['peak_mb'], second['peak_mb']):.0f} MB with the mapped files", flush=True)
    return whole


def quantize_ours(args, method):
    recipe = os.path.join(args.work, "recipe.yaml")
    with open(recipe, "w", encoding="utf-8") as f:
        f.write(f"method: {method}\ntargets:\n  - {{match: '.*_proj', weights: int4-g{args.group}}}\n")
    return measured([args.narrow, "quantize", args.model, "-r", recipe, "-c", os.path.join(args.work, "stats"), "-o",
                     os.path.join(args.work, method), "-t", str(args.threads), "-q", "--force"])[0]


def compare(args):
    """Ours before and after theirs, since a machine is not always as fast."""
    os.makedirs(args.work, exist_ok=True)
    log = samples(args)
    first = run_ours(args, log)
    run_theirs(args, args.limit or args.times * first or None)
    run_ours(args, log)
    more = quantize_ours(args, "gptq-refit")
    print(f"narrow gptq-refit over the same statistics: {more['s']:.1f} s, {more['cpu_s']:.1f} s of processors")
    for method in ("gptq", "gptq-refit"):
        print(f"narrow {method}: {loss(args, os.path.join(args.work, method))}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True, help="Hugging Face folder")
    p.add_argument("--narrow")
    p.add_argument("--calibration", help="JSON list of texts, or a plain text that is cut into passages")
    p.add_argument("--skip", type=int, default=100, help="texts of the list before the first one that is taken")
    p.add_argument("--text", help="text that is scored")
    p.add_argument("--work")
    p.add_argument("--group", type=int, default=32)
    p.add_argument("--samples", type=int, default=64)
    p.add_argument("--n-ctx", type=int, default=128)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--chunks", type=int, default=0)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--limit", type=float, default=0, help="seconds that theirs may take")
    p.add_argument("--times", type=float, default=0, help="the same as a multiple of ours")
    p.add_argument("--theirs", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--ids", help=argparse.SUPPRESS)
    p.add_argument("--out", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.theirs:
        theirs(args)
    else:
        compare(args)


if __name__ == "__main__":
    main()
