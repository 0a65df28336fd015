#!/usr/bin/env python3
"""No spills in the hot loops of the AVX-512 and AVX2 linear kernels, read from the disassembly.

A hot loop is the smallest one (a jump back) around two or more dot product instructions. A vector
register that it stores on the stack is a spill: one in twelve products is let pass, and one read
from there in six (a constant that found no register). What costs a factor moves every sum. AVX2 has
half the registers, and keeps the sums of groups of several parts in memory on purpose: there loops of 32
and more products are held, and one in four is let pass.
usage: check_spills.py LIBRARY. Ends with 77, and says why, where that cannot be judged.
SPDX-License-Identifier: Apache-2.0
"""
import re
import shutil
import subprocess
import sys
import tempfile

# not avx512_bf16_12.c: its loop holds the rare path that puts escapes in place, through memory
# member: products of a hot loop at least, products for each store and for each load that is let pass
AVX512 = (2, 12, 6)
AVX2 = (32, 4, 4)
MEMBERS = {"avx512_float.c.o": AVX512, "avx512_group.c.o": AVX512, "avx512_nibble.c.o": AVX512,
           "avx512_nibble_one.c.o": AVX512, "avx512_row_a8.c.o": AVX512, "avx512_row_a16.c.o": AVX512,
           "avx2_int.c.o": AVX2, "avx2_nibble.c.o": AVX2, "avxvnni.c.o": AVX2}
DOT = re.compile(r"(?:\{vex\} )?vpdpbusd|vdpbf16ps|vpmaddubsw|vpmaddwd")
STORE = re.compile(r"^v\w+\s+%[yz]mm\d+,-?\w*\(%r[sb]p\)")
FROM_STACK = re.compile(r"^v\w+\s+.*\(%rsp\),?.*%[yz]mm")


def skip(why):
    print(f"check_spills: skipped: {why}")
    sys.exit(77)


def functions(text):
    """name -> [(address, instruction)]"""
    found, lines = {}, None
    for line in text.splitlines():
        head = re.match(r"^[0-9a-f]+ <(.+)>:", line)
        body = re.match(r"^\s*([0-9a-f]+):\s+(.*)$", line)
        if head:
            lines = found.setdefault(head.group(1), [])
        elif body and lines is not None:
            lines.append((int(body.group(1), 16), body.group(2).strip()))
    return found


def hot_loops(lines, least):
    """The bodies of the smallest loops with that many products."""
    at = {address: i for i, (address, _) in enumerate(lines)}
    loops = set()
    for i, (address, text) in enumerate(lines):
        jump = re.match(r"j\w+\s+([0-9a-f]+)", text)
        if jump and int(jump.group(1), 16) <= address and int(jump.group(1), 16) in at:
            first = at[int(jump.group(1), 16)]
            if sum(bool(DOT.match(t)) for _, t in lines[first:i + 1]) >= least:
                loops.add((first, i))
    for first, last in sorted(loops):
        if not any(o != (first, last) and o[0] >= first and o[1] <= last for o in loops):
            yield lines[first][0], [t for _, t in lines[first:last + 1]]


def check(name, text, limits):
    n, bad = 0, 0
    least, per_store, per_load = limits
    for function, lines in functions(text).items():
        for address, body in hot_loops(lines, least):
            dots = sum(bool(DOT.match(t)) for t in body)
            stores = [t for t in body if STORE.match(t)]
            loads = [t for t in body if FROM_STACK.match(t)]
            n += 1
            if len(stores) * per_store > dots or len(loads) * per_load > dots:
                bad += 1
                print(f"{name} {function} at {address:#x}: {dots} products, {len(stores)} stores "
                      f"of registers, {len(loads)} loads from the stack")
    return n, bad


def main():
    library = sys.argv[1]
    if shutil.which("objdump") is None or shutil.which("ar") is None:
        skip("no objdump or ar here")
    members = subprocess.run(["ar", "t", library], capture_output=True, text=True,
                             check=True).stdout.split()
    total, faults = 0, 0
    for name, limits in MEMBERS.items():
        if name not in members:
            skip(f"{name} is not in the library (another processor)")
        data = subprocess.run(["ar", "p", library, name], capture_output=True, check=True).stdout
        if b"__asan_" in data or b"__tsan_" in data or b"__assert_fail" in data:
            skip("built with a sanitizer or assertions")
        if b"clang version" in data:
            skip("built by clang; the loops are held for gcc")
        with tempfile.NamedTemporaryFile(suffix=".o") as file:
            file.write(data)
            file.flush()
            text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", file.name],
                                  capture_output=True, text=True, check=True).stdout
        n, bad = check(name, text, limits)
        if n == 0:
            print(f"{name}: no loop with products was found")
            bad = 1
        total, faults = total + n, faults + bad
    print(f"{total} hot loops, {faults} with registers in memory")
    sys.exit(1 if faults else 0)


main()
