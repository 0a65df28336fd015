"""What vLLM's CPU build serves on this processor: its library for processors without AVX-512 has fewer kernels. And the
settings that both checks start it with.
SPDX-License-Identifier: Apache-2.0"""
import functools
import subprocess
import sys

from mispack import quantization

# An engine that takes 600 s to start or 300 s for a step is given up, and other work on the machine may stop it for so
# long. Beside AMX activations of AWQ would be rounded to 8 bits, which its folder does not say.
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_ENGINE_READY_TIMEOUT_S": "7200",
               "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "7200", "VLLM_CPU_INT4_W4A8": "0"}
PROBE = """
import torch
from vllm.platforms import current_platform
current_platform.import_kernels()
found = [n for n in ("cpu_gemm_wna16", "onednn_scaled_mm") if hasattr(torch.ops._C, n)]
if "onednn_scaled_mm" in found:
    from vllm import _custom_ops as ops
    weights, scales = torch.full((96, 64), 127, dtype=torch.int8).t(), torch.ones(96)  # the handler has no copy
    handler = ops.create_onednn_scaled_mm(weights, scales, torch.float32, True, False)
    out = torch.empty(5, 96)
    ops.onednn_scaled_mm(handler, torch.full((5, 64), 127, dtype=torch.int8), out, torch.ones(5, 1), None, None, None)
    if bool((out == 64 * 127 * 127).all()):
        found.append("exact_int8")
print("kernels", *found)
"""


@functools.cache
def kernels():
    out = subprocess.run([sys.executable, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                         check=True).stdout
    return set(next(line for line in out.splitlines() if line.startswith("kernels")).split()[1:])


def multiplies_int8(q):
    groups = q.get("config_groups", {}).values()
    return any(g.get("input_activations") and g["weights"]["type"] == "int" for g in groups)


def without_amx():
    """Has vLLM, imported after this, compute beside AMX as beside AVX-512: its kernels for AMX take no activations in
    float32, and torch then hands FP8 to oneDNN, whose plain loop takes minutes for a prompt."""
    import torch
    torch.cpu._is_amx_tile_supported = lambda: False
    torch.backends.mkldnn.set_flags(False)


def lacks(folder):
    """Why a folder cannot be served here; None: it can."""
    q = quantization(folder) or {}
    packed = q.get("quant_method") in ("awq", "gptq") or q.get("format") == "pack-quantized"
    need = "cpu_gemm_wna16" if packed else "onednn_scaled_mm" if q else None
    if need is not None and need in kernels() and multiplies_int8(q) and "exact_int8" not in kernels():
        # without VNNI, oneDNN adds pairs of u8 x s8 products in 16 bits: exact for weights of 7 bits alone
        return "vLLM's INT8 products saturate on this processor: 64 times 127 x 127 is not 1032256"
    if need is None or need in kernels():
        return None
    return f"vLLM's library for this processor (no AVX-512) has no {need}"
