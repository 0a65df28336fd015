#!/bin/sh
# Runs check_archs.py: tiny checkpoints of every architecture against the equations in numpy, and against
# transformers where NARROW_HF names a Python that has it. usage: check_archs.sh WRITE_LOGITS BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
program=$1 build=$2
. "$here/inputs.sh"
oracle=${NARROW_PYTHON:-$(python readers)} || skip "no environment ($inputs/readers.log)"
"$oracle" "$here/check_archs.py" "$program" "$inputs/archs" || exit 1
if [ -n "${NARROW_HF:-}" ]; then
    "$NARROW_HF" "$here/check_archs.py" "$program" "$inputs/archs-hf"
else
    echo "not compared with transformers (set NARROW_HF)"
fi
