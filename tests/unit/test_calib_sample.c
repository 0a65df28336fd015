/* The draw of calibration samples: equal shares, shortfalls, repetitions, seeds, and rows that are
 * none.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "quant/calib_sample.h"
#include "table.h"
#include "tiny_model.h"
#include "tmpdir.h"

static nw_tmpdir dir;
static nw_tokenizer *tok;

static int setup(void **state)
{
    const nw_model_config c = nw_tiny_llama();
    nw_error err = {0};
    char path[300];

    (void)state;
    dir = nw_tmpdir_make();
    nw_tiny_write(&c, 3, nw_tmpdir_file(&dir, "m", path, sizeof path));
    return nw_tokenizer_open(path, &tok, &err) == NW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    nw_tokenizer_close(tok);
    nw_tmpdir_remove(&dir);
    return 0;
}

/* A log of n[i] rows for each of the intents a, b, c, in turn. */
static const char *write_log(const char *name, size_t a, size_t b, size_t c)
{
    static char path[300];
    const size_t want[] = {a, b, c};
    nw_buf text;

    nw_buf_init(&text, 1 << 20);
    for (size_t i = 0; i < a || i < b || i < c; i++) {
        for (size_t k = 0; k < 3; k++) {
            if (i < want[k]) {
                (void)nw_buf_printf(&text,
                                    "{\"intent\": \"%c\", \"messages\": [{\"role\": \"user\", "
                                    "\"content\": \"%c number %zu\"}]}\n",
                                    'a' + (int)k, 'a' + (int)k, i);
            }
        }
    }
    nw_tmpdir_put(&dir, name, text.data, text.len, path, sizeof path);
    nw_buf_release(&text);
    return path;
}

static nw_sample_options options(const char *log, size_t n)
{
    return (nw_sample_options){
        .log = log, .stratify = "intent", .n_samples = n, .seed = 1, .n_ctx = 64};
}

static void must_draw(const nw_sample_options *o, nw_samples *s)
{
    nw_error err = {0};
    if (nw_samples_draw(tok, o, s, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
}

static struct share_row {
    const char *name;
    size_t seen[3], n, drawn[3];
} shares[] = {
    {"a_skewed_log_keeps_all_strata", {900, 90, 10}, 24, {8, 8, 8}},
    {"a_shortfall_goes_to_the_others", {900, 90, 2}, 24, {11, 11, 2}},
    {"two_shortfalls", {900, 3, 2}, 24, {19, 3, 2}},
    {"a_rest_goes_to_the_largest", {30, 20, 10}, 8, {3, 3, 2}},
    {"more_is_wanted_than_there_is", {4, 3, 2}, 100, {4, 3, 2}},
    {"one_each", {5, 5, 5}, 3, {1, 1, 1}},
};

static void share(void **state)
{
    const struct share_row *r = *state;
    const nw_sample_options o =
        options(write_log("share.jsonl", r->seen[0], r->seen[1], r->seen[2]), r->n);
    nw_samples s = {0};

    must_draw(&o, &s);
    assert_int_equal(s.n_strata, 3);
    assert_int_equal(s.n, r->drawn[0] + r->drawn[1] + r->drawn[2]);
    for (size_t i = 0; i < 3; i++) {
        const char name[] = {(char)('a' + (int)i), '\0'};
        assert_string_equal(s.strata[i].name, name);
        assert_int_equal(s.strata[i].n_seen, r->seen[i]);
        assert_int_equal(s.strata[i].n_drawn, r->drawn[i]);
        assert_int_equal(s.strata[i].n_repeated, 0);
    }
    size_t per[3] = {0};
    for (size_t i = 0; i < s.n; i++) {
        assert_true(s.first[i + 1] > s.first[i]);
        per[s.stratum[i]]++;
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(per[i], r->drawn[i]);
    }
    nw_samples_release(&s);
}

static void more_strata_than_samples_is_an_error(void **state)
{
    const nw_sample_options o = options(write_log("few.jsonl", 9, 9, 9), 2);
    nw_samples s = {0};
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_samples_draw(tok, &o, &s, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "3 strata of 'intent', more than the 2 samples"));
}

static void the_seed_decides_and_nothing_else(void **state)
{
    nw_sample_options o = options(write_log("seed.jsonl", 200, 200, 200), 30);
    nw_samples a = {0};
    nw_samples b = {0};
    nw_samples c = {0};

    (void)state;
    must_draw(&o, &a);
    must_draw(&o, &b);
    o.seed = 2;
    must_draw(&o, &c);
    assert_string_equal(a.ids_hash.hex, b.ids_hash.hex);
    assert_string_not_equal(a.ids_hash.hex, c.ids_hash.hex);
    nw_samples_release(&a);
    nw_samples_release(&b);
    nw_samples_release(&c);
}

static void repeated_and_empty_rows_are_never_drawn(void **state)
{
    static const char log[] = "{\"text\": \"one\", \"k\": 1}\n"
                              "{\"text\": \"one\", \"k\": 1}\n"
                              "{\"text\": \"\", \"k\": 1}\n"
                              "{\"text\": \"one\", \"k\": 2}\n"
                              "{\"prompt\": \"o\", \"completion\": \"ne\"}\n";
    char path[300];
    nw_samples s = {0};

    (void)state;
    nw_tmpdir_put(&dir, "rep.jsonl", log, sizeof log - 1, path, sizeof path);
    nw_sample_options o = options(path, 10);
    o.stratify = "k";
    must_draw(&o, &s);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.n_strata, 3);
    assert_string_equal(s.strata[0].name, "(none)");
    assert_string_equal(s.strata[1].name, "1");
    assert_int_equal(s.strata[1].n_seen, 3);
    assert_int_equal(s.strata[1].n_repeated, 1);
    assert_int_equal(s.strata[1].n_empty, 1);
    assert_int_equal(s.strata[1].n_drawn, 1);
    /* a prompt and its completion are one text */
    assert_int_equal(s.first[3] - s.first[2], 3);
    assert_memory_equal(s.ids, s.ids + s.first[2], 3 * sizeof *s.ids);
    nw_samples_release(&s);
}

static void a_nested_field_and_a_cut_sample(void **state)
{
    static const char log[] = "{\"text\": \"abcdefghij\", \"meta\": {\"lang\": \"de\"}}\n"
                              "{\"text\": \"abc\", \"meta\": {\"lang\": \"en\"}}";
    char path[300];
    nw_samples s = {0};

    (void)state;
    nw_tmpdir_put(&dir, "nest.jsonl", log, sizeof log - 1, path, sizeof path);
    nw_sample_options o = options(path, 2);
    o.stratify = "meta.lang";
    o.n_ctx = 4;
    must_draw(&o, &s);
    assert_string_equal(s.strata[0].name, "de");
    assert_int_equal(s.strata[0].n_cut, 1);
    assert_int_equal(s.strata[0].n_tokens, 4);
    assert_int_equal(s.strata[1].n_cut, 0);
    assert_int_equal(s.strata[1].n_tokens, 3);
    nw_samples_release(&s);
}

static void a_text_is_cut_into_windows(void **state)
{
    char text[1000];
    char path[300];
    nw_samples s = {0};

    (void)state;
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)('a' + (int)(i * i / 7 % 26));
    }
    nw_tmpdir_put(&dir, "text.txt", text, sizeof text, path, sizeof path);
    const nw_sample_options o = {.text = path, .n_samples = 5, .seed = 4, .n_ctx = 100};
    must_draw(&o, &s);
    assert_int_equal(s.n, 5);
    assert_int_equal(s.strata[0].n_seen, 10);
    for (size_t i = 0; i < s.n; i++) {
        assert_int_equal(s.first[i + 1] - s.first[i], 100);
    }
    nw_samples_release(&s);
}

static struct bad_row {
    const char *name, *log, *message;
} bad_rows[] = {
    {"no_content", "{\"intent\": \"a\"}\n", "bad.jsonl:1: a row has a list 'messages'"},
    {"a_field_that_is_a_list", "{\"text\": \"x\", \"intent\": [1]}\n",
     "neither a word nor a number"},
    {"a_reply_that_is_a_number", "{\"prompt\": \"x\", \"completion\": 1}\n", "is not a string"},
    {"an_empty_log", "", "no row to draw from"},
    {"only_empty_rows", "{\"text\": \"\"}\n", "no token was drawn"},
    {"a_broken_line", "{\"text\": \"x\"}\n{\"text\": \n", "bad.jsonl:2"},
};

static void bad(void **state)
{
    const struct bad_row *r = *state;
    char path[300];
    nw_samples s = {0};
    nw_error err = {0};

    nw_tmpdir_put(&dir, "bad.jsonl", r->log, strlen(r->log), path, sizeof path);
    const nw_sample_options o = options(path, 4);
    assert_int_not_equal(nw_samples_draw(tok, &o, &s, &err), NW_OK);
    if (strstr(err.message, r->message) == NULL) {
        fail_msg("'%s' is not in: %s", r->message, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_strata_than_samples_is_an_error),
        cmocka_unit_test(the_seed_decides_and_nothing_else),
        cmocka_unit_test(repeated_and_empty_rows_are_never_drawn),
        cmocka_unit_test(a_nested_field_and_a_cut_sample),
        cmocka_unit_test(a_text_is_cut_into_windows),
    };
    if (setup(NULL) != 0) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += NW_RUN_TABLE("share", shares, share);
    failed += NW_RUN_TABLE("bad", bad_rows, bad);
    (void)teardown(NULL);
    return failed;
}
