# A study whose recipe wants statistics: drawn once, taken up again, drawn anew for another log, and
# the artifact that was made under the old ones with them.
. "$source_dir/tests/e2e/lib.sh"
log() {
    python3 - "$1" <<'END'
import json, sys
for i in range(40):
    print(json.dumps({"intent": ("order", "refund")[i % 2], "text": f"{sys.argv[1]} {i}: where is it? On its way."}))
END
}
log parcel >log.jsonl
cat >gptq.yaml <<'END'
method: gptq
calibration: nowhere
last_group: short
targets: [{match: '.*_proj', weights: int4-g32-zp}]
END
sed -e '/^batch1/,$d' -e 's/recipe: int4-g32}/recipe: gptq.yaml}/' -e 's/windows: 4.*/windows: 2}/' \
    -e '/generate:/d' study.yaml >calibrated.yaml
echo 'calibration: {log: log.jsonl, by: intent, samples: 10, context: 48}' >>calibrated.yaml
made() {
    python3 - <<'END'
import json
stats = json.load(open("w/calibration/manifest.json"))
used = json.load(open("w/artifacts/int4-g32/manifest.json"))["recipe"]["resolved"]["calibration"]
print(stats["n_samples"], "samples,", len(stats["strata"]), "strata;",
      "used" if used["hash"] == stats["hash"] else "NOT used")
END
    sha256sum w/calibration/manifest.json w/artifacts/*/manifest.json
}
steps() {
    grep -o '^\[[0-9/]*\] [a-z]* *[a-z0-9-]*$' "$1" | grep -v quality
}
narrow study calibrated.yaml >out 2>first || fail "exit $?"
steps first
made >a
head -1 a
narrow study calibrated.yaml >out 2>second || fail "exit $?"
made | cmp - a && echo "again: the same"
steps second
sed -i 's/int4-g32-zp/int4-g32/' gptq.yaml
narrow study calibrated.yaml >out 2>edited || fail "exit $?"
steps edited
sed -i '/^last_group/d' gptq.yaml
narrow study calibrated.yaml >out 2>removed || fail "exit $?"
steps removed
echo 'kv: int8' >>gptq.yaml
narrow study calibrated.yaml >out 2>kept || fail "exit $?"
steps kept
sed -i '/^kv/d' gptq.yaml
narrow study calibrated.yaml >out 2>dropped || fail "exit $?"
steps dropped
made >a
log letter >log.jsonl
narrow study calibrated.yaml >out 2>third || fail "exit $?"
steps third
made >b
head -1 b
diff a b | grep -c '^>'
sed -i '/^calibration/s/log: [^,]*/log: none.jsonl/' calibrated.yaml
narrow study calibrated.yaml 2>&1
echo "-> $?"
