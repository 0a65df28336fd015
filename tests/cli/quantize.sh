# Checkpoint to artifact and back through verify, with every option of convert, quantize and verify.
# The model is a llama2.c file of one layer, made here; it has no tokenizer.
python3 - <<'PY'
import random
import struct
random.seed(1)
d, f, h, k, v, n = 64, 96, 4, 2, 80, 32
def w(n, s=0.1, m=0.0):
    return struct.pack('<%df' % n, *(random.gauss(m, s) for _ in range(n)))
kv = d * k // h
body = w(v * d) + w(d, m=1) + w(d * d) + w(kv * d) + w(kv * d) + w(d * d) + w(d, m=1)
body += w(f * d) + w(d * f) + w(f * d) + w(d, m=1) + bytes(4 * n * d // h)
open('tiny.bin', 'wb').write(struct.pack('<7i', d, f, 1, h, k, v, n) + body)
PY
try() {
    echo "\$ narrow $*"
    narrow "$@" 2>err
    code=$?
    cat err
    [ $code = 0 ] || echo "-> $code"
}
try convert tiny.bin -o bf16 --no-tokenizer --quiet
try convert tiny.bin --out bf16 --no-tokenizer --dtype f32 --threads 2 --shard-bytes 20000 --quiet
try convert tiny.bin --out sharded --no-tokenizer --dtype f32 -t 2 --shard-bytes 20000 --quiet
try convert tiny.bin -o bf16 --no-tokenizer --force --off-grid 3 --no-check --quiet
try convert tiny.bin -o x --no-tokenizer --no-check
try convert tiny.bin -o wide --no-tokenizer --format gguf --dtype bf16 --quiet
try convert wide/model.gguf -o again --no-tokenizer -f gguf --quiet
cmp wide/model.gguf again/model.gguf && echo "the same file again"
try convert tiny.bin -o x --no-tokenizer --format gguf --off-grid 3
try convert tiny.bin -o x --no-tokenizer --format onnx
try convert tiny.bin -o x --no-tokenizer --no-fallback
narrow convert tiny.bin -o x 2>&1 | grep -o -e '--no-tokenizer does without one'
ls
narrow quantize bf16 --recipe int4-g32 --out q4 --no-tokenizer --no-fallback -t 1 -q >a || exit 1
grep -v hash a
narrow quantize bf16 -r int4-g32 -o q4 --no-tokenizer --force --threads 2 -q >b || exit 1
cmp a b || exit 1
narrow quantize bf16 -r int8-w8a8 -o q8 --no-tokenizer -q --json >q8.json || exit 1
cmp q8.json q8/manifest.json && echo "json is the manifest"
narrow quantize bf16 -r int4-g32 -o q4-gguf --no-tokenizer --format gguf -q | grep -A9 written
narrow quantize bf16 -r fp8-e4m3 -o f8-gguf --no-tokenizer -f gguf -q | grep -A9 written
try quantize bf16 -r fp8-e4m3 -o f8 --no-tokenizer -f gguf --no-fallback -q
narrow convert q4 -o q4-again --no-tokenizer -f gguf --no-fallback -q --json | grep -c '"exact": true'
cmp q4-gguf/model.gguf q4-again/model.gguf && echo "the same file from the artifact"
try quantize bf16 -r int4-g32 -o q4-kv --no-tokenizer --kv fp8
narrow quantize bf16 -r int4-g32 -o q4-kv --no-tokenizer --kv int8+window128 -q >/dev/null && grep '"kv":' q4-kv/manifest.json
try quantize bf16 -r int4-g128 -o q128 --no-tokenizer
try quantize bf16 -r int3 -o q3 --no-tokenizer
cp "$source_dir"/recipes/mlp-int4-attention-int8.yaml mixed.yaml
try quantize bf16 -r mixed.yaml -o shown --no-tokenizer --show
for recipe in "$source_dir"/recipes/*.yaml; do
    ! grep -q '^calibration:' "$recipe" || continue # tests/e2e/calibrate.sh has those
    narrow quantize bf16 -r "$recipe" -o "r-$(basename "$recipe")" --no-tokenizer -q | grep recipe
done
try verify q4
try verify q4 --source bf16
try verify q8 --json
size=$(wc -c <q8/model.safetensors)
printf '\125' | dd of=q8/model.safetensors bs=1 seek=$((size - 40000)) conv=notrunc 2>dd
try verify q8
narrow verify q8 --json 2>/dev/null | grep tensor
ls -d q*
