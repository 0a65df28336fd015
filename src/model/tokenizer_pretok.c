/* The pre-tokenizers: three scanners, digits, and splits. A scanner follows its pattern branch by
 * branch, in the pattern's order; every branch is possessive in effect, so no backtracking is needed
 * but for the one in \s+(?!\S) and \s*[\r\n]+, which is done by remembering where to go back to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer_pretok.h"

#include <string.h>

#include "model/unicode.h"

#define GPT2_PATTERN \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define TAIL_PATTERN "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define HEAD_PATTERN "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"

static const struct {
    nw_pre_kind kind;
    const char *pattern;
} patterns[] = {
    {NW_PRE_GPT2, GPT2_PATTERN},
    {NW_PRE_LLAMA3, HEAD_PATTERN "\\p{N}{1,3}" TAIL_PATTERN},
    {NW_PRE_QWEN2, HEAD_PATTERN "\\p{N}" TAIL_PATTERN},
};

/* Names of tokenizer.ggml.pre (llama.cpp, src/llama-vocab.cpp) and their steps. */
static const struct {
    const char *name;
    nw_pre_kind kind;
    bool digits; /* every digit is cut out first */
} names[] = {
    {"gpt-2", NW_PRE_GPT2, false},    {"phi-2", NW_PRE_GPT2, false},
    {"smollm", NW_PRE_GPT2, true},    {"starcoder", NW_PRE_GPT2, true},
    {"refact", NW_PRE_GPT2, true},    {"command-r", NW_PRE_GPT2, true},
    {"codeshell", NW_PRE_GPT2, true}, {"llama-bpe", NW_PRE_LLAMA3, false},
    {"llama3", NW_PRE_LLAMA3, false}, {"llama-v3", NW_PRE_LLAMA3, false},
    {"qwen2", NW_PRE_QWEN2, false},   {"deepseek-r1-qwen", NW_PRE_QWEN2, false},
};

void nw_pretok_release(nw_pretok *p)
{
    for (size_t i = 0; i < p->n; i++) {
        nw_regex_free(p->steps[i].regex);
    }
    *p = (nw_pretok){.n = 0};
}

bool nw_pretok_by_name(const char *name, size_t n, nw_pretok *out)
{
    for (size_t i = 0; i < NW_COUNT(names); i++) {
        if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0) {
            *out = (nw_pretok){.n = 0};
            if (names[i].digits) {
                out->steps[out->n++].kind = NW_PRE_DIGITS;
            }
            out->steps[out->n++].kind = names[i].kind;
            return true;
        }
    }
    return false;
}

const char *nw_pretok_names(void)
{
    return "gpt-2, phi-2, smollm, starcoder, refact, command-r, codeshell, llama-bpe, llama3, "
           "llama-v3, qwen2, deepseek-r1-qwen";
}

bool nw_pretok_scanner_for(const char *pattern, size_t n, nw_pre_kind *out)
{
    for (size_t i = 0; i < NW_COUNT(patterns); i++) {
        if (strlen(patterns[i].pattern) == n && memcmp(patterns[i].pattern, pattern, n) == 0) {
            *out = patterns[i].kind;
            return true;
        }
    }
    return false;
}

const char *nw_pretok_pattern(nw_pre_kind kind)
{
    for (size_t i = 0; i < NW_COUNT(patterns); i++) {
        if (patterns[i].kind == kind) {
            return patterns[i].pattern;
        }
    }
    return NULL;
}

typedef enum { C_LETTER, C_NUMBER, C_SPACE, C_OTHER, C_END } char_class;

/* Class and length of the character at s[i..n). */
static char_class class_at(const char *s, size_t n, size_t i, size_t *len)
{
    uint32_t cp = 0;

    *len = 0;
    if (i >= n) {
        return C_END;
    }
    *len = nw_utf8_decode(s + i, n - i, &cp, NULL);
    return nw_is_letter(cp)   ? C_LETTER
           : nw_is_number(cp) ? C_NUMBER
           : nw_is_space(cp)  ? C_SPACE
                              : C_OTHER;
}

/* End of the run of class c that starts at i; at most `max` characters. */
static size_t run_of(const char *s, size_t n, size_t i, char_class c, size_t max)
{
    size_t len = 0;

    while (max-- > 0 && class_at(s, n, i, &len) == c) {
        i += len;
    }
    return i;
}

/* 's 't 're 've 'm 'll 'd; 0: none. With fold_case, as under (?i:), where U+017F is an s as well. */
static size_t contraction(const char *s, size_t n, bool fold_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};

    if (n < 2 || s[0] != '\'') {
        return 0;
    }
    for (size_t i = 0; i < NW_COUNT(endings); i++) {
        const size_t len = strlen(endings[i]);
        size_t k = 0;
        while (k < len && k + 1 < n) {
            const char c = s[k + 1];
            const char low = fold_case && c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
            if (low != endings[i][k]) {
                break;
            }
            k++;
        }
        if (k == len) {
            return 1 + len;
        }
    }
    return fold_case && n >= 3 && memcmp(s + 1, "\xC5\xBF", 2) == 0 ? 3 : 0;
}

/* \s+(?!\S)|\s+ at the front of s, which is a space: the run without its last character, unless
 * nothing follows or the run is that one character. */
static size_t spaces(const char *s, size_t n)
{
    size_t end = 0;
    size_t last = 0;
    size_t len = 0;

    while (class_at(s, n, end, &len) == C_SPACE) {
        last = end;
        end += len;
    }
    return end == n || last == 0 ? end : last;
}

static size_t scan_gpt2(const char *s, size_t n)
{
    size_t len = 0;
    const size_t short_form = contraction(s, n, false);

    if (short_form > 0) {
        return short_form;
    }
    const size_t skip = s[0] == ' ' ? 1 : 0; /* " ?" */
    const char_class c = class_at(s, n, skip, &len);
    if (c != C_SPACE && c != C_END) {
        return run_of(s, n, skip, c, SIZE_MAX);
    }
    return spaces(s, n);
}

/* \s*[\r\n]+: to the last line end of the run of spaces; 0: there is none. */
static size_t to_last_line_end(const char *s, size_t n)
{
    size_t len = 0;
    size_t end = 0;

    for (size_t i = 0; class_at(s, n, i, &len) == C_SPACE; i += len) {
        if (s[i] == '\r' || s[i] == '\n') {
            end = i + 1;
        }
    }
    return end;
}

static size_t scan_llama3(const char *s, size_t n, size_t max_digits)
{
    size_t len = 0;
    size_t next_len = 0;
    const size_t short_form = contraction(s, n, true);

    if (short_form > 0) {
        return short_form;
    }
    const char_class c = class_at(s, n, 0, &len);
    if (c == C_LETTER) {
        return run_of(s, n, 0, c, SIZE_MAX);
    }
    if (c == C_NUMBER) {
        return run_of(s, n, 0, c, max_digits);
    }
    if (s[0] != '\r' && s[0] != '\n' && class_at(s, n, len, &next_len) == C_LETTER) {
        return run_of(s, n, len, C_LETTER, SIZE_MAX);
    }
    const size_t skip = s[0] == ' ' ? 1 : 0;
    if (class_at(s, n, skip, &len) == C_OTHER) {
        size_t end = run_of(s, n, skip, C_OTHER, SIZE_MAX);
        while (end < n && (s[end] == '\r' || s[end] == '\n')) {
            end++;
        }
        return end;
    }
    const size_t lines = to_last_line_end(s, n);
    return lines > 0 ? lines : spaces(s, n);
}

size_t nw_pretok_scan(nw_pre_kind kind, const char *s, size_t n)
{
    switch (kind) {
    case NW_PRE_GPT2:
        return scan_gpt2(s, n);
    case NW_PRE_LLAMA3:
        return scan_llama3(s, n, 3);
    case NW_PRE_QWEN2:
        return scan_llama3(s, n, 1);
    case NW_PRE_DIGITS:
    case NW_PRE_DIGIT_RUNS:
    case NW_PRE_SPLIT:
        break;
    }
    return n;
}

typedef struct {
    const nw_pretok *p;
    nw_word_fn word;
    void *ctx;
    nw_error *err;
} runner;

static nw_status run_step(const runner *r, size_t step, const char *s, size_t n);

static nw_status run_scanner(const runner *r, size_t step, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        const size_t len = nw_pretok_scan(r->p->steps[step].kind, s + i, n - i);
        const nw_status st = run_step(r, step + 1, s + i, len);
        if (st != NW_OK) {
            return st;
        }
        i += len;
    }
    return NW_OK;
}

static nw_status run_digits(const runner *r, size_t step, const char *s, size_t n)
{
    const size_t max = r->p->steps[step].kind == NW_PRE_DIGITS ? 1 : SIZE_MAX;
    size_t len = 0;

    for (size_t i = 0; i < n;) {
        size_t end = run_of(s, n, i, C_NUMBER, max);
        while (end == i || (end < n && class_at(s, n, i, &len) != C_NUMBER &&
                            class_at(s, n, end, &len) != C_NUMBER)) {
            (void)class_at(s, n, end, &len);
            end += len;
        }
        const nw_status st = run_step(r, step + 1, s + i, end - i);
        if (st != NW_OK) {
            return st;
        }
        i = end;
    }
    return NW_OK;
}

/* A piece of a split that waits for its neighbour to be known. */
typedef struct {
    size_t start, end;
    bool used, is_match;
} held_piece;

static nw_status flush(const runner *r, size_t step, const char *s, held_piece *h)
{
    const held_piece was = *h;

    *h = (held_piece){.used = false};
    return was.used && was.end > was.start
               ? run_step(r, step + 1, s + was.start, was.end - was.start)
               : NW_OK;
}

/* The next piece of the text, in order, joined to the one before or not, as the behavior says. */
static nw_status piece(const runner *r, size_t step, const char *s, held_piece *h, size_t start,
                       size_t end, bool is_match)
{
    const nw_split_behavior b = r->p->steps[step].behavior;
    bool join = false;

    if (start == end) {
        return NW_OK;
    }
    is_match = is_match != r->p->steps[step].invert;
    if (b == NW_SPLIT_REMOVED && is_match) {
        return flush(r, step, s, h);
    }
    if (h->used) {
        join = (b == NW_SPLIT_MERGED_PREVIOUS && is_match && !h->is_match) ||
               (b == NW_SPLIT_MERGED_NEXT && !is_match && h->is_match) ||
               (b == NW_SPLIT_CONTIGUOUS && is_match == h->is_match);
    }
    if (!join) {
        const nw_status st = flush(r, step, s, h);
        *h = (held_piece){start, end, true, is_match};
        return st;
    }
    h->end = end;
    h->is_match = is_match;
    return NW_OK;
}

/* The next delimiter at or after `from`. */
static nw_status find_delimiter(const runner *r, const nw_pre_step *step, const char *s, size_t n,
                                size_t from, size_t *start, size_t *end, bool *found)
{
    if (step->regex != NULL) {
        return nw_regex_find(step->regex, s, n, from, start, end, found, r->err);
    }
    const char *at = step->n_literal == 0
                         ? NULL
                         : nw_bytes_find(s + from, n - from, step->literal, step->n_literal);
    *found = at != NULL;
    if (*found) {
        *start = (size_t)(at - s);
        *end = *start + step->n_literal;
    }
    return NW_OK;
}

static nw_status run_split(const runner *r, size_t step, const char *s, size_t n)
{
    held_piece held = {.used = false};
    size_t done = 0; /* the end of the last piece */
    size_t from = 0;
    bool found = true;

    while (from < n && found) {
        size_t start = n;
        size_t end = n;
        uint32_t cp = 0;
        nw_status st = find_delimiter(r, &r->p->steps[step], s, n, from, &start, &end, &found);
        if (st != NW_OK) {
            return st;
        }
        if (found && start == end) { /* an empty match delimits nothing */
            from = start < n ? start + nw_utf8_decode(s + start, n - start, &cp, NULL) : n;
            continue;
        }
        st = piece(r, step, s, &held, done, start, false);
        if (st == NW_OK) {
            st = piece(r, step, s, &held, start, end, true);
        }
        if (st != NW_OK) {
            return st;
        }
        done = from = end;
    }
    const nw_status st = piece(r, step, s, &held, done, n, false);
    return st == NW_OK ? flush(r, step, s, &held) : st;
}

static nw_status run_step(const runner *r, size_t step, const char *s, size_t n)
{
    if (step == r->p->n) {
        return r->word(r->ctx, s, n);
    }
    switch (r->p->steps[step].kind) {
    case NW_PRE_GPT2:
    case NW_PRE_LLAMA3:
    case NW_PRE_QWEN2:
        return run_scanner(r, step, s, n);
    case NW_PRE_DIGITS:
    case NW_PRE_DIGIT_RUNS:
        return run_digits(r, step, s, n);
    case NW_PRE_SPLIT:
        break;
    }
    return run_split(r, step, s, n);
}

nw_status nw_pretok_run(const nw_pretok *p, const char *s, size_t n, nw_word_fn word, void *ctx,
                        nw_error *err)
{
    const runner r = {p, word, ctx, err};

    return n == 0 ? NW_OK : run_step(&r, 0, s, n);
}
