"""Compares the chats that narrow renders with Jinja2, set up as transformers does (sandboxed,
trim_blocks, lstrip_blocks). The text is read back from the ids of a tokenizer whose tokens are single
bytes. A template that narrow refuses is listed, and is an error only when it was named as supported.

usage: template_oracle.py NARROW [--models GGUF...] [--templates DIR]
SPDX-License-Identifier: Apache-2.0"""
import argparse
import datetime
import glob
import json
import os
import subprocess
import sys
import tempfile

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

# Written for this test, in the manner of the families; the last two are about white space.
OURS = {
    "llama3-like": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
                   "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] "
                   "| trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content "
                   "%}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ "
                   "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "gemma3-like": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""",
    "reasoning": "{%- set ns = namespace(last=-1) %}\n{%- for m in messages[::-1] %}\n    {%- if m.role == "
                 "'user' and ns.last < 0 and m.content is string and not m.content.startswith('<t>') %}\n"
                 "        {%- set ns.last = messages|length - 1 - loop.index0 %}\n    {%- endif %}\n"
                 "{%- endfor %}\n{%- for m in messages %}\n{{ '<|im_start|>' ~ m.role }}\n{% if m.content is "
                 "string and '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
                 "{% else %}{{ m.content|tojson }}{% endif %}\n{{ '<|im_end|>' }}{% endfor %}\n"
                 "{{ ns.last }}\n",
    "white-space": "  {% for m in messages %}\n    {{ m.role }}:  \n\t{# note #}\n  {%- if loop.last %} end "
                   "{%+ else %}\n {% endif %} x\n  {% endfor %}\n\n",
    "line-ends": "a\r\n{% if true %}\r\nb\r\n{% endif %}\r\n{{- ' c' }}\r\n",
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


CHATS = [
    [user("Hi")], [system("Be brief."), user(" Hi \n")], [user("a"), assistant("b"), user("c")],
    [system("x"), user("a"), assistant(" b "), user("c <|im_end|> \u00e9\u65e5\U0001F469")],
    [assistant("z")], [user("a"), user("b")], [system(""), user("")],
    [user([{"type": "text", "text": "hello "}, {"type": "image"}])],
    [user("a"), assistant("<think>\nhm\n</think>\n\nyes"), user("n")],
    [system([{"type": "text", "text": "s"}]), user("{{ 1 }} {% x %} \\n 'q' \"d\"\t")],
]


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def environment():
    def raise_exception(text):
        raise jinja2.exceptions.TemplateError(text)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.now().strftime(f)
    return env


def alphabet():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    moved = [b for b in range(256) if b not in keep]
    return {b: chr(b) if b in keep else chr(256 + moved.index(b)) for b in range(256)}


def byte_tokenizer(folder, template):
    vocab = {c: b for b, c in alphabet().items()}
    vocab.update({"<s>": 256, "</s>": 257})
    added = [{"id": i, "content": t, "special": True} for t, i in (("<s>", 256), ("</s>", 257))]
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as fp:
        json.dump({"added_tokens": added, "pre_tokenizer": {"type": "ByteLevel",
                   "add_prefix_space": False}, "model": {"type": "BPE", "vocab": vocab, "merges": []}}, fp)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as fp:
        json.dump({"bos_token": "<s>", "eos_token": "</s>"}, fp)
    with open(os.path.join(folder, "chat_template.jinja"), "wb") as fp:
        fp.write(template.encode("utf-8"))


def narrow_text(narrow, folder, chat):
    """The rendered text, or the message of the refusal after "!"."""
    path = os.path.join(folder, "chat")
    with open(path, "w", encoding="utf-8") as fp:
        json.dump(chat, fp)
    out = subprocess.run([narrow, "tokenize", folder, "--chat", path, "--json"], check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if out.returncode != 0:
        return "!" + out.stderr.decode()
    control = {256: b"<s>", 257: b"</s>"}
    return b"".join(control.get(i, bytes([i & 255])) for i in json.loads(out.stdout)["ids"]).decode()


def check(narrow, name, source, known):
    bad = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        byte_tokenizer(folder, source)
        template = environment().from_string(source)
        for chat in CHATS:
            got = narrow_text(narrow, folder, chat)
            try:
                want = template.render(messages=chat, add_generation_prompt=True, bos_token="<s>",
                                       eos_token="</s>")
            except Exception as e:  # pylint: disable=broad-except
                want = "!" + str(e)
            if "is not supported" in got or "written out as text" in got:
                refused += 1
                bad += known
            elif got != want and not (got[0:1] == "!" and want[0:1] == "!"):
                bad += 1
                print(f"  {name}: ours {got[-200:]!r}\n  theirs {want[-200:]!r}")
    print(f"{name}: {len(CHATS) - bad - refused * (not known)} equal, {bad} differ, {refused} refused")
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("narrow")
    p.add_argument("--models", nargs="*", default=[])
    p.add_argument("--templates")
    args = p.parse_args()
    bad = sum(check(args.narrow, name, source, True) for name, source in OURS.items())
    for path in [m for m in args.models if m.endswith(".gguf")]:
        from gguf import GGUFReader
        field = GGUFReader(path).fields.get("tokenizer.chat_template")
        if field is not None:
            bad += check(args.narrow, os.path.basename(path), field.contents(), True)
    for path in sorted(glob.glob(f"{args.templates}/*.jinja")) if args.templates else []:
        with open(path, encoding="utf-8", newline="") as fp:
            bad += check(args.narrow, os.path.basename(path), fp.read(), False)
    print(f"{bad} differences")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
