# Each mistake ends with 2 and a sentence that names the option, the value and what is allowed.
try() {
    narrow "$@" 2>&1
    echo "-> $?"
}
try doctr
try frobnicate
try --frobnicate
try doctor --thread 3
try doctor --frobnicate=3
try doctor -Z
try doctor --threads 9999
try doctor --threads=-1
try doctor -t 2x
try doctor -t ''
try doctor -t 99999999999999999999
try doctor --threads
try doctor -t 1 -t 2
try doctor --quiet=1
try doctor here
try help a b
try help frobnicate
try completion
try completion zsh
try completion bash --json
try serve model --json
try help --json
