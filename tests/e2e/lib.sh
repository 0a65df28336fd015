# What the end-to-end scripts share; sourced with `narrow` on the PATH, in an empty folder. Makes a
# seeded tiny model (model), a text (text.txt) and a study of three formats (study.yaml, work folder w).
# SPDX-License-Identifier: Apache-2.0
bin=$(dirname "$(realpath "$(command -v narrow)")")

fail() {
    echo "FAILED: $*"
    exit 1
}

"$bin/make_tiny" wide model || fail "no model"

# Prose from a small vocabulary, the same bytes always.
awk 'BEGIN {
    n = split("the a river stone light house winter morning walks sees finds under over every small", w)
    x = 1
    for (i = 1; i <= 400; i++) {
        x = (x * 7141 + 54773) % 259200
        printf "%s%s", w[int(x / 259200 * n) + 1], i % 11 ? " " : ".\n"
    }
}' >text.txt

cat >study.yaml <<'END'
study: tiny
model: model
work: w
baseline: {name: bf16, recipe: bf16}
candidates:
  - {name: int8-w8a8, recipe: int8-w8a8}
  - {name: int4-g32, recipe: int4-g32}
quality: {text: text.txt, context: 64, windows: 4, choice: "builtin:basics",
          generate: "builtin:assistant", items: 4}
batch1: {prompt: 16, output: 8, requests: 3, warmup: 1}
load: {prompt: [8, 16], output: [4, 8], requests: 5, warmup_s: 0, rates: [0.5], max_seqs: 4}
END

# Rows of a query over a record, one a line. usage: rows RECORD SQL
rows() {
    python3 - "$@" <<'END'
import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]):
    print(*row)
END
}

# Every run with its rows in a few numbers: measuring anything again changes it.
all_runs() {
    rows "$1" "SELECT id, candidate, stage, suite, status, started, ended,
        (SELECT count(*) FROM item WHERE run_id = id), (SELECT count(*) FROM token WHERE run_id = id),
        (SELECT count(*) FROM request WHERE run_id = id),
        (SELECT total(l_ns) FROM request WHERE run_id = id) FROM run ORDER BY id"
}

# What a run is, without times: the same for two studies of one model.
run_kinds() {
    rows "$1" "SELECT candidate, stage, suite, status FROM run ORDER BY stage DESC, suite, candidate"
}
