#!/usr/bin/env python3
"""narrow bench from outside: stable keys, figures that can be computed again from the record's rows,
replayed arrivals, what is said of things not measured. The server's model is the scripted one of the
shared tools. Standard library only.
usage: bench_test.py NARROW [unittest arguments]      exit 77: no scripted model here
SPDX-License-Identifier: Apache-2.0
"""
import http.server
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

NARROW = os.path.abspath(sys.argv[1])
SHARED = os.environ.get('NARROW_SHARED') or os.path.join(os.path.dirname(__file__), '../../../shared')
TOOL = os.path.join(SHARED, 'tools/scripted_model.py')


def rank(values, p):
    """Nearest rank: the ceil(p n)-th smallest."""
    v = sorted(values)
    return v[max(math.ceil(p * len(v) - 1e-9), 1) - 1]


class OneAtATime(http.server.BaseHTTPRequestHandler):
    """A scripted server: each request takes SERVICE_S of the one place that it has, so that the rate it holds is
    bounded by 1 / SERVICE_S; it refuses every request after the first `answers`."""
    SERVICE_S = 0.02
    place = threading.Lock()
    count = threading.Lock()
    answers = float('inf')
    n_asked = 0

    def log_message(self, *_):
        pass

    def send(self, status, kind, text):
        data = text.encode()
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            pass  # a request that was given up

    def do_GET(self):
        if self.path == '/v1/models':
            self.send(200, 'application/json', '{"data":[{"id":"one","owned_by":"test"}]}')
        else:
            self.send(404, 'application/json', '{}')

    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        if not self.path.startswith('/v1/'):
            self.send(404, 'application/json', '{}')
            return
        with self.count:
            type(self).n_asked += 1
            broken = self.n_asked > self.answers
        if broken:
            self.send(500, 'application/json', '{"error":{"message":"broken"}}')
            return
        with self.place:
            time.sleep(self.SERVICE_S)
        self.send(200, 'text/event-stream',
                  'data: {"choices":[{"text":"a"}]}\n\n'
                  'data: {"choices":[{"text":"b","finish_reason":"length"}]}\n\n'
                  'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}\n\ndata: [DONE]\n\n')


class BenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp()
        cls.loop = os.path.join(cls.dir, 'loop.gguf')
        cls.story = os.path.join(cls.dir, 'story.gguf')
        for path, extra in ((cls.story, []), (cls.loop, ['--loop'])):
            subprocess.run([sys.executable, TOOL, path, *extra], check=True,
                           stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def bench(self, *args, code=0, seconds=250):
        r = subprocess.run([NARROW, 'bench', *args, '--quiet'], capture_output=True, text=True,
                           check=False, timeout=seconds)
        self.assertEqual(r.returncode, code, r.stderr)
        return r.stdout if code == 0 else r.stderr

    def json(self, *args):
        return json.loads(self.bench(*args, '--json'))

    def db(self, name):
        con = sqlite3.connect(self.path(name))
        con.row_factory = sqlite3.Row
        return con

    def assert_printed(self, value, exact):
        # --json rounds to nine significant digits, whatever the size of the number
        self.assertAlmostEqual(value, exact, delta=abs(exact) * 1e-8)

    # ---- batch 1 ----

    def test_micro_keys_and_recomputation(self):
        out = self.json(self.loop, '--regime', 'micro', '--prompt', '40', '--output', '12',
                        '--requests', '9', '--warmup', '2', '--record', self.path('micro.db'),
                        '--candidate', 'a')
        rows = self.db('micro.db').execute('SELECT * FROM request ORDER BY idx').fetchall()
        self.assertEqual([r['idx'] for r in rows], list(range(9)))
        decode = [(r['n_output'] - 1) * 1e9 / (r['l_ns'] - r['f_ns']) for r in rows]
        prefill = [r['n_prompt'] * 1e9 / (r['f_ns'] - r['d_ns']) for r in rows]
        self.assert_printed(out['decode_tokens_per_s'], rank(decode, 0.5))
        self.assert_printed(out['prefill_tokens_per_s'], rank(prefill, 0.5))
        for r in rows:
            self.assertEqual((r['n_prompt'], r['n_asked'], r['n_output']), (40, 12, 12))
            self.assertEqual((r['status'], r['finish']), ('ok', 'length'))
            self.assertEqual(r['s_ns'], r['d_ns'])  # closed loop
            events = json.loads(r['events'])
            self.assertEqual(sum(m for _, m in events), 12)
            self.assertEqual((events[0][0], events[-1][0]), (r['f_ns'], r['l_ns']))
        self.assertIsNone(out['ttft_ms']['p99'])
        self.assertEqual(out['ttft_ms']['p99_lacking'], 290)
        self.assertGreater(out['peak_rss_bytes'], 1 << 20)
        self.assertTrue(out['energy_j'] is not None or out['energy_not_measured'])
        kernels = self.db('micro.db').execute('SELECT sum(calls) FROM kernel').fetchone()[0]
        self.assertGreater(kernels, 0)

    def test_micro_is_not_measured_twice(self):
        args = [self.loop, '--regime', 'micro', '--prompt', '8', '--output', '3', '--requests', '2',
                '--warmup', '0', '--record', self.path('twice.db'), '--candidate', 'a']
        self.bench(*args)
        self.assertEqual(self.json(*args)['reused_run'], 1)
        self.bench(*args, '--again')
        n = self.db('twice.db').execute("SELECT count(*) FROM run WHERE status='done'").fetchone()[0]
        self.assertEqual(n, 2)

    def test_micro_reserves_one_sequence(self):
        """One request at a time: the memory that counts is that of one context."""
        args = [self.loop, '--regime', 'micro', '--prompt', '8', '--output', '3', '--requests', '2',
                '--warmup', '0']
        one = self.json(*args)['kv_bytes']
        self.assertGreater(one, 0)
        self.assertEqual(self.json(*args, '--max-seqs', '4')['kv_bytes'], 4 * one)

    def test_asked_is_not_taken_for_actual(self):
        """The scripted story ends after 21 tokens, whatever is asked."""
        out = self.json(self.story, '--regime', 'micro', '--prompt', '16', '--output', '64',
                        '--requests', '3', '--warmup', '0', '--natural-stop')
        self.assertEqual((out['asked_tokens'], out['output_tokens']), (192, 63))
        self.assertEqual((out['finish_stop'], out['finish_length']), (3, 0))

    def test_in_process(self):
        out = self.json(self.loop, '--regime', 'micro', '--prompt', '16', '--output', '8',
                        '--requests', '3', '--warmup', '0', '--in-process')
        self.assertEqual(out['output_tokens'], 24)
        self.assertGreater(out['decode_tokens_per_s'], 0)

    # ---- load ----

    def test_load_recomputation(self):
        out = self.json(self.loop, '--regime', 'load', '--rate', '30', '--prompt', '8-24',
                        '--output', '1-12', '--requests', '60', '--warmup-s', '1', '--drain-s', '20',
                        '--record', self.path('load.db'), '--candidate', 'a', '--slo-ttft', '400',
                        '--slo-tpot', '40')
        con = self.db('load.db')
        w = con.execute('SELECT * FROM "window"').fetchone()
        self.assertEqual(w['start_ns'], 10 ** 9)
        seconds = (w['end_ns'] - w['start_ns']) / 1e9
        rows = con.execute('SELECT * FROM request').fetchall()
        inside = [r for r in rows if w['start_ns'] <= r['s_ns'] < w['end_ns']]
        self.assertEqual(out['scheduled'], len(inside))
        self.assertLess(len(inside), len(rows))  # warm-up and tail are kept, and not counted
        ok = [r for r in inside if r['status'] == 'ok']
        ttft = [(r['f_ns'] - r['s_ns']) / 1e6 for r in ok]
        tpot = [(r['l_ns'] - r['f_ns']) / 1e6 / (r['n_output'] - 1) for r in ok if r['n_output'] > 1]
        for key, values in (('ttft_ms', ttft), ('tpot_ms', tpot)):
            self.assertEqual(out[key]['n'], len(values))
            self.assert_printed(out[key]['p50'], rank(values, 0.5))
            self.assert_printed(out[key]['p90'], rank(values, 0.9))
        self.assertEqual(out['tpot_undefined'], len(ok) - len(tpot))
        good = sum(1 for r in ok if (r['f_ns'] - r['s_ns']) / 1e6 <= 400 and (
            r['n_output'] < 2 or (r['l_ns'] - r['f_ns']) / 1e6 / (r['n_output'] - 1) <= 40))
        self.assert_printed(out['goodput_rps'], good / seconds)
        self.assert_printed(out['attainment'], good / len(inside))
        received = sum(m for r in rows for t, m in json.loads(r['events'] or '[]')
                       if w['start_ns'] <= t < w['end_ns'])
        self.assertEqual(out['received_tokens'], received)
        self.assertEqual(out['prompt_tokens'], sum(r['n_prompt'] for r in inside))
        self.assertEqual(out['output_tokens'], sum(r['n_output'] for r in inside))

    def test_load_goes_on_past_the_window(self):
        """Warm-up hands over without a pause to drain, and requests come until those of the window have
        ended. They come 40 a second: none in 250 ms has probability e^-10, so the last of the warm-up
        is nearer than that to the window; and where the last of the window ends later than that after
        it, some must have come. A quick machine ends them all in time."""
        self.bench(self.loop, '--regime', 'load', '--rate', '40', '--prompt', '8', '--output', '200',
                   '--requests', '40', '--warmup-s', '1', '--drain-s', '30', '--record',
                   self.path('past.db'), '--candidate', 'a', '--max-seqs', '4')
        con = self.db('past.db')
        w = con.execute('SELECT * FROM "window"').fetchone()
        warm = con.execute('SELECT max(s_ns) FROM request WHERE s_ns < ?',
                           (w['start_ns'],)).fetchone()[0]
        self.assertLess(w['start_ns'] - warm, 250e6)
        last = con.execute('SELECT max(l_ns) FROM request WHERE s_ns >= ? AND s_ns < ?',
                           (w['start_ns'], w['end_ns'])).fetchone()[0]
        after = con.execute('SELECT count(*) FROM request WHERE s_ns >= ?',
                            (w['end_ns'],)).fetchone()[0]
        if last > w['end_ns'] + 250e6:
            self.assertGreater(after, 0)
        bad = con.execute("SELECT count(*) FROM request WHERE s_ns >= ? AND s_ns < ? AND "
                          "status != 'ok'", (w['start_ns'], w['end_ns'])).fetchone()[0]
        self.assertEqual(bad, 0)

    def test_a_file_goes_on_past_its_last_arrival(self):
        """20 arrivals 25 ms apart, of many tokens each: where those of the window take longer than
        that after the last one, more must have come, of the file's own lengths; and none with a tail of 0."""
        csv = self.path('short.csv')
        with open(csv, 'w', encoding='ascii') as f:
            f.write('t,prompt_tokens,output_tokens\n')
            f.writelines(f'{0.025 * i:.3f},8,{190 + i}\n' for i in range(20))
        for name, tail in (('on', '20'), ('off', '0')):
            self.bench(self.loop, '--regime', 'load', '--arrivals', csv, '--warmup-s', '0', '--tail-s',
                       tail, '--drain-s', '30', '--max-seqs', '4', '--record', self.path('tail.db'),
                       '--candidate', name)
        con = self.db('tail.db')
        end, last = con.execute('SELECT max(w.end_ns), max(l_ns) FROM request JOIN "window" w USING '
                                '(run_id, file_no) WHERE run_id = 1 AND idx < 20').fetchone()
        more = con.execute('SELECT s_ns, n_asked FROM request WHERE run_id = 1 AND idx >= 20 '
                           'ORDER BY idx').fetchall()
        if last > end + 100e6:
            self.assertGreater(len(more), 0)
        self.assertEqual([r['n_asked'] for r in more], [190 + i for i in range(len(more))])
        for i, r in enumerate(more):
            self.assertEqual(r['s_ns'], 475000000 + 25000000 * (i + 1))
        self.assertEqual(con.execute('SELECT count(*) FROM request WHERE run_id = 2').fetchone()[0], 20)

    def test_arrivals_are_replayed(self):
        csv = self.path('arrivals.csv')
        self.bench(self.loop, '--regime', 'load', '--rate', '50', '--prompt', '4-9', '--output',
                   '2-5', '--requests', '20', '--warmup-s', '0', '--drain-s', '1',
                   '--write-arrivals', csv)
        for name in ('a', 'b'):
            self.bench(self.loop, '--regime', 'load', '--arrivals', csv, '--warmup-s', '0.2',
                       '--duration', '0.3', '--drain-s', '20', '--record', self.path('replay.db'),
                       '--candidate', name)
        con = self.db('replay.db')
        self.assertEqual(con.execute('SELECT count(DISTINCT settings_hash), count(DISTINCT data_hash)'
                                     ' FROM run').fetchone()[:], (1, 1))
        rows = [con.execute('SELECT s_ns, n_prompt, n_asked FROM request WHERE run_id = ? AND '
                            's_ns < 500000000 ORDER BY idx', (run,)).fetchall() for run in (1, 2)]
        self.assertGreater(len(rows[0]), 5)
        self.assertEqual([r[:] for r in rows[0]], [r[:] for r in rows[1]])

    def test_without_streaming_latencies_are_not_measured(self):
        args = [self.loop, '--regime', 'load', '--rate', '20', '--prompt', '8', '--output', '4',
                '--requests', '10', '--warmup-s', '0', '--drain-s', '20', '--no-stream']
        out = self.json(*args)
        self.assertIn('not streaming', out['not_measured'])
        self.assertIsNone(out['ttft_ms']['p50'])
        self.assertNotIn('goodput_rps', out)
        self.assertGreater(out['e2e_ms']['p50'], 0)
        self.assertIn('not measured: not streaming', self.bench(*args))

    def test_burst_fills_the_batch_and_gives_a_capacity(self):
        csv = self.path('burst.csv')
        with open(csv, 'w', encoding='ascii') as f:
            f.write('t,prompt_tokens,output_tokens\n' + '0,8,150\n' * 72)
        out = self.json(self.loop, '--regime', 'load', '--arrivals', csv, '--warmup-s', '0',
                        '--max-seqs', '36', '--record', self.path('burst.db'), '--candidate', 'a')
        self.assertEqual(out['ok'], 72)
        self.assertGreater(out['requests_per_s'], 0)
        top = self.db('burst.db').execute("SELECT max(value) FROM series WHERE name LIKE "
                                          "'in_flight%'").fetchone()[0]
        self.assertGreaterEqual(top, 32)

    def search(self, *more, rate=40, drain=5, ttft_ms=450, code=0, seconds=250, **server_is):
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), type('S', (OneAtATime,), server_is))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            return self.bench(f'http://127.0.0.1:{server.server_port}', '--regime', 'load', '--search', '--rate',
                              str(rate), '--requests', '44', '--warmup-s', '0.5', '--prompt', '4',
                              '--output', '2', '--slo-ttft', str(ttft_ms), '--slo-tpot', '0', '--drain-s', str(drain),
                              '--tokenizer', self.story, *more, code=code, seconds=seconds)
        finally:
            server.shutdown()
            server.server_close()

    def test_search_for_the_highest_stable_rate(self):
        """How far it gets depends on the machine; that it is a rate which was held, four times, and that one at
        most 5 % above was not, does not. Above what one place can serve nothing is held."""
        out = json.loads(self.search('--attainment', '0.8', '--json'))
        tries = [(w['name'].split(), w['held'], w['why']) for w in out['windows']]
        limit = 1 / OneAtATime.SERVICE_S
        for w in out['windows']:  # evenly spaced without being told
            self.assertIn(w['scheduled'], (43, 44, 45))
        for (_, rate), held, why in tries:
            self.assertEqual(held, why == '')
            self.assertFalse(held and float(rate) > limit, rate)
        if out['stable_rps'] is None:  # this machine had no steady minute
            self.assertFalse(all(held for _, held, _ in tries))
            return
        self.assertEqual([(n, h) for (n, _), h, _ in tries[-3:]], [('again', True)] * 3)
        self.assertLessEqual(out['unstable_rps'] / out['stable_rps'], 1.05)
        failed = [float(rate) for (_, rate), held, _ in tries if not held]
        self.assertAlmostEqual(min(failed), out['unstable_rps'], 3)
        self.assertGreater(out['in_flight'], 0)

    def test_search_ends_where_nothing_is_answered(self):
        self.assertIn('no request was answered', self.search(answers=0, code=4))
        for other in (['--rates', '1'], ['--sweep'], ['--no-stream'],
                      ['--record', self.path('s.db'), '--candidate', 'a']):
            self.assertRegex(self.search(*other, code=2), r'--(search|rate)\b')

    def test_search_refuses_what_no_window_can_show(self):
        self.assertIn('at least 20000 are needed', self.search('--process', 'poisson', code=2))
        self.assertIn('below 1', self.search('--attainment', '1', code=2))
        self.assertIn('44 requests that are all good is 0.94', self.search('--attainment', '0.95', code=2))

    def held_at_first(self, **more):
        """A search whose first rate is held, by a server with room for all and a TTFT that dwarfs the machine's
        noise. A machine so busy that three tries do not hold it shows nothing of what the test asks."""
        more.update(ttft_ms=5000, SERVICE_S=0.35, place=threading.Semaphore(256))
        for _ in range(3):
            try:
                out = json.loads(self.search('--attainment', '0.8', '--json', seconds=100, **more))
            except subprocess.TimeoutExpired as e:
                why = str(e)  # the search went down to rates that take minutes
                continue
            if out['windows'][0]['held']:
                return out
            why = out['windows'][0]['why']
        self.skipTest(f'the first rate was not held in 3 tries, which this machine is too busy for: {why}')

    def test_search_where_a_doubled_rate_is_not_answered(self):
        """The first window and its warm-up are, and nothing after them."""
        out = self.held_at_first(rate=50, answers=80)
        self.assertIsNone(out['stable_rps'])
        self.assertEqual(out['windows'][1]['ok'], 0)
        self.assertFalse(any(w['held'] for w in out['windows'][1:]))

    def test_search_ends_where_the_schedule_does(self):
        """70/s for an hour are 252,000 arrivals, and 140/s are more than a schedule may hold."""
        out = self.held_at_first(drain=3600, rate=70)
        self.assertIsNone(out['stable_rps'])
        self.assertIn('at most 500000 are allowed', out['why'])

    def test_usage_errors(self):
        self.assertIn('--rate', self.bench(self.loop, '--regime', 'load', code=2))
        self.assertIn('LO-HI', self.bench(self.loop, '--regime', 'micro', '--prompt', 'x', code=2))
        self.assertIn('--candidate', self.bench(self.loop, '--regime', 'micro', '--record',
                                                self.path('x.db'), code=2))
        self.assertIn('none.gguf', self.bench(self.path('none.gguf'), '--regime', 'micro', code=4))


if __name__ == '__main__':
    if not os.path.exists(TOOL):
        print(f'skipped: no {TOOL} (set NARROW_SHARED)')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
