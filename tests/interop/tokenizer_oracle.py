"""Compares the ids of `narrow tokenize` with the `tokenizers` library (and sentencepiece, and
llama-tokenize where it is given) on mixed text. The oracle tokenizers are built here, from the tokens,
merges and scores in the GGUF files, not from anything narrow wrote; in a second pass the files that
narrow writes are loaded by `tokenizers` and compared too.

usage: tokenizer_oracle.py NARROW --models GGUF... --shared DIR [--llama-tokenize PROGRAM] [--work DIR]
SPDX-License-Identifier: Apache-2.0"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

CONTROL, USER = 3, 4
MARK = "\u2581"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
SPLITS = {"llama-bpe": HEAD + r"\p{N}{1,3}" + TAIL, "qwen2": HEAD + r"\p{N}" + TAIL}

NASTY = [
    "\U0001F469\u200d\U0001F4BB \U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA",
    "\u2029\u2028\u0085 x\u00a0y\u3000z\u200b\u2060\ufeff",
    "\u0e44\u0e17\u0e22\u0e01\u0e33\u0e25\u0e31\u0e07 \u0e1b\u0e35\u0e48",
    "3.14159 1,234,567.89 0x1F 1e-9 \u0663\u0664 \u00bd \u2167 \u2460 10\u00b2",
    "  \n\n x", "\n \n  \n\t\n", " \r\n\r\n ", "\t\tint main(void)\n\t{\n\t    return 0;\n\t}\n",
    "I'm we'LL they'VE it'S 'tis O'Neil don\u2019t '\u017f 'd''ll",
    "e\u0301 \u00e9 n\u0303 \u1e9b\u0323 \uac00 \u1100\u1161 a\u0323\u0307\u0301\u0316",
    "<|im_start|>user\n<|im_end|> </s> <s> <bos> <unused5> <0x41> [PAD] <table> \u2581\u2581x \u2581",
    "a" * 300, " " * 300, "\n" * 300, "\t" * 100, "ab" * 200, "=" * 200, "-" * 77 + ">" + "." * 99,
    " " * 31 + "x" + " " * 32 + "y" + " " * 33 + "z" + " " * 64 + "\n" * 31 + "\n" * 33,
    "x" + " " * 65 + "w\n" + "\n" * 63 + " end ", "\x00\x01\x1b\x7f\x1c\x1d", "\u180e\u00ad\u034f",
    "\ud7ff\ue000\ufffd\U0010ffff\U000e0041", "http://a.b/c?d=e&f=%20#g  user@host.tld",
]


def corpus(shared, seed=1):
    """At least 1 MB: 20 languages, prose, code, JSON, numbers, odd white space, random characters."""
    rng = random.Random(seed)
    parts = []
    for path in sorted(glob.glob(f"{shared}/multilingual/udhr/*.txt")):
        parts.append(open(path, encoding="utf-8").read())
    for name, limit in (("text/wiki.test.raw", 300000), ("text/tinyshakespeare.txt", 100000),
                        ("tasks/gsm8k_test.jsonl", 100000), ("tools/bfcl", 0)):
        path = f"{shared}/{name}"
        if os.path.isfile(path):
            parts.append(open(path, encoding="utf-8").read()[:limit])
    here = os.path.dirname(os.path.abspath(__file__))
    for path in sorted(glob.glob(f"{here}/../../src/*/*.c"))[:40] + [os.path.abspath(__file__)]:
        parts.append(open(path, encoding="utf-8").read())
    spaces = [" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\v", "\f"]
    words = "".join(parts[:20]).split()
    ranges = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x5ff), (0x600, 0x6ff),
              (0x900, 0xdff), (0xe00, 0xe7f), (0x2000, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x9fff),
              (0xac00, 0xd7a3), (0x1f300, 0x1faff)]
    for _ in range(3000):
        kind = rng.randrange(4)
        if kind == 0:
            parts.append(rng.choice(words) + rng.choice(spaces) * rng.randrange(1, 5))
        elif kind == 1:
            lo, hi = rng.choice(ranges)
            parts.append("".join(chr(rng.randint(lo, hi)) for _ in range(rng.randrange(1, 30))))
        elif kind == 2:
            parts.append("".join(rng.choice(spaces) for _ in range(rng.randrange(1, 9))))
        else:
            parts.append("".join(rng.choice("aAbB19 .,'\"<>|_/\\\n") for _ in range(20)))
    return "".join(parts).encode("utf-8", "ignore").decode("utf-8")


def fields(path):
    reader = GGUFReader(path)
    get = lambda key: reader.fields[key].contents() if key in reader.fields else None
    keys = ("model", "pre", "tokens", "scores", "token_type", "merges", "add_bos_token",
            "add_space_prefix", "bos_token_id")
    return {k: get(f"tokenizer.ggml.{k}") for k in keys}


def add_tokens(tok, tokens, types):
    """In id order, control tokens as special ones; `tokenizers` keeps the ids of known texts."""
    for text, kind in zip(tokens, types):
        if kind == CONTROL:
            tok.add_special_tokens([AddedToken(text, normalized=False, special=True)])
        elif kind == USER:
            tok.add_tokens([AddedToken(text, normalized=False, special=False)])


def byte_level(f):
    vocab = {t: i for i, t in enumerate(f["tokens"])}
    merges = [tuple(m.split(" ", 1)) for m in f["merges"]]
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=f["pre"] == "llama-bpe"))
    if f["pre"] in SPLITS:
        split = pre_tokenizers.Split(Regex(SPLITS[f["pre"]]), "isolated")
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        if f["pre"] == "qwen2":
            tok.normalizer = normalizers.NFC()
    else:
        steps = [pre_tokenizers.Digits(individual_digits=True)] * (f["pre"] == "smollm")
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    add_tokens(tok, f["tokens"], f["token_type"])
    return tok


def from_scores(f):
    """transformers' SentencePiece conversion: merges from every split of every piece, by score, then
    by the lengths of the parts, all descending."""
    tokens = [MARK * len(t) if k == USER and len(t) > 1 and not t.strip(" ") else t
              for t, k in zip(f["tokens"], f["token_type"])]
    vocab = {t: i for i, t in enumerate(tokens)}
    known = {t for t, k in zip(tokens, f["token_type"]) if k in (1, USER)}
    merges = []
    for text, score, kind in zip(tokens, f["scores"], f["token_type"]):
        if kind == USER and text.strip(MARK):
            continue
        if kind not in (1, USER):
            continue
        score = 0.0 if kind == USER else score
        for i in range(1, len(text)):
            if text[:i] in known and text[i:] in known:
                merges.append((text[:i], text[i:], score))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=[m[:2] for m in merges], byte_fallback=True,
                               fuse_unk=True, unk_token="<unk>"))
    steps = [normalizers.Replace(" ", MARK)]
    if f["add_space_prefix"] is not False:
        steps.insert(0, normalizers.Prepend(MARK))
    tok.normalizer = normalizers.Sequence(steps)
    tok.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                                     decoders.Fuse()])
    add_tokens(tok, tokens, f["token_type"])
    return tok


def narrow_ids(narrow, model, text, work, *options):
    path = os.path.join(work, "text")
    with open(path, "wb") as fp:
        fp.write(text.encode("utf-8") if isinstance(text, str) else text)
    out = subprocess.run([narrow, "tokenize", model, "--file", path, "--json", *options], check=True,
                         stdout=subprocess.PIPE)
    row = json.loads(out.stdout)
    return row["ids"], row["encode_s"], row


def differences(a, b):
    """Positions where two lists differ, counted after a common prefix only once they realign."""
    if a == b:
        return 0
    import difflib
    first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    sm = difflib.SequenceMatcher(None, a[first:first + 4000], b[first:first + 4000], False)
    return max(1, sum(1 for op in sm.get_opcodes() if op[0] != "equal"))


def pieces(text, size):
    """Cuts at line ends into pieces of about `size` characters."""
    lines, out, n = text.splitlines(keepends=True), [[]], 0
    for line in lines:
        out[-1].append(line)
        n += len(line)
        if n >= size:
            out.append([])
            n = 0
    return ["".join(p) for p in out if p]


def compare(name, encode, narrow, model, texts, work, *options):
    """Prints one line; returns how many ids differ."""
    bad = total = n_bytes = 0
    ours_s = theirs_s = 0.0
    for text in texts:
        start = time.perf_counter()
        want = encode(text)
        theirs_s += time.perf_counter() - start
        got, spent, _ = narrow_ids(narrow, model, text, work, *options)
        ours_s += spent
        total += len(want)
        n_bytes += len(text.encode())
        d = differences(got, want)
        if d and bad < 5:
            i = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), 0)
            print(f"  differs at id {i}: ours {got[i:i + 8]} theirs {want[i:i + 8]} "
                  f"in {text[:60]!r}")
        bad += d
    print(f"{name}: {bad} differences in {total} ids, {n_bytes / 1e6:.2f} MB; "
          f"narrow {n_bytes / 1e6 / max(ours_s, 1e-9):.1f} MB/s, "
          f"oracle {n_bytes / 1e6 / max(theirs_s, 1e-9):.1f} MB/s, "
          f"ratio {theirs_s / max(ours_s, 1e-9):.2f}", flush=True)
    return bad


def check_gguf(args, path, text):
    f = fields(path)
    tok = byte_level(f) if f["model"] == "gpt2" else from_scores(f)
    name = os.path.basename(path)
    plain = lambda s: tok.encode(s, add_special_tokens=False).ids
    texts = [text] + NASTY
    bad = compare(f"{name}, template text", plain, args.narrow, path, texts, args.work, "--special",
                  "--no-bos")
    tok.encode_special_tokens = True
    bad += compare(f"{name}, user text", plain, args.narrow, path, texts, args.work, "--no-bos")
    tok.encode_special_tokens = False
    out = os.path.join(args.work, name + ".hf")
    _, _, row = narrow_ids(args.narrow, path, "x", args.work, "--write", out)
    written = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
    bos = lambda s: written.encode(s, add_special_tokens=True).ids
    plain = lambda s: written.encode(s, add_special_tokens=False).ids
    bad += compare(f"{name}, the file we wrote, read by tokenizers", plain, args.narrow, path, texts,
                   args.work, "--special", "--no-bos")
    bad += compare(f"{name}, the file we wrote, with BOS", bos, args.narrow, path, NASTY[:1],
                   args.work, "--special")
    bad += compare(f"{name}, the file we wrote, read by narrow", plain, args.narrow, out, texts,
                   args.work, "--special", "--no-bos")
    again = narrow_ids(args.narrow, out, "x", args.work)[2]
    if again["hash"] != row["hash"]:
        print(f"{name}: hash of the written files differs")
        bad += 1
    return bad + decode_check(name, written, args, path, text[:20000])


def decode_check(name, tok, args, path, text):
    ids = narrow_ids(args.narrow, path, text, args.work, "--no-bos")[0]
    back = tok.decode(ids, skip_special_tokens=False)
    if back != text:
        print(f"{name}: decoding our ids does not give the text back")
        return 1
    return 0


def check_sentencepiece(args, path, text):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=path)
    clean = [t.replace("\x00", " ") for t in pieces(text, 200000) + NASTY]
    name = os.path.basename(path)
    bad = compare(f"{name} against sentencepiece", lambda s: sp.encode(s), args.narrow, path, clean,
                  args.work, "--no-bos")
    out = os.path.join(args.work, name + ".hf")
    narrow_ids(args.narrow, path, "x", args.work, "--write", out)
    written = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
    written.encode_special_tokens = True
    return bad + compare(f"{name}, the file we wrote, read by tokenizers",
                         lambda s: written.encode(s, add_special_tokens=False).ids, args.narrow,
                         path, clean, args.work, "--no-bos")


def check_llama(args, path, texts):
    """Informational: where llama-tokenize and `tokenizers` (with which we agree) differ."""
    disagree = 0
    for text in texts:
        text = text.replace("\x00", " ")
        file = os.path.join(args.work, "llama.txt")
        with open(file, "wb") as fp:
            fp.write(text.encode())
        out = subprocess.run([args.llama_tokenize, "-m", path, "-f", file, "--ids", "--no-bos",
                              "--no-parse-special", "--no-escape",
                              "--log-disable"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=False)
        theirs = json.loads(out.stdout.decode().strip().splitlines()[-1])
        ours = narrow_ids(args.narrow, path, text, args.work, "--no-bos")[0]
        if ours != theirs:
            disagree += differences(ours, theirs)
            i = next((i for i, (x, y) in enumerate(zip(ours, theirs)) if x != y), 0)
            print(f"  llama.cpp at id {i}: ours {ours[i:i + 6]} theirs {theirs[i:i + 6]} "
                  f"in {text[:50]!r}")
    print(f"{os.path.basename(path)}: llama-tokenize disagrees in {disagree} places")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("narrow")
    p.add_argument("--models", nargs="*", default=[])
    p.add_argument("--shared", required=True)
    p.add_argument("--llama-tokenize")
    p.add_argument("--work", default=tempfile.mkdtemp(prefix="narrow-tok-"))
    args = p.parse_args()
    os.makedirs(args.work, exist_ok=True)
    text = corpus(args.shared)
    bad = 0
    ggufs = [m for m in args.models if m.endswith(".gguf")]
    for path in ggufs:
        bad += check_gguf(args, path, text)
        if args.llama_tokenize:
            check_llama(args, path, pieces(text, 100000) + NASTY)
    for path in sorted(glob.glob(f"{args.shared}/models/*/tok*.model")):
        bad += check_sentencepiece(args, path, text)
    print(f"{len(ggufs)} GGUF models, {bad} differences")
    return 1 if bad or not ggufs else 0


if __name__ == "__main__":
    sys.exit(main())
