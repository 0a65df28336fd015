# Ids of a text, of a file and of a chat by a byte-level tokenizer; the written tokenizer gives the same.
bin=$(dirname "$(realpath "$(command -v narrow)")")
"$bin/make_tiny" llama model || exit 1
ids() {
    python3 -c 'import json, sys; print(json.load(sys.stdin)["ids"])'
}
narrow tokenize model 'Hé!' --quiet
printf 'a\0b\n' >text
narrow tokenize model --file text --json | ids
narrow tokenize model 'x</s>' --json | ids
narrow tokenize model 'x</s>' --special --no-bos --json | ids
echo '[{"role": "user", "content": "</s>"}]' >chat.json
narrow tokenize model --chat chat.json --json | ids
narrow tokenize model 'x' --write written --quiet >/dev/null || exit 1
narrow tokenize written --chat chat.json >a && narrow tokenize model --chat chat.json | cmp - a && echo same
try() {
    narrow tokenize "$@" 2>&1
    echo "-> $?"
}
try
try model
try model --file absent
try absent text
try model --chat text
