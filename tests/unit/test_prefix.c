/* Shared prefixes: names of pages, and sessions that take over each other's pages: the bits are those of
 * a session of its own, whatever is shared, cut, written over or thrown out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/prefix.h"
#include "engine/scheduler.h"
#include "engine_fixture.h"

#define PAGE NW_KV_PAGE

/* ---- names ---- */

static void names_stand_for_all_tokens_before(void **state)
{
    (void)state;
    nw_arena arena = {0};
    nw_error err = {0};
    nw_prefix x;
    int32_t a[PAGE];
    int32_t b[PAGE];
    random_ids(1, a, PAGE);
    memcpy(b, a, sizeof b);
    b[PAGE - 1]++;

    assert_int_equal(nw_prefix_open(&x, &arena, 40, &err), NW_OK);
    assert_int_equal(nw_prefix_find(&x, 0, a), NW_NO_PAGE);
    const uint64_t first = nw_prefix_put(&x, 7, 0, a);
    const uint64_t second = nw_prefix_put(&x, 8, first, a);
    assert_int_equal(nw_prefix_find(&x, 0, a), 7);
    assert_int_equal(nw_prefix_find(&x, first, a), 8);
    assert_int_equal(nw_prefix_find(&x, second, a), NW_NO_PAGE);
    assert_int_equal(nw_prefix_find(&x, 0, b), NW_NO_PAGE);
    assert_int_equal(nw_prefix_put(&x, 9, 0, a), first); /* known already */
    assert_false(nw_prefix_named(&x, 9));
    nw_prefix_forget(&x, 9);
    nw_prefix_forget(&x, 7);
    assert_int_equal(nw_prefix_find(&x, 0, a), NW_NO_PAGE);
    assert_true(nw_prefix_put(&x, 7, 0, a) > second);  /* never the same name again */
    assert_int_equal(nw_prefix_find(&x, first, a), 8); /* out of reach, but in its place */
    nw_arena_release(&arena);
}

static void every_page_can_be_found_and_forgotten(void **state)
{
    (void)state;
    enum { N = 200 };
    nw_arena arena = {0};
    nw_error err = {0};
    nw_prefix x;
    int32_t ids[PAGE];

    assert_int_equal(nw_prefix_open(&x, &arena, N, &err), NW_OK);
    for (uint32_t i = 0; i < N; i++) {
        random_ids(i, ids, PAGE);
        assert_true(nw_prefix_put(&x, i, i / 3, ids) > 0);
    }
    for (uint32_t i = 0; i < N; i += 2) {
        nw_prefix_forget(&x, i);
    }
    for (uint32_t i = 0; i < N; i++) {
        random_ids(i, ids, PAGE);
        assert_int_equal(nw_prefix_find(&x, i / 3, ids), i % 2 == 0 ? NW_NO_PAGE : i);
    }
    nw_arena_release(&arena);
}

/* ---- sessions ---- */

/* Logits after ids[0..n), computed by an engine that has seen nothing else. */
static void logits_alone(int model, const int32_t *ids, uint32_t n, float *y)
{
    nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(model, &o);
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

static void feed_last(nw_engine *e, nw_session *s, const int32_t *ids, uint32_t n, float *y)
{
    nw_error err = {0};
    const nw_step_item it = {s, ids, n, 1, y};
    if (nw_engine_step(e, &it, 1, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
}

static void a_second_session_takes_over_the_pages(void **state)
{
    (void)state;
    for (int model = 0; model < N_MODELS; model++) {
        nw_engine_options o = fixture_options();
        nw_engine *e = fixture_engine(model, &o);
        float *want = new_logits(1);
        float *got = new_logits(1);
        int32_t ids[150];
        random_ids(3, ids, 150);
        logits_alone(model, ids, 150, want);

        nw_session *a = open_session(e);
        feed(e, a, ids, 100, NULL);
        feed(e, a, ids + 100, 50, NULL);
        const uint32_t free_pages = nw_engine_pages_free(e);
        nw_session *b = open_session(e);
        assert_int_equal(nw_session_attach(b, ids, 150), 2 * PAGE);
        assert_int_equal(nw_engine_pages_free(e), free_pages);
        assert_int_equal(nw_session_pages_needed(b, 150), 1);
        nw_session_close(a);
        feed_last(e, b, ids + 128, 22, got);
        assert_memory_equal(want, got, NW_TINY_VOCAB * sizeof *want);
        nw_session_close(b);
        assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));

        b = open_session(e); /* nobody holds them now, but they are remembered */
        assert_int_equal(nw_session_attach(b, ids, 128), PAGE); /* one token is left to run */
        assert_int_equal(nw_session_attach(b, ids, 150), 2 * PAGE);
        feed_last(e, b, ids + 128, 22, got);
        assert_memory_equal(want, got, NW_TINY_VOCAB * sizeof *want);
        nw_session_close(b);
        nw_engine_close(e);
        free(want);
        free(got);
    }
}

/* Two sessions share a full page, are cut inside it and go on differently. */
static void a_shared_page_is_copied_before_it_is_written(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(0, &o);
    float *want = new_logits(1);
    float *got = new_logits(1);
    int32_t ids[130];
    int32_t other[130];
    random_ids(4, ids, 130);
    memcpy(other, ids, sizeof other);
    random_ids(5, other + 100, 30);

    nw_session *a = open_session(e);
    nw_session *b = open_session(e);
    feed(e, a, ids, 128, NULL);
    assert_int_equal(nw_session_attach(b, ids, 129), 128);
    nw_session_truncate(b, 100);
    assert_int_equal(nw_session_pages_needed(b, 110), 1); /* the copy */
    const uint32_t free_pages = nw_engine_pages_free(e);
    feed_last(e, b, other + 100, 30, got);
    assert_int_equal(nw_engine_pages_free(e), free_pages - 2); /* and the page of tokens 128.. */
    logits_alone(0, other, 130, want);
    assert_memory_equal(want, got, NW_TINY_VOCAB * sizeof *want);
    feed_last(e, a, ids + 128, 2, got);
    logits_alone(0, ids, 130, want);
    assert_memory_equal(want, got, NW_TINY_VOCAB * sizeof *want);

    nw_session_truncate(a, 90); /* alone now: written in place, and not found any more */
    feed(e, a, other + 90, 10, NULL);
    nw_session *c = open_session(e);
    assert_int_equal(nw_session_attach(c, ids, 130), 64);
    nw_session_close(a);
    nw_session_close(b);
    nw_session_close(c);
    nw_engine_close(e);
    free(want);
    free(got);
}

/* Seeded sessions over few texts that begin alike, in a pool that is too small for them. */
static void nothing_that_is_done_changes_bits(void **state)
{
    (void)state;
    enum { N_SESSIONS = 3, MAX = 230, N_TEXTS = 4 };
    nw_engine_options o = fixture_options();
    nw_engine *probe = fixture_engine(0, &o);
    o.kv_bytes = (size_t)nw_engine_get_facts(probe)->kv_bytes_per_token * PAGE * 11;
    o.max_seqs = N_SESSIONS;
    o.max_step_tokens = 256;
    nw_engine_close(probe);
    nw_engine *e = fixture_engine(0, &o);
    nw_session *s[N_SESSIONS] = {NULL};
    int text[N_SESSIONS] = {0};
    static int32_t ids[N_TEXTS][MAX];
    float *want = new_logits(1);
    float *got = new_logits(1);
    nw_rng rng = nw_rng_seed(9);
    uint32_t shared = 0;

    random_ids(1, ids[0], MAX);
    for (int t = 1; t < N_TEXTS; t++) {
        memcpy(ids[t], ids[0], sizeof ids[t]);
        random_ids((uint64_t)t + 1, ids[t] + 50 * t, MAX - 50 * (size_t)t);
    }
    for (int step = 0; step < 120; step++) {
        const size_t i = nw_rng_below(&rng, N_SESSIONS);
        if (s[i] == NULL) {
            s[i] = open_session(e);
            text[i] = (int)nw_rng_below(&rng, N_TEXTS);
            shared += nw_session_attach(s[i], ids[text[i]], MAX);
        } else if (nw_rng_below(&rng, 4) == 0) {
            nw_session_close(s[i]);
            s[i] = NULL;
            continue;
        } else if (nw_rng_below(&rng, 3) == 0) {
            nw_session_truncate(s[i], (uint32_t)nw_rng_below(&rng, nw_session_len(s[i]) + 1));
        }
        const uint32_t len = nw_session_len(s[i]);
        if (len == MAX) {
            continue;
        }
        const uint32_t n = 1 + (uint32_t)nw_rng_below(&rng, MAX - len);
        const nw_step_item it = {s[i], ids[text[i]] + len, n, 1, got};
        nw_error err = {0};
        if (nw_engine_step(e, &it, 1, &err) == NW_E_BUSY) {
            continue;
        }
        logits_alone(0, ids[text[i]], len + n, want);
        assert_memory_equal(want, got, NW_TINY_VOCAB * sizeof *want);
    }
    assert_true(shared > 10 * PAGE);
    for (int i = 0; i < N_SESSIONS; i++) {
        nw_session_close(s[i]);
    }
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    nw_engine_close(e);
    free(want);
    free(got);
}

static bool no_logits(void *ctx, size_t pos, const float *logits)
{
    (void)pos;
    memcpy(ctx, logits, NW_TINY_VOCAB * sizeof *logits);
    return true;
}

/* Choices after one text: what they have in common is computed once. */
static void scores_share_what_is_not_asked_for(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(0, &o);
    float *want = new_logits(1);
    float *got = new_logits(1);
    nw_error err = {0};
    int32_t ids[150];
    random_ids(6, ids, 150);

    assert_int_equal(nw_engine_score(e, ids, 150, 140, no_logits, want, &err), NW_OK);
    nw_ledger_reset(nw_engine_ledger(e));
    assert_int_equal(nw_engine_score(e, ids, 150, 140, no_logits, got, &err), NW_OK);
    assert_memory_equal(want, got, NW_TINY_VOCAB * sizeof *want);
    nw_ledger_row rows[64];
    const size_t n = nw_ledger_snapshot(nw_engine_ledger(e), rows, NW_COUNT(rows));
    uint64_t run = 0;
    for (size_t i = 0; i < n; i++) {
        run += rows[i].op == NW_OP_EMBED ? rows[i].tokens : 0;
    }
    assert_int_equal(run, 150 - 2 * PAGE);
    nw_engine_close(e);
    free(want);
    free(got);
}

/* ---- requests ---- */

#define N_REQUESTS 12

typedef struct {
    int32_t out[8];
    uint32_t n;
} client;

static void on_event(void *ctx, const nw_sched_event *e)
{
    client *c = ctx;
    if (e->type == NW_SCHED_TOKEN) {
        c->out[c->n++] = e->id;
    }
}

/* Requests that differ in their last tokens only. */
static nw_sched_stats run_requests(const nw_engine_options *o, bool together, client *c)
{
    nw_engine *e = fixture_engine(0, o);
    nw_scheduler *s = NULL;
    nw_error err = {0};
    const nw_scheduler_options so = {.max_queue = N_REQUESTS};
    nw_sched_stats stats;
    int32_t ids[140];

    random_ids(7, ids, 140);
    assert_int_equal(nw_scheduler_open(e, &so, &s, &err), NW_OK);
    for (int i = 0; i < N_REQUESTS; i++) {
        uint64_t id = 0;
        ids[139] = i;
        const nw_sched_request r = {.prompt = ids,
                                    .n_prompt = 140,
                                    .max_tokens = 8,
                                    .sampling = nw_sampling_greedy(),
                                    .ignore_eos = true,
                                    .on_event = on_event,
                                    .ctx = &c[i]};
        assert_int_equal(nw_scheduler_submit(s, &r, &id, &err), NW_OK);
        if (!together) {
            nw_scheduler_drain(s);
        }
    }
    nw_scheduler_drain(s);
    nw_scheduler_stats(s, &stats);
    nw_scheduler_close(s);
    nw_engine_close(e);
    return stats;
}

static void requests_that_begin_alike_share(void **state)
{
    (void)state;
    static client alone[N_REQUESTS];
    static client crowd[N_REQUESTS];
    static client tight[N_REQUESTS];
    nw_engine_options o = fixture_options();

    nw_sched_stats st = run_requests(&o, false, alone);
    assert_int_equal(st.shared_tokens, (N_REQUESTS - 1) * 2 * PAGE);
    st = run_requests(&o, true, crowd);
    assert_int_equal(st.shared_tokens, (N_REQUESTS - 1) * 2 * PAGE); /* one computes, others wait */
    nw_engine *probe = fixture_engine(0, &o);
    o.kv_bytes = (size_t)nw_engine_get_facts(probe)->kv_bytes_per_token * PAGE * 5;
    nw_engine_close(probe);
    st = run_requests(&o, true,
                      tight); /* two pages in common and one of its own for each of three */
    assert_int_equal(st.completed, N_REQUESTS);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(alone[i].n, 8);
        assert_memory_equal(&alone[i], &crowd[i], sizeof alone[i]);
        assert_memory_equal(&alone[i], &tight[i], sizeof alone[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stand_for_all_tokens_before),
        cmocka_unit_test(every_page_can_be_found_and_forgotten),
        cmocka_unit_test(a_second_session_takes_over_the_pages),
        cmocka_unit_test(a_shared_page_is_copied_before_it_is_written),
        cmocka_unit_test(nothing_that_is_done_changes_bits),
        cmocka_unit_test(scores_share_what_is_not_asked_for),
        cmocka_unit_test(requests_that_begin_alike_share),
    };
    return cmocka_run_group_tests_name("prefix", tests, fixture_setup, fixture_teardown);
}
