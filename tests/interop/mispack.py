"""What the checks of quantized folders share: the text, and the twin of a folder that must fail them.
SPDX-License-Identifier: Apache-2.0"""
import json
import shutil
import struct

import numpy as np

TEXT = ("The lighthouse keeper wrote down the weather every evening for thirty-one years. When his notebooks "
        "were read again in 1987, they turned out to be the longest unbroken record of the coast: wind, rain "
        "and pressure at 6 p.m., with only 4 days missing, all of them in the winter of the great storm.")


def quantization(folder):
    with open(folder + "/config.json", encoding="utf-8") as f:
        return json.load(f).get("quantization_config")


def activations(folder):
    """input_activations of the first group; None where they are not rounded."""
    groups = (quantization(folder) or {}).get("config_groups", {})
    return next(iter(groups.values()))["input_activations"] if groups else None


def turned(name, t, data):
    """Codes in another order: nibbles of a byte, or columns of a row, swapped."""
    if name.endswith(("weight_packed", "qweight")):
        return (data << 4 | data >> 4).astype(np.uint8)
    if name.endswith(".weight") and t["dtype"] in ("I8", "F8_E4M3"):
        return data.reshape(-1, t["shape"][-1])[:, ::-1].reshape(-1)
    return data


def twin(folder, scratch):
    """A copy whose quantized matrices are mis-packed; None where there are none."""
    if quantization(folder) is None:
        return None
    out = scratch + "/twin"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out)
    with open(out + "/model.safetensors", "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        for name, t in header.items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                f.seek(8 + n + begin)
                data = np.frombuffer(f.read(end - begin), np.uint8)
                f.seek(8 + n + begin)
                f.write(turned(name, t, data).tobytes())
    return out
