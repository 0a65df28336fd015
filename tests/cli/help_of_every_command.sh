# `narrow help X` and `narrow X --help` say the same, and every manual page passes mandoc's lint.
if ! command -v mandoc >/dev/null; then
    echo "skipped: no mandoc"
    exit 77
fi
commands=$(narrow help | sed -n 's/^  \([a-z-]*\) .*/\1/p')
n=0
for c in $commands; do
    narrow help "$c" >a
    narrow "$c" --help >b
    cmp a b || exit 1
    narrow help "$c" --man >man
    mandoc -T lint -W warning man || exit 1
    n=$((n + 1))
done
narrow help --man | mandoc -T lint -W warning || exit 1
[ $n -ge 3 ] || exit 1
narrow -h | cmp - "$(narrow help >c && echo c)" || exit 1
