#!/usr/bin/env python3
"""The server from outside, by raw sockets: framing, limits, stop strings, cancellation, overload,
concurrency. Its model is the scripted one of the shared tools, which says one known text whatever it is
asked, so that every right answer is known beforehand. Standard library only.
usage: server_test.py NARROW [unittest arguments]      exit 77: no scripted model here
SPDX-License-Identifier: Apache-2.0
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

NARROW = os.path.abspath(sys.argv[1])
SHARED = os.environ.get('NARROW_SHARED') or os.path.join(os.path.dirname(__file__), '../../../shared')
TOOL = os.path.join(SHARED, 'tools/scripted_model.py')
STORY = 'Seven small boats left the harbour at dawn \u2693 \U0001F30A and came back with fish.\n'
N_STORY = 21  # tokens of it; the wave emoji is four of them
USER = [{'role': 'user', 'content': 'hi'}]
with open(NARROW, 'rb') as program:
    bytes_of_program = program.read()
    SANITIZED = b'__asan_init' in bytes_of_program or b'__tsan_init' in bytes_of_program
LONG = 30000  # tokens; many seconds on any machine, so that what must still be running still runs


class Server:
    """narrow serve as a child, on any free port."""

    def __init__(self, model, *args):
        self.proc = subprocess.Popen([NARROW, 'serve', model, '--port', '0', '--quiet', *args],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.proc.stdout.readline()
        match = re.fullmatch(r'listening on http://127\.0\.0\.1:(\d+)\n', line)
        if not match:
            raise RuntimeError(f'first line {line!r}: {self.proc.stderr.read()}')
        self.port = int(match.group(1))

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        try:
            code = self.proc.wait(60)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            raise
        self.stderr = self.proc.stderr.read()
        self.proc.stdout.close()
        self.proc.stderr.close()
        return code

    def call(self, method, path, body=None, headers=None):
        """(status, headers, parsed JSON or text)"""
        conn = http.client.HTTPConnection('127.0.0.1', self.port, timeout=60)
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        conn.request(method, path, data, headers or {})
        r = conn.getresponse()
        text = r.read().decode()
        conn.close()
        kind = r.getheader('Content-Type') or ''
        return r.status, r, json.loads(text) if kind == 'application/json' and text else text

    def chat(self, **more):
        return self.call('POST', '/v1/chat/completions',
                         {'messages': USER, 'temperature': 0, **more})

    def metric(self, name):
        text = self.call('GET', '/metrics')[2]
        return float(re.search(rf'^narrow_{name} (\S+)$', text, re.M).group(1))

    def open_stream(self, body):
        """A socket on which a streaming request was sent."""
        data = json.dumps(body).encode()
        s = socket.create_connection(('127.0.0.1', self.port), timeout=60)
        s.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: '
                  + str(len(data)).encode() + b'\r\n\r\n' + data)
        return s

    def peak_memory(self):
        """Bytes."""
        with open(f'/proc/{self.proc.pid}/status', encoding='ascii') as f:
            return int(re.search(r'VmHWM:\s+(\d+) kB', f.read()).group(1)) * 1024

    def wait_metric(self, name, want, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.metric(name) == want:
                return True
            time.sleep(0.02)
        return False


def dechunk(raw):
    """The body of a chunked answer; every chunk's length is held against its bytes."""
    head, rest = raw.split(b'\r\n\r\n', 1)
    assert b'Transfer-Encoding: chunked' in head, head
    body = b''
    while True:
        size, rest = rest.split(b'\r\n', 1)
        n = int(size, 16)
        body += rest[:n]
        assert rest[n:n + 2] == b'\r\n'
        rest = rest[n + 2:]
        if n == 0:
            assert rest == b''
            return head, body


def events_of(body):
    """Data of the events; each must be one 'data: ' line and a blank line, and valid UTF-8."""
    parts = body.split(b'\n\n')
    assert parts[-1] == b''
    for p in parts[:-1]:
        assert p.startswith(b'data: ') and b'\n' not in p, p
    return [p[6:].decode('utf-8') for p in parts[:-1]]


def read_stream(server, body):
    s = server.open_stream({'messages': USER, 'temperature': 0, 'stream': True, **body})
    raw = b''
    while not raw.endswith(b'0\r\n\r\n'):
        more = s.recv(65536)
        if not more:
            break
        raw += more
    s.close()
    head, body = dechunk(raw)
    return head, events_of(body)


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp()
        sys.path.insert(0, os.path.dirname(TOOL))
        import scripted_model  # only where it exists: without it every test is skipped
        scripted_model.tiny_model(os.path.join(cls.dir, 'story.gguf'))
        scripted_model.tiny_model(os.path.join(cls.dir, 'loop.gguf'), loop=True, ctx=LONG + 100)
        cls.story = Server(os.path.join(cls.dir, 'story.gguf'))
        cls.loop = Server(os.path.join(cls.dir, 'loop.gguf'), '--context', str(LONG + 100),
                          '--max-seqs', '2', '--max-queue', '2')

    @classmethod
    def tearDownClass(cls):
        for s in (cls.story, cls.loop):
            code = s.stop()
            assert code == 0, f'exit code {code}: {s.stderr}'
            assert 'ERROR' not in s.stderr and 'runtime error' not in s.stderr, s.stderr
        shutil.rmtree(cls.dir)

    def refuse(self, body, param, status=400, path='/v1/chat/completions'):
        got, _, reply = self.story.call('POST', path, body)
        self.assertEqual(got, status, reply)
        self.assertEqual(reply['error']['param'], param)
        self.assertTrue(reply['error']['message'])

    # ---- answers ----

    def test_whole_chat(self):
        status, _, r = self.story.chat()
        self.assertEqual(status, 200)
        self.assertEqual(r['object'], 'chat.completion')
        self.assertEqual(r['choices'][0]['message'], {'role': 'assistant', 'content': STORY})
        self.assertEqual(r['choices'][0]['finish_reason'], 'stop')
        self.assertEqual(r['usage']['completion_tokens'], N_STORY)
        self.assertEqual(r['usage']['total_tokens'],
                         r['usage']['prompt_tokens'] + r['usage']['completion_tokens'])

    def test_whole_completion_and_ids(self):
        for prompt in ('x', [100, 101]):
            status, _, r = self.story.call('POST', '/v1/completions',
                                           {'prompt': prompt, 'max_tokens': 64, 'temperature': 0})
            self.assertEqual(status, 200)
            self.assertEqual(r['choices'][0]['text'], STORY)
        self.assertEqual(r['usage']['prompt_tokens'], 2)

    def test_completion_default_is_16_tokens(self):
        r = self.story.call('POST', '/v1/completions', {'prompt': 'x'})[2]
        self.assertEqual(r['usage']['completion_tokens'], 16)

    def test_models_and_health(self):
        status, _, r = self.story.call('GET', '/v1/models')
        self.assertEqual((status, r['data'][0]['id'], r['data'][0]['owned_by']),
                         (200, 'story.gguf', 'narrow'))
        self.assertEqual(self.story.call('GET', '/health')[2], {'status': 'ok'})

    def test_model_that_is_not_served(self):
        self.assertEqual(self.story.chat(model='story.gguf')[0], 200)
        self.refuse({'messages': USER, 'model': 'gpt-x'}, 'model', 404)

    # ---- streams ----

    def test_stream_framing(self):
        head, events = read_stream(self.story, {})
        self.assertIn(b'Content-Type: text/event-stream', head)
        self.assertEqual(events[-1], '[DONE]')
        chunks = [json.loads(e) for e in events[:-1]]
        self.assertEqual(chunks[0]['choices'][0]['delta'], {'role': 'assistant', 'content': ''})
        text = ''.join(c['choices'][0]['delta'].get('content', '') for c in chunks)
        self.assertEqual(text, STORY)
        self.assertEqual([c['choices'][0]['finish_reason'] for c in chunks[:-1]],
                         [None] * (len(chunks) - 1))
        self.assertEqual(chunks[-1]['choices'][0]['finish_reason'], 'stop')
        self.assertEqual(len({c['id'] for c in chunks}), 1)
        for c in chunks:
            self.assertNotIn('usage', c)

    def test_stream_never_cuts_a_character(self):
        pieces = [json.loads(e)['choices'][0]['delta'].get('content')
                  for e in read_stream(self.story, {})[1][1:-2]]
        self.assertIn('\U0001F30A', pieces)  # four tokens, one event
        self.assertNotIn('\ufffd', ''.join(pieces))

    def test_usage_in_the_last_event(self):
        _, events = read_stream(self.story, {'stream_options': {'include_usage': True}})
        last = json.loads(events[-2])
        self.assertEqual(last['choices'], [])
        self.assertEqual(last['usage']['completion_tokens'], N_STORY)
        self.assertTrue(all(json.loads(e)['usage'] is None for e in events[:-2]))

    def test_usage_in_every_event(self):
        _, events = read_stream(self.story, {'stream_options': {
            'include_usage': True, 'continuous_usage_stats': True}})
        counts = [json.loads(e)['usage']['completion_tokens'] for e in events[:-1]]
        self.assertEqual(counts, [*range(N_STORY + 1), N_STORY, N_STORY])

    def test_stream_equals_whole(self):
        for more in ({'max_tokens': 7}, {'stop': ['dawn']}, {'stop': ['\U0001F30A and']},
                     {'max_tokens': 13}):
            whole = self.story.chat(**more)[2]
            chunks = [json.loads(e) for e in read_stream(self.story, more)[1][:-1]]
            text = ''.join(c['choices'][0]['delta'].get('content', '') for c in chunks)
            self.assertEqual(text, whole['choices'][0]['message']['content'])
            self.assertEqual(chunks[-1]['choices'][0]['finish_reason'],
                             whole['choices'][0]['finish_reason'])

    # ---- stopping ----

    def test_stop_strings(self):
        for stop, want in ((['boats'], 'Seven small '), (['small boats left'], 'Seven '),
                           ('har', 'Seven small boats left the '),
                           (['n small b', 'oats'], 'Seve'),
                           (['\U0001F30A'], STORY[:STORY.index('\U0001F30A')]),
                           (['Seven'], ''), (['nowhere'], STORY)):
            r = self.story.chat(stop=stop)[2]
            self.assertEqual(r['choices'][0]['message']['content'], want, stop)
            self.assertEqual(r['choices'][0]['finish_reason'], 'stop')

    def test_an_answer_that_a_stop_string_ended_counts_as_completed(self):
        completed, cancelled = (self.story.metric(f'requests_{what}_total') for what in ('completed', 'cancelled'))
        self.story.chat(stop=['boats'])
        self.assertTrue(self.story.wait_metric('requests_completed_total', completed + 1))
        self.assertEqual(self.story.metric('requests_cancelled_total'), cancelled)

    def test_stop_on_the_text_of_a_control_token(self):
        """With ignore_eos the end token is generated and not shown; its text stops all the same."""
        r = self.story.chat(stop=['<|im_end|>'], ignore_eos=True, max_tokens=60)[2]
        self.assertEqual(r['choices'][0]['message']['content'], STORY)
        self.assertEqual(r['choices'][0]['finish_reason'], 'stop')
        r = self.story.chat(stop=['fish.\n<|im_end|>'], ignore_eos=True, max_tokens=60)[2]
        self.assertEqual(r['choices'][0]['message']['content'], STORY[:-len('fish.\n')])

    def test_the_lower_limit_wins(self):
        for a, b in ((3, 5), (5, 3)):
            r = self.story.chat(max_tokens=a, max_completion_tokens=b)[2]
            self.assertEqual(r['usage']['completion_tokens'], 3)
            self.assertEqual(r['choices'][0]['finish_reason'], 'length')
            self.assertEqual(r['choices'][0]['message']['content'], 'Seven small boats')

    def test_ignore_eos_gives_every_token_asked_for(self):
        r = self.loop.chat(ignore_eos=True, max_tokens=50)[2]
        self.assertEqual(r['usage']['completion_tokens'], 50)
        self.assertEqual(r['choices'][0]['finish_reason'], 'length')

    # ---- log-probabilities ----

    def test_logprobs_are_natural_logs_before_sampling(self):
        r = self.story.chat(logprobs=True, top_logprobs=20, top_p=0.3, temperature=1,
                            max_tokens=8)[2]
        entries = r['choices'][0]['logprobs']['content']
        self.assertEqual(len(entries), 8)
        for e in entries:
            self.assertEqual(len(e['top_logprobs']), 20)
            self.assertLessEqual(e['logprob'], 0)
            probs = [2.718281828459045 ** t['logprob'] for t in e['top_logprobs']]
            self.assertLessEqual(sum(probs), 1 + 1e-5)
            self.assertEqual(sorted(probs, reverse=True), probs)
            self.assertEqual(bytes(e['bytes']).decode(), e['token'])
        self.assertEqual(''.join(e['token'] for e in entries),
                         r['choices'][0]['message']['content'])

    def test_logprobs_stream_has_every_token_once(self):
        _, events = read_stream(self.story, {'logprobs': True})
        entries = [x for e in events[:-1] for x in (json.loads(e)['choices'][0]['logprobs']
                                                     or {'content': []})['content']]
        self.assertEqual(len(entries), N_STORY)
        self.assertEqual(bytes(b for x in entries for b in x['bytes']).decode(), STORY)

    def complete(self, **body):
        status, _, r = self.story.call('POST', '/v1/completions', {'temperature': 0, **body})
        self.assertEqual(status, 200, r)
        return r

    def test_echo_begins_with_the_prompt(self):
        r = self.complete(prompt='Seven boats', echo=True, max_tokens=3)
        self.assertEqual(r['choices'][0]['text'], 'Seven boats' + 'Seven small boats')
        self.assertIsNone(r['choices'][0]['logprobs'])
        ids = self.story.call('POST', '/tokenize', {'prompt': 'Seven boats'})[2]['tokens']
        again = self.complete(prompt=ids, echo=True, max_tokens=3)
        self.assertEqual(again['choices'][0]['text'], r['choices'][0]['text'])

    def test_prompt_logprobs(self):
        r = self.complete(prompt=STORY, echo=True, logprobs=2, max_tokens=2)
        n = r['usage']['prompt_tokens']
        lists = r['choices'][0]['logprobs']
        for key in ('tokens', 'token_logprobs', 'top_logprobs', 'text_offset'):
            self.assertEqual(len(lists[key]), n + 2)
        self.assertIsNone(lists['token_logprobs'][0])
        self.assertIsNone(lists['top_logprobs'][0])
        shown = [t.encode() if not t.startswith('bytes:') else
                 bytes(int(x, 16) for x in t[8:].split('\\x')) for t in lists['tokens']]
        self.assertEqual(b''.join(shown).decode(), r['choices'][0]['text'])
        for lp, top in zip(lists['token_logprobs'][1:], lists['top_logprobs'][1:]):
            self.assertLessEqual(lp, 0)
            self.assertIn(len(top), (2, 3))
            self.assertLessEqual(lp, max(top.values()))
            self.assertLessEqual(sum(2.718281828459045 ** x for x in top.values()), 1 + 1e-5)
        offsets = lists['text_offset']
        self.assertEqual((offsets[0], sorted(offsets)), (0, offsets))
        # what follows is greedy, so its token is the most likely one
        self.assertEqual(lists['token_logprobs'][-1], max(lists['top_logprobs'][-1].values()))

    def test_the_end_token_is_among_the_logprobs(self):
        """lm-eval drops the last entry of every answer, as the one token that it asked for."""
        r = self.complete(prompt='x', echo=True, logprobs=1, max_tokens=64)
        n = r['usage']['prompt_tokens'] + r['usage']['completion_tokens']
        self.assertEqual(r['choices'][0]['finish_reason'], 'stop')
        self.assertEqual(len(r['choices'][0]['logprobs']['tokens']), n + 1)
        self.assertEqual(r['choices'][0]['logprobs']['tokens'][-1], '<|im_end|>')
        self.assertEqual(r['choices'][0]['text'], 'x' + STORY)

    def test_the_prompt_alone(self):
        whole = self.complete(prompt=STORY, echo=True, logprobs=1, max_tokens=1)
        alone = self.complete(prompt=STORY, echo=True, logprobs=1, max_tokens=0)
        n = alone['usage']['prompt_tokens']
        self.assertEqual(alone['usage']['completion_tokens'], 0)
        self.assertEqual(alone['choices'][0]['text'], STORY)
        self.assertEqual(alone['choices'][0]['finish_reason'], 'length')
        for key in ('tokens', 'token_logprobs', 'top_logprobs', 'text_offset'):
            self.assertEqual(alone['choices'][0]['logprobs'][key],
                             whole['choices'][0]['logprobs'][key][:n])
        self.assertEqual(self.complete(prompt='x', echo=True, max_tokens=0)['choices'][0]['text'], 'x')

    def test_many_prompts_are_answered_in_order(self):
        texts = [STORY[:k] for k in range(1, 78)]
        r = self.complete(prompt=texts, echo=True, logprobs=1, max_tokens=1)
        self.assertEqual([c['index'] for c in r['choices']], list(range(len(texts))))
        for text, choice in zip(texts, r['choices']):
            self.assertTrue(choice['text'].startswith(text))
        for k in (0, 40, 76):
            alone = self.complete(prompt=texts[k], echo=True, logprobs=1, max_tokens=1)
            self.assertEqual(alone['choices'][0]['logprobs'], r['choices'][k]['logprobs'])
        self.assertEqual(r['usage']['completion_tokens'], len(texts))

    def test_logprobs_of_a_completion_match_those_of_a_chat_token_by_token(self):
        r = self.complete(prompt='x', logprobs=3, max_tokens=5)
        lists = r['choices'][0]['logprobs']
        self.assertEqual(''.join(lists['tokens']), r['choices'][0]['text'])
        self.assertEqual(lists['text_offset'][0], 0)

    def test_stream_with_echo_equals_whole(self):
        body = {'prompt': STORY, 'echo': True, 'logprobs': 1, 'max_tokens': 4, 'temperature': 0}
        whole = self.complete(**body)['choices'][0]
        status, _, text = self.story.call('POST', '/v1/completions', {**body, 'stream': True})
        self.assertEqual(status, 200)
        chunks = [json.loads(e) for e in events_of(text.encode())[:-1]]
        self.assertEqual(''.join(c['choices'][0]['text'] for c in chunks), whole['text'])
        parts = [c['choices'][0]['logprobs'] for c in chunks if c['choices'][0]['logprobs']]
        for key in ('tokens', 'token_logprobs', 'top_logprobs', 'text_offset'):
            self.assertEqual([x for p in parts for x in p[key]], whole['logprobs'][key])

    @unittest.skipIf(SANITIZED, 'sanitizers keep freed memory back, or take minutes for 8,000 tokens')
    def test_logprobs_of_a_long_answer_take_little_memory(self):
        """Alternatives are kept as numbers, a few bytes each, until their JSON is written."""
        body = {'ignore_eos': True, 'max_tokens': 4000}
        self.assertEqual(self.loop.chat(**body)[0], 200)
        before = self.loop.peak_memory()
        status, _, r = self.loop.chat(**body, logprobs=True, top_logprobs=20)
        grown = self.loop.peak_memory() - before
        self.assertEqual((status, len(r['choices'][0]['logprobs']['content'])), (200, 4000))
        n_text = len(json.dumps(r, separators=(',', ':')))
        self.assertLess(grown, 4 * n_text, f'{grown} bytes for an answer of {n_text}')

    # ---- tokens ----

    def test_few_texts_are_tokenized_at_a_time(self):
        text = 'Seven small boats left the harbour at dawn. ' * 20000
        want = self.story.call('POST', '/tokenize', {'prompt': text})[2]['count']
        counts, most, waited = [], 0, 0

        def ask():
            counts.append(self.story.call('POST', '/tokenize', {'prompt': text})[2]['count'])

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            most = max(most, self.story.metric('texts'))
            waited = max(waited, self.story.metric('texts_waiting'))
        for t in threads:
            t.join()
        self.assertEqual(counts, [want] * 12)
        self.assertLessEqual(most, 2)
        self.assertGreater(waited, 0)

    def test_tokenize_and_back(self):
        for text in (STORY, 'a', '  two  blanks ', '<|im_end|> is text here', '\u0421\u043b\u043e\u0432\u043e'):
            status, _, r = self.story.call('POST', '/tokenize', {'prompt': text})
            self.assertEqual((status, r['count']), (200, len(r['tokens'])), r)
            self.assertEqual(r['max_model_len'], 4096)
            back = self.story.call('POST', '/detokenize', {'tokens': r['tokens']})[2]['prompt']
            self.assertEqual(back, text)
        r = self.story.call('POST', '/tokenize', {'prompt': '<|im_end|>', 'parse_special': True,
                                                  'return_token_strs': True})[2]
        self.assertEqual((r['count'], r['token_strs']), (1, ['<|im_end|>']))

    def test_tokenizer_info(self):
        r = self.story.call('GET', '/tokenizer_info')[2]
        self.assertEqual((r['eos_token'], r['add_bos_token']), ('<|im_end|>', False))
        self.assertIn('im_start', r['chat_template'])

    def test_tokens_of_a_chat_are_those_of_its_usage(self):
        r = self.story.call('POST', '/tokenize', {'messages': USER})[2]
        self.assertEqual(r['count'], self.story.chat(max_tokens=1)[2]['usage']['prompt_tokens'])

    # ---- refusals ----

    def test_refusals_name_the_parameter(self):
        self.refuse({'messages': USER, 'response_format': {'type': 'xml'}}, 'response_format.type')
        self.refuse({'messages': USER, 'bogus': 1}, 'bogus')
        self.refuse({'messages': USER, 'max_tokens': 'x'}, 'max_tokens')
        self.refuse({'messages': 7}, 'messages')
        self.refuse({'prompt': 'x', 'echo': 1}, 'echo', path='/v1/completions')
        self.refuse({'prompt': 'x', 'logprobs': 99}, 'logprobs', path='/v1/completions')
        self.refuse({'prompt': 'x', 'max_tokens': 0}, 'max_tokens', path='/v1/completions')
        self.refuse({'tokens': 'x'}, 'tokens', path='/detokenize')
        self.refuse({'tokens': [-1]}, 'tokens', path='/detokenize')
        self.refuse({'text': 'x'}, 'text', path='/tokenize')
        self.refuse({'prompt': [10 ** 8]}, 'prompt', path='/v1/completions')
        self.refuse({'prompt': '', 'max_tokens': 1}, 'prompt', path='/v1/completions')
        for body in ('', '{', '[]', 'null', '"x"', '{"messages":' + '[' * 3000, b'\xff\xfe{}',
                     '{"messages":[{"role":"user","content":"\\ud800"}]}'):
            self.refuse(body, None)

    def test_prompt_that_is_too_long(self):
        status, _, r = self.story.call('POST', '/v1/completions',
                                       {'prompt': [100] * 5000, 'max_tokens': 1})
        self.assertEqual(status, 400)
        self.assertRegex(r['error']['message'], '5000 .*4096')
        status, _, r = self.story.chat(max_tokens=4096)
        self.assertEqual((status, r['error']['code']), (400, 'context_length_exceeded'))

    def test_paths_and_methods(self):
        self.assertEqual(self.story.call('GET', '/nothing')[0], 404)
        status, r, _ = self.story.call('GET', '/v1/chat/completions')
        self.assertEqual((status, r.getheader('Allow')), (405, 'POST'))
        self.assertEqual(self.story.call('HEAD', '/health')[0], 200)

    def test_body_of_64_mib_is_refused_before_it_is_read(self):
        s = socket.create_connection(('127.0.0.1', self.story.port), timeout=30)
        s.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n')
        reply = s.recv(65536)
        s.close()
        self.assertTrue(reply.startswith(b'HTTP/1.1 413 '), reply)

    def test_long_body_without_a_length(self):
        s = socket.create_connection(('127.0.0.1', self.story.port), timeout=30)
        s.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n')
        for _ in range(5):
            s.sendall(b'100000\r\n' + b' ' * 0x100000 + b'\r\n')
        s.sendall(b'0\r\n\r\n')
        reply = s.recv(65536)
        s.close()
        self.assertTrue(reply.startswith(b'HTTP/1.1 413 '), reply)

    def test_garbage_does_not_end_the_server(self):
        for data in (b'\x00\xff\x00\r\n\r\n', b'GET\r\n\r\n', b'POST / HTTP/9.9\r\n\r\n',
                     b'GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n',
                     b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{'):
            s = socket.create_connection(('127.0.0.1', self.story.port), timeout=30)
            s.sendall(data)
            s.close()
        self.assertEqual(self.story.call('GET', '/health')[0], 200)

    # ---- many clients ----

    def test_two_clients_get_what_each_gets_alone(self):
        asks = [{'max_tokens': 5 + i, 'temperature': 1, 'seed': i} for i in range(8)]
        alone = [self.story.chat(**a)[2]['choices'] for a in asks]
        together = [None] * len(asks)

        def ask(i):
            together[i] = self.story.chat(**asks[i])[2]['choices']

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(asks))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(alone, together)

    def test_hang_up_in_mid_stream_frees_the_slot(self):
        self.assertTrue(self.loop.wait_metric('jobs', 0))
        s = self.loop.open_stream({'messages': USER, 'stream': True, 'max_tokens': LONG,
                                   'ignore_eos': True})
        self.assertIn(b'200 OK', s.recv(65536))
        self.assertEqual(self.loop.metric('jobs'), 1)
        s.close()
        self.assertTrue(self.loop.wait_metric('jobs', 0), 'the slot is still taken')
        self.assertEqual(self.loop.metric('kv_pages_used'), 0)

    def fill_the_batch(self, body):
        """Two streams that hold both places: the answer's head comes before the place is given."""
        running = [self.loop.open_stream(body) for _ in range(2)]
        for s in running:
            self.assertIn(b'200 OK', s.recv(65536))
        self.assertTrue(self.loop.wait_metric('requests_active', 2))
        return running

    def test_hang_up_while_waiting_frees_the_place(self):
        self.assertTrue(self.loop.wait_metric('jobs', 0))
        long = {'messages': USER, 'stream': True, 'max_tokens': LONG, 'ignore_eos': True}
        running = self.fill_the_batch(long)
        waiting = self.loop.open_stream({**long, 'stream': False})
        self.assertTrue(self.loop.wait_metric('requests_queued', 1))
        waiting.close()
        self.assertTrue(self.loop.wait_metric('requests_queued', 0))
        for s in running:
            s.close()
        self.assertTrue(self.loop.wait_metric('jobs', 0))

    def test_full_queue_is_429_with_retry_after(self):
        self.assertTrue(self.loop.wait_metric('jobs', 0))
        long = {'messages': USER, 'stream': True, 'max_tokens': LONG, 'ignore_eos': True}
        running = self.fill_the_batch(long)
        running += [self.loop.open_stream(long) for _ in range(2)]
        self.assertTrue(self.loop.wait_metric('requests_queued', 2))
        status, r, reply = self.loop.chat(max_tokens=1)
        self.assertEqual((status, r.getheader('Retry-After')), (429, '1'))
        self.assertEqual(reply['error']['type'], 'rate_limit_error')
        for s in running:
            s.close()
        self.assertTrue(self.loop.wait_metric('jobs', 0))
        self.assertEqual(self.loop.chat(max_tokens=1)[0], 200)

    def test_slow_reader_gets_everything(self):
        s = self.loop.open_stream({'messages': USER, 'stream': True, 'max_tokens': 3000,
                                   'ignore_eos': True, 'temperature': 0,
                                   'stream_options': {'include_usage': True}})
        time.sleep(1)
        raw = b''
        while not raw.endswith(b'0\r\n\r\n'):
            raw += s.recv(4096)
        s.close()
        events = events_of(dechunk(raw)[1])
        self.assertEqual(json.loads(events[-2])['usage']['completion_tokens'], 3000)
        text = ''.join(json.loads(e)['choices'][0]['delta'].get('content', '') for e in events[:-2])
        self.assertTrue(text.startswith(STORY.rstrip('\n')))
        self.assertNotIn('\ufffd', text[:-1])


class OwnServerTest(unittest.TestCase):
    """Tests that start a server of their own."""

    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.model = os.path.join(self.dir, 'm.gguf')
        subprocess.run([sys.executable, TOOL, self.model, '--loop'], check=True,
                       stdout=subprocess.DEVNULL)

    def tearDown(self):
        shutil.rmtree(self.dir)

    def test_key_is_needed(self):
        s = Server(self.model, '--api-key', 'secret')
        self.assertEqual(s.call('GET', '/v1/models')[0], 401)
        for key in ('Bearer secre', 'Bearer secrett', 'secret', 'Bearer '):
            self.assertEqual(s.call('GET', '/v1/models', None, {'Authorization': key})[0], 401)
        self.assertEqual(s.call('GET', '/v1/models', None, {'Authorization': 'Bearer secret'})[0],
                         200)
        self.assertEqual(s.call('GET', '/health')[0], 200)
        self.assertEqual(s.stop(), 0)

    def test_sigterm_lets_a_running_answer_end(self):
        s = Server(self.model)
        got = {}

        def ask():
            got['reply'] = s.chat(ignore_eos=True, max_tokens=300)

        t = threading.Thread(target=ask)
        t.start()
        self.assertTrue(s.wait_metric('requests_active', 1))
        self.assertEqual(s.stop(), 0)
        t.join()
        self.assertEqual(got['reply'][0], 200)
        self.assertEqual(got['reply'][2]['usage']['completion_tokens'], 300)

    def test_port_file_and_taken_port(self):
        path = os.path.join(self.dir, 'port')
        s = Server(self.model, '--port-file', path)
        with open(path, encoding='ascii') as f:
            self.assertEqual(int(f.read()), s.port)
        r = subprocess.run([NARROW, 'serve', self.model, '--port', str(s.port)],
                           capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(r.returncode, 4, r.stderr)
        self.assertIn(f'port {s.port}', r.stderr)
        self.assertEqual(s.stop(), 0)

    def test_missing_model_is_refused(self):
        r = subprocess.run([NARROW, 'serve', os.path.join(self.dir, 'none.gguf')],
                           capture_output=True, text=True, check=False, timeout=60)
        self.assertIn(r.returncode, (3, 4))
        self.assertIn('none.gguf', r.stderr)


if __name__ == '__main__':
    if not os.path.exists(TOOL):
        print(f'skipped: no {TOOL} (set NARROW_SHARED)')
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
