#!/usr/bin/env python3
"""The official `openai` client against narrow serve: whole answers, streams with usage, log-probabilities,
errors as the client's own exceptions, several at once.
usage: openai_client.py NARROW      exit 77: no openai package, or no scripted model here
SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import os
import subprocess
import sys
import tempfile

try:
    import openai
except ImportError:
    print('skipped: python package openai is not installed')
    sys.exit(77)
SHARED = os.environ.get('NARROW_SHARED') or os.path.join(os.path.dirname(__file__), '../../../shared')
TOOL = os.path.join(SHARED, 'tools/scripted_model.py')
STORY = 'Seven small boats left the harbour at dawn \u2693 \U0001F30A and came back with fish.\n'
USER = [{'role': 'user', 'content': 'hi'}]


def check(client):
    model = client.models.list().data[0].id
    r = client.chat.completions.create(model=model, messages=USER, temperature=0)
    assert r.choices[0].message.content == STORY and r.choices[0].finish_reason == 'stop'
    assert r.usage.completion_tokens == 21

    text, usage = '', None
    for chunk in client.chat.completions.create(model=model, messages=USER, temperature=0, stream=True,
                                                stream_options={'include_usage': True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ''
        usage = chunk.usage or usage
    assert text == STORY and usage.completion_tokens == 21

    r = client.chat.completions.create(model=model, messages=USER, logprobs=True, top_logprobs=3,
                                       max_completion_tokens=4, seed=1)
    assert len(r.choices[0].logprobs.content) == 4
    assert all(len(e.top_logprobs) == 3 and e.logprob <= 0 for e in r.choices[0].logprobs.content)

    r = client.completions.create(model=model, prompt='x', max_tokens=5, temperature=0, stop='left')
    assert r.choices[0].text == 'Seven small boats ' and r.choices[0].finish_reason == 'stop'

    r = client.completions.create(model=model, prompt=['Seven', 'x y'], max_tokens=2, temperature=0, echo=True,
                                  logprobs=2)
    assert [c.text for c in r.choices] == ['SevenSeven small', 'x ySeven small']
    for c in r.choices:
        lists = c.logprobs
        n = len(lists.tokens)
        assert ''.join(lists.tokens) == c.text and n == len(lists.text_offset) == len(lists.top_logprobs)
        assert lists.token_logprobs[0] is None and all(x <= 0 for x in lists.token_logprobs[1:])
        assert [c.text[o:].startswith(t) for o, t in zip(lists.text_offset, lists.tokens)] == [True] * n

    r = client.completions.create(model=model, prompt='Seven', max_tokens=0, echo=True, logprobs=1)
    assert r.choices[0].text == 'Seven' and r.usage.completion_tokens == 0

    text, usage = '', None
    for chunk in client.completions.create(model=model, prompt='x', temperature=0, max_tokens=30, stream=True,
                                           stream_options={'include_usage': True}):
        text += chunk.choices[0].text if chunk.choices else ''
        usage = chunk.usage or usage
    assert text == STORY and usage.completion_tokens == 21

    for bad, kind in (({'n': 2}, openai.BadRequestError), ({'model': 'other'}, openai.NotFoundError),
                      ({'response_format': {'type': 'json_object'}}, openai.BadRequestError)):
        try:
            client.chat.completions.create(**{'model': model, 'messages': USER, **bad})
        except kind as e:
            assert e.body['param'] in ('n', 'model', 'response_format.type'), e.body
        else:
            raise AssertionError(f'{bad} was taken')

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = pool.map(lambda _: client.chat.completions.create(
            model=model, messages=USER, temperature=0).choices[0].message.content, range(24))
        assert set(texts) == {STORY}


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'story.gguf')
        subprocess.run([sys.executable, TOOL, path], check=True, stdout=subprocess.DEVNULL)
        with subprocess.Popen([sys.argv[1], 'serve', path, '--port', '0', '--quiet', '--api-key', 'k'],
                              stdout=subprocess.PIPE, text=True) as server:
            try:
                url = server.stdout.readline().split()[-1]
                check(openai.OpenAI(base_url=url + '/v1', api_key='k', max_retries=0, timeout=60))
                try:
                    openai.OpenAI(base_url=url + '/v1', api_key='wrong', max_retries=0).models.list()
                except openai.AuthenticationError:
                    pass
                else:
                    raise AssertionError('a wrong key was taken')
            finally:
                server.terminate()
            assert server.wait(60) == 0
    print(f'openai {openai.__version__}: all right')


if not os.path.exists(TOOL):
    print(f'skipped: no {TOOL} (set NARROW_SHARED)')
    sys.exit(77)
main()
