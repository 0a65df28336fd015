# Two arrival files at each of two rates: their names, that no two are alike, and that every candidate
# gets one run a rate with a window for each file, over the same arrivals as the others.
. "$source_dir/tests/e2e/lib.sh"
sed -i 's/^load:.*/load: {prompt: [8, 16], output: [4, 8], requests: 4, files: 2, warmup_s: 0,\n       rates: [0.25, 0.5], max_seqs: 4}/; /^quality:/,/items:/d; /^batch1:/d' study.yaml
echo "quality: {text: text.txt, context: 64, windows: 2}" >>study.yaml

narrow study study.yaml --quiet >out || fail "exit $?"
ls w | sed -n 's/^\(arrivals.*\)-[0-9a-f]\{8\}\.csv$/\1/p'
sha256sum w/arrivals-*.csv | cut -d' ' -f1 | sort -u | wc -l
wc -l w/arrivals-*.csv | sed -n 's/^ *\([0-9]*\) w.*/\1/p' | sort -u # 4 requests and the head

echo "-- runs: candidate, windows, requests (8 of the files; a slow machine adds some that keep the load on)"
rows w/study.db "SELECT candidate, (SELECT count(*) FROM \"window\" WHERE run_id = id),
    (SELECT min(count(*), 8) FROM request WHERE run_id = id) FROM run WHERE stage = 'load' ORDER BY id"
echo "-- workloads, and candidates of each"
rows w/study.db "SELECT count(*), n FROM (SELECT count(DISTINCT candidate) AS n FROM run
    WHERE stage = 'load' GROUP BY data_hash) GROUP BY n"
