"""The models that bench/peers compares: one file of random BF16 weights a shape, from which the peer's quantizer
and ours each make their own forms. Made once, kept in the work folder.
SPDX-License-Identifier: Apache-2.0"""
import os
import subprocess
import sys

import make_shape

# what stands in a recipe of ours: every matrix, the head too, as the peer's --pure does; only rows of the
# embedding are read, so it stays BF16 (in SmolLM2 it is the head: INT8 beside INT4, as in the peer's file)
LINEARS = r"model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj"


def recipe(path, weights, head, embed):
    targets = [(LINEARS, weights)] + ([("lm_head", head)] if head else []) + \
        ([(r"model\.embed_tokens", embed)] if embed else [])
    with open(path, "w", encoding="utf-8") as f:
        f.write("activations: a16\nscale: absmax\ntargets:\n")
        f.writelines(f"  - {{match: '{m}', weights: {w}}}\n" for m, w in targets)


class Models:
    """Paths of models; each is made when it is first asked for."""

    def __init__(self, work, narrow, llama_bin, smol):
        self.work, self.narrow, self.bin, self.smol = work, narrow, llama_bin, smol
        os.makedirs(work, exist_ok=True)

    def path(self, name):
        return os.path.join(self.work, name)

    def _run(self, *command):
        print("making:", *[os.path.basename(c) for c in command], file=sys.stderr, flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}: {done.stdout.decode(errors='replace')[-400:]}")

    def source(self, shape):
        """The BF16 GGUF of a shape; of "smol" the file of SmolLM2 it was given."""
        out = self.path(f"{shape}-BF16.gguf")
        if not os.path.exists(out):
            if shape == "smol":
                self._run(os.path.join(self.bin, "llama-quantize"), "--allow-requantize", self.smol, out + ".tmp", "BF16")
                os.replace(out + ".tmp", out)
            else:
                print(f"making: {os.path.basename(out)}", file=sys.stderr, flush=True)
                make_shape.write(make_shape.SHAPES[shape], out)
        return out

    def peer(self, shape, kind):
        out = self.path(f"{shape}-{kind}.gguf")
        if kind != "BF16" and not os.path.exists(out):
            pure = [] if shape == "smol" else ["--pure"]
            self._run(os.path.join(self.bin, "llama-quantize"), *pure, self.source(shape), out + ".tmp", kind)
            os.replace(out + ".tmp", out)
        return out if kind != "BF16" else self.source(shape)

    def ours(self, shape, weights):
        out = self.path(f"{shape}-{weights}")
        if not os.path.exists(os.path.join(out, "manifest.json")):
            source = self.source(shape)
            if weights == "bf16-12":  # a recipe of its own: what it is for is all matrices
                self._run(self.narrow, "quantize", source, "-r", weights, "-o", out, "--force")
                return out
            name = self.path(f"{shape}-{weights}.yaml")
            tied = shape == "smol"
            recipe(name, weights, None if tied else weights,
                   None if not tied or weights == "bf16" else "int8")
            self._run(self.narrow, "quantize", source, "-r", name, "-o", out, "--force")
        return out
