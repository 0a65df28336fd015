#!/bin/sh
# GGUF files that narrow writes, in llama.cpp: see check_gguf.py. The first run builds llama.cpp, unless
# NARROW_PEERS names its programs. usage: check_gguf.sh NARROW SHARED_DIR BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 shared=${NARROW_SHARED:-$2} build=$3
. "$here/../interop/inputs.sh"
[ -f "$shared/data/text/wiki.test.raw" ] || skip "no shared data (set NARROW_SHARED)"
llama=${NARROW_PEERS:-$("$here/get-llama" "$inputs/llama" 2>"$inputs/llama.log")} ||
    skip "llama.cpp cannot be built ($inputs/llama.log)"
both_models
work=$(mktemp -d "$inputs/gguf.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
python3 "$here/check_gguf.py" "$narrow" "$shared" --llama "$llama" --work "$work" --models "$smol" "$gemma"
