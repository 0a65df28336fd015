#!/bin/sh
# Perplexity against llama.cpp and against published figures: see check_perplexity.py. The first run builds
# llama.cpp, unless NARROW_PEERS names its programs. usage: check_perplexity.sh NARROW SHARED_DIR BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 shared=${NARROW_SHARED:-$2} work=$3/peers
. "$here/../interop/inputs.sh"
[ -f "$shared/data/text/wiki.test.raw" ] || skip "no shared data (set NARROW_SHARED)"
mkdir -p "$work"
llama=${NARROW_PEERS:-$("$here/get-llama" "$work/llama" 2>"$work/llama.log")} ||
    skip "llama.cpp cannot be built ($work/llama.log)"
smol=$(model SmolLM2 "$work") && [ -n "$smol" ] || skip "no SmolLM2 ($work/models.log)"
gemma=$(model gemma-3 "$work") && [ -n "$gemma" ] || skip "no Gemma 3 ($work/models.log)"
python3 "$here/check_perplexity.py" "$narrow" "$shared" --llama "$llama" --work "$work" "$smol" "$gemma"
