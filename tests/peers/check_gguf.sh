#!/bin/sh
# GGUF files that narrow writes, in llama.cpp: see check_gguf.py. The first run builds llama.cpp, unless
# NARROW_PEERS names its programs. With `short`: one type and its twins, where llama.cpp is there already.
# usage: check_gguf.sh NARROW SHARED_DIR BUILD_DIR [short]
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 shared=${NARROW_SHARED:-$2} build=$3
. "$here/../interop/inputs.sh"
[ -f "$shared/data/text/wiki.test.raw" ] || skip "no shared data (set NARROW_SHARED)"
work=$(mktemp -d "$inputs/gguf.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
if [ "${4:-}" = short ]; then
    llama=${NARROW_PEERS:-$inputs/llama/build/bin}
    [ -x "$llama/llama-perplexity" ] || skip "llama.cpp is not built (./check peers builds it)"
    smol=$(model SmolLM2) || skip "SmolLM2 cannot be had ($inputs/SmolLM2.log)"
    python3 "$here/check_gguf.py" "$narrow" "$shared" --llama "$llama" --work "$work" --models "$smol" \
        --types q4_0 --chunks 2
    exit
fi
llama=${NARROW_PEERS:-$("$here/get-llama" "$inputs/llama" 2>"$inputs/llama.log")} ||
    skip "llama.cpp cannot be built ($inputs/llama.log)"
both_models
python3 "$here/check_gguf.py" "$narrow" "$shared" --llama "$llama" --work "$work" --models "$smol" "$gemma"
