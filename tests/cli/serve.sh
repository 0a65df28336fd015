# A server with every option set, and eval and bench against it and against a model of their own; a
# wrong key, a long body and a wrong option are refused.
bin=$(dirname "$(realpath "$(command -v narrow)")")
"$bin/make_tiny" llama model || exit 1
narrow serve model --host 127.0.0.1 --port 0 --port-file port --api-key secret --name tiny --threads 1 \
    --tier ref --kv int8 --act a16 --context 128 --max-seqs 4 --kv-mib 8 --prefill-chunk 16 --max-queue 32 \
    --max-connections 32 --max-body 1 --quiet >server.out 2>server.err &
server=$!
tries=0
until [ -s port ]; do
    tries=$((tries + 1))
    [ $tries -lt 1500 ] || { echo "no server after 30 s" && cat server.err && exit 1; }
    sleep 0.02
done
url=http://127.0.0.1:$(cat port)
until [ -s server.out ] || [ $tries -ge 1500 ]; do # the line follows the file
    tries=$((tries + 1))
    sleep 0.02
done
[ "$(cat server.out)" = "listening on $url" ] && echo "listening"
python3 - "$url" <<'END'
import json, sys, urllib.error, urllib.request
def ask(path, key, body=None):
    r = urllib.request.Request(sys.argv[1] + path, body, {"Authorization": "Bearer " + key})
    try:
        return urllib.request.urlopen(r, timeout=60)
    except urllib.error.HTTPError as e:
        return e
print(json.load(ask("/v1/models", "secret"))["data"][0]["id"])
print(ask("/v1/models", "wrong").status)
print(ask("/v1/completions", "secret", json.dumps({"prompt": "x" * 2000}).encode()).status)
print(ask("/v1/completions", "secret", json.dumps({"prompt": "x" * 126, "max_tokens": 3}).encode()).status)
END
echo '{"id":"g","messages":[{"role":"user","content":"hi"}],"grader":"contains","answer":"@@","max_tokens":4}' >g.jsonl
narrow eval "$url" --layer generate --generate g.jsonl --api-key secret --model tiny --quiet | head -n 1
narrow eval "$url" --layer generate --generate g.jsonl --api-key wrong --quiet 2>&1 | sed "s|$url|URL|g"
# the same items on the server (of two replicas, which are one here) and on the model itself
narrow eval "$url,$url" --layer choice --items 6 --api-key secret --tokenizer model --retries 1 --max-rate 500 --timeout 60 \
    --parallel 3 --quiet >remote && cat remote
narrow eval model --layer choice --items 6 --tier ref --kv int8 --act a16 --quiet | cmp - remote
NARROW_API_KEY=secret narrow doctor "$url" --model tiny --tokenizer model --timeout 60 | sed "s|$url|URL|g"
keys() {
    python3 -c 'import json, sys
d = json.load(sys.stdin)
print(len(d["windows"]), d["regime"])'
}
load="--regime load --warmup-s 0 --drain-s 20 --quiet --json"
lengths="--prompt 4-8 --output 2-4"
narrow bench "$url" $load $lengths --requests 4 --rates 40,80 --process constant --slo-gap 500 --slo-ttft 0 --slo-tpot 0 --seed 2 \
    --api-key secret --model tiny --tokenizer model --timeout 60 | keys
kill "$server"
wait "$server"
echo "server: exit $?"
narrow bench model $load $lengths --sweep --rates 0.5 --context 64 --threads 1 --tier ref --kv int8 --act a16 --max-seqs 4 \
    --role baseline --record r.db --candidate a --duration 0.2 --write-arrivals made.csv | keys
head -n 1 made.csv
narrow bench model $load --arrivals made.csv --no-stream --natural-stop --threads 1 | keys
narrow bench model --regime micro --prompt 4 --output 2 --requests 2 --warmup 0 --in-process --again \
    --threads 1 --record r.db --candidate a --quiet >micro || exit 1
python3 -c 'import sqlite3
for r in sqlite3.connect("r.db").execute("SELECT role, stage, status FROM run JOIN candidate ON name = candidate"): print(*r)'
try() {
    narrow "$@" --quiet >out 2>&1
    code=$?
    sed 's, after [0-9]* ms,,' out
    echo "-> $code"
}
try bench model
try bench model --regime load
try bench model --regime load --rate 1 --in-process
try bench model --regime load --rates 1,x
try bench model --regime micro --prompt 3-5
try bench model --regime micro --prompt many
try bench model --regime micro --prompt 4 --output 2 --warmup 0 --record r.db
try bench absent --regime micro
try bench http://127.0.0.1:1 --regime micro
try serve absent
try serve model --port 70000
try serve model --kv int3
try serve model --context 4096
