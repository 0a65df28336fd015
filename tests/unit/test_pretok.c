/* Each scanner cuts every text as its pattern does in PCRE2: on texts made of the characters that the
 * patterns tell apart, drawn with a printed seed.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/rng.h"
#include "model/tokenizer_pretok.h"
#include "table.h"

#define N_TEXTS 4000

static struct row {
    const char *name;
    nw_pre_kind kind;
} rows[] = {{"gpt2", NW_PRE_GPT2}, {"llama3", NW_PRE_LLAMA3}, {"qwen2", NW_PRE_QWEN2}};

static const char *const atoms[] = {" ",
                                    " ",
                                    "  ",
                                    "\n",
                                    "\r\n",
                                    "\t",
                                    "\v",
                                    "\xC2\xA0",
                                    "\xE2\x80\xA9",
                                    "\xC2\x85",
                                    "a",
                                    "Z",
                                    "re",
                                    "LL",
                                    "'",
                                    "'s",
                                    "'S",
                                    "'\xC5\xBF",
                                    "'ve",
                                    "'d",
                                    "1",
                                    "23",
                                    "\xD9\xA3",
                                    "\xC2\xBD",
                                    "\xE2\x85\xA7",
                                    ".",
                                    "!",
                                    "_",
                                    "\xC3\xA9",
                                    "e\xCC\x81",
                                    "\xD0\xAF",
                                    "\xE4\xBD\xA0",
                                    "\xE0\xB9\x88",
                                    "\xE2\x80\x8D",
                                    "\xF0\x9F\x91\xA9",
                                    "\x1C",
                                    "\xEF\xBF\xBD"};

static void same_as_pattern(const struct row *r, nw_regex *re, const char *s, size_t n)
{
    nw_error err = {0};

    for (size_t i = 0; i < n;) {
        size_t start = 0;
        size_t end = 0;
        bool found = false;
        assert_int_equal(nw_regex_find(re, s, n, i, &start, &end, &found, &err), NW_OK);
        assert_true(found && start == i);
        const size_t len = nw_pretok_scan(r->kind, s + i, n - i);
        if (len != end - start) {
            print_error("scanner %zu, pattern %zu bytes at byte %zu of '%s'\n", len, end - start, i,
                        s);
        }
        assert_int_equal(len, end - start);
        i = end;
    }
}

static void scanner_equals_pattern(void **state)
{
    const struct row *r = *state;
    const uint64_t seed = 20240607;
    nw_rng rng = nw_rng_seed(seed);
    nw_regex *re = NULL;
    nw_error err = {0};
    const char *pattern = nw_pretok_pattern(r->kind);

    print_message("seed %llu\n", (unsigned long long)seed);
    assert_int_equal(nw_regex_new(pattern, strlen(pattern), &re, &err), NW_OK);
    for (int k = 0; k < N_TEXTS; k++) {
        char text[256] = "";
        size_t n = 0;
        const uint64_t n_atoms = 1 + nw_rng_below(&rng, 24);
        for (uint64_t i = 0; i < n_atoms; i++) {
            const char *a = atoms[nw_rng_below(&rng, NW_COUNT(atoms))];
            memcpy(text + n, a, strlen(a));
            n += strlen(a);
        }
        same_as_pattern(r, re, text, n);
    }
    nw_regex_free(re);
}

int main(void)
{
    return NW_RUN_TABLE("pretok", rows, scanner_equals_pattern);
}
