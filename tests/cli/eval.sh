# Suites of one's own on a tiny model, every option; what is measured once is reused; what cannot be
# measured is refused with a sentence.
bin=$(dirname "$(realpath "$(command -v narrow)")")
"$bin/make_tiny" llama model || exit 1
for i in 1 2 3; do
    echo "{\"id\":\"q$i\",\"cluster\":\"c\",\"prompt\":\"one two\",\"choices\":[\" a\",\" bc\"],\"answer\":0}"
done >choice.jsonl
for i in 1 2 3; do
    echo "{\"id\":\"g$i\",\"messages\":[{\"role\":\"user\",\"content\":\"say $i\"}],\"grader\":\"contains\",\"answer\":\"@@\",\"max_tokens\":4}"
done >generate.jsonl
run() {
    narrow eval model --choice choice.jsonl --generate generate.jsonl --threads 1 --quiet "$@"
}
facts() {
    python3 -c 'import json, sys
d = json.load(sys.stdin)
for layer in ("choice", "generate"):
    o = d.get(layer, {})
    print(layer, o.get("items"), o.get("scored"), o.get("reused_run"))'
}
record="--record r.db --candidate a --role baseline"
run --layer choice -l generate --items 2 --parallel 2 --kv int8 --act a16 --tier ref $record --json | facts
run --layer choice --items 2 --kv int8 --tier ref $record --json | facts
run --layer choice --items 2 --kv f32 --tier ref -r r.db --candidate a --json | facts
narrow eval model --layer choice --items 5 --seed 4 --quiet --json | facts
narrow eval model --layer generate --generate generate.jsonl --quiet | sed 's/accuracy.*/accuracy .../'
python3 -c 'import sqlite3
for r in sqlite3.connect("r.db").execute("SELECT suite, status, kernel_map LIKE \"%int8%\","
        " (SELECT count(*) FROM item WHERE run_id = id) FROM run ORDER BY id"): print(*r)'
# what decides results is part of what a run is: no other options' figures are taken for its own
for kv in int4 int4 int4+window64 fp8 fp8/int8; do
    run --layer choice --items 2 --kv $kv -r kinds.db --candidate a --json | facts | head -1
done
# each rule of activations computes something of its own
narrow quantize model -r int8-w8a8 -o w8 --quiet >/dev/null || exit 1
for i in 1 2 3 4 5 6 7 8; do echo "one two three a bc one $i a bc two"; done >text.txt
for act in a16 a8 a8-ct fp8; do
    narrow eval w8 --layer perplexity --text text.txt --context 16 --act $act --quiet --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["perplexity"])'
done | sort -u | wc -l
try() {
    narrow eval "$@" >out 2>&1
    code=$?
    sed 's, after [0-9]* ms,,' out
    echo "-> $code"
}
try
try model --layer speed
try model --layer perplexity
try model --layer perplexity --text absent.txt
try model --record r.db
try model --layer choice --choice absent.jsonl
try model --layer choice --choice generate.jsonl --quiet
try model --layer choice --kv int3 --quiet
try model --layer choice --tier sse9 --quiet
try model --context 3
try model --act a4
try absent --layer choice
try http://127.0.0.1:1 --layer choice
try http://127.0.0.1:1 --layer choice --kv int8
try model --layer choice --kv int8+dynamic --quiet
try http://127.0.0.1:1 --layer generate --quiet
