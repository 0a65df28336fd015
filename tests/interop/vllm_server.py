"""vLLM's server with kernels for AVX-512 beside AMX as well, so that it computes in float32 on each processor. The
process of its engine is started with this file again, under another name than __main__.
SPDX-License-Identifier: Apache-2.0"""
import runpy

from vllm_kernels import without_amx

without_amx()
if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
