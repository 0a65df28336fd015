"""What vLLM's CPU build serves on this processor: its library for processors without AVX-512 has fewer kernels.
SPDX-License-Identifier: Apache-2.0"""
import functools
import subprocess
import sys

from mispack import quantization

PROBE = """
import torch
from vllm.platforms import current_platform
current_platform.import_kernels()
print("kernels", *(n for n in ("cpu_gemm_wna16", "onednn_scaled_mm") if hasattr(torch.ops._C, n)))
"""


@functools.cache
def kernels():
    out = subprocess.run([sys.executable, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                         check=True).stdout
    return set(next(line for line in out.splitlines() if line.startswith("kernels")).split()[1:])


def lacks(folder):
    """Why a folder cannot be served here; None: it can."""
    q = quantization(folder) or {}
    packed = q.get("quant_method") in ("awq", "gptq") or q.get("format") == "pack-quantized"
    need = "cpu_gemm_wna16" if packed else "onednn_scaled_mm" if q else None
    if need is None or need in kernels():
        return None
    return f"vLLM's library for this processor (no AVX-512) has no {need}"
