#!/bin/sh
# Runs check_values.py over the shared models, SmolLM2 and Gemma 3.
# usage: check_values.sh WRITE_F32 SHARED_DIR BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
program=$1 shared=${NARROW_SHARED:-$2} build=$3
. "$here/inputs.sh"
oracle=${NARROW_PYTHON:-$(python readers)} || skip "no environment ($inputs/readers.log)"
both_models
"$oracle" "$here/check_values.py" "$program" "$shared" "$smol" "$gemma"
