#!/usr/bin/env python3
"""A 7B-shaped checkpoint through narrow quantize: memory, rate beside a plain copy, and kill -9.

usage: quantize_7b.py NARROW      NARROW_7B_LAYERS: 32 (13.5 GB; fewer to try it out)
                                  NARROW_7B_DIR: where (the system's temporary folder)

Makes random BF16 shards, then
  - copies as many bytes as quantizing reads and writes (cold cache, fsync at the end): the disk's time;
  - quantizes to INT4 RTN, the searched scales and absmax, each from a cold cache, under a limit of 2 GB
    of private memory, watching the anonymous memory in use;
  - kills a run with -9 in the middle, has it go on, and compares every byte.
Exit code 77, with a line that says why, where the disk has no room: 20 GB for 32 layers.
Standard library only.
SPDX-License-Identifier: Apache-2.0
"""
import glob
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

LAYERS = int(os.environ.get("NARROW_7B_LAYERS", "32"))
NEED = int(20e9 * (LAYERS + 2) / 34)
MEMORY = 2 * 10**9
LEAST_SHARE = 0.6
HERE = os.path.dirname(os.path.abspath(__file__))


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def shards(model):
    return sorted(glob.glob(os.path.join(model, "*.safetensors")))


def forget(paths):
    """Out of the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def copy_seconds(model, n_out, path, letting_go=False):
    """Reads the shards cold and writes n_out bytes beside: what the disk alone takes for the job.
    letting_go: what was read leaves the page cache at once, as narrow has a large source do."""
    forget(shards(model))
    total = sum(os.path.getsize(p) for p in shards(model))
    begin, done, written = time.time(), 0, 0
    buffer = bytearray(4 << 20)
    with open(path, "wb", buffering=0) as out:
        for shard in shards(model):
            with open(shard, "rb", buffering=0) as f:
                while n := f.readinto(buffer):
                    done += n
                    if letting_go and f.tell() % (64 << 20) == 0:
                        os.posix_fadvise(f.fileno(), 0, f.tell(), os.POSIX_FADV_DONTNEED)
                    part = int(n_out * (done / total)) - written
                    out.write(memoryview(buffer)[:part])
                    written += part
        os.fsync(out.fileno())
    seconds = time.time() - begin
    os.unlink(path)
    return seconds


def limit_memory():
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def start(narrow, model, recipe, out):
    return subprocess.Popen([narrow, "quantize", model, "--recipe", recipe, "-o", out,
                             "--no-tokenizer", "--quiet"], preexec_fn=limit_memory,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def anonymous_bytes(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith("RssAnon:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0


def run(narrow, model, recipe, out):
    """Seconds, user and system seconds, peak of anonymous memory, output."""
    forget(shards(model))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin, peak = time.time(), 0
    p = start(narrow, model, recipe, out)
    while p.poll() is None:
        peak = max(peak, anonymous_bytes(p.pid))
        time.sleep(0.02)
    seconds = time.time() - begin
    text = p.stdout.read()
    if p.returncode != 0:
        fail(f"quantize: exit {p.returncode}\n{text}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, peak, text


def digests(folder):
    result = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as f:
            result[name] = hashlib.file_digest(f, "sha256").hexdigest()
    return result


def finished_tensors(out):
    n = 0
    for path in glob.glob(out + ".partial-*/journal.jsonl"):
        with open(path, "rb") as f:
            n = f.read().count(b"\n") - 1
    return n


def killed_run(narrow, model, recipe, out, n_tensors):
    """Ends in the middle; returns how many tensors stand."""
    p = start(narrow, model, recipe, out)
    while p.poll() is None and finished_tensors(out) < n_tensors // 2:
        time.sleep(0.02)
    p.kill()
    p.wait()
    if os.path.exists(out):
        fail("the killed run was done before the kill")
    return finished_tensors(out)


def report(name, seconds, cpu, peak, n_in, copy, lean):
    print(f"{name:<16} {seconds:6.1f} s, {n_in / seconds / 1e6:5.0f} MB/s of source, "
          f"{cpu:5.1f} s of CPU ({n_in * os.cpu_count() / cpu / 1e6:.0f} MB/s with all processors to "
          f"itself), {copy / seconds:4.0%} of a plain copy's rate ({lean / seconds:.0%} of one that lets go), "
          f"{peak / 1e6:.1f} MB anonymous")
    if peak > MEMORY:
        fail(f"{peak / 1e9:.2f} GB of anonymous memory, at most {MEMORY / 1e9:.0f}")


def check(narrow, folder):
    model, out = os.path.join(folder, "model"), os.path.join(folder, "out")
    subprocess.run([sys.executable, os.path.join(HERE, "llama_shape.py"), str(LAYERS), model],
                   check=True, stdout=subprocess.DEVNULL)
    absmax = os.path.join(folder, "absmax.yaml")
    with open(absmax, "w") as f:
        f.write("activations: a16\nscale: absmax\n"
                "targets:\n  - {match: '.*_proj', weights: int4-g64}\n")
    n_in = sum(os.path.getsize(p) for p in shards(model))
    shares = []
    whole = None
    for name, recipe in ("int4-g64 searched", "int4-g64"), ("int4-g64 absmax", absmax):
        seconds, cpu, peak, text = run(narrow, model, recipe, out)
        n_out = sum(os.path.getsize(os.path.join(out, f)) for f in os.listdir(out))
        whole = whole or digests(out)
        shutil.rmtree(out)
        copy = copy_seconds(model, n_out, out + ".copy")
        lean = copy_seconds(model, n_out, out + ".copy", True)
        if not shares:
            print(f"{LAYERS} layers: {n_in / 1e9:.2f} GB to {n_out / 1e9:.2f} GB; a plain copy of "
                  f"as many bytes takes {copy:.1f} s, {lean:.1f} s when it lets go what it has read")
        report(name, seconds, cpu, peak, n_in, copy, lean)
        shares.append(copy / seconds)
    n_done = killed_run(narrow, model, "int4-g64", out, 9 * LAYERS + 3)
    seconds, _, peak, _ = run(narrow, model, "int4-g64", out)
    if digests(out) != whole:
        fail("the run that was killed went on to other bytes")
    print(f"killed behind {n_done} of {9 * LAYERS + 3} tensors, went on for {seconds:.1f} s to the "
          f"same bytes")
    if min(shares) < LEAST_SHARE:
        fail(f"{min(shares):.0%} of a plain copy's rate, {LEAST_SHARE:.0%} is wanted")


def main():
    place = os.environ.get("NARROW_7B_DIR", tempfile.gettempdir())
    free = shutil.disk_usage(place).free
    if free < NEED:
        print(f"skipped: quantize_7b needs {NEED / 1e9:.0f} GB of disk in {place}, "
              f"{free / 1e9:.1f} GB are free")
        sys.exit(77)
    folder = tempfile.mkdtemp(prefix="narrow-7b-", dir=place)
    try:
        check(os.path.abspath(sys.argv[1]), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
