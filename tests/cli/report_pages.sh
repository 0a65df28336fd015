# The page by its options, the figures as files, and the refusals.
build=$(dirname "$(realpath "$(command -v narrow)")")
if [ ! -s "$build/narrow-render.mjs" ] || ! command -v node >/dev/null; then
    echo "skipped: no node, or no narrow-render.mjs beside the program (npm had no network)"
    exit 77
fi
"$build/make_study_record" study.db small
narrow report study.db --out page.html --title "Which format" --policy policyha --svg figures | sed 's/[0-9]* KiB/N KiB/'
grep -c '<h1>Which format</h1>' page.html
narrow report study.db -o again.html --title "Which format" --quiet >again
cmp page.html again.html && echo "the same bytes twice"
ls figures 2>/dev/null
narrow report study.db --json | grep -c '"bytes"'
NARROW_NODE=/nonexistent/node narrow report study.db -o bare.html --quiet | sed 's/[0-9]* KiB/N KiB/'
grep -c 'Not drawn: node cannot be started' bare.html
narrow report absent.db
echo "exit $?"
narrow report study.db --policy 12345678
echo "exit $?"
