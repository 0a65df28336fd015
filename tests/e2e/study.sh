# From a checkpoint to the page: everything is there, a second run measures nothing again, another
# policy decides otherwise from the same rows, and what does not depend on time has the same bits.
. "$source_dir/tests/e2e/lib.sh"

narrow study study.yaml --quiet >first || fail "exit $?"
grep -c '^Recommendation, ' first
grep '^report: \|^record: ' first
grep -q '<title>tiny' w/report.html || fail "no page titled tiny"
for name in bf16 int8-w8a8 int4-g32; do
    grep -q "$name" w/report.html || fail "$name is not in the page"
    narrow verify "w/artifacts/$name" --source model --quiet >/dev/null || fail "verify $name"
done
run_kinds w/study.db

echo "-- again: no row changes"
all_runs w/study.db >before
sha256sum w/artifacts/*/* w/*.csv w/capacity*.json >files
narrow study study.yaml --quiet >second || fail "exit $?"
all_runs w/study.db | cmp - before && sha256sum --check --quiet files && echo "same rows, same files"
cmp first second && echo "same decision"
narrow study study.yaml --quiet --json | python3 -c 'import json, sys; print(sorted(json.load(sys.stdin)["regimes"]))'

echo "-- another policy: another decision, nothing measured"
cat >kl.yaml <<'END'
policy: kl
gates:
  - {name: divergence, kind: kl, suites: "perplexity", margin: 10}
END
decide() {
    narrow decide w/study.db "$@" --json >decision.json
    echo "exit $?"
    python3 - <<'END'
import json
d = json.load(open("decision.json"))
for name, r in sorted(d["regimes"].items()):
    print(name, "falls back to the baseline" if r["fallback"] else "decided on the merits")
END
}
decide
decide --policy kl.yaml
all_runs w/study.db | cmp - before && echo "same rows"
rows w/study.db "SELECT count(DISTINCT policy_hash) FROM decision"

echo "-- a model against itself"
narrow eval w/artifacts/bf16 --baseline w/artifacts/bf16 --layer perplexity --text text.txt \
    --context 64 --quiet --json >self.json || fail "exit $?"
grep -E '"(kl_mean|kl_max|top1|ln_ratio)":' self.json
narrow eval w/artifacts/bf16 --baseline model --layer perplexity --text text.txt --context 64 \
    --stride 32 --chunks 3 --tier ref --quiet --json >rounded.json || fail "exit $?"
python3 -c 'import json; d = json.load(open("rounded.json")); print(0 < d["kl_mean"] < 1e-3, d["cut"])'

echo "-- the same bytes and the same quality from a second study of another seed of times"
narrow quantize model --recipe int4-g32 --out again --threads 1 --quiet >/dev/null || fail "exit $?"
diff -r again w/artifacts/int4-g32 && echo "same artifact"
sed '/^batch1/,$d; s/^work: w/work: w2/' study.yaml >quality.yaml
narrow study quality.yaml --quiet >/dev/null || fail "exit $?"
quality() {
    rows "$1" "SELECT candidate, suite, settings_hash, data_hash, artifact_hash, kernel_map FROM run
        WHERE stage = 'quality' ORDER BY id"
    rows "$1" "SELECT candidate, item_id, score, output, item.n_output, finish, item.json FROM item
        JOIN run ON run_id = run.id ORDER BY run_id, item_id"
    rows "$1" 'SELECT candidate, "window", pos, nll, kl, top1, rank_base FROM token
        JOIN run ON run_id = run.id ORDER BY run_id, "window", pos'
}
quality w/study.db >a
quality w2/study.db | cmp - a && wc -l <a
