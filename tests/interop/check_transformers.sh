#!/bin/sh
# Greedy text and logits against transformers in float32: the off-grid BF16 baseline of SmolLM2, and Gemma
# 3 as BF16. The first run builds an environment of 6 GB. NARROW_BASELINE and NARROW_GEMMA name folders that
# `narrow convert` wrote earlier. usage: check_transformers.sh NARROW WRITE_LOGITS BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 logits=$2 work=$3/interop-transformers
. "$here/inputs.sh"
mkdir -p "$work"
hf=${NARROW_HF:-$(python "$here/transformers.txt" "$work/venv")} || skip "no environment ($work/venv.log)"

# folder READY NAME OPTIONS...: a checkpoint as a folder for transformers
folder() {
    ready=$1 name=$2
    shift 2
    if [ -z "$ready" ]; then
        ready=$work/$name
        [ -f "$ready/config.json" ] || { gguf=$(model "$name" "$work") && [ -n "$gguf" ] &&
            "$narrow" convert "$gguf" -o "$ready" "$@" --quiet >"$ready.log" 2>&1; } || return 1
    fi
    echo "$ready"
}
smol=$(folder "${NARROW_BASELINE:-}" SmolLM2 --off-grid 1) || skip "no SmolLM2 ($work/models.log)"
gemma=$(folder "${NARROW_GEMMA:-}" gemma-3) || skip "no Gemma 3 ($work/models.log)"
"$hf" "$here/check_transformers.py" "$narrow" "$logits" --logits "$smol" --logits "$gemma" --greedy "$smol"
