#!/bin/sh
# Two whole studies of the same artifacts of SmolLM2, on narrow's engine and on another vendor's server: see
# check_verdicts.py. The first run makes vLLM's environment (NARROW_VLLM), or builds llama.cpp (NARROW_PEERS).
# usage: check_verdicts.sh NARROW SHARED_DIR BUILD_DIR vllm|llama
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 shared=${NARROW_SHARED:-$2} build=$3 server=$4
. "$here/inputs.sh"
[ -f "$shared/data/text/wiki.test.raw" ] || skip "no shared data (set NARROW_SHARED)"
base=$(baseline "$narrow") || skip "SmolLM2 cannot be had ($inputs/SmolLM2.log)"
quantized() { made "$narrow" "$base" "v-$1" "$2" "$3" "$4"; }
case $server in
vllm)
    python=$(vllm) || skip "no environment ($inputs/vllm.log)"
    w4=$(quantized w4a16 compressed-tensors int4-g64 a16) || exit 1
    w8=$(quantized w8a8 compressed-tensors int8 a8) || exit 1
    fp8=$(quantized fp8 compressed-tensors fp8-e4m3 fp8) || exit 1
    awq=$(quantized awq awq int4-g64-zp a16) || exit 1
    gptq=$(quantized gptq gptq int4-g64 a16) || exit 1
    "$python" "$here/check_verdicts.py" "$narrow" "$shared" "$inputs/verdicts-vllm" vllm "$python" "float32:$base" \
        "w4a16=float16:$w4" "w8a8=float32:$w8" "fp8=float32:$fp8" "awq=float16:$awq" "gptq=float16:$gptq"
    ;;
llama)
    llama=${NARROW_PEERS:-$("$here/../peers/get-llama" "$inputs/llama" 2>"$inputs/llama.log")} ||
        skip "llama.cpp cannot be built ($inputs/llama.log)"
    bf16=$(quantized gguf-bf16 gguf bf16 a16) || exit 1
    q4=$(quantized gguf-q4_0 gguf q4_0 a16) || exit 1
    q8=$(quantized gguf-q8_0 gguf q8_0 a16) || exit 1
    python3 "$here/check_verdicts.py" "$narrow" "$shared" "$inputs/verdicts-llama" llama "$llama/llama-server" \
        "-:$bf16/model.gguf" "q4_0=-:$q4/model.gguf" "q8_0=-:$q8/model.gguf"
    ;;
esac
