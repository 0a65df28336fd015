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
# --format names every format that is taken.
for c in quantize convert; do
    if [ $c = quantize ]; then set -- --recipe bf16; else set --; fi
    formats=$(narrow $c model "$@" --out out --format none 2>&1 | sed -n 's/.*known are //p' | tr -d ,)
    [ "$(echo "$formats" | wc -w)" -ge 7 ] || exit 1
    narrow help $c | sed -n '/--format/,/^ *\(-., \)\?--[^f]/p' >a
    for f in $formats; do
        grep -qE -e "(^|[ ,;])$f([ ,;]|\$)" a || { echo "narrow help $c: --format says nothing of $f" && exit 1; }
    done
done
narrow help --man | mandoc -T lint -W warning || exit 1
[ $n -ge 3 ] || exit 1
narrow -h | cmp - "$(narrow help >c && echo c)" || exit 1
