"""Ours beside llama.cpp, interleaved: both stay open as processes that run steps on request (bench/steps.c,
llama_steps.c), and take turns round by round in alternating order, with a raw read of memory in between. Prints
a Markdown table: the ratio is that of one round's neighbours, as median with its range over the rounds.

usage: speed.py --steps BIN --peer-steps BIN --peer-bin DIR --narrow BIN --work DIR [--smol GGUF]
                [--minutes 12] [--only decode,prefill,...] [--threads 2] [--short]
SPDX-License-Identifier: Apache-2.0"""
import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time

from models import Models

CTX, DEPTH = 1024, 4096
READ = "read 256 0.12"
HOG = [sys.executable, "-c", "while True: pass"]


@dataclasses.dataclass(frozen=True)
class Side:
    """One process: whose, which model and how it is opened."""
    who: str  # "ours", "peer" (llama.cpp) or "ct2" (CTranslate2)
    model: str
    kv: str = "bf16"
    mode: str = "a16"  # ours: a16 or a8; the peer: flash attention 0, 1 or auto
    seqs: int = 1
    ctx: int = CTX
    depth: int = 0
    busy: bool = False  # measured beside a competing job

    def name(self):
        if self.who == "ct2":
            return "CTranslate2 INT8"
        if self.who == "peer":
            return self.model + (f", {self.kv} KV" if self.depth or self.kv != "f16" else "")
        kv = f", {self.kv} KV" if self.depth else ""
        return f"{self.model} {self.mode}{kv}" if self.model != "bf16" else f"bf16{kv}"


@dataclasses.dataclass(frozen=True)
class Row:
    regime: str
    ours: Side
    peer: Side  # None: ours alone
    command: str
    tokens: int  # of one command
    goal: float  # least ratio; 0: none stated
    peer_command: str = ""
    peer_tokens: int = 0


def ours(model, mode="a16", **more):
    return Side("ours", model, mode="a16" if model == "bf16" else mode, **more)


def peer(model, kv="f16", mode="auto", **more):
    return Side("peer", model, kv=kv, mode=mode, **more)


FORMATS = (("int4-g32", "Q4_0"), ("int4-g128", "Q4_0"), ("int8", "Q8_0"), ("bf16", "BF16"))


def decode_rows(n=48):
    goals = {"int4-g32": 1.2, "int4-g128": 1.3, "int8": 1.2, "bf16": 1.15}
    rows = [Row("decode, batch 1", ours(w, "a8" if w == "int8" else "a16"), peer(p), f"decode {n} 1", n, goals[w])
            for w, p in FORMATS]
    return rows + [Row("decode, batch 1", ours("int4-g32", "a8"), peer("Q4_0"), f"decode {n} 1", n, 1.2),
                   Row("decode, batch 1", ours("int4-g128", "a8"), peer("Q4_0"), f"decode {n} 1", n, 1.3)]


def prefill_rows():
    goals = {"int4-g32": 2.3, "int4-g128": 2.6, "int8": 5, "bf16": 1.45}
    rows = [Row("prefill 512", ours(w, "a8"), peer(p), "prefill 512", 512, goals[w]) for w, p in FORMATS]
    return rows + [Row("prefill 512", ours("int4-g32"), peer("Q4_0"), "prefill 512", 512, 1.4)]


def batch_rows(n=8):
    goals = {"int4-g32": 2.0, "int4-g128": 2.15, "int8": 4.7, "bf16": 1.4}
    many = {"seqs": 32, "ctx": 128, "depth": 16}
    command, tokens = f"decode {n} 32", 32 * n
    rows = [Row("32 sequences decoding", ours(w, "a8", **many), peer(p, **many), command, tokens, goals[w])
            for w, p in FORMATS]
    return rows + [Row("32 sequences decoding", ours("int4-g32", **many), peer("Q4_0", **many), command, tokens, 1.05)]


def depth_rows(n=16):
    deep = {"ctx": DEPTH + 640, "depth": DEPTH}
    out = []
    for w, p, q8, best in (("int4-g32", "Q4_0", 2.2, 1.5), ("int8", "Q8_0", 2.0, 1.4)):
        o = ours(w, "a8", kv="int8", **deep)
        out += [Row(f"decode at depth {DEPTH}", o, peer(p, "q8_0", "1", **deep), f"decode {n} 1", n, q8),
                Row(f"decode at depth {DEPTH}", o, peer(p, "f16", "0", **deep), f"decode {n} 1", n, best)]
    o = ours("int4-g32", "a8", kv="int8", **deep)
    b = ours("int4-g32", "a8", kv="bf16", **deep)
    return out + [
        Row(f"prefill 512 at depth {DEPTH}", o, peer("Q4_0", "f16", "0", **deep), "prefill 512", 512, 4),
        Row(f"prefill 512 at depth {DEPTH}", b, peer("Q4_0", "f16", "0", **deep), "prefill 512", 512, 4),
        Row(f"prefill 512 at depth {DEPTH}", o, peer("Q4_0", "q8_0", "1", **deep), "prefill 512", 512, 10,
            "prefill 128", 128)]


def smol_rows():
    out, n = [], 128
    for w, p, goal in (("int4-g32", "Q4_0", 1.5), ("int8", "Q8_0", 1.4), ("bf16", "BF16", 1.05)):
        o = ours(w, "a16" if w == "int4-g32" else "a8")
        out += [Row("SmolLM2 decode", o, peer(p), f"decode {n} 1", n, goal),
                Row("SmolLM2 prefill 512", ours(w, "a8"), peer(p), "prefill 512", 512, 1.5)]
    return out


def ct2_rows(n=48):
    o, c = ours("int8", "a8"), Side("ct2", "int8")
    return [Row("decode, batch 1", o, c, f"decode {n} 1", n, 0), Row("prefill 512", o, c, "prefill 512", 512, 0)]


def formats_rows(n=16):
    """Ours against our own BF16, 3B shape."""
    base = ours("bf16")
    goals = {"int4-g32": 3.2, "int4-g128": 3.4, "nvfp4": 0, "mxfp4": 0, "bf16-12": 1.25}
    return [Row("3B decode against BF16", ours(w), base, f"decode {n} 1", n, g) for w, g in goals.items()]


class Child:
    """A process that answers each line with one line."""

    def __init__(self, argv):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer or answer.startswith("error"):
            raise RuntimeError(f"{line}: {answer or 'the process is gone'}")
        return answer

    def peak_bytes(self):
        """The most memory that was the process's, pages of mapped files among it."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Bench:
    def __init__(self, args):
        self.args = args
        self.models = Models(args.work, args.narrow, args.peer_bin, args.smol)
        self.open, self.facts, self.reads, self.lines = {}, {}, [], []
        self.failed = False
        self.reader = Child([args.steps, "-", str(args.threads)])

    def path(self, shape, side):
        return self.models.peer(shape, side.model) if side.who == "peer" else self.models.ours(shape, side.model)

    def argv(self, shape, side):
        a = self.args
        if side.who == "ct2":
            return [a.python, os.path.join(os.path.dirname(__file__), "ctranslate2_steps.py"), shape,
                    self.models.path(f"{shape}-ct2"), str(a.threads)]
        path = self.path(shape, side)
        if side.who == "ours":
            return [a.steps, path, str(a.threads), side.kv, side.mode, str(side.ctx), str(side.seqs)]
        state = [self.models.path(f"{shape}-{side.depth}-{side.kv}-{side.mode}.state")] \
            if side.depth and side.seqs == 1 else []
        return [a.peer_steps, path, str(a.threads), side.kv, side.mode, str(side.ctx), str(side.seqs), *state]

    def child(self, shape, side):
        key = (shape, dataclasses.replace(side, busy=False))
        if key not in self.open:
            c = Child(self.argv(shape, side))
            if side.who != "ct2":
                c.ask(f"depth {side.depth}")
                self.facts[key] = json.loads(c.ask("facts"))
            c.ask(f"decode 2 {side.seqs}")
            self.open[key] = c
        return self.open[key]

    def opens(self, shape, row):
        """A model that cannot be made or opened is told, and the rest goes on."""
        try:
            self.child(shape, row.ours)
            if row.peer:
                self.child(shape, row.peer)
            return True
        except RuntimeError as e:
            self.failed = True
            self.line(row.regime, row.ours.name(), row.peer.name() if row.peer else "",
                      "not measured: " + str(e).replace("\n", " ")[-100:], "", "", "", "", "", 0)
            return False

    def close_all(self):
        for c in self.open.values():
            c.close()
        self.open = {}

    def read(self):
        rate = float(self.reader.ask(READ))
        self.reads.append(rate)
        return rate

    def once(self, shape, side, command):
        child = self.child(shape, side)
        hog = subprocess.Popen(HOG) if side.busy else None
        try:
            if hog:
                time.sleep(0.3)
            return float(child.ask(command))
        finally:
            if hog:
                hog.kill()
                hog.wait()

    def measure(self, shape, rows, until, least, most=25):
        """Rounds of all that the rows need, each thing once a round; [(row, [(ours s, peer s, raw)])]. An interrupt ends
        them with those that are whole."""
        kept = [r for r in rows if self.opens(shape, r)]
        todo = []  # in order of need: the two sides of a row stand close together
        for r in kept:
            pairs = [(r.ours, r.command), (r.peer, r.peer_command or r.command)] if r.peer else [(r.ours, r.command)]
            todo += [p for p in pairs if p not in todo]
        out = [(r, []) for r in kept]
        n = 0
        while n < least or (time.monotonic() < until and n < most):
            seconds, raw = {}, {}
            try:
                for side, command in todo if n % 2 == 0 else reversed(todo):
                    raw[side, command] = self.read()
                    seconds[side, command] = self.once(shape, side, command)
            except KeyboardInterrupt:
                if n == 0:
                    raise
                break
            for r, list_of in out:
                theirs = seconds[r.peer, r.peer_command or r.command] if r.peer else None
                list_of.append((seconds[r.ours, r.command], theirs, raw[r.ours, r.command]))
            n += 1
        return out

    def weight_bytes(self, shape, side):
        f = self.facts[shape, dataclasses.replace(side, busy=False)]
        return f["weight_bytes"] + f["kv_bytes_per_token"] * side.depth

    def table(self, shape, measured):
        for r, rounds in measured:
            rate = statistics.median(r.tokens / o for o, _, _ in rounds)
            share = ""
            if r.command.startswith("decode") and r.ours.seqs == 1 and not r.ours.busy:
                n_bytes = self.weight_bytes(shape, r.ours)
                share = spread([n_bytes * r.tokens / o / raw for o, _, raw in rounds], "{:.0%}")
            if r.peer:
                per = (r.peer_tokens or r.tokens) / r.tokens
                ratios = [p / per / o for o, p, _ in rounds]
                theirs = statistics.median((r.peer_tokens or r.tokens) / p for _, p, _ in rounds)
                met = "" if not r.goal else "yes" if statistics.median(ratios) >= r.goal else "**no**"
                goal = f"{r.goal:g}×" if r.goal else ""
                self.line(r.regime, r.ours.name(), r.peer.name(), f"{rate:.1f}", f"{theirs:.1f}", spread(ratios, "{:.2f}"),
                          goal, met, share, len(rounds))
            else:
                self.line(r.regime, r.ours.name(), "", f"{rate:.1f}", "", "", "", "", share, len(rounds))

    def line(self, *cells):
        self.lines.append("| " + " | ".join(str(c) for c in cells) + " |")
        print(self.lines[-1], file=sys.stderr, flush=True)

    # ---- what is not a rate of steps ----

    def busy(self, shape, until, least):
        """Tokens a second kept beside one competing job."""
        for side, n in ((ours("int4-g32"), 48), (peer("Q4_0"), 48)):
            kept = []
            k = 0
            while k < least or (time.monotonic() < until and k < 9):
                alone = n / self.once(shape, side, f"decode {n} 1")
                m = n if side.who == "ours" else 4
                kept.append(m / self.once(shape, dataclasses.replace(side, busy=True), f"decode {m} 1") / alone)
                k += 1
            goal, met = "", ""
            if side.who == "ours":
                goal, met = "40%", "yes" if statistics.median(kept) >= 0.4 else "**no**"
            self.line("decode kept beside one competing job", side.name() if side.who == "ours" else "",
                      side.name() if side.who == "peer" else "", "", "", spread(kept, "{:.0%}"), goal, met, "", len(kept))

    def gemv(self, shape, until, least, n=200):
        """One matrix of 2048 x 2048 out of the cache, beside OpenVINO's compressed INT4."""
        side = ours("int4-g128")
        here = self.child(shape, side)
        there = Child([self.args.python, os.path.join(os.path.dirname(__file__), "openvino_steps.py"), "2048", "2048",
                       str(self.args.threads)])
        rounds = []
        while len(rounds) < least or (time.monotonic() < until and len(rounds) < 25):
            order = (here, there) if len(rounds) % 2 == 0 else (there, here)
            rounds.append({c: float(c.ask(f"gemv {n}")) for c in order})
        there.close()
        ratios = [r[there] / r[here] for r in rounds]
        self.line("INT4 matrix of 2048 x 2048, ms a vector", side.name(), "OpenVINO INT4",
                  f"{1e3 / n * statistics.median(r[here] for r in rounds):.4f}",
                  f"{1e3 / n * statistics.median(r[there] for r in rounds):.4f}", spread(ratios, "{:.2f}"), "", "", "",
                  len(rounds))

    def first_token(self, shape, side):
        start = time.monotonic()
        c = Child(self.argv(shape, side))
        c.ask("decode 1 1")
        seconds = time.monotonic() - start
        c.close()
        return seconds

    def peak_beyond(self, shape, side):
        """After a prompt of a whole step, which touches all that a step works in: beyond the files' size and KV. Weights
        that were copied into huge pages took the place of the file's, so that the sum counts them once."""
        folder = self.models.ours(shape, side.model)
        files = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
        c = Child(self.argv(shape, side))
        c.ask("prefill 512")
        c.ask("decode 2 1")
        peak, facts = c.peak_bytes(), json.loads(c.ask("facts"))
        c.close()
        return peak - files - facts["kv_bytes"]

    def load(self, shape, until, least):
        """From the start of a process to its first token, files in the page cache; peak memory of ours."""
        o, p = ours("int4-g32"), peer("Q4_0")
        for side in (o, p):
            self.first_token(shape, side)
        rounds = []
        while len(rounds) < least or (time.monotonic() < until and len(rounds) < 9):
            order = (o, p) if len(rounds) % 2 == 0 else (p, o)
            rounds.append({s.who: self.first_token(shape, s) for s in order})
        ratios = [r["peer"] / r["ours"] for r in rounds]
        self.line(f"{shape.upper()} start to first token, seconds", o.name(), p.name(),
                  f"{statistics.median(r['ours'] for r in rounds):.2f}",
                  f"{statistics.median(r['peer'] for r in rounds):.2f}", spread(ratios, "{:.2f}"), "3×",
                  "yes" if statistics.median(ratios) >= 3 else "**no**", "", len(rounds))
        over = self.peak_beyond(shape, o) / 2**20
        self.line(f"{shape.upper()} peak memory beyond file and KV after a prefill of 512, MiB", o.name(), "", f"{over:.0f}", "", "",
                  "at most 64", "yes" if over <= 64 else "**no**", "", 1)


def spread(x, how):
    return f"{how.format(statistics.median(x))} ({how.format(min(x))}–{how.format(max(x))})"


# name, share of the time, shape, rows
PHASES = (("decode", 0.16, "1b", decode_rows), ("prefill", 0.16, "1b", prefill_rows), ("batch", 0.16, "1b", batch_rows),
          ("depth", 0.2, "1b", depth_rows), ("ct2", 0.05, "1b", ct2_rows), ("smol", 0.1, "smol", smol_rows), ("formats", 0.1, "3b", formats_rows))


def run(args):
    b = Bench(args)
    wanted = args.only.split(",") if args.only else [p[0] for p in PHASES] + ["busy", "gemv", "load"]
    if args.short:
        args.minutes, args.rounds = 0, 2
        wanted = args.only.split(",") if args.only else ["decode", "prefill", "batch", "load"]
    if args.prepare:
        args.minutes, args.rounds = 0, 1
    for name, share, shape, rows in PHASES:
        if name not in wanted or (shape == "smol" and not args.smol) or (name == "ct2" and not args.python):
            continue
        shape = args.shape if shape == "1b" else shape
        until = time.monotonic() + 60 * args.minutes * share
        b.table(shape, b.measure(shape, rows(), until, args.rounds))
        b.close_all()
    if "busy" in wanted:
        b.busy(args.shape, time.monotonic() + 60 * args.minutes * 0.06, args.rounds)
        b.close_all()
    if args.python and "gemv" in wanted:
        b.gemv(args.shape, time.monotonic() + 60 * args.minutes * 0.03, args.rounds)
        b.close_all()
    if "load" in wanted:
        b.load("3b" if not args.short else args.shape, time.monotonic() + 60 * args.minutes * 0.06, args.rounds)
    print("| regime | ours | peer | ours t/s | peer t/s | ratio, median (range) | floor | met | share of raw read | rounds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    print("\n".join(b.lines))
    gb = [r / 1e9 for r in b.reads]
    if gb:
        print(f"\n{args.threads} threads; raw read {spread(gb, '{:.1f}')} GB/s over {len(gb)} readings; t/s are medians.")
    return 1 if b.failed else 0


def main():
    p = argparse.ArgumentParser()
    for name in ("steps", "peer-steps", "peer-bin", "narrow", "work"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--smol")
    p.add_argument("--python", help="one that has the packages of packages.txt")
    p.add_argument("--minutes", type=float, default=12)
    p.add_argument("--rounds", type=int, default=5, help="at least so many")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", help="decode,prefill,batch,depth,ct2,smol,formats,busy,gemv,load")
    p.add_argument("--shape", default="1b")
    p.add_argument("--short", action="store_true", help="two rounds of decode, prefill, batch and load")
    p.add_argument("--prepare", action="store_true", help="one round, so that everything is made")
    return run(p.parse_args())


if __name__ == "__main__":
    sys.exit(main())
