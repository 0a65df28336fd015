"""What quality.py measures: models with their texts, the formats and methods of its tables, outliers planted.
SPDX-License-Identifier: Apache-2.0
"""
import dataclasses
import json
import os
import random
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
    Model("smol", "smol", "wiki", "int4-g64", 32, 512, 256, 12, off_grid=1),
    Model("gemma", "gemma", "wiki", "int4-g128", 24, 256, 256, 8, off_grid=7),
)}

ALL = ("rtn", "refit", "hqq", "imatrix", "awq", "gptq", "gptq-refit")
FP4 = ("rtn", "refit", "imatrix", "awq", "gptq", "gptq-refit")
BLOCK = ("rtn", "refit", "imatrix")
SOME = ("rtn", "awq", "gptq", "gptq-refit")
TINY = (
    ("int8", ("rtn", "refit", "hqq", "imatrix", "gptq", "gptq-refit")),
    ("int8-g32", ("refit", "hqq", "imatrix", "awq", "gptq", "gptq-refit")),
    *((f"int4-g32{end}", ALL) for end in ("", "-zp", "-min")),
    *((f"int4-g{g}{end}", ("rtn", "gptq-refit")) for g in (64, 128) for end in ("", "-zp", "-min")),
    *((f"int4-g16{end}", SOME) for end in ("", "-zp")), ("int4-g16-min", ("rtn", "gptq-refit")),
    *((f"int4-{span}{end}", SOME) for span in ("g256", "row") for end in ("", "-zp")),
    *((f"int4-tensor{end}", ("rtn", "gptq")) for end in ("", "-zp")),
    *((f"int8-g{g}-zp", SOME) for g in (16, 32)), *((f"int8-g{g}-zp", ("rtn", "gptq-refit")) for g in (64, 128)),
    *((f"int8-g256{end}", ("rtn", "gptq-refit")) for end in ("", "-zp")),
    ("int8-row-zp", ("rtn", "gptq-refit")), ("int8-tensor-zp", ("rtn", "gptq")),
    *((f"int{b}-g32{end}", ("rtn", "gptq-refit")) for b in (2, 3) for end in ("", "-min")),
    ("nvfp4", FP4), ("mxfp4", FP4), ("fp8-e4m3", ("rtn",)), ("fp8-e5m2", ("rtn",)), ("bf16", ("rtn",)),
    *((b, BLOCK) for b in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")),
)
K_QUANTS = tuple((b, ("refit", "imatrix")) for b in ("q4_k", "q5_k", "q6_k"))
TABLE = {"tiny1m": TINY, "stories260K": TINY,  # whose rows of 172 are no whole blocks: said, and left out
         "gemma": (), "smol": TINY + K_QUANTS}
CELLS = {name: [(layout, method) for layout, methods in rows for method in methods] for name, rows in TABLE.items()}


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


def prepare(bench, model, with_outliers):
    """The model with its files; None where they cannot be had."""
    own = getattr(bench.args, model.source, None)
    path = own or os.path.join(bench.args.shared, model.source)
    if not os.path.exists(path):
        return None
    if model.off_grid:
        source, path = path, bench.file(model.name + "-off")
        if not os.path.isdir(path):
            bench.narrow("convert", source, "-o", path, "--off-grid", str(model.off_grid), "--no-check", "-q")
    calibration, text = texts(bench, model)
    name = model.name
    if with_outliers:  # another name: statistics of its own
        name += "-planted"
        path = rewrite(path, bench.file(name), plant)
    return dataclasses.replace(model, name=name, path=path, calibration=calibration, text=text)


# ---- the same function with its channels in another order ----

def variant(bench, model, seed):
    """Channels of the residual stream, of the FFN and of the heads' values are permuted in what makes and in what
    reads them: groups get other columns, and nothing else changes."""
    plain = bench.file(model.name + "-f32")
    if not os.path.isdir(plain):
        bench.narrow("convert", model.path, "-o", plain, "--dtype", "f32", "-q")
    with open(os.path.join(plain, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    n_head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    name = f"{model.name}-variant{seed}"
    path = rewrite(plain, bench.file(name), lambda tensors: permute(tensors, n_head, random.Random(seed)))
    return dataclasses.replace(model, name=name, path=path)


def permute(tensors, n_head, rng):
    n_residual = tensors["model.norm.weight"].shape[-1]
    n_ffn = tensors["model.layers.0.mlp.down_proj.weight"].shape[-1]
    residual, ffn, head = (rng.sample(range(n), n) for n in (n_residual, n_ffn, n_head))
    for name, t in tensors.items():
        role = name.split(".")[-2]
        if role in ("o_proj", "down_proj"):
            t.take_rows(residual)
        else:
            t.take_columns(residual)
        if role in ("gate_proj", "up_proj"):
            t.take_rows(ffn)
        if role == "down_proj":
            t.take_columns(ffn)
        if role == "v_proj":
            t.take_rows([h + k for h in range(0, t.shape[0], n_head) for k in head])
        if role == "o_proj":
            t.take_columns([h + k for h in range(0, t.shape[1], n_head) for k in head])


# ---- outliers ----

FACTOR = 100.0
CHANNELS = (5, 40, 77)


def plant(tensors):
    """Gains of three channels become 100 times as large, their columns smaller by as much."""
    for name, t in tensors.items():
        gain = name.endswith(("input_layernorm.weight", "post_attention_layernorm.weight"))
        if gain or name.endswith(tuple(f"{r}_proj.weight" for r in ("q", "k", "v", "gate", "up"))):
            for row in range(0, len(t.values), t.shape[-1]):
                for c in CHANNELS:
                    t.values[row + c] *= FACTOR if gain else 1 / FACTOR


# ---- F32 tensors of a safetensors folder, changed in place ----

class Tensor:
    def __init__(self, shape, values):
        self.shape, self.values = shape, values  # a vector is one row

    def take_columns(self, order):
        n = self.shape[-1]
        self.values = array("f", (self.values[r + c] for r in range(0, len(self.values), n) for c in order))

    def take_rows(self, order):
        n = self.shape[-1]
        self.values = array("f", (x for r in order for x in self.values[r * n:(r + 1) * n]))


def rewrite(source, out, change):
    """A copy of the folder whose tensors have been changed; the folder."""
    os.makedirs(out, exist_ok=True)
    for name in os.listdir(source):
        with open(os.path.join(source, name), "rb") as f:
            data = bytearray(f.read())
        if name == "model.safetensors":
            first = 8 + struct.unpack_from("<Q", data)[0]
            header = {k: v for k, v in json.loads(bytes(data[8:first])).items() if k != "__metadata__"}
            span = {k: slice(*(first + x for x in v["data_offsets"])) for k, v in header.items()}
            tensors = {k: Tensor(v["shape"], array("f", bytes(data[span[k]]))) for k, v in header.items()}
            change(tensors)
            for k, t in tensors.items():
                data[span[k]] = t.values.tobytes()
        with open(os.path.join(out, name), "wb") as f:
            f.write(data)
    return out


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
        *((f"int8-g{g}{end}, a16, outliers 6, {m}", f"activations: a16\noutliers: 6\nmethod: {m}\n", f"int8-g{g}{end}")
          for g in (32, 16) for end in ("", "-min") for m in ("refit", "gptq-refit")),
        ("bf16", "", "bf16"),
    )
    return [(name, head + target % layout) for name, head, layout in rows]
