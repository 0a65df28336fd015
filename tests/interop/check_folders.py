"""Exported folders of a tiny model, decoded by a second, independent reader written here from the formats'
definitions in plain Python: every value of every quantized matrix equals what narrow reads, and a twin of
the folder whose codes or zero points stand in another order does not. The safetensors file is held to
the conventions of the format's own writer, and its bytes to the digests in tests/golden/folders.json
(NW_UPDATE_GOLDEN writes them anew). What the exporter wrote must be exact by its own report.

usage: check_folders.py NARROW MAKE_TINY WRITE_F32 GOLDEN
SPDX-License-Identifier: Apache-2.0"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile

SIZE = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "I8": 1, "U8": 1, "F8_E4M3": 1}
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column of nibble i of a word
# folder: layout of the matrices, activations, format, may its codes' order be mistaken (a twin)
FOLDERS = {
    "w4a16": ("int4-g32", "a16", "compressed-tensors"),
    "w4a16-asym": ("int4-g32-zp", "a16", "compressed-tensors"),
    "w8a16": ("int8", "a16", "compressed-tensors"),
    "w8a16-groups": ("int8-g32", "a16", "compressed-tensors"),
    "w8a8": ("int8", "a8", "compressed-tensors"),
    "fp8": ("fp8-e4m3", "fp8", "compressed-tensors"),
    "nvfp4": ("nvfp4", "a16", "compressed-tensors"),
    "mxfp4": ("mxfp4", "a16", "compressed-tensors"),
    "awq": ("int4-g32-zp", "a16", "awq"),
    "gptq": ("int4-g32", "a16", "gptq"),
    "gptq-8": ("int8-g32", "a16", "gptq"),
}


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def e4m3(b):
    e, m = b >> 3 & 15, b & 7
    v = float("nan") if e == 15 and m == 7 else m / 8 * 2.0 ** -6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
    return -v if b >> 7 else v


def e2m1(c):
    return E2M1[c & 7] * (-1 if c & 8 else 1)


class File:
    """A safetensors file, held to what every reader and the format's own writer agree on."""

    def __init__(self, path):
        raw = open(path, "rb").read()
        n = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8:8 + n])
        assert n % 8 == 0 and raw[8] == ord("{"), "header not padded to 8, or not first"
        assert header.pop("__metadata__") == {"format": "pt"}
        order = sorted(header, key=lambda k: header[k]["data_offsets"])
        assert order == sorted(header, key=lambda k: (-SIZE[header[k]["dtype"]], k)), "order of the data"
        end = 0
        for k in order:
            begin, after = header[k]["data_offsets"]
            count = 1
            for d in header[k]["shape"]:
                count *= d
            assert begin == end and after - begin == count * SIZE[header[k]["dtype"]], k
            end = after
        assert 8 + n + end == len(raw), "the data does not end with the file"
        self.header, self.raw, self.at = header, raw, 8 + n

    def bytes(self, name):
        begin, end = self.header[name]["data_offsets"]
        return self.raw[self.at + begin:self.at + end]

    def numbers(self, name):
        t, b = self.header[name]["dtype"], self.bytes(name)
        if t == "BF16":
            return [struct.unpack("<f", b"\0\0" + b[i:i + 2])[0] for i in range(0, len(b), 2)]
        if t in ("U8", "F8_E4M3"):
            return list(b)
        return list(struct.unpack("<%d%s" % (len(b) // SIZE[t], {"F32": "f", "F16": "e", "I32": "I", "I64": "q",
                                                               "I8": "b"}[t]), b))


def groups(config):
    return list(config.get("config_groups", {}).values())


def ct_matrix(f, m, weights, twin):
    """Rows of module m of compressed-tensors."""
    scale = f.numbers(m + ".weight_scale")
    rows = f.header[m + ".weight_scale"]["shape"][0]
    n_groups = len(scale) // rows
    if m + ".weight" in f.header:
        cols = f.header[m + ".weight"]["shape"][1]
        codes = f.numbers(m + ".weight")
        value = (lambda c: e4m3(c)) if weights["type"] == "float" else (lambda c: c)
        return [[f32(scale[r] * value(codes[r * cols + (cols - 1 - c if twin else c)])) for c in range(cols)]
                for r in range(rows)]
    packed, shape = f.numbers(m + ".weight_packed"), f.header[m + ".weight_packed"]["shape"]
    if weights["type"] == "float":
        cols = 2 * shape[1]
        if weights["strategy"] == "tensor_group":
            real = [f32(e4m3(s) / f.numbers(m + ".weight_global_scale")[0]) for s in scale]
        else:
            real = [2.0 ** (s - 127) for s in scale]
        width = cols // n_groups
        return [[f32(e2m1(packed[(r * cols + c) // 2] >> 4 * ((c + twin) % 2) & 15) * real[r * n_groups + c // width])
                 for c in range(cols)] for r in range(rows)]
    bits = weights["num_bits"]
    per, mask = 32 // bits, (1 << bits) - 1
    size = f.numbers(m + ".weight_shape")
    cols = size[1]
    width = cols // n_groups
    zeros = f.numbers(m + ".weight_zero_point") if not weights["symmetric"] else None
    out = []
    for r in range(rows):
        row = []
        for c in range(cols):
            k = c ^ 1 if twin else c
            q = packed[r * shape[1] + k // per] >> bits * (k % per) & mask
            g = c // width
            z = 1 << bits - 1 if zeros is None else zeros[r // per * n_groups + g] >> bits * (r % per) & mask
            row.append(f32(scale[r * n_groups + g] * (q - z)))
        out.append(row)
    return out


def words_matrix(f, m, config, twin):
    """Rows of module m of AWQ or GPTQ, which keep inputs first."""
    awq, bits = config["quant_method"] == "awq", config["bits"]
    per, mask = 32 // bits, (1 << bits) - 1
    n_groups, rows = f.header[m + ".scales"]["shape"]
    q, z, s = (f.numbers(m + k) for k in (".qweight", ".qzeros", ".scales"))
    cols = len(q) * per // rows
    order = f.numbers(m + ".g_idx") if not awq else [c // (cols // n_groups) for c in range(cols)]
    out = []
    for r in range(rows):
        lane = AWQ_ORDER.index(r % 8) if awq and not twin else r % per
        row = []
        for c in range(cols):
            g = order[c]
            if awq:
                code = q[c * (rows // 8) + r // 8] >> 4 * lane & mask
                zero = z[g * (rows // 8) + r // 8] >> 4 * lane & mask
            else:
                code = q[c // per * rows + r] >> bits * (c % per) & mask
                zero = z[g * (rows // per) + r // per] >> bits * (r % per) & mask
                zero += 0 if twin else 1  # v1 stores it less one
            row.append(f32(s[g * rows + r] * (code - zero)))
        out.append(row)
    return out


def modules(f):
    ends = (".weight_packed", ".qweight", ".weight_scale")
    return sorted({k[:-len(e)] for k in f.header for e in ends if k.endswith(e)})


def decode(folder, twin):
    f = File(folder + "/model.safetensors")
    config = json.load(open(folder + "/config.json", encoding="utf-8"))["quantization_config"]
    if config["quant_method"] == "compressed-tensors":
        weights = groups(config)[0]["weights"]
        return {m: ct_matrix(f, m, weights, twin) for m in modules(f)}
    return {m: words_matrix(f, m, config, twin) for m in modules(f)}


def make(narrow, folder, layout, act, form):
    recipe = folder + ".yaml"
    with open(recipe, "w", encoding="utf-8") as f:
        f.write(f"activations: {act}\ntargets:\n  - {{match: '.*_proj', weights: {layout}}}\n")
    out = subprocess.run([narrow, "quantize", "tiny", "-r", recipe, "-o", folder, "-f", form, "--json", "-q"], check=True,
                         stdout=subprocess.PIPE).stdout
    loss = json.loads(out)["loss"]
    quantized = [t for t in loss["tensors"] if "_proj" in t["name"]]
    assert quantized and all(t["exact"] for t in quantized), folder + ": not exact by its own report"


def wrong(ours, folder, twin):
    """How many values differ, and how many there are."""
    bad = total = 0
    for m, rows in decode(folder, twin).items():
        name = m + ".weight"
        cols = ours.header[name]["shape"][1]
        values = ours.numbers(name)
        for r, row in enumerate(rows):
            bad += sum(a != b for a, b in zip(row, values[r * cols:(r + 1) * cols]))
            total += len(row)
    return bad, total


def check(write_f32, folder):
    subprocess.run([write_f32, folder, "values.safetensors"], check=True)
    ours = File.__new__(File)
    raw = open("values.safetensors", "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    ours.header, ours.raw, ours.at = json.loads(raw[8:8 + n]), raw, 8 + n
    bad, total = wrong(ours, folder, False)
    twin, _ = wrong(ours, folder, True)
    print(f"{folder}: {bad} of {total} values differ; of the mis-packed twin {twin}")
    return bad > 0 or total == 0 or twin < total // 3


def digests(folder):
    return {n: hashlib.sha256(open(f"{folder}/{n}", "rb").read()).hexdigest()
            for n in ("model.safetensors", "config.json")}


def main():
    narrow, make_tiny, write_f32, golden = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as d:
        os.chdir(d)
        subprocess.run([make_tiny, "wide", "tiny"], check=True)
        bad, found = 0, {}
        for folder, (layout, act, form) in FOLDERS.items():
            make(narrow, folder, layout, act, form)
            bad += check(write_f32, folder)
            found[folder] = digests(folder)
            for small in ("tokenizer.json", "tokenizer_config.json"):
                assert open("tiny/" + small, "rb").read() == open(f"{folder}/{small}", "rb").read(), small
    if os.environ.get("NW_UPDATE_GOLDEN"):
        with open(golden, "w", encoding="utf-8") as f:
            json.dump(found, f, indent=1)
            f.write("\n")
    with open(golden, encoding="utf-8") as f:
        want = json.load(f)
    for folder in FOLDERS:
        if want.get(folder) != found[folder]:
            print(f"{folder}: other bytes than in {os.path.basename(golden)}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
