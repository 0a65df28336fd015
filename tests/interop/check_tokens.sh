#!/bin/sh
# Compares ids with the `tokenizers` library and rendered chats with Jinja2, for SmolLM2 and Gemma 3. Where
# NARROW_PEERS names the programs of llama.cpp, llama-tokenize's disagreements are listed as well.
# usage: check_tokens.sh NARROW SHARED_DIR BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 shared=${NARROW_SHARED:-$2} build=$3
. "$here/inputs.sh"
[ -d "$shared/data" ] || skip "no shared data (set NARROW_SHARED)"
oracle=${NARROW_PYTHON:-$(python readers)} || skip "no environment ($inputs/readers.log)"
both_models
set -- --shared "$shared/data" --work "$inputs/tokens"
[ -z "${NARROW_PEERS:-}" ] || set -- "$@" --llama-tokenize "$NARROW_PEERS/llama-tokenize"
"$oracle" "$here/tokenizer_oracle.py" "$narrow" --models "$smol" "$gemma" "$@" &&
    "$oracle" "$here/template_oracle.py" "$narrow" --models "$smol" "$gemma"
