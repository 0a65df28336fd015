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
import subprocess
import sys
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


def measured(words):
    """Runs a command: seconds, processor seconds, and what it printed."""
    cpu, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"s": time.monotonic() - start, "cpu_s": now.ru_utime + now.ru_stime - cpu.ru_utime - cpu.ru_stime}, out


def samples(args):
    """The first rows of the log as tokens, for theirs; the same rows as a log of their own, for ours."""
    log, ids = os.path.join(args.work, "log.jsonl"), []
    with open(args.stories, encoding="utf-8") as f:
        texts = json.load(f)[args.skip:args.skip + args.samples]
    with open(log, "w", encoding="utf-8") as f:
        for text in texts:
            f.write(json.dumps({"text": text}) + "\n")
    for text in texts:
        out = subprocess.run([args.narrow, "tokenize", args.model, text, "--json"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
        ids.append(json.loads(out)["ids"][:args.n_ctx])
    with open(os.path.join(args.work, "ids.json"), "w", encoding="utf-8") as f:
        json.dump(ids, f)
    return log


def loss(args, artifact):
    out = subprocess.run([args.narrow, "eval", artifact, "--baseline", args.model, "--layer", "perplexity", "--text",
                          args.text, "--context", str(args.context), "--chunks", str(args.chunks), "-q", "--json"],
                         check=True, text=True, stdout=subprocess.PIPE).stdout
    r = json.loads(out)
    return f"KL {r['kl_mean']:.5f} [{r['kl_mean_lo']:.5f}, {r['kl_mean_hi']:.5f}], top-1 {100 * r['top1']:.1f} %"


def compare(args):
    os.makedirs(args.work, exist_ok=True)
    log = samples(args)
    own, stats = os.path.join(args.work, "theirs"), os.path.join(args.work, "stats")
    _, out = measured([sys.executable, __file__, "--theirs", "--ids", os.path.join(args.work, "ids.json"), "--out", own,
                       "--model", args.model, "--group", str(args.group), "--threads", str(args.threads)])
    cost = json.loads(out.strip().splitlines()[-1])
    print(f"llm-compressor: {cost['s']:.1f} s, {cost['cpu_s']:.1f} s of processors, {cost['peak_mb']:.0f} MB; "
          f"{loss(args, own)}")
    threads = ["-t", str(args.threads), "-q", "--force"]
    first, _ = measured([args.narrow, "calibrate", args.model, "--log", log, "--samples", str(args.samples), "--n-ctx",
                         str(args.n_ctx), "-o", stats, *threads])
    for method in ("gptq", "gptq-refit"):
        ours = os.path.join(args.work, method)
        second, _ = measured([args.narrow, "quantize", args.model, "-r", f"int4-g{args.group}", "--method", method,
                              "-c", stats, "-o", ours, *threads])
        print(f"narrow {method}: {first['s'] + second['s']:.1f} s, {first['cpu_s'] + second['cpu_s']:.1f} s of "
              f"processors, {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MB at most of all that "
              f"ran here; {loss(args, ours)}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True, help="Hugging Face folder")
    p.add_argument("--narrow")
    p.add_argument("--stories", help="JSON list of texts, the calibration")
    p.add_argument("--skip", type=int, default=100, help="texts before the first one that is taken")
    p.add_argument("--text", help="text that is scored")
    p.add_argument("--work")
    p.add_argument("--group", type=int, default=32)
    p.add_argument("--samples", type=int, default=64)
    p.add_argument("--n-ctx", type=int, default=128)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--chunks", type=int, default=0)
    p.add_argument("--threads", type=int, default=2)
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
