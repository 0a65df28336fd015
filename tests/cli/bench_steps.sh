# The engine's own steps: rates beside a raw read, the ledger as a profile, a trace; what does not go
# together is refused.
bin=$(dirname "$(realpath "$(command -v narrow)")")
"$bin/make_tiny" llama model || exit 1
narrow bench model --regime steps --prompt 8 --output 3 --sequences 2 --depth 5 --rounds 2 --threads 1 --tier ref \
    --kv bf16 --act a16 --profile --trace t.json --quiet --json >out.json || exit 1
python3 - <<'END'
import json
d = json.load(open("out.json"))
print(d["regime"], d["prompt"], d["output"], d["sequences"], d["depth"], d["rounds"])
for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "read_bytes_per_s", "decode_share_of_read"):
    print(key, 0 < d[key]["min"] <= d[key]["median"] <= d[key]["max"])
p = d["profile"]
print([(x["phase"], x["tokens"]) for x in p["phases"]], sorted({o["op"] for o in p["ops"]}))
events = json.load(open("t.json"))["traceEvents"]
print(sum(e["ph"] == "X" for e in events), "events")
END
narrow bench model --profile --prompt 8 --output 3 --rounds 1 --threads 1 --tier ref --quiet >text || exit 1
sed -n '1p;s/^\(phase  *op  *shape\).*/\1/p;s/^\(prefill  all\).*/\1/p;s/^\(decode   all\).*/\1/p' text
for bad in "--regime micro --profile" "--regime load --rate 1 --trace t" "--regime micro --rate 3" \
    "--regime load --rate 1 --warmup 2" "--regime load --rate 1 --in-process" "--profile --requests 3" \
    "--regime steps --record r.db" "--regime load --arrivals a.csv --rate 2" "--regime load --rate 1 --rates 1,2" \
    "--regime load --sweep --rate 1" "--regime load --arrivals a.csv --prompt 5" "--regime load --rate 1 --tail-s 3" \
    "--regime load --rate 1 --duration 1 --requests 5" "--regime steps --prompt 300" "--profile --kv int3"; do
    narrow bench model $bad --quiet 2>&1
    echo "-> $?"
done
narrow bench http://127.0.0.1:9 --regime micro --kv int8 --quiet 2>&1
echo "-> $?"
# what is not measured says so, and a limit that is off is none
narrow bench model --regime micro --prompt 4 --output 1 --requests 2 --warmup 0 --in-process --threads 1 --quiet |
    grep decode
load="--regime load --rate 50 --requests 2 --warmup-s 0 --prompt 4 --output 2 --threads 1 --quiet"
narrow bench model $load --slo-ttft 0 | head -n 1
narrow bench model $load --slo-ttft 0 --slo-tpot 0 | head -n 1
narrow bench model $load --slo-gap 50 | head -n 1
