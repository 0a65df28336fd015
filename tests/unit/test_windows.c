/* Which tokens of a text are scored, by hand: a byte-level tokenizer makes one token of each letter.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "eval/windows.h"
#include "table.h"
#include "tiny_model.h"
#include "tmpdir.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz"

static nw_tmpdir dir;
static nw_tokenizer *plain, *with_bos; /* the second wants <s> in front */

/* A window as text: context in lower case, scored tokens in upper case, <s> as '^'. */
static struct row {
    const char *name;
    const char *file, *text;
    uint32_t n_ctx, stride;
    size_t max_windows;
    bool bos;
    const char *windows; /* with '|' between; or a part of the error after '!' */
} rows[] = {
    {"chunks_score_the_second_half", "t.txt", LETTERS, 8, 0, 0, false,
     "abcdeFGH|ijklmNOP|qrstuVWX"},
    {"chunks_replace_the_first_token_by_bos", "t.txt", LETTERS, 8, 0, 0, true,
     "^abcdEFG|^ijklMNO|^qrstUVW"},
    {"chunks_of_an_odd_context", "t.txt", LETTERS, 9, 0, 2, false, "abcdeFGHI|jklmnOPQR"},
    {"chunks_at_most", "t.txt", LETTERS, 8, 0, 1, false, "abcdeFGH"},
    {"text_of_one_context_exactly", "t.txt", "abcdefgh", 8, 0, 0, false, "abcdeFGH"},
    {"text_a_token_short", "t.txt", "abcdefg", 8, 0, 0, false,
     "!7 tokens, less than one context of 8"},
    {"stride_scores_each_token_once", "t.txt", "abcdefghijklmn", 8, 3, 0, false,
     "aBCDEFGH|defghIJK|ghijkLMN"},
    {"stride_ends_with_what_is_left", "t.txt", "abcdefghij", 8, 3, 0, false, "aBCDEFGH|defghIJ"},
    {"stride_with_bos_scores_the_first_letter", "t.txt", "abcd", 8, 3, 0, true, "^ABCD"},
    {"stride_of_a_whole_context_has_nothing_before_a_window", "t.txt", "abcdefghijklmnopq", 8, 8, 0,
     false, "aBCDEFGH|iJKLMNOP"},
    {"stride_of_one", "t.txt", "abcdef", 4, 1, 0, false, "aBCD|bcdE|cdeF"},
    {"stride_longer_than_context", "t.txt", LETTERS, 8, 9, 0, false, "!stride within it"},
    {"one_token", "t.txt", "a", 8, 4, 0, false, "!1 tokens, 2 wanted at least"},
    {"documents_stand_alone", "t.json", "[\"abc\", \"x\", \"defghijklmn\"]", 8, 0, 0, false,
     "aBC|dEFGHIJK"},
    {"documents_with_bos", "t.json", "[\"abc\", \"x\"]", 8, 0, 0, true, "^ABC|^X"},
    {"documents_at_most", "t.json", "[\"abc\", \"def\"]", 8, 0, 1, false, "aBC"},
    {"documents_by_line", "t.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"de\"}\n", 8, 0, 0, false,
     "aBC|dE"},
    {"document_without_text", "t.jsonl", "{\"text\":\"abc\"}\n{\"txt\":\"de\"}\n", 8, 0, 0, false,
     "!document 1 is not a string"},
    {"document_that_is_a_number", "t.json", "[\"abc\", 7]", 8, 0, 0, false,
     "!document 1 is not a string"},
    {"documents_without_a_list", "t.json", "{\"text\":\"abc\"}", 8, 0, 0, false,
     "!not a list of documents"},
    {"documents_of_a_letter", "t.json", "[\"a\", \"b\"]", 8, 0, 0, false, "!no token to score"},
    {"context_of_one", "t.txt", LETTERS, 1, 0, 0, false, "!context of 1"},
};

static void show(const nw_windows *w, char *out, size_t n)
{
    size_t at = 0;
    uint64_t scored = 0;

    out[0] = '\0';
    for (size_t i = 0; i < w->n; i++) {
        const nw_window *x = &w->items[i];
        assert_true(x->first >= 1 && x->first < x->n);
        at += (size_t)snprintf(out + at, n - at, "%s", i > 0 ? "|" : "");
        for (uint32_t k = 0; k < x->n; k++) {
            const int c = x->ids[k] == NW_TINY_BOS ? '^' : x->ids[k];
            at += (size_t)snprintf(out + at, n - at, "%c", k >= x->first ? c - 32 : c);
        }
        scored += x->n - x->first;
    }
    assert_true(w->n_scored == scored);
    assert_true(w->n_scored_bytes == scored); /* a letter is a byte; <s> is never scored */
}

static void cut(void **state)
{
    const struct row *r = *state;
    char path[300];
    char found[512];
    nw_windows w;
    nw_error err = {0};

    (void)nw_tmpdir_put(&dir, r->file, r->text, strlen(r->text), path, sizeof path);
    const nw_window_options o = {
        .path = path, .n_ctx = r->n_ctx, .stride = r->stride, .max_windows = r->max_windows};
    const nw_status st = nw_windows_open(r->bos ? with_bos : plain, &o, &w, &err);
    if (r->windows[0] == '!') {
        assert_int_not_equal(st, NW_OK);
        if (strstr(err.message, r->windows + 1) == NULL) {
            fail_msg("'%s' is not in '%s'", r->windows + 1, err.message);
        }
        return;
    }
    if (st != NW_OK) {
        fail_msg("%s", err.message);
    }
    show(&w, found, sizeof found);
    assert_string_equal(found, r->windows);
    assert_true(w.n_bytes == strlen(r->text));
    nw_windows_release(&w);
}

static void missing_file_is_named(void **state)
{
    const nw_window_options o = {.path = "/nowhere/text", .n_ctx = 8};
    nw_windows w;
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_windows_open(plain, &o, &w, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "/nowhere/text"));
}

/* The tiny tokenizer with one word of its configuration changed. */
static void want_bos(const char *model)
{
    char path[400];
    char *text = NULL;
    size_t n = 0;
    nw_error err = {0};

    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", model);
    assert_int_equal(nw_file_read(path, 1 << 20, &text, &n, &err), NW_OK);
    char *at = strstr(text, "\"add_bos_token\": false");
    assert_non_null(at);
    memcpy(at, "\"add_bos_token\": true ", 22);
    assert_int_equal(nw_file_write(path, text, n, &err), NW_OK);
    free(text);
}

static int setup(void **state)
{
    const nw_model_config c = nw_tiny_llama();
    char path[300];
    nw_error err = {0};

    (void)state;
    nw_tiny_write(&c, 1, nw_tmpdir_file(&dir, "plain", path, sizeof path));
    assert_int_equal(nw_tokenizer_open(path, &plain, &err), NW_OK);
    nw_tiny_write(&c, 1, nw_tmpdir_file(&dir, "bos", path, sizeof path));
    want_bos(path);
    assert_int_equal(nw_tokenizer_open(path, &with_bos, &err), NW_OK);
    return 0;
}

int main(void)
{
    const struct CMUnitTest first[] = {cmocka_unit_test(missing_file_is_named)};

    dir = nw_tmpdir_make();
    int failed = cmocka_run_group_tests(first, setup, NULL);
    failed += NW_RUN_TABLE("windows", rows, cut);
    nw_tokenizer_close(plain);
    nw_tokenizer_close(with_bos);
    nw_tmpdir_remove(&dir);
    return failed;
}
