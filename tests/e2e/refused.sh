# What a study cannot do it says before any work, with file, line and column; what it can do without,
# it goes on without and says so.
. "$source_dir/tests/e2e/lib.sh"

try() {
    narrow study "$@" --quiet >out 2>err
    code=$?
    sed 's/[0-9.]* s$/N s/' err
    echo "-> $code"
}
no_work() {
    [ ! -e w ] || fail "work was begun"
}
bad() {
    sed "$1" study.yaml >bad.yaml
    try bad.yaml
    no_work
}
echo "-- bad files"
bad 's/rates: \[0.5\]/rates: [0]/'
bad 's/windows: 4/windows: many/'
bad 's/batch1:/batch2:/'
bad 's/name: int4-g32/name: int8-w8a8/'
bad 's/^model: .*/model: [model/'
bad '/^baseline/d'
bad '/^work/d'
bad '/^model/d'
bad 's/recipe: int4-g32/recipe: int3/'
bad 's/recipe: int4-g32/artifact: nowhere/'
bad 's|recipe: int4-g32|artifact: "http://127.0.0.1:1", kv: int8|'
bad 's/builtin:basics/builtin:advanced/'
bad 's/"builtin:assistant"/nowhere.jsonl/'
echo "-- missing inputs"
try nowhere.yaml
try study.yaml --model nowhere
try study.yaml --text nowhere
try study.yaml --policy nowhere
try study.yaml --model text.txt
no_work
echo "-- nowhere to write"
try study.yaml --work text.txt/w
# a limit on file sizes stands for a full disk: the write fails the same way
(
    trap '' XFSZ
    ulimit -f 150
    try study.yaml --work small
) | sed 's/partial-[A-Za-z0-9]*/partial-X/'
find small -name model.safetensors -o -name manifest.json
for recipe in bf16 int8-w8a8 int4-g32; do
    narrow quantize model --recipe $recipe --out larger/artifacts/$recipe --quiet >/dev/null || fail "quantize"
done
(
    trap '' XFSZ
    ulimit -f 100
    try study.yaml --work larger
)
narrow study study.yaml --work larger --quiet >/dev/null || fail "no way on after a full disk"
run_kinds larger/study.db | grep -c ' done$'

echo "-- a recipe that does not fit drops its candidate"
sed 's/int8-w8a8/int4-g128/g; /^batch1/d; /^load/,$d' study.yaml >g128.yaml
try g128.yaml
rows w/study.db "SELECT name FROM candidate"
rm -r w
sed -i 's/baseline: .*/baseline: {name: base, recipe: int4-g128}/; s/int4-g128, recipe: int4-g128/b, recipe: bf16/' g128.yaml
try g128.yaml | tail -n 2
rm -rf w

echo "-- --stop-at-gate leaves out the speed of what failed"
cat >strict.yaml <<'END'
policy: strict
gates:
  - {name: divergence, kind: kl, suites: "perplexity", margin: 0.01}
END
try study.yaml --policy strict.yaml --stop-at-gate
rows w/study.db "SELECT candidate, stage FROM run WHERE stage <> 'quality' ORDER BY 1, 2"
narrow study study.yaml --policy strict.yaml 2>&1 >/dev/null | grep -o '^\[.*/.*\] report$'
rows w/study.db "SELECT count(*) FROM run WHERE stage <> 'quality'"

echo "-- another KV format of one name is another measurement"
sed 's/recipe: int4-g32}/recipe: int4-g32, kv: int8}/; /^load/,$d' study.yaml >kv.yaml
try kv.yaml
rows w/study.db "SELECT stage, suite, count(*) FROM run WHERE candidate = 'int4-g32' GROUP BY 1, 2"
rows w/study.db "SELECT kv FROM candidate WHERE name = 'int4-g32'"
