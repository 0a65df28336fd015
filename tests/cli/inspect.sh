# A whole model as a table, tensor by tensor and as JSON; what is damaged or is no model at all ends
# with 3 and the reason, a missing file with 4.
cp "$source_dir/tests/fuzz/corpus/gguf/tiny.gguf" .
narrow inspect tiny.gguf | grep -v ^tokenizer
narrow inspect tiny.gguf --tensors | tail -n 12
narrow inspect tiny.gguf --json --quiet >j
for key in kind sha256 n_params weight_bytes effective_bits n_kv_heads num_key_value_heads; do
    grep "\"$key\"" j
done
[ "$(sha256sum tiny.gguf | cut -c1-64)" = "$(sed -n 's/.*"sha256": "\(.*\)",/\1/p' j)" ] || exit 1
try() {
    narrow inspect "$@" 2>&1
    echo "-> $?"
}
head -c 3000 tiny.gguf >cut.gguf
try cut.gguf
tr 'k' 'z' <tiny.gguf >renamed.gguf
try renamed.gguf
echo "this is a text and no model at all" >text
try text
try absent.gguf
mkdir empty
try empty
try
