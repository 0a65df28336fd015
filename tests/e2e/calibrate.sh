# Calibration from a log and from a text, and quantizing with its statistics: what is printed, what is
# refused, and that a second run gives the same hash.
. "$source_dir/tests/e2e/lib.sh"
try() {
    echo "\$ narrow $*"
    narrow "$@" 2>err
    code=$?
    cat err
    [ $code = 0 ] || echo "-> $code"
}
python3 - >log.jsonl <<'END'
import json
for intent, n in (("order", 90), ("refund", 9), ("legal", 1)):
    for i in range(n):
        print(json.dumps({"meta": {"intent": intent}, "messages": [
            {"role": "user", "content": f"{intent} {i}: where is my parcel number {i * i}?"},
            {"role": "assistant", "content": "It is on its way."}]}))
print(json.dumps({"meta": {"intent": "order"}, "messages": [
    {"role": "user", "content": "order 0: where is my parcel number 0?"},
    {"role": "assistant", "content": "It is on its way."}]}))
END
narrow calibrate model --log log.jsonl --stratify meta.intent --samples 12 --n-ctx 48 --seed 7 \
    --out stats --threads 2 --quiet >a.txt || fail "calibrate"
grep -v '^hash' a.txt
narrow calibrate model --log log.jsonl --stratify meta.intent --samples 12 --n-ctx 48 --seed 7 \
    -o stats -t 1 --force --quiet --json >b.json || fail "again"
python3 -c 'import json; print("hash       ", json.load(open("b.json"))["hash"])' >b.txt
grep -xFf b.txt a.txt >again || fail "another hash"
try calibrate model --text text.txt --samples 4 --n-ctx 64 -o text --quiet | sed 's/^hash.*/hash/'
try calibrate model --log log.jsonl --stratify meta.intent --samples 2 --n-ctx 48 -o few --quiet
try calibrate model --log log.jsonl --text text.txt -o both
try calibrate model --text text.txt --stratify meta.intent -o both
ls -d few* stats* text* both* 2>/dev/null
narrow quantize model -r int4-g32-zp --method gptq-refit --calibration stats -o q --quiet |
    grep -E '^(recipe|scales|substituted)' || fail "quantize"
narrow verify q --source model || fail "verify"
try quantize model -r int4-g32 --method imatrix -o none --quiet
try quantize model -r int4-g32 --method imatrix -c q -o none --quiet
cat >mixed.yaml <<'END'
method: gptq-refit
calibration: stats
targets:
  - {match: '.*\.down_proj', weights: int8-g32, method: imatrix}
  - {match: '.*_proj', weights: int4-g32-min}
END
narrow quantize model -r mixed.yaml -o mixed --quiet | sed -n '/^recipe/p; s/^.* x \(int[^ ]*\).*/\1/p'
python3 - <<'END'
import json
r = json.load(open("mixed/manifest.json"))["recipe"]["resolved"]
print(r["calibration"]["n_samples"], r["calibration"]["data"]["seed"],
      sorted({m["method"] for m in r["matrices"]}), min(m["output_sqnr_db"] for m in r["matrices"]) > 15)
END
for recipe in "$source_dir"/recipes/*.yaml; do
    grep -q '^calibration:' "$recipe" || continue
    sed 's/int4-g64-min/int4-g32-min/' "$recipe" >shipped.yaml # 96 columns
    narrow quantize model -r shipped.yaml -o shipped --force --quiet |
        sed -n '/^recipe/p; s/^.* x \(int[^ ]*\).*/\1/p'
done
# what is fixed is counted, in narrow's folder and in that of another format
cat >fixed.yaml <<'END'
activations: a8
activation_scale: static
kv: fp8
targets: [{match: '.*_proj', weights: int8}]
END
narrow quantize model -r fixed.yaml -c stats -o fixed --quiet >/dev/null || fail "fixed scales"
narrow convert fixed -f compressed-tensors -o fixed-ct --quiet >/dev/null || fail "fixed scales, exported"
for folder in fixed fixed-ct; do
    narrow inspect "$folder" | grep -E '^(activations|keys|not used)'
done
