/* Prompts of exact length. Words are common enough to be one token each in most vocabularies, so a
 * first guess of one word a token is close; the count then steers the number of words, and short
 * fillers make up what a whole word would overshoot.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"

static const char *const words[] = {
    "time",     "year",   "people",  "way",       "day",      "man",      "thing",   "woman",
    "life",     "child",  "world",   "school",    "state",    "family",   "group",   "country",
    "hand",     "part",   "place",   "case",      "week",     "company",  "system",  "program",
    "question", "work",   "number",  "night",     "point",    "home",     "water",   "room",
    "mother",   "area",   "money",   "story",     "fact",     "month",    "lot",     "right",
    "study",    "book",   "eye",     "job",       "word",     "business", "issue",   "side",
    "kind",     "head",   "house",   "service",   "friend",   "father",   "power",   "hour",
    "game",     "line",   "end",     "member",    "law",      "car",      "city",    "name",
    "team",     "minute", "idea",    "body",      "back",     "parent",   "face",    "level",
    "office",   "door",   "health",  "person",    "art",      "war",      "history", "party",
    "result",   "change", "morning", "reason",    "research", "girl",     "moment",  "air",
    "teacher",  "force",  "old",     "new",       "good",     "high",     "small",   "large",
    "long",     "early",  "young",   "important", "few",      "public",   "same",    "last",
    "great",    "little", "own",     "other",     "find",     "give",     "tell",    "ask",
    "seem",     "feel",   "try",     "leave",     "call",     "keep",     "let",     "begin",
    "show",     "hear",   "play",    "run",       "move",     "live",
};

#define MAX_TRIES  12
#define MAX_TEXT   ((size_t)16 << 20)
#define MORE_WORDS 0x6d6f7265U /* tells the stream of the last words from that of the first */

/* What fills the last tokens, where one more word would be too long; in most vocabularies the first
 * is one token, and some of the others is one in any. */
static const char *const fillers[] = {" a", ".", ",", " I", "1", "x", "!"};

/* n_words words drawn from (seed, key); each but the first follows a space. */
static bool write_words(nw_buf *b, size_t n_words, uint64_t seed, uint64_t key)
{
    nw_rng r = nw_rng_stream(seed, key);

    nw_buf_clear(b);
    for (size_t i = 0; i < n_words; i++) {
        const char *w = words[nw_rng_below(&r, NW_COUNT(words))];
        if ((i > 0 && !nw_buf_add(b, " ", 1)) || !nw_buf_puts(b, w)) {
            return false;
        }
    }
    return b->len > 0 || nw_buf_puts(b, "a");
}

/* How many prompt tokens the text is: by our tokenizer or the server's, else by what the server says it
 * was when it answers. */
static nw_status count(nw_target *t, const nw_buf *b, uint32_t *n, nw_error *err)
{
    int32_t *ids = NULL;
    size_t k = 0;
    nw_error why = {0};

    if (nw_target_tokenize(t, b->data, b->len, true, &ids, &k, &why) == NW_OK) {
        free(ids);
        *n = (uint32_t)k;
        return NW_OK;
    }
    if (why.code != NW_E_UNSUPPORTED) {
        *err = why;
        return why.code;
    }
    const nw_gen_request req = {.prompt = b->data, .n_prompt_bytes = b->len, .max_tokens = 1};
    nw_gen_result r;
    if (nw_target_generate(t, &req, &r, err) != NW_OK) {
        return nw_context(err, "counting the tokens of a prompt");
    }
    *n = r.n_prompt;
    nw_gen_result_release(&r);
    return *n > 0 ? NW_OK
                  : nw_fail(err, NW_E_UNSUPPORTED,
                            "the server reports no prompt token counts, and "
                            "no tokenizer was given (--tokenizer)");
}

/* The largest number of words that stays within n_want tokens, near enough: by proportion from above,
 * then down by what is too much. */
static nw_status fit_words(nw_target *t, uint32_t n_want, uint64_t seed, uint64_t key, nw_buf *b,
                           uint32_t *n, nw_error *err)
{
    size_t n_words = n_want;

    for (int i = 0; i < MAX_TRIES; i++) {
        if (!write_words(b, n_words, seed, key)) {
            return nw_fail(err, NW_E_RANGE, "prompt of %u tokens: more than %zu bytes", n_want,
                           MAX_TEXT);
        }
        if (count(t, b, n, err) != NW_OK) {
            return err->code;
        }
        if (*n <= n_want || n_words == 0) {
            return NW_OK;
        }
        const size_t fits = (size_t)((double)n_words * n_want / *n);
        n_words = fits < n_words ? fits : n_words - 1;
    }
    return NW_OK;
}

/* One word more, or else one filler. *moved is false when none of them brings the count nearer without
 * passing n_want. */
static nw_status fill_one(nw_target *t, uint32_t n_want, nw_rng *r, nw_buf *b, uint32_t *n,
                          bool *moved, nw_error *err)
{
    const size_t len = b->len;
    const char *word = words[nw_rng_below(r, NW_COUNT(words))];

    *moved = false;
    for (size_t i = 0; i <= NW_COUNT(fillers) && !*moved; i++) {
        uint32_t k = 0;
        if (i == 0 ? !nw_buf_printf(b, " %s", word) : !nw_buf_puts(b, fillers[i - 1])) {
            return nw_fail(err, NW_E_RANGE, "prompt of %u tokens: more than %zu bytes", n_want,
                           MAX_TEXT);
        }
        if (count(t, b, &k, err) != NW_OK) {
            return err->code;
        }
        if (k > *n && k <= n_want) {
            *n = k;
            *moved = true;
        } else {
            b->len = len;
            b->data[len] = '\0';
        }
    }
    return NW_OK;
}

nw_status nw_prompt_make(nw_target *t, uint32_t n_want, uint64_t seed, uint64_t key, char **text,
                         uint32_t *n_tokens, nw_error *err)
{
    nw_buf b;
    uint32_t n = 0;
    bool moved = true;
    nw_rng more = nw_rng_stream(seed ^ MORE_WORDS, key);

    nw_buf_init(&b, MAX_TEXT);
    nw_status st = fit_words(t, n_want, seed, key, &b, &n, err);
    while (st == NW_OK && n < n_want && moved) {
        st = fill_one(t, n_want, &more, &b, &n, &moved, err);
    }
    if (st == NW_OK) {
        *text = nw_buf_take(&b);
        *n_tokens = n;
    }
    nw_buf_release(&b);
    return st;
}
