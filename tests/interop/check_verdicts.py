"""The same artifacts in two whole studies: on narrow's own engine, and on another vendor's server through
TARGET = URL (vLLM, or llama.cpp's). Both have to keep the same runs, every request with its times and
counts, and come to the same verdicts, gate by gate. Control: a mis-packed twin on the server, compared
with the sound artifact here, must get another verdict.

Speed has no gate here: two engines differ in it, which is what a study is for. KL and top-1 agreement need
all logits, which no server gives. llama.cpp's server gives no log-probabilities of prompts either: what it
cannot measure has to be told in its record, and everything else is compared.

A folder that vLLM has no kernel for on this processor is left out, with the reason.

usage: check_verdicts.py NARROW SHARED WORK vllm|llama PROGRAM BASELINE NAME=DTYPE:PATH...
PROGRAM: Python that has vLLM, or llama-server. BASELINE is DTYPE:PATH; the twin is of the first that is served.
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../peers"))
import check_gguf

STUDY = """study: {name}
model: {model}
work: {work}
policy: {policy}
baseline: {{name: bf16, artifact: "{baseline}"}}
candidates:
{candidates}
quality: {{text: {text}, context: 256, windows: 16, choice: "builtin:basics", generate: "builtin:assistant",
          items: {items}}}
batch1: {{prompt: 64, output: 16, requests: 3, warmup: 1, natural: 2}}
load: {{prompt: [8, 16], output: [4, 8], requests: 6, warmup_s: 0, rates: [0.5], max_seqs: 4}}
"""
# Margins that so few items can decide, as the rounding of two engines moves answers: INT8 and FP8 are inside of all,
# 4 bits by absmax out of the perplexity's alone (0.2 to 0.3 nats), the twin out of each that is no advice.
POLICY = """policy: verdicts
gates:
  - {name: accuracy, kind: accuracy, suites: "choice:*", margin: 0.3}
  - {name: task score, kind: relative, suites: "generate:*", margin: 0.5}
  - {name: length, kind: length, suites: "generate:*", margin: 0.9, advisory: true}
  - {name: perplexity, kind: perplexity, suites: "perplexity", margin: 0.12}
"""
ITEMS = int(os.environ.get("NARROW_VERDICT_ITEMS", "64"))  # of a suite; few decide little
START_S = 1800  # of a server, on a machine with other work


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(kind, program, path, dtype, port):
    """One thread: threads of both wait spinning, and a machine with other work pays for that many times over."""
    if kind == "vllm":
        return [program, os.path.join(HERE, "vllm_server.py"), "--model", path, "--served-model-name", "model",
                "--dtype", dtype, "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "4", "--host",
                "127.0.0.1", "--port", str(port)]
    return [program, "-m", path, "--host", "127.0.0.1", "--port", str(port), "-c", "8192", "-np", "4", "-t", "1",
            "--jinja", "--alias", "model"]


@contextlib.contextmanager
def server(kind, program, path, dtype, work):
    port = free_port()
    env = dict(os.environ)
    if kind == "vllm":
        from vllm_kernels import ENVIRONMENT  # needs numpy, which vLLM's Python has
        env.update(ENVIRONMENT, VLLM_LOGGING_LEVEL="WARNING", VLLM_NO_USAGE_STATS="1",
                   VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1")
    log = os.path.join(work, f"server-{port}.log")
    with open(log, "wb") as out:
        p = subprocess.Popen(command(kind, program, path, dtype, port), stdout=out, stderr=out, env=env,
                             start_new_session=True)
    try:
        wait_for(p, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        p.terminate()
        try:
            p.wait(60)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):  # and what it started
            os.killpg(p.pid, signal.SIGKILL)
        p.wait()


def wait_for(p, port, log):
    end = time.monotonic() + START_S
    while time.monotonic() < end and p.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    with open(log, encoding="utf-8", errors="replace") as f:
        raise SystemExit(f"the server does not start:\n{f.read()[-2000:]}")


def study(narrow, shared, work, name, model, baseline, candidates):
    """Runs a study, in a folder that may hold runs of it, and decides. Its record and its verdicts by (candidate,
    gate, slice)."""
    folder = os.path.join(work, name)
    policy, path = os.path.join(work, "policy.yaml"), os.path.join(work, name + ".yaml")
    rows = "\n".join(f'  - {{name: {n}, artifact: "{a}"}}' for n, a in candidates.items())
    with open(policy, "w", encoding="ascii") as f:
        f.write(POLICY)
    with open(path, "w", encoding="ascii") as f:
        f.write(STUDY.format(name=name, model=model, work=folder, policy=policy, baseline=baseline, candidates=rows,
                             text=os.path.join(shared, "data/text/wiki.test.raw"), items=ITEMS))
    subprocess.run([narrow, "study", path, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    record = os.path.join(folder, "study.db")
    out = subprocess.run([narrow, "decide", record, "--policy", policy, "--dry-run", "--json"], check=False,
                         stdout=subprocess.PIPE).stdout
    verdicts = {(v["candidate"], v["gate"], v["slice"]): v for v in json.loads(out)["verdicts"]}
    return record, verdicts


def rows(record, sql):
    with contextlib.closing(sqlite3.connect(record)) as db:
        return db.execute(sql).fetchall()


def runs(record):
    return {tuple(r) for r in rows(record, "SELECT candidate, stage, suite, status FROM run")}


def check_record(record, page):
    """Requests that lack a time or a count, and names that the page lacks. A load's run cancels what it sent after its
    window, to keep the server busy."""
    kept = "FROM request WHERE NOT (status = 'cancelled' AND run_id IN (SELECT id FROM run WHERE stage = 'load'))"
    empty = rows(record, f"""SELECT count(*) {kept} AND (status != 'ok' OR n_prompt IS NULL OR n_prompt <= 0
        OR n_output IS NULL OR n_output <= 0 OR f_ns IS NULL OR l_ns IS NULL OR d_ns IS NULL)""")[0][0]
    n = rows(record, f"SELECT count(*) {kept}")[0][0]
    with open(page, encoding="utf-8") as f:
        text = f.read()
    absent = [c for c, in rows(record, "SELECT name FROM candidate") if c not in text]
    bad = empty > 0 or n == 0 or bool(absent)
    print(f"{record}: {n} requests, {empty} of them without times or counts; the page lacks {absent or 'nothing'}"
          f"{'  FAILED' if bad else ''}", flush=True)
    return bad


def number(x):
    return "-" if x is None else f"{x:.4f}"


def same(mine, theirs):
    """Prints both sides of each verdict. Those that differ, by candidate."""
    apart = {}
    for key in sorted(mine):
        a, b = mine[key], theirs.get(key) or unmeasured_slice(theirs, key)
        if b is None or (b["verdict"] != a["verdict"] and not unmeasured(b)):
            apart.setdefault(key[0], []).append(key[1])
        print(f"  {key[0]:<8} {key[1]:<11} {key[2]:<20} here {a['verdict']:<12} {number(a['estimate'])} "
              f"[{number(a['lo'])}, {number(a['hi'])}]   there "
              + (f"{b['verdict']:<12} {number(b['estimate'])} [{number(b['lo'])}, {number(b['hi'])}] n {b['n']}"
                 if b else "nothing"), flush=True)
        if b is not None and unmeasured(b):
            print(f"           not measured there: {b['why']}")
    return apart


def unmeasured(verdict):
    """Told in the record as what this server cannot give: a gate without its slice, which is never passed."""
    return verdict["estimate"] is None and "log-probabilities" in (verdict["why"] or "")


def study_on_servers(narrow, shared, work, kind, program, base, parts):
    """As study. The server of the baseline runs throughout, those of the candidates (DTYPE, PATH) one after the other, as
    each takes the memory of a model and its cache: runs of the baseline that the record holds are not made again."""
    with server(kind, program, base[1], base[0], work) as baseline:
        for name, (dtype, path) in parts.items():
            with server(kind, program, path, dtype, work) as url:
                record, verdicts = study(narrow, shared, work, "there", base[1], baseline, {name: url})
    return record, verdicts


def unmeasured_slice(theirs, key):
    """A gate that has no run to judge there has its pattern for a slice."""
    return next((v for k, v in theirs.items() if k[:2] == key[:2] and unmeasured(v)), None)


def twin(kind, path, work):
    if kind == "vllm":
        import mispack
        return mispack.twin(path, work)
    out = os.path.join(work, "twin.gguf")
    g = check_gguf.Gguf(path)
    check_gguf.swap_nibbles(g)
    with open(out, "wb") as f:
        f.write(g.data)
    return out


def served(kind, parts):
    """Those that the server has kernels for."""
    if kind != "vllm":
        return parts
    from vllm_kernels import lacks
    why = {n: lacks(path) for n, (_, path) in parts.items()}
    for n, reason in why.items():
        if reason:
            print(f"{n}: skipped: {reason}", flush=True)
    return {n: p for n, p in parts.items() if not why[n]}


def main():
    narrow, shared, work, kind, program, baseline = sys.argv[1:7]
    named = dict(a.split("=", 1) for a in sys.argv[7:])
    os.makedirs(work, exist_ok=True)
    base = baseline.split(":", 1)
    parts = served(kind, {n: a.split(":", 1) for n, a in named.items()})
    broken = next(iter(parts))
    mine = {n: p for n, (_, p) in parts.items()}
    parts["broken"] = [parts[broken][0], twin(kind, mine[broken], work)]
    for name in ("here", "there"):
        shutil.rmtree(os.path.join(work, name), ignore_errors=True)
    record, here = study(narrow, shared, work, "here", base[1], base[1], mine)
    here.update({("broken", *key[1:]): v for key, v in here.items() if key[0] == broken})  # sound here
    their_record, there = study_on_servers(narrow, shared, work, kind, program, base, parts)
    bad = check_record(record, os.path.join(work, "here/report.html"))
    bad += check_record(their_record, os.path.join(work, "there/report.html"))
    missing = {r for r in runs(record) - runs(their_record) if r[1] != "quality" or kind == "vllm"}
    if missing:
        print(f"runs that the server's record lacks: {sorted(missing)}  FAILED")
    apart = same(here, there)
    noticed = apart.pop("broken", [])
    print(f"verdicts that differ: {apart or 'none'}{'  FAILED' if apart else ''}; of the mis-packed twin: "
          f"{noticed or 'none  FAILED: not noticed'}", flush=True)
    return 1 if bad or missing or apart or not noticed or not here else 0


if __name__ == "__main__":
    sys.exit(main())
