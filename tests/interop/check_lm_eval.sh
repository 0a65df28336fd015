#!/bin/sh
# lm-eval against `narrow serve`: a subset of PIQA on SmolLM2, scored item for item as
# `narrow eval` scores it. NARROW_LM_EVAL names a Python with the packages of lm_eval.txt.
# usage: check_lm_eval.sh NARROW SHARED_DIR BUILD_DIR
# SPDX-License-Identifier: Apache-2.0
set -u
here=$(dirname "$0")
narrow=$1 shared=${NARROW_SHARED:-$2} build=$3
. "$here/inputs.sh"
n_items=${NARROW_LM_EVAL_ITEMS:-60}
piqa=$shared/data/tasks/piqa
[ -d "$piqa" ] || skip "no shared data (set NARROW_SHARED)"
python=${NARROW_LM_EVAL:-$(python lm_eval)} || skip "no environment ($inputs/lm_eval.log)"
smol=$(model SmolLM2) || skip "SmolLM2 cannot be had ($inputs/SmolLM2.log)"
mkdir -p "$inputs/lm-eval"
"$python" - "$piqa" "$n_items" >"$inputs/lm-eval/piqa.jsonl" <<'END'
import itertools, json, sys
with open(sys.argv[1] + '/valid.jsonl') as rows, open(sys.argv[1] + '/valid-labels.lst') as labels:
    for i, (row, label) in enumerate(itertools.islice(zip(rows, labels), int(sys.argv[2]))):
        row = json.loads(row)
        print(json.dumps({'id': f'piqa-{i:05}', 'prompt': f"Question: {row['goal']}\nAnswer:",
                          'choices': [' ' + row['sol1'], ' ' + row['sol2']], 'answer': int(label)}))
END
export HF_HOME="$inputs/lm-eval/hf" HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
"$python" "$here/check_lm_eval.py" "$narrow" "${NARROW_BASELINE:-$smol}" "$inputs/lm-eval/piqa.jsonl" \
    "$inputs/lm-eval"
