#!/bin/sh
# The openai client against `narrow serve`: see openai_client.py. NARROW_LM_EVAL names a Python with the packages of
# lm_eval.txt. usage: check_openai.sh NARROW BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 build=$2
. "$here/inputs.sh"
python=${NARROW_LM_EVAL:-$(python lm_eval)} || skip "no environment ($inputs/lm_eval.log)"
exec "$python" "$here/openai_client.py" "$narrow"
