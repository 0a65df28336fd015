#!/usr/bin/env python3
"""Quantizes models in many ways and measures what each costs; see run.

A run is a model, a layout, a method and, where the method calibrates, a seed of the calibration's draw. Its
row in runs.jsonl has the divergence from the model as it is (of every window, from the program's own record),
the bits a weight and the processor time. Intervals are 95 %, Student's t over windows; differences between
methods are taken window by window.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import hashlib
import json
import math
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys

from models import CELLS, MODELS, planted_recipes, prepare, variant

CALIBRATED = ("imatrix", "awq", "gptq", "gptq-refit")
LAYERS = r"model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj"


def t_quantile(df, z=1.959964):
    """Of 97.5 %, by the expansion around the normal one; within 1 % from 4 degrees of freedom on."""
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + sum(t / df ** (i + 1) for i, t in enumerate(terms))


def interval(values):
    mean = statistics.fmean(values)
    if len(values) < 5:
        return mean, math.nan, math.nan
    half = t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


class Bench:
    def __init__(self, args):
        self.args = args
        self.path = os.path.join(args.work, "runs.jsonl")
        os.makedirs(args.work, exist_ok=True)
        self.rows = []
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as f:
                self.rows = [json.loads(line) for line in f]
        self.done = {row["key"] for row in self.rows}

    def narrow(self, *words):
        """Runs the program; returns its output and its processor seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = subprocess.run([self.args.narrow, *words], check=True, stdout=subprocess.PIPE, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def file(self, name):
        return os.path.join(self.args.work, name)

    def stats(self, model, seed):
        """Folder of the statistics of a draw, made where it is not there."""
        out = self.file(f"{model.name}-stats-{seed}")
        if not os.path.isdir(out):
            _, cpu = self.narrow("calibrate", model.path, "--text", model.calibration, "--samples",
                                 str(model.n_samples), "--n-ctx", str(model.n_ctx), "--seed", str(seed), "-o", out,
                                 "-t", self.args.threads, "-q")
            with open(out + ".cpu", "w", encoding="utf-8") as f:
                f.write(f"{cpu:.1f}")
        return out

    def windows(self, model, artifact):
        """[(mean KL, share of equal first tokens, difference of the losses)] of each window, and the summary."""
        record = self.file("record.db")
        for end in ("", "-wal", "-shm"):
            if os.path.exists(record + end):
                os.remove(record + end)
        words = ["--layer", "perplexity", "--text", model.text, "--context", str(model.context)]
        chunks = self.args.windows or model.windows
        if chunks:
            words += ["--chunks", str(chunks)]
        out, cpu = self.narrow("eval", artifact, "--baseline", model.path, *words, "-t", self.args.threads, "-q",
                               "--json", "--record", record, "--candidate", "it")
        with sqlite3.connect(record) as db:
            rows = db.execute('SELECT "window", avg(kl), avg(top1) FROM token WHERE kl IS NOT NULL '
                              'GROUP BY "window" ORDER BY "window"').fetchall()
        return rows, json.loads(out), cpu

    def run(self, kind, model, layout, method, seed=0, recipe=None):
        """One row, unless it stands already. `recipe`: text in place of the one made of layout and method."""
        key = "/".join((kind, model.name, layout, method, str(seed), str(self.args.windows or model.windows)))
        if key in self.done:
            return
        out = self.file("artifact")
        shutil.rmtree(out, ignore_errors=True)
        path = self.file("recipe.yaml")
        head, weights = few_codes(layout)
        text = recipe or (f"method: {method}\nlast_group: short\n{head}targets:\n"
                          f"  - {{match: '{LAYERS}', weights: {weights}}}\n")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        words = ["-c", self.stats(model, seed or 1)] if method in CALIBRATED or seed else []
        try:
            _, cpu = self.narrow("quantize", model.path, "-r", path, *words, "-o", out, "-t", self.args.threads, "-q",
                                 "--force")
        except subprocess.CalledProcessError:
            print(f"{key}: cannot be written", file=sys.stderr)
            return
        digest = digest_of(out)
        twin = next((r for r in self.rows if r.get("sha256") == digest and same_but_method(r["key"], key)), None)
        if twin:  # other methods chose the same codes: measured once
            windows = list(zip(range(len(twin["kl"])), twin["kl"], twin["top1"]))
            summary, eval_cpu = twin["summary"], twin["eval_cpu_s"]
        else:
            windows, summary, eval_cpu = self.windows(model, out)
        row = {"key": key, "kind": kind, "model": model.name, "layout": layout, "method": method, "seed": seed,
               "kl": [w[1] for w in windows], "top1": [w[2] for w in windows], "summary": summary,
               "bits": bits_of(out), "sha256": digest, "quantize_cpu_s": round(cpu, 1), "eval_cpu_s": round(eval_cpu, 1)}
        with open(self.path, "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")
        self.rows.append(row)
        self.done.add(key)
        shutil.rmtree(out, ignore_errors=True)
        print(f"{key}: KL {summary['kl_mean']:.5f} [{summary['kl_mean_lo']:.5f}, {summary['kl_mean_hi']:.5f}], "
              f"{cpu:.0f} s", flush=True)


def digest_of(artifact):
    with open(os.path.join(artifact, "model.safetensors"), "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def same_but_method(a, b):
    """Keys: kind, model, layout, method, seed, windows."""
    a, b = a.split("/"), b.split("/")
    return a[:3] == b[:3] and a[5] == b[5]


def few_codes(layout):
    """int3-g32 and int2-g32-min are layouts of INT4, int5 and int6 those of INT8, with fewer codes."""
    bits = int(layout[3]) if layout.startswith("int") else 8
    if bits in (4, 8):
        return "", layout
    return f"code_bits: {bits}\n", f"int{4 if bits < 4 else 8}{layout[4:]}"


def bits_of(artifact):
    """Bits a quantized weight, scales included."""
    with open(os.path.join(artifact, "manifest.json"), encoding="utf-8") as f:
        return json.load(f)["bits_per_weight"]["stored_targeted"]


def seeds(bench, models):
    """Seeds first, so that what is cut short has all methods of fewer seeds."""
    for seed in range(1, bench.args.seeds + 1):
        for model in models:
            layout, methods = model.layout, bench.args.methods.split(",")
            for method in methods:
                if method in CALIBRATED:
                    bench.run("seeds", model, layout, method, seed)
                elif seed == 1:
                    bench.run("seeds", model, layout, method)


def table(bench, models):
    for model in models:
        cells = CELLS[model.name]
        if bench.args.cells:
            cells = [cell.split(":") for cell in bench.args.cells.split(",")]
        for layout, method in cells:
            bench.run("table", model, layout, method)


def variants(bench, models):
    """The same function with other weights: are methods ordered alike, or by the luck of rounding?"""
    for model in models:
        for seed in range(1, bench.args.variants + 1):
            other = variant(bench, model, seed)
            for method in bench.args.methods.split(","):
                bench.run("variants", other, model.layout, method)
            shutil.rmtree(bench.file(f"{other.name}-stats-1"), ignore_errors=True)


def planted(bench, models):
    for model in models:
        for name, recipe in planted_recipes():
            bench.run("planted", model, name, "recipe", 1, recipe)


# ---- tables ----

def figure(x):
    if math.isnan(x):
        return "–"
    text = f"{x:.5f}" if abs(x) < 0.01 else f"{x:.4f}" if abs(x) < 1 else f"{x:.3f}"
    return text.replace("0.", ".", 1) if abs(x) < 1 else text


def with_interval(values):
    mean, lo, hi = interval(values)
    return f"{figure(mean)} [{figure(lo)}, {figure(hi)}]"


def median_of_seeds(rows, field="kl"):
    """Of each window over the seeds."""
    return [statistics.median(values) for values in zip(*(row[field] for row in rows))]


def decided(values):
    """Whether the sign of the mean is known, and how many windows would tell one of this size."""
    mean, lo, hi = interval(values)
    if math.isnan(lo):
        return "too few windows"
    if lo * hi > 0:
        return "yes"
    return f"no, {math.ceil(len(values) * ((hi - lo) / 2 / abs(mean)) ** 2)} windows would" if mean else "no"


def report_seeds(rows):
    print("| model, layout | method | seeds | KL, median (range) | [95 %] | above gptq, window by window | decided |"
          "\n|---|---|---|---|---|---|---|")
    for name, layout in dict.fromkeys((r["model"], r["layout"]) for r in rows):
        here = [r for r in rows if (r["model"], r["layout"]) == (name, layout)]
        base = [r for r in here if r["method"] == "gptq"]
        for method in dict.fromkeys(r["method"] for r in here):
            mine = [r for r in here if r["method"] == method]
            kl = sorted(statistics.fmean(r["kl"]) for r in mine)
            _, lo, hi = interval(median_of_seeds(mine))
            above, sure = "–", "–"
            if base and method != "gptq":
                pairs = zip(median_of_seeds(mine), median_of_seeds(base))
                differences = [a - b for a, b in pairs]
                above, sure = with_interval(differences), decided(differences)
            print(f"| {name}, {layout} | {method} | {len(mine)} | {figure(statistics.median(kl))} "
                  f"({figure(kl[0])}–{figure(kl[-1])}) | [{figure(lo)}, {figure(hi)}] | {above} | {sure} |")


def place_in_table(row):
    cell = (row["layout"], row["method"])
    cells = CELLS[row["model"]]
    return list(CELLS).index(row["model"]), cells.index(cell) if cell in cells else len(cells)


def report_table(rows):
    print("| model | layout | method | bits | KL [95 %] | top-1 [95 %] | ln PPL ratio [95 %] |\n|---|---|---|---|---|---|---|")
    for r in sorted(rows, key=place_in_table):
        s = r["summary"]
        print(f"| {r['model']} | {r['layout']} | {r['method']} | {r['bits']:.2f} | {with_interval(r['kl'])} | "
              f"{100 * s['top1']:.1f} % [{100 * s['top1_lo']:.1f}, {100 * s['top1_hi']:.1f}] | {figure(s['ln_ratio'])} "
              f"[{figure(s['ln_ratio_lo'])}, {figure(s['ln_ratio_hi'])}] |")


def report_variants(rows):
    print("| method | variants | mean KL | against rtn, variant by variant [95 %] | below rtn |\n|---|---|---|---|---|")
    by = {}
    for r in rows:
        by.setdefault(r["method"], {})[r["model"]] = statistics.fmean(r["kl"])
    for method, values in by.items():
        pairs = [math.log(values[m] / by["rtn"][m]) for m in values if m in by.get("rtn", {})]
        print(f"| {method} | {len(values)} | {figure(statistics.fmean(values.values()))} | "
              f"{' … '.join(f'{100 * math.expm1(x):+.1f} %' for x in interval(pairs))} | "
              f"{sum(p < 0 for p in pairs)} of {len(pairs)} |")


def report_planted(rows):
    print("| recipe | KL [95 %] | top-1 |\n|---|---|---|")
    for r in rows:
        print(f"| {r['layout']} | {with_interval(r['kl'])} | {100 * r['summary']['top1']:.1f} % |")


REPORTS = {"seeds": report_seeds, "table": report_table, "variants": report_variants, "planted": report_planted}
COMMANDS = {"seeds": seeds, "table": table, "variants": variants, "planted": planted}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("command", choices=[*COMMANDS, "report"])
    p.add_argument("--narrow", required=True)
    p.add_argument("--shared", required=True)
    p.add_argument("--smol")
    p.add_argument("--gemma")
    p.add_argument("--work", default="build/quality")
    p.add_argument("--models", default="tiny1m,stories260K")
    p.add_argument("--methods", default="rtn,imatrix,awq,gptq,gptq-refit")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--variants", type=int, default=20)
    p.add_argument("--cells", help="LAYOUT:METHOD,... in place of the whole table")
    p.add_argument("--windows", type=int, default=0, help="0: the model's own number")
    p.add_argument("--threads", default="0")
    args = p.parse_args()
    bench = Bench(args)
    if args.command == "report":
        for kind, report in REPORTS.items():
            rows = [r for r in bench.rows if r["kind"] == kind]
            if rows:
                print(f"\n## {kind}")
                report(rows)
        return
    models = []
    for name in args.models.split(","):
        model = prepare(bench, MODELS[name], args.command == "planted")
        if model is None:
            print(f"skipped: {name} cannot be had", file=sys.stderr)
        else:
            models.append(model)
    COMMANDS[args.command](bench, models)


if __name__ == "__main__":
    main()
