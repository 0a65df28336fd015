/* Prompts of exact length. Words are common enough to be one token each in most vocabularies, so a
 * first guess of one word a token is close; the count then steers the number of words, and single
 * letters fill what a whole word would overshoot.
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

#define MAX_TRIES    24
#define MAX_TEXT     ((size_t)16 << 20)
#define MAX_WORD_LEN 12

/* The text of n_words words and n_fill letters drawn from (seed, key); each word follows a space. */
static bool write_text(nw_buf *b, size_t n_words, size_t n_fill, uint64_t seed, uint64_t key)
{
    nw_rng r = nw_rng_stream(seed, key);

    nw_buf_clear(b);
    for (size_t i = 0; i < n_words; i++) {
        const char *w = words[nw_rng_below(&r, NW_COUNT(words))];
        if ((i > 0 && !nw_buf_add(b, " ", 1)) || !nw_buf_puts(b, w)) {
            return false;
        }
    }
    for (size_t i = 0; i < n_fill; i++) {
        if (!nw_buf_puts(b, b->len == 0 ? "a" : " a")) {
            return false;
        }
    }
    return b->len > 0 || nw_buf_puts(b, "a");
}

/* How many prompt tokens the text is: our tokenizer's count, else what the server says it was. */
static nw_status count(nw_target *t, const nw_buf *b, uint32_t *n, nw_error *err)
{
    if (nw_target_has_tokenizer(t)) {
        int32_t *ids = NULL;
        size_t k = 0;
        if (nw_target_tokenize(t, b->data, b->len, true, &ids, &k, err) != NW_OK) {
            return err->code;
        }
        free(ids);
        *n = (uint32_t)k;
        return NW_OK;
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

nw_status nw_prompt_make(nw_target *t, uint32_t n_want, uint64_t seed, uint64_t key, char **text,
                         uint32_t *n_tokens, nw_error *err)
{
    nw_buf b;
    size_t n_words = n_want;
    size_t n_fill = 0;
    uint32_t n = 0;

    nw_buf_init(&b, MAX_TEXT);
    for (int i = 0; i < MAX_TRIES; i++) {
        if (!write_text(&b, n_words, n_fill, seed, key)) {
            nw_buf_release(&b);
            return nw_fail(err, NW_E_RANGE, "prompt of %u tokens: more than %zu bytes", n_want,
                           MAX_TEXT);
        }
        if (count(t, &b, &n, err) != NW_OK) {
            nw_buf_release(&b);
            return err->code;
        }
        if (n == n_want || (n_words + n_fill <= 1 && n > n_want)) {
            break;
        }
        if (n > n_want) { /* too long: fewer words, by at least one and by what they seem to cost */
            const size_t over = (size_t)(n - n_want) * n_words / n;
            n_words -= over + 1 < n_words ? over + 1 : n_words;
            n_fill = n_words == 0 && n_want > 0 ? 1 : 0;
        } else if (n_want - n > MAX_WORD_LEN) {
            n_words += (n_want - n) / 2;
        } else {
            n_fill += n_want - n;
        }
    }
    *text = nw_buf_take(&b);
    *n_tokens = n;
    nw_buf_release(&b);
    return *text != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "prompt: no memory");
}
