#!/bin/sh
# Runs check_blocks.py in the environment that holds gguf-py.
# usage: check_blocks.sh BLOCK_CODEC SHARED_DIR BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
codec=$1 shared=${NARROW_SHARED:-$2} build=$3
. "$here/inputs.sh"
oracle=${NARROW_PYTHON:-$(python readers)} || skip "no environment ($inputs/readers.log)"
"$oracle" "$here/check_blocks.py" "$codec"
