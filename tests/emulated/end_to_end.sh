# A tiny model in each built-in layout of weights: the hash of its artifact and its perplexity, one line a
# layout. With the lines of another machine in EXPECTED the hashes have to be the same, and perplexities
# within 0.2 %: tiers round activations differently, BF16 by at most 2^-9.
# usage: end_to_end.sh [EXPECTED]
# SPDX-License-Identifier: Apache-2.0
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
make_tiny wide "$work/model" || exit 1
for i in $(seq 40); do echo "line $i of forty, the one before it was $((i - 1))."; done >"$work/text"
for recipe in bf16 bf16-12 int8-w8a8 int8-w8a16 int8-g32 int4-g32 int4-g32-zp int4-g32-min fp8-e4m3 nvfp4 \
    mxfp4 q4_0 q5_1; do
    hash=$(narrow quantize "$work/model" -r $recipe -o "$work/$recipe" | sed -n 's/^hash *//p')
    perplexity=$(narrow eval "$work/$recipe" --layer perplexity --text "$work/text" -c 64 --chunks 4 --json |
        sed -n 's/.*"perplexity": \([0-9.]*\),.*/\1/p')
    echo "$recipe $hash $perplexity"
done >"$work/lines"
[ -n "${1:-}" ] || { cat "$work/lines" && exit 0; }
awk 'NR == FNR { hash[$1] = $2; perplexity[$1] = $3; n++; next }
    NF != 3 || $2 != hash[$1] { print $1 ": hash " $2 ", expected " hash[$1]; bad = 1 }
    { d = $3 / perplexity[$1] - 1; seen++ }
    d > 0.002 || d < -0.002 { print $1 ": perplexity " $3 ", expected " perplexity[$1]; bad = 1 }
    END { exit bad || n == 0 || seen != n }' "$1" "$work/lines"
