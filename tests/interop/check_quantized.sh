#!/bin/sh
# SmolLM2's baseline quantized by narrow in every scheme, loaded by transformers with compressed-tensors and served
# by vLLM's CPU build. The first run makes an environment of 6 GB. NARROW_VLLM names its Python,
# NARROW_BASELINE the folder of the baseline, NARROW_LLAMA the source of llama.cpp, whose converter then reads folders, too. With names of checks (check_vllm.py) only these run.
# usage: check_quantized.sh NARROW BUILD_DIR [CHECK...]
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 build=$2
. "$here/inputs.sh"
NARROW_VLLM=$(vllm) || skip "no environment ($inputs/vllm.log)"
base=$(baseline "$narrow") || skip "SmolLM2 cannot be had ($inputs/SmolLM2.log)"
quantized() { made "$narrow" "$base" "$@"; }
w4=$(quantized ct-w4a16 compressed-tensors int4-g64 a16) || exit 1
w4z=$(quantized ct-w4a16-asym compressed-tensors int4-g64-zp a16) || exit 1
w8=$(quantized ct-w8a8 compressed-tensors int8 a8) || exit 1
fp8=$(quantized ct-fp8 compressed-tensors fp8-e4m3 fp8) || exit 1
nv=$(quantized ct-nvfp4 compressed-tensors nvfp4 a16) || exit 1
mx=$(quantized ct-mxfp4 compressed-tensors mxfp4 a16) || exit 1
awq=$(quantized awq awq int4-g64-zp a16) || exit 1
gptq=$(quantized gptq gptq int4-g64 a16) || exit 1
# fp8kv NAME SCALES: BF16 weights, FP8 keys and values with scales from calibration
"$narrow" calibrate "$base" --text "$here/../../docs/methods.md" --samples 4 -o "$inputs/kv-stats" \
    --force --quiet >/dev/null || exit 1
fp8kv() {
    printf 'kv: fp8\nkv_scales: %s\ntargets:\n  - {match: ".*_proj", weights: bf16}\n' "$2" >"$inputs/$1.yaml"
    "$narrow" quantize "$base" -r "$inputs/$1.yaml" -c "$inputs/kv-stats" -o "$inputs/$1" -f compressed-tensors --force \
        --quiet >/dev/null || exit 1
    echo "$inputs/$1"
}
kv=$(fp8kv ct-kv-tensor tensor) || exit 1
kvh=$(fp8kv ct-kv-head head) || exit 1
# static NAME LAYOUT ACTIVATIONS: scales of inputs that calibration fixes
static() {
    printf 'activations: %s\nactivation_scale: static\nscale: absmax\ntargets:\n  - {match: ".*_proj", weights: %s}\n' "$3" "$2" \
        >"$inputs/$1.yaml"
    "$narrow" quantize "$base" -r "$inputs/$1.yaml" -c "$inputs/kv-stats" -o "$inputs/$1" -f compressed-tensors --force \
        --quiet >/dev/null || exit 1
    echo "$inputs/$1"
}
w8s=$(static ct-w8a8-static int8 a8-ct) || exit 1
fp8s=$(static ct-fp8-static fp8-e4m3 fp8) || exit 1
bin=$build bad=0
shift 2
only=" $* "
wanted() { case $only in "  " | *" $1 "*) ;; *) return 1 ;; esac }
# every check runs; one that fails fails the whole
check() {
    ! wanted "$1" || "$NARROW_VLLM" "$here/$@" || bad=1
}
check check_theirs.py "$narrow" "$bin/write_f32" "$inputs/scratch"
check check_kv.py "$bin/write_logits" "$bin/write_layers" "$inputs/scratch" "$kv" "$kvh"
check check_acts.py "$narrow" "$bin/write_logits" "$bin/write_f32" "$inputs/scratch"
if ! wanted check_converter.py; then
    :
elif [ -n "${NARROW_LLAMA:-}" ]; then
    check check_converter.py "$narrow" "$bin/write_f32" "$inputs/scratch" "$NARROW_LLAMA"
else
    echo "check_converter.py: skipped: NARROW_LLAMA does not name the source folder of llama.cpp"
fi
check check_quantized.py "$bin/write_logits" "$bin/write_inputs" "$bin/write_f32" "$inputs/scratch" \
    --logits "$w4" --logits "$w4z" --logits "$w8" --logits "$fp8" --logits "$w8s" --logits "$fp8s" \
    --weights "$nv" --weights "$mx"
check check_vllm.py "$bin/write_logits" "$bin/write_inputs" "$inputs/scratch" "$base" "float16:$w4" "float16:$w4z" \
    "float32:$w8" "float32:$w8s" "float32:$fp8" "float16:$awq" "float16:$gptq"
small=${NARROW_SHARED:-$here/../../../shared}/data
stories=$small/text/tinystories_1000.json
# peer CHECK PYTHON VARIABLE FOLDER PROGRAMS...: folders that another program makes of a small model
peer() {
    name=$1 python=$2 variable=$3 folder=$4
    shift 4
    if ! wanted "$name"; then
        return
    elif [ -z "$python" ]; then
        echo "$name: skipped: $variable names no Python that has it"
    else
        "$python" "$here/$name" "$narrow" "$@" "$inputs/scratch/$folder" "$small/models/tiny1m" "$stories" || bad=1
    fi
}
peer check_llmcompressor.py "${NARROW_LC:-}" NARROW_LC llm-compressor "$bin/write_logits" "$bin/write_inputs"
peer check_gptqmodel.py "${NARROW_GPTQMODEL:-}" NARROW_GPTQMODEL gptqmodel "$bin/write_logits"
exit $bad
