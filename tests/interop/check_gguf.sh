#!/bin/sh
# Runs check_gguf.py in the environment that holds gguf-py.
# usage: check_gguf.sh NARROW SHARED_DIR BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 shared=${NARROW_SHARED:-$2} build=$3
. "$here/inputs.sh"
oracle=${NARROW_PYTHON:-$(python readers)} || skip "no environment ($inputs/readers.log)"
[ -d "$shared/data/models/tiny1m" ] || skip "no shared data (set NARROW_SHARED)"
work=$(mktemp -d "$inputs/gguf.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
"$oracle" "$here/check_gguf.py" "$narrow" "$shared/data/models/tiny1m" "$work"
