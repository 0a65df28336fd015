# A study that is killed in the middle of each stage, or stopped by ^C, goes on where it was: in the
# end there is every run once, done, and no run that was done is measured again.
. "$source_dir/tests/e2e/lib.sh"

# Starts the study in a process group of its own and waits until stderr says that a stage began.
start_until() {
    setsid narrow study study.yaml >out 2>err &
    pid=$!
    tries=0
    until grep -qF "$1" err; do
        tries=$((tries + 1))
        [ $tries -lt 3000 ] || fail "no '$1' after a minute: $(tail -n 3 err)"
        kill -0 $pid 2>/dev/null || fail "ended before '$1': $(tail -n 3 err)"
        sleep 0.02
    done
    sleep 0.1
}

# No stage may outlive its study: it would write into the record of the next one.
wait_for_children() {
    for child in $1; do
        tries=0
        while kill -0 "$child" 2>/dev/null; do
            tries=$((tries + 1))
            [ $tries -lt 1000 ] || fail "stage $child outlived its study by 20 s"
            sleep 0.02
        done
    done
}

done_runs() {
    [ ! -f w/study.db ] || all_runs w/study.db | grep ' done ' || true
}

for stage in "quantize int8-w8a8" "quality of bf16" "quality of int4-g32" "batch 1 of int8-w8a8" \
    "capacity of the baseline" "load on int8-w8a8" "report"; do
    start_until "] $stage"
    children=$(cat "/proc/$pid/task/$pid/children")
    kill -9 $pid
    wait $pid 2>/dev/null
    wait_for_children "$children"
    [ ! -f w/report.html ] || grep -q '</html>' w/report.html || fail "half a page"
    for artifact in w/artifacts/[!.]*; do
        case $artifact in
        *.partial-*) ;;
        *) narrow verify "$artifact" --quiet >/dev/null || fail "half an artifact: $artifact" ;;
        esac
    done
    done_runs >now
    [ ! -f before ] || head -n "$(wc -l <before)" now | cmp - before || fail "measured again"
    mv now before
    echo "killed in '$stage'"
done

# ^C: to the study alone (kill), then to the group as a terminal sends it
narrow study study.yaml --quiet >whole || fail "exit $?"
sed -i 's/requests: 3/requests: 4000/' study.yaml
for to in "" -; do
    start_until "] batch 1 of bf16"
    tries=0
    until [ "$(rows w/study.db "SELECT count(*) FROM run WHERE status = 'running'")" = 1 ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "no run was begun"
        sleep 0.05
    done
    kill -INT "$to$pid"
    wait $pid
    echo "exit $?"
    grep -o '^narrow: study tiny .*: stopped' err | sed 's/ (.*)//'
    rows w/study.db "SELECT status, count(*) FROM run WHERE settings_json LIKE '%4000%' GROUP BY 1"
done
sed -i 's/requests: 4000/requests: 3/' study.yaml
narrow study study.yaml --quiet >out || fail "exit $?"
run_kinds w/study.db | grep -c ' done$'
cmp out whole && echo "the decision of an undisturbed end"
