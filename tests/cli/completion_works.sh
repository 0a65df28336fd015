# The script is sourced by a real bash, and completes commands, options and choices.
narrow completion bash >script
bash -c '
    . ./script
    try() {
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        COMPREPLY=()
        _narrow
        echo "$*: ${COMPREPLY[*]}"
    }
    try narrow doct
    try narrow doctor --th
    try narrow doctor -
    try narrow help compl
    try narrow doctor x
'
