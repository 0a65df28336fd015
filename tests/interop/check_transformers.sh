#!/bin/sh
# Greedy text and logits against transformers in float32: the off-grid BF16 baseline of SmolLM2, and Gemma
# 3 as BF16. The first run builds an environment of 6 GB. NARROW_BASELINE and NARROW_GEMMA name folders that
# `narrow convert` wrote earlier. usage: check_transformers.sh NARROW WRITE_LOGITS BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 logits=$2 build=$3
. "$here/inputs.sh"
hf=${NARROW_HF:-$(python transformers)} || skip "no environment ($inputs/transformers.log)"
both_models

# folder NAME GGUF OPTIONS...: the checkpoint as a folder that transformers loads
folder() {
    name=$inputs/$1 gguf=$2
    shift 2
    "$narrow" convert "$gguf" --out "$name" --force --quiet "$@" >&2 || exit 1
    echo "$name"
}
base=${NARROW_BASELINE:-$(folder smollm2-off-grid "$smol" --off-grid 1)} || exit 1
other=${NARROW_GEMMA:-$(folder gemma3 "$gemma")} || exit 1
"$hf" "$here/check_transformers.py" "$narrow" "$logits" --logits "$base" --logits "$other" --greedy "$base"
