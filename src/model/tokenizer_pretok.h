/* Pre-tokenizers: cut a stretch of text into the words that merging never crosses. The patterns of
 * the known families are hand-written scanners, linear in the text; any other pattern of a
 * tokenizer.json runs through PCRE2 (UTF, UCP, JIT) under a match limit. tests/unit/test_pretok.c
 * holds each scanner against its pattern in PCRE2.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_TOKENIZER_PRETOK_H
#define NW_MODEL_TOKENIZER_PRETOK_H

#include "base/status.h"

typedef struct nw_regex nw_regex;

/* A pattern as the `tokenizers` library understands it. NW_E_FORMAT with PCRE2's words and the
 * offset when it does not compile. */
NW_MUST_USE nw_status nw_regex_new(const char *pattern, size_t n, nw_regex **out, nw_error *err);
void nw_regex_free(nw_regex *r);
/* The first match at or after `from`: [*start, *end); *found says whether there is one. Text is
 * valid UTF-8. NW_E_RANGE when the pattern needs more steps than NW_REGEX_MATCH_LIMIT. */
NW_MUST_USE nw_status nw_regex_find(const nw_regex *r, const char *s, size_t n, size_t from,
                                    size_t *start, size_t *end, bool *found, nw_error *err);
#define NW_REGEX_MATCH_LIMIT 10000000

typedef enum {
    NW_PRE_GPT2,   /* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
    NW_PRE_LLAMA3, /* (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|... */
    NW_PRE_QWEN2,      /* the same with \p{N} in place of \p{N}{1,3} */
    NW_PRE_DIGITS,     /* every \p{N} on its own */
    NW_PRE_DIGIT_RUNS, /* runs of \p{N} on their own */
    NW_PRE_SPLIT,      /* by a literal or a regex, with a behavior */
} nw_pre_kind;

/* What becomes of the delimiter, as in `tokenizers`. */
typedef enum {
    NW_SPLIT_REMOVED,
    NW_SPLIT_ISOLATED,
    NW_SPLIT_MERGED_PREVIOUS,
    NW_SPLIT_MERGED_NEXT,
    NW_SPLIT_CONTIGUOUS,
} nw_split_behavior;

typedef struct {
    nw_pre_kind kind;
    nw_split_behavior behavior;
    bool invert;
    const char *literal; /* NW_PRE_SPLIT without a regex; borrowed from the tokenizer */
    size_t n_literal;
    nw_regex *regex; /* owned */
} nw_pre_step;

#define NW_PRE_MAX_STEPS 8

typedef struct {
    nw_pre_step steps[NW_PRE_MAX_STEPS]; /* each cuts what the one before left */
    size_t n;
    bool prefix_space; /* ByteLevel add_prefix_space: a space before text that starts with none */
} nw_pretok;

void nw_pretok_release(nw_pretok *p);

/* The steps that GGUF's tokenizer.ggml.pre names ("gpt-2", "smollm", "llama-bpe", "qwen2", ...).
 * False for a name that is not known; nw_pretok_names lists the known ones. */
bool nw_pretok_by_name(const char *name, size_t n, nw_pretok *out);
const char *nw_pretok_names(void);
/* The scanner for a pattern that is written exactly like one of the known ones. */
bool nw_pretok_scanner_for(const char *pattern, size_t n, nw_pre_kind *out);
const char *nw_pretok_pattern(nw_pre_kind kind); /* NULL where there is none */

/* Length of the word at the front of s[0..n), n > 0, for the three scanners. */
size_t nw_pretok_scan(nw_pre_kind kind, const char *s, size_t n);

/* Calls `word` for every word of s in order until it fails. */
typedef nw_status (*nw_word_fn)(void *ctx, const char *s, size_t n);
NW_MUST_USE nw_status nw_pretok_run(const nw_pretok *p, const char *s, size_t n, nw_word_fn word,
                                    void *ctx, nw_error *err);

#endif
