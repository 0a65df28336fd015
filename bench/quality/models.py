"""What quality.py measures: models with their texts, the formats and methods of its tables, outliers planted.
SPDX-License-Identifier: Apache-2.0
"""
import dataclasses
import json
import os
import struct
from array import array


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    source: str  # below shared, or an argument of quality.py
    corpus: str  # "stories": 900 to calibrate, 60 others scored; "wiki": WikiText-2's train and test
    layout: str  # of the comparison of methods
    n_samples: int
    n_ctx: int
    context: int
    windows: int  # 0: all of the text
    off_grid: int = 0  # seed; a published 4-bit model is moved off its grid first
    path: str = ""
    calibration: str = ""
    text: str = ""


MODELS = {m.name: m for m in (
    Model("tiny1m", "data/models/tiny1m", "stories", "int4-g32", 64, 128, 256, 0),
    Model("stories260K", "data/models/stories260K/stories260K.bin", "stories", "int4-g32", 64, 128, 256, 0),
    Model("smol", "smol", "wiki", "int4-g64", 32, 512, 512, 16, off_grid=1),
    Model("gemma", "gemma", "wiki", "int4-g128", 16, 512, 512, 6, off_grid=7),
)}

FREE = ("rtn", "refit", "hqq")
FIT = ("imatrix", "awq")
ALL = (*FREE, *FIT, "gptq", "gptq-refit")
FP4 = ("rtn", "refit", "imatrix", "awq", "gptq", "gptq-refit")
BLOCK = ("rtn", "refit", "imatrix")
TINY = (
    ("int8", ("rtn", "refit", "hqq", "imatrix", "gptq", "gptq-refit")),
    ("int8-g32", ("refit", "hqq", "imatrix", "awq", "gptq", "gptq-refit")),
    *((f"int4-g{g}{end}", ALL) for g in (32, 64, 128) for end in ("", "-zp", "-min")),
    ("nvfp4", FP4), ("mxfp4", FP4), ("fp8", ("rtn",)), ("fp8-e5m2", ("rtn",)),
    *((b, BLOCK) for b in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")),
)
TABLE = {"tiny1m": TINY, "stories260K": TINY, "gemma": (), "smol": (
    ("int8", ("rtn", "gptq")), ("int8-g32", ("refit", "gptq")), ("fp8", ("rtn",)),
    *((f"int4-g{g}{end}", ("rtn", "gptq-refit")) for g in (32, 64) for end in ("", "-zp", "-min")),
    ("nvfp4", ("rtn", "gptq")), ("mxfp4", ("rtn", "gptq")),
    *((b, ("refit", "imatrix")) for b in ("q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q5_k", "q6_k")),
)}


def texts(bench, model):
    """Calibration and scored text of a model."""
    shared = os.path.join(bench.args.shared, "data", "text")
    if model.corpus == "wiki":
        return os.path.join(shared, "wikitext2.train.5k.raw.txt"), os.path.join(shared, "wiki.test.raw")
    calibration, text = bench.file("stories-train.txt"), bench.file("stories-test.json")
    with open(os.path.join(shared, "tinystories_1000.json"), encoding="utf-8") as f:
        stories = json.load(f)
    with open(calibration, "w", encoding="utf-8") as f:
        f.write("\n\n".join(stories[100:]) + "\n")
    with open(text, "w", encoding="utf-8") as f:
        json.dump(stories[:60], f)
    return calibration, text


def off_grid(bench, source, seed, dtype, name):
    out = bench.file(name)
    if not os.path.isdir(out):
        bench.narrow("convert", source, "-o", out, "--off-grid", str(seed), "--dtype", dtype, "--no-check", "-q")
    return out


def prepare(bench, model, with_outliers):
    """The model with its files; None where they cannot be had."""
    own = getattr(bench.args, model.source, None)
    path = own or os.path.join(bench.args.shared, model.source)
    if not os.path.exists(path):
        return None
    if model.off_grid:
        path = off_grid(bench, path, model.off_grid, "bf16", model.name + "-off")
    if with_outliers:
        path = plant(path, bench.file(model.name + "-planted"))
    calibration, text = texts(bench, model)
    return dataclasses.replace(model, path=path, calibration=calibration, text=text)


def variant(bench, model, seed):
    """The same function with other weights: channels multiplied on one side and divided on the other."""
    name = f"{model.name}-variant{seed}"
    path = off_grid(bench, model.path, seed, "f32", name)
    return dataclasses.replace(model, name=name, path=path)


# ---- outliers ----

FACTOR = 100.0
CHANNELS = (5, 40, 77)


def plant(source, out):
    """A safetensors folder with gains of three channels 100 times as large, their columns smaller by as much."""
    os.makedirs(out, exist_ok=True)
    for name in os.listdir(source):
        with open(os.path.join(source, name), "rb") as f:
            data = bytearray(f.read())
        if name == "model.safetensors":
            scale_file(data)
        with open(os.path.join(out, name), "wb") as f:
            f.write(data)
    return out


def scale_file(data):
    """In place; all tensors are F32."""
    n_header = struct.unpack_from("<Q", data)[0]
    for name, t in json.loads(bytes(data[8:8 + n_header])).items():
        gain = name.endswith(("input_layernorm.weight", "post_attention_layernorm.weight"))
        reader = name.endswith(tuple(f"{r}_proj.weight" for r in ("q", "k", "v", "gate", "up")))
        if name == "__metadata__" or not (gain or reader):
            continue
        first, last = (8 + n_header + x for x in t["data_offsets"])
        values = array("f", bytes(data[first:last]))
        for row in range(0, len(values), t["shape"][-1]):
            for c in CHANNELS:
                values[row + c] *= FACTOR if gain else 1 / FACTOR
        data[first:last] = values.tobytes()


def planted_recipes():
    """Name and text of the recipes for INT8 with outliers."""
    target = r"targets: [{match: 'model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj', weights: %s}]" + "\n"
    rows = (
        ("int8-w8a8, one scale a tensor and a token", "activations: a8\nscale: tensor\n", "int8"),
        ("int8-w8a8, one scale a row and a token", "activations: a8\n", "int8"),
        ("int8-w8a8, smoothquant", "activations: a8\ntransform: [smoothquant]\n", "int8"),
        ("int8-w8a8, rotated", "activations: a8\ntransform: [rotate, rotate-heads]\n", "int8"),
        ("int8-w8a8, outliers 6", "activations: a8\noutliers: 6\n", "int8"),
        ("int8-w8a8, outliers 2", "activations: a8\noutliers: 2\n", "int8"),
        ("int8, a16", "activations: a16\n", "int8"),
        ("int8, a16, gptq-refit", "activations: a16\nmethod: gptq-refit\n", "int8"),
        ("int8-g32, a16", "activations: a16\n", "int8-g32"),
        ("int8-g32, a16, gptq-refit", "activations: a16\nmethod: gptq-refit\n", "int8-g32"),
        ("int8, a16, outliers 6", "activations: a16\noutliers: 6\n", "int8"),
        ("int8, a16, outliers 6, gptq-refit", "activations: a16\noutliers: 6\nmethod: gptq-refit\n", "int8"),
        ("int8-g32, a16, outliers 6, gptq-refit", "activations: a16\noutliers: 6\nmethod: gptq-refit\n", "int8-g32"),
        ("int8-g16, a16, outliers 6, gptq-refit", "activations: a16\noutliers: 6\nmethod: gptq-refit\n", "int8-g16"),
        ("bf16", "", "bf16"),
    )
    return [(name, head + target % layout) for name, head, layout in rows]
