"""lm-evaluation-harness against `narrow serve`, and `narrow eval` on the same model: the same items have to
get the same log-likelihoods, and so the same scores. The harness asks local-completions for echoed
log-probabilities of token ids that the server's own /tokenize made; its task reads a local file, since its
data sets need a hub.

usage: check_lm_eval.py NARROW MODEL ITEMS.jsonl WORK_DIR      (items as `narrow eval --choice` reads them)
SPDX-License-Identifier: Apache-2.0"""
import json
import math
import os
import subprocess
import sys

import lm_eval
from lm_eval.tasks import TaskManager

TASK = """task: narrow_choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: {path}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{prompt}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""
MAX_DELTA = 1e-3  # nats over a whole continuation: float log-probabilities, summed in two places


def harness(url, model, work, items, batch, concurrent):
    """{item id: (log-likelihoods, greedy flags, acc)} by lm-eval."""
    with open(os.path.join(work, 'narrow_choice.yaml'), 'w') as f:
        f.write(TASK.format(path=items))
    args = {'model': model, 'base_url': url + '/v1/completions', 'num_concurrent': concurrent,
            'max_retries': 1, 'tokenizer_backend': 'remote', 'max_length': 2048}
    out = lm_eval.simple_evaluate(
        model='local-completions', model_args=args, tasks=['narrow_choice'], batch_size=batch,
        task_manager=TaskManager(include_path=work, include_defaults=False), bootstrap_iters=0,
        log_samples=True)
    return out['results']['narrow_choice'], {
        s['doc']['id']: ([float(r[0]) for r in s['filtered_resps']],
                         [str(r[1]) == 'True' for r in s['filtered_resps']], s['acc'])
        for s in out['samples']['narrow_choice']}


def ours(narrow, target, items, work):
    """{item id: (log-likelihoods, correct by sum, score)} by narrow eval."""
    record = os.path.join(work, 'narrow.db')
    if os.path.exists(record):
        os.remove(record)
    subprocess.run([narrow, 'eval', target, '--layer', 'choice', '--choice', items, '--record', record,
                    '--candidate', 'c', '--quiet'], check=True, stdout=subprocess.DEVNULL)
    import sqlite3
    rows = sqlite3.connect(record).execute('select item_id, json, score from item').fetchall()
    return {i: (json.loads(j)['logprob'], json.loads(j)['correct_by_sum'], score) for i, j, score in rows}


def compare(name, want, got):
    """want: narrow's rows; got: the harness's."""
    assert want.keys() == got.keys(), (len(want), len(got))
    delta = max(abs(a - b) for i in want for a, b in zip(want[i][0], got[i][0]))
    same = sum(bool(want[i][1]) == (got[i][2] == 1.0) for i in want)
    print(f'{name}: {len(want)} items, {same} of them scored alike, log-likelihoods differ by at most '
          f'{delta:.1e} nats', flush=True)
    return not (same == len(want) and delta < MAX_DELTA)


def main():
    narrow, model, items, work = sys.argv[1:5]
    os.makedirs(work, exist_ok=True)
    items = os.path.abspath(items)
    with subprocess.Popen([narrow, 'serve', model, '--port', '0', '--quiet', '--context', '2048'],
                          stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().split()[-1]
            results, one = harness(url, os.path.basename(model.rstrip('/')), work, items, 1, 4)
            _, batched = harness(url, os.path.basename(model.rstrip('/')), work, items, 8, 1)
            remote = ours(narrow, url, items, work)
        finally:
            server.terminate()
        assert server.wait(60) == 0
    local = ours(narrow, model, items, work)
    bad = compare('narrow eval on the artifact, lm-eval one prompt a request', local, one)
    bad += compare('narrow eval on the artifact, lm-eval 8 prompts a request', local, batched)
    bad += compare('narrow eval on the server, lm-eval', remote, one)
    acc = sum(v[1] for v in local.values()) / len(local)
    print(f"lm-eval {lm_eval.__version__}: acc {results['acc,none']:.6f}, narrow {acc:.6f}")
    # the control: against other items' likelihoods the comparison has to fail
    ids = sorted(local)
    turned = {i: local[j] for i, j in zip(ids, ids[1:] + ids[:1])}
    if not compare('control, items turned by one', turned, one):
        print('the control did not fail')
        bad += 1
    return 1 if bad or not math.isclose(results['acc,none'], acc, abs_tol=1e-9) else 0


if __name__ == '__main__':
    sys.exit(main())
