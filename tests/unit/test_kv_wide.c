/* Window and sinks: which keys a query reads in BF16 depends on positions alone, whatever the chunks, the
 * batch, the threads, what is shared, cut back or thrown out; and what is kept is bounded.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_fixture.h"
#include "kernels/attention.h"

#define PAGE   NW_KV_PAGE
#define N_TEXT 250
#define N_LAST 40 /* whose logits are compared */

static struct row {
    const char *name;
    const char *kv;
    int model;
} rows[] = {
    {"window_and_sinks", "int4+window128+sinks64", 0},
    {"window_alone", "int8/int4+window64", 0},
    {"sinks_alone", "int4+sinks64", 0},
    {"wide_window", "fp8+window192+sinks128", 0},
    {"sliding_layers", "int4+window64+sinks64", 1},
};

static nw_engine_options options_of(const char *kv)
{
    nw_engine_options o = fixture_options();
    nw_error err = {0};

    if (nw_engine_kv_parse(kv, &o, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    return o;
}

/* Logits [N_LAST] of the end of a text, fed in steps of the given size, beside `other` if it is there. */
static void run_text(const struct row *r, unsigned threads, uint32_t step, const int32_t *other,
                     const int32_t *ids, float *y)
{
    nw_engine_options o = options_of(r->kv);
    o.n_threads = threads;
    nw_engine *e = fixture_engine(r->model, &o);
    nw_session *s[2] = {open_session(e), open_session(e)};
    float *all = new_logits(N_TEXT);

    for (uint32_t at = 0; at < N_TEXT; at += step) {
        nw_error err = {0};
        const uint32_t n = N_TEXT - at < step ? N_TEXT - at : step;
        const nw_step_item it[2] = {{s[0], ids + at, n, n, all + (size_t)at * NW_TINY_VOCAB},
                                    {s[1], other + at, n, 0, NULL}};
        if (nw_engine_step(e, it, other != NULL ? 2 : 1, &err) != NW_OK) {
            fail_msg("%s", err.message);
        }
    }
    memcpy(y, all + (size_t)(N_TEXT - N_LAST) * NW_TINY_VOCAB,
           (size_t)N_LAST * NW_TINY_VOCAB * sizeof *y);
    nw_session_close(s[0]);
    nw_session_close(s[1]);
    nw_engine_close(e);
    free(all);
}

static void bits_depend_on_positions_alone(void **state)
{
    const struct row *r = *state;
    const struct {
        unsigned threads;
        uint32_t step;
        bool beside;
    } ways[] = {{1, 128, false}, {2, 1, false}, {3, 37, true}, {2, 64, true}, {1, 63, false}};
    float *want = new_logits(N_LAST);
    float *got = new_logits(N_LAST);
    int32_t ids[N_TEXT];
    int32_t other[N_TEXT];

    random_ids(3, ids, N_TEXT);
    random_ids(4, other, N_TEXT);
    for (size_t i = 0; i < NW_COUNT(ways); i++) {
        run_text(r, ways[i].threads, ways[i].step, ways[i].beside ? other : NULL, ids,
                 i == 0 ? want : got);
        if (i > 0) {
            assert_memory_equal(want, got, (size_t)N_LAST * NW_TINY_VOCAB * sizeof *want);
        }
    }
    free(want);
    free(got);
}

/* Logits after one token at a time of a text under a KV format. */
static void decode_text(const char *kv, const int32_t *ids, float *y)
{
    const struct row r = {.kv = kv};
    run_text(&r, 1, 1, NULL, ids, y);
}

/* A window over all of the text is BF16; short of it, the packed format shows. */
static void a_window_over_everything_is_bf16(void **state)
{
    (void)state;
    float *bf16 = new_logits(N_LAST);
    float *got = new_logits(N_LAST);
    const size_t bytes = (size_t)N_LAST * NW_TINY_VOCAB * sizeof *got;
    int32_t ids[N_TEXT];

    random_ids(5, ids, N_TEXT);
    decode_text("bf16", ids, bf16);
    decode_text("int8+window256", ids, got);
    assert_memory_equal(bf16, got, bytes);
    decode_text("int8+window128+sinks128", ids, got);
    assert_memory_equal(bf16, got, bytes); /* four pages: two first, two newest */
    decode_text("int8+window128+sinks64", ids, got);
    assert_memory_not_equal(bf16, got, bytes);
    decode_text("int8", ids, got);
    assert_memory_not_equal(bf16, got, bytes);
    free(bf16);
    free(got);
}

/* ---- sharing and cutting ---- */

static void logits_alone(const char *kv, const int32_t *ids, uint32_t n, float *y)
{
    nw_engine_options o = options_of(kv);
    nw_engine *e = fixture_engine(0, &o);
    nw_session *s = open_session(e);

    for (uint32_t at = 0; at < n; at += 100) {
        nw_error err = {0};
        const uint32_t part = n - at < 100 ? n - at : 100;
        const nw_step_item it = {s, ids + at, part, at + part == n ? 1 : 0, y};
        assert_int_equal(nw_engine_step(e, &it, 1, &err), NW_OK);
    }
    nw_session_close(s);
    nw_engine_close(e);
}

enum { N_TEXTS = 4 };

/* They part from the first one after a page each, and a token. */
static void make_texts(int32_t ids[N_TEXTS][N_TEXT])
{
    random_ids(1, ids[0], N_TEXT);
    for (int t = 1; t < N_TEXTS; t++) {
        memcpy(ids[t], ids[0], sizeof ids[t]);
        random_ids((uint64_t)t + 1, ids[t] + 65 * t, N_TEXT - 65 * (size_t)t);
    }
}

/* Takes up a text with what other sessions left, cuts it back now and then, and goes on. */
static void any_history_gives_the_same_bits(void **state)
{
    const struct row *r = *state;
    enum { N_SESSIONS = 3 };
    nw_engine_options o = options_of(r->kv);
    if (r->model != 0) {
        return; /* one model is enough */
    }
    o.max_seqs = N_SESSIONS;
    o.max_step_tokens = 256;
    nw_engine *e = fixture_engine(0, &o);
    nw_session *s[N_SESSIONS] = {NULL};
    int text[N_SESSIONS] = {0};
    static int32_t ids[N_TEXTS][N_TEXT];
    float *want = new_logits(1);
    float *got = new_logits(1);
    nw_rng rng = nw_rng_seed(19);
    uint32_t shared = 0;
    uint32_t cut = 0;

    make_texts(ids);
    for (int step = 0; step < 100; step++) {
        const size_t i = nw_rng_below(&rng, N_SESSIONS);
        if (s[i] == NULL) {
            s[i] = open_session(e);
            text[i] = (int)nw_rng_below(&rng, N_TEXTS);
            shared += nw_session_attach(s[i], ids[text[i]], N_TEXT);
        } else if (nw_rng_below(&rng, 4) == 0) {
            nw_session_close(s[i]);
            s[i] = NULL;
            continue;
        } else if (nw_rng_below(&rng, 3) == 0) {
            const uint32_t n = (uint32_t)nw_rng_below(&rng, nw_session_len(s[i]) + 1);
            const uint32_t left = nw_session_truncate(s[i], n);
            assert_true(left <= n && nw_session_len(s[i]) == left);
            cut += left > 0 && left == n;
        }
        const uint32_t len = nw_session_len(s[i]);
        if (len == N_TEXT) {
            continue;
        }
        nw_error err = {0};
        const uint32_t n = 1 + (uint32_t)nw_rng_below(&rng, N_TEXT - len);
        const nw_step_item it = {s[i], ids[text[i]] + len, n, 1, got};
        assert_int_equal(nw_engine_step(e, &it, 1, &err), NW_OK);
        logits_alone(r->kv, ids[text[i]], len + n, want);
        assert_memory_equal(want, got, NW_TINY_VOCAB * sizeof *want);
    }
    assert_true(shared > 3 * PAGE && cut > 3);
    for (int i = 0; i < N_SESSIONS; i++) {
        nw_session_close(s[i]);
    }
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    nw_engine_close(e);
    free(want);
    free(got);
}

/* Copies that were taken for other texts are not there any more: a session is cut back as far as it must,
 * and what is fed again gives the bits it gave before. */
static void a_cut_back_goes_as_far_as_copies_reach(void **state)
{
    (void)state;
    const char *kv = "int4+window64+sinks64";
    nw_engine_options o = options_of(kv);
    o.max_seqs = 1;
    o.max_step_tokens = 64;
    nw_engine *e = fixture_engine(0, &o);
    nw_session *s = open_session(e);
    float *want = new_logits(1);
    float *got = new_logits(1);
    int32_t ids[N_TEXT];
    nw_error err = {0};

    random_ids(8, ids, N_TEXT);
    for (uint32_t at = 0; at < 192; at += PAGE) {
        feed(e, s, ids + at, PAGE, NULL);
    }
    for (uint64_t i = 0; i < 20; i++) { /* others, through the session that scores */
        int32_t others[N_TEXT];
        random_ids(100 + i, others, N_TEXT);
        nw_session_close(s);
        s = open_session(e);
        for (uint32_t at = 0; at < 192; at += PAGE) {
            feed(e, s, others + at, PAGE, NULL);
        }
    }
    nw_session_close(s);
    s = open_session(e);
    const uint32_t len = nw_session_attach(s, ids, N_TEXT);
    assert_int_equal(len, 0); /* the first page's copy is gone */
    for (uint32_t at = 0; at < 192; at += PAGE) {
        feed(e, s, ids + at, PAGE, NULL);
    }
    const nw_step_item it = {s, ids + 192, 1, 1, got};
    assert_int_equal(nw_engine_step(e, &it, 1, &err), NW_OK);
    logits_alone(kv, ids, 193, want);
    assert_memory_equal(want, got, NW_TINY_VOCAB * sizeof *want);
    nw_session_close(s);
    nw_engine_close(e);
    free(want);
    free(got);
}

/* ---- options and sizes ---- */

static void names_are_read_and_written(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out; /* NULL: refused */
    } names[] = {
        {"f32", "f32"},
        {"int8/int8", "int8"},
        {"int4/bf16+sinks64+window128", "int4/bf16+window128+sinks64"},
        {"fp8+dynamic", "fp8+dynamic"},
        {"int4+channel+window4096", "int4+channel+window4096"},
        {"int4+", NULL},
        {"int4+window", NULL},
        {"int4+window0", NULL},
        {"int4+window63", NULL},
        {"int4+window4160", NULL},
        {"int4+window99999999999999999999", NULL},
        {"int4+window64+window64", NULL},
        {"int4+sinks-64", NULL},
        {"int4+dynamic+dynamic", NULL},
        {"+window64", NULL},
        {"int4/+window64", NULL},
        {"int4+window64/int8", NULL},
    };

    for (size_t i = 0; i < NW_COUNT(names); i++) {
        nw_engine_options o = nw_engine_options_default();
        const nw_engine_options before = o;
        nw_error err = {0};
        char text[NW_ENGINE_KV_TEXT];
        const nw_status st = nw_engine_kv_parse(names[i].in, &o, &err);
        assert_int_equal(st, names[i].out != NULL ? NW_OK : NW_E_RANGE);
        if (st == NW_OK) {
            assert_string_equal(nw_engine_kv_text(&o, text), names[i].out);
        } else {
            assert_memory_equal(&o, &before, sizeof o);
        }
    }
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *kv, *says;
    } bad[] = {{"bf16+window64", "narrower"},
               {"int8+dynamic", "+dynamic is for fp8"},
               {"f32+sinks64", "narrower"},
               {"int4+channel", "calibration"}};

    for (size_t i = 0; i < NW_COUNT(bad); i++) {
        nw_engine_options o = options_of(bad[i].kv);
        nw_engine *e = NULL;
        nw_error err = {0};
        assert_int_equal(nw_engine_open(fixture_path[0], &o, &e, &err), NW_E_USAGE);
        assert_non_null(strstr(err.message, bad[i].says));
    }
    nw_engine_options o = options_of("int4+window64");
    nw_engine *e = NULL;
    nw_error err = {0};
    o.kv_bytes = 4096;
    assert_int_equal(nw_engine_open(fixture_path[0], &o, &e, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "window and sinks"));
}

/* The pool that was asked for holds both kinds, and the copies do not grow with the context. */
static void copies_are_counted(void **state)
{
    (void)state;
    nw_engine_options o = options_of("int4+window128+sinks64");
    o.max_seqs = 2;
    o.max_step_tokens = 64;
    nw_engine *e = fixture_engine(0, &o);
    const nw_engine_facts f = *nw_engine_get_facts(e);
    const nw_kv_type wide = nw_kv_type_of(NW_KV_BF16, NW_KV_BF16, 10);
    const uint64_t page = 4 * (nw_kv_k_page_bytes(&wide) + nw_kv_v_page_bytes(&wide));

    /* kv_wide.c: twice 3 sessions of 1 + 2 + 2 pages, and one of the step */
    assert_int_equal(f.kv_wide_bytes, UINT64_C(32) * page);
    assert_int_equal(f.kv_pool_bytes,
                     f.kv_wide_bytes + f.kv_capacity_tokens * f.kv_bytes_per_token);
    assert_string_equal(f.kv, "int4+window128+sinks64");
    nw_engine_close(e);
    o.kv_bytes = (size_t)(f.kv_wide_bytes + f.kv_bytes_per_token * PAGE * 3);
    e = fixture_engine(0, &o);
    assert_int_equal(nw_engine_pages_total(e), 3);
    assert_true(nw_engine_get_facts(e)->kv_pool_bytes <= o.kv_bytes);
    nw_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_over_everything_is_bf16),
        cmocka_unit_test(a_cut_back_goes_as_far_as_copies_reach),
        cmocka_unit_test(names_are_read_and_written),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(copies_are_counted),
    };
    int failed = fixture_setup(NULL);

    failed += cmocka_run_group_tests_name("kv_wide", tests, NULL, NULL);
    failed += NW_RUN_TABLE("bits_depend_on_positions_alone", rows, bits_depend_on_positions_alone);
    failed +=
        NW_RUN_TABLE("any_history_gives_the_same_bits", rows, any_history_gives_the_same_bits);
    return failed + fixture_teardown(NULL);
}
