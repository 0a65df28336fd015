# Text from a tiny model: the same for any number of threads and for the same seed, and what --json
# says of it. The text itself is noise, since the weights are.
bin=$(dirname "$(realpath "$(command -v narrow)")")
"$bin/make_tiny" llama model || exit 1
run() { narrow generate model "Hello there" --max-tokens 24 --quiet "$@"; }
run >greedy || exit 1
for threads in 1 2 3; do
    run --threads $threads | cmp - greedy && echo "greedy: the same text with $threads threads"
done
sampled="--temperature 0.9 --top-k 50 --top-p 0.95 --min-p 0.01 --repeat-penalty 1.1"
run $sampled --seed 7 >a && run $sampled --seed 7 -t 1 >b && run $sampled --seed 8 >c || exit 1
cmp a b && echo "sampled: the same text for the same seed"
cmp -s a c || echo "sampled: another text for another seed"
run --tier ref --kv int8/bf16 --act a16 --n-ctx 64 --json >json || exit 1
for key in text ids finish n_prompt n_output decode_tokens_per_s prefill_tokens_per_s tier kernel_map; do
    grep -q "\"$key\": " json || echo "no $key"
done
grep -o '"n_prompt": [0-9]*\|"n_output": [0-9]*\|"tier": "[a-z]*"\|"act": "[a-z0-9]*"' json
printf 'one\ntwo\n' | narrow generate model --chat --system "Be brief" -n 4 --quiet >chat || exit 1
narrow generate model "one" --chat --system "Be brief" -n 4 --quiet >first || exit 1
[ "$(head -c "$(wc -c <first)" chat)" = "$(cat first)" ] && echo "chat: the first answer of a talk is the answer alone"
for act in a16 a8 a8-ct fp8; do # what is said of the kernels
    narrow generate model x -n 1 -t 1 --tier ref --act $act 2>&1 >/dev/null | grep kernels
done
narrow generate model
echo "exit $?"
narrow generate model x --system y
echo "exit $?"
narrow generate model "Hello there" --n-ctx 8 --quiet
echo "exit $?"
narrow generate model x --n-ctx 257
echo "exit $?"
narrow generate model x --kv int3
echo "exit $?"
narrow generate absent x
echo "exit $?"
