# A record of one baseline and one candidate: text, JSON, another policy, and what is refused.
python3 - "$source_dir/src/record/schema.sql" <<'END'
import sqlite3, sys
db = sqlite3.connect("study.db")
db.executescript(open(sys.argv[1]).read())
db.execute("PRAGMA application_id = 0x6e617277")
db.execute("PRAGMA user_version = 1")
for name, role, weights in (("bf16", "baseline", "bf16"), ("int4", "candidate", "int4-g64")):
    db.execute("INSERT INTO candidate(name, role, weights, weight_bytes, effective_bits)"
               " VALUES(?,?,?,1000000,16)", (name, role, weights))
    run = db.execute("INSERT INTO run(candidate, stage, suite, status, settings_hash, artifact_hash)"
                     " VALUES(?,'quality','choice:a','done','s','h')", (name,)).lastrowid
    for i in range(400):
        right = i < 300 and not (role == "candidate" and i < 4)
        db.execute("INSERT INTO item(run_id, item_id, score) VALUES(?,?,?)",
                   (run, "q%03d" % i, 1.0 if right else 0.0))
db.commit()
END
cat >wide.yaml <<'END'
policy: wide
gates:
  - {name: accuracy, kind: accuracy, suites: "choice:*", margin: 0.05}
END
sed 's/0.05/0.005/; s/wide/narrow/' wide.yaml >close.yaml
narrow decide study.db --policy wide.yaml
echo "exit $?"
narrow decide study.db -p close.yaml --json --dry-run | grep -E '"(verdict|n_needed|all_pass)"'
narrow decide study.db -p close.yaml --dry-run >/dev/null
echo "exit $?"
python3 -c 'import sqlite3; print(sqlite3.connect("study.db").execute(
    "SELECT name, verdict FROM verdict JOIN policy USING (policy_hash)").fetchall())'
narrow decide none.db 2>&1
echo "exit $?"
narrow decide wide.yaml 2>&1
echo "exit $?"
