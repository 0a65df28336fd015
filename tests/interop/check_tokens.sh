#!/bin/sh
# Compares ids with the `tokenizers` library and rendered chats with Jinja2, for SmolLM2 and Gemma 3. Python
# with the oracles is NARROW_PYTHON, or a virtual environment made under the build folder. Where
# NARROW_PEERS names the programs of llama.cpp, llama-tokenize's disagreements are listed as well.
# usage: check_tokens.sh NARROW SHARED_DIR BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 shared=${NARROW_SHARED:-$2} work=$3/interop-tokens
. "$here/inputs.sh"
[ -d "$shared/data" ] || skip "no shared data (set NARROW_SHARED)"
mkdir -p "$work"
oracle=${NARROW_PYTHON:-$(python "$here/tokenizers.txt" "$work/venv")} || skip "no environment ($work/venv.log)"
smol=$(model SmolLM2 "$work") && [ -n "$smol" ] || skip "no SmolLM2 ($work/models.log)"
gemma=$(model gemma-3 "$work") && [ -n "$gemma" ] || skip "no Gemma 3 ($work/models.log)"
set -- --shared "$shared/data" --work "$work/out"
[ -z "${NARROW_PEERS:-}" ] || set -- "$@" --llama-tokenize "$NARROW_PEERS/llama-tokenize"
"$oracle" "$here/tokenizer_oracle.py" "$narrow" --models "$smol" "$gemma" "$@" &&
    "$oracle" "$here/template_oracle.py" "$narrow" --models "$smol" "$gemma"
