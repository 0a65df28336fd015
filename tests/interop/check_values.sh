#!/bin/sh
# Runs check_values.py with the Python of NARROW_PYTHON (or python3) over the shared models and those
# that NARROW_MODELS lists, separated by colons. usage: check_values.sh WRITE_F32 SHARED_DIR
# SPDX-License-Identifier: Apache-2.0
IFS=:
# shellcheck disable=SC2086 # split at colons, on purpose
exec "${NARROW_PYTHON:-python3}" "$(dirname "$0")/check_values.py" "$1" "${NARROW_SHARED:-$2}" $NARROW_MODELS
