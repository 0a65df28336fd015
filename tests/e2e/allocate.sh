# Measured losses and the recipe that a budget leaves: the budget is met, the recipe is one that quantize
# takes and whose bytes are the ones that were promised, what was measured is not measured again, and a
# run that was stopped goes on to the same lines.
. "$source_dir/tests/e2e/lib.sh"
try() {
    echo "\$ narrow $*"
    narrow "$@" 2>err
    code=$?
    cat err
    [ $code = 0 ] || echo "-> $code"
}
base="--types int4-g32,int4-g32-min,int8 --text text.txt --samples 3 --n-ctx 32 --quiet"
common="$base --seed 4"
other="$base --seed 5"
narrow allocate model --budget 5.6bits --out bits.yaml --work w $common --json >bits.json || fail "bits"
narrow allocate model -b 5.6bits -o again.yaml --work w $common --threads 1 --json >again.json || fail "again"
sed 's/again/bits/' again.json | cmp - bits.json || fail "other figures"
n=$(wc -l <w/sensitivity.jsonl)
narrow allocate model -b 90kB -o bytes.yaml --work w $common --json >bytes.json || fail "bytes"
narrow allocate model -b kl=0.001 -o kl.yaml --work w $common --json >kl.json || fail "kl"
[ "$(wc -l <w/sensitivity.jsonl)" = "$n" ] || fail "measured again"
for r in bits bytes kl; do
    narrow quantize model -r $r.yaml -o $r --no-tokenizer -q >/dev/null || fail "quantize $r"
done
python3 - <<'END'
import json, os
n = 0
for name in ("bits", "bytes", "kl"):
    r = json.load(open(name + ".json"))
    m = json.load(open(name + "/manifest.json"))
    size = os.path.getsize(name + "/model.safetensors")
    n = sum(t["n_rows"] * t["n_cols"] for t in m["tensors"])
    limit = {"bits": 5.6 * n / 8, "bytes": 90000, "kl": None}[name]
    print(name, "promised" if abs(size - r["file_bytes"]) <= 4096 else (size, r["file_bytes"]),
          "kl <= limit" if name != "kl" or r["kl"] <= 0.001 else r["kl"],
          "within" if limit is None or size <= limit + 4096 else (size, limit),
          "bound" if r["bound"] <= (r["kl"] if name != "kl" else r["file_bytes"]) else r["bound"])
    got = {t["name"]: t["type"] for t in m["tensors"]}
    for g in r["groups"]:
        if g["group"].endswith("qkv"):
            l = g["group"].split(".")[1]
            assert all(got[f"model.layers.{l}.self_attn.{x}_proj.weight"] == g["type"] for x in "qkv")
rows = [json.loads(x) for x in open("w/sensitivity.jsonl")][1:]
print(len(rows), all(r["kl"] >= 0 for r in rows), len({r["group"] for r in rows}))
kl = {t: sum(r["kl"] for r in rows if r["type"] == t) for t in ("int4-g32", "int4-g32-min", "int8")}
print("int8 costs least", kl["int8"] < min(kl["int4-g32"], kl["int4-g32-min"]))
END
# the first half of the lines, and half a line: the rest is measured again, to the same figures
head -c $(($(wc -c <w/sensitivity.jsonl) / 2)) w/sensitivity.jsonl >half
sort w/sensitivity.jsonl >whole.txt
cp half w/sensitivity.jsonl
narrow allocate model -b 5.6bits -o half.yaml --work w $common >/dev/null || fail "half"
sort w/sensitivity.jsonl | cmp - whole.txt && echo "the same lines"
ls w | sed 's/-[0-9a-f]\{12\}/-HASH/'
narrow allocate model -b 5.6bits -o single.yaml $common --per-tensor --method refit | grep -c recipe
ls -d single*
try allocate model -b 5.6bits -o bits.yaml --work w $common
try allocate model -b 5.6bits -o other.yaml --work w $other
try allocate model -b 5.6bits -o other.yaml --work w $other --force | grep -o '^layout'
try allocate model -b 3bits -o low.yaml --work w $other
try allocate model -b 5 bits -o x.yaml
try allocate model -b 5bit -o x.yaml --text text.txt
try allocate model -b 5bits -o x.yaml
try allocate model -b 5bits -o x.yaml --text text.txt --types int5
try allocate model -b 5bits -o x.yaml --text text.txt --method gptq
try allocate model -b 5bits -o x.yaml --log nowhere.jsonl --method nothing
try allocate model -b 5bits -o x.yaml --text text.txt --calibration nowhere --method gptq --types int8
ls x.yaml* 2>/dev/null | sed 's/-[0-9a-f]\{12\}/-HASH/'
exit 0
