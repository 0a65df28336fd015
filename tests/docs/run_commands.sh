#!/bin/sh
# Runs the commands that the documentation shows: every ```sh block of README.md and docs/guide.md whose
# line before is <!-- run --> or <!-- run, shows -->. After the latter, the next ``` block holds lines
# that must be in what was printed; "…" in such a line stands for anything. The blocks of a file run in one
# folder, in order, with `narrow` on the PATH and two files in it: model/, a seeded tiny model, and
# text.txt. usage: run_commands.sh NARROW
# SPDX-License-Identifier: Apache-2.0
set -u
program=$(realpath "$1")
source_dir=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$program" "$work/bin/narrow"
PATH=$work/bin:$PATH LC_ALL=C.UTF-8
export PATH LC_ALL

# Writes block N to $work/blocks/N.sh, and what it must print to N.want.
blocks() {
    rm -rf "$work/blocks" && mkdir "$work/blocks"
    awk -v dir="$work/blocks" '
        /^<!-- run(, shows)? -->$/ { n++; name = sprintf("%s/%02d", dir, n); marked = 1; shows = /shows/; next }
        /^```sh$/ && marked { out = name ".sh"; marked = 0; next }
        /^```$/ && out != "" { close(out); out = ""; next }
        /^```$/ && shows { out = name ".want"; shows = 0; next }
        marked { print FILENAME ": line " FNR ": no ```sh block after its marker"; exit 1 }
        out != "" { print > out }' "$1"
}

# Every line of the file WANT, in this order, among the lines of GOT; spaces count once.
shows() {
    awk '{ gsub(/[ \t]+/, " "); sub(/^ /, ""); sub(/ $/, "") }
        FNR == NR { if ($0 != "") want[++n] = $0; next }
        k < n {
            parts = split(want[k + 1], part, "…"); at = 1; ok = 1
            for (i = 1; i <= parts; i++) {
                p = index(substr($0, at), part[i])
                ok = ok && (p > 0 || part[i] == "") && (i > 1 || p == 1 || part[i] == "")
                at += p + length(part[i]) - 1
            }
            if (ok && (at == length($0) + 1 || part[parts] == "")) k++
        }
        END { if (k < n) { print "not printed: " want[k + 1]; exit 1 } }' "$1" "$2"
}

bad=0
total=0
for file in README.md docs/guide.md; do
    blocks "$source_dir/$file" || exit 1
    here=$work/here-$(basename "$file")
    mkdir "$here"
    "$(dirname "$program")/make_tiny" wide "$here/model" || exit 1
    awk 'BEGIN { srand(1); n = split("the a small large dog cat house river runs sees under over old new", w, " ")
        for (i = 0; i < 1200; i++) printf "%s ", w[int(rand() * n) + 1] }' >"$here/text.txt"
    for block in "$work"/blocks/*.sh; do
        [ -f "$block" ] || continue
        total=$((total + 1))
        if ! (cd "$here" && sh -eu "$block" >"$block.out" 2>"$block.err"); then
            echo "$file: these commands did not succeed:" && cat "$block" "$block.out" "$block.err"
            bad=1
        elif [ -f "${block%.sh}.want" ] && ! shows "${block%.sh}.want" "$block.out"; then
            echo "$file: that is what these commands printed:" && cat "$block" "$block.out"
            bad=1
        fi
    done
done
echo "$total blocks of commands"
[ $total -gt 0 ] || { echo "no block is marked" && bad=1; }
exit $bad
