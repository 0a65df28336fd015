/* Engine: what is refused, what a refusal leaves behind, what is counted, and that steps allocate
 * nothing (the link wraps malloc and its kin, see CMakeLists.txt).
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "artifact/artifact.h"
#include "base/file.h"
#include "engine/scheduler.h"
#include "engine_fixture.h"

/* ---- allocation counter; names are the linker's: __wrap_x is called in place of x ---- */

static atomic_size_t n_allocs;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

void *__wrap_malloc(size_t n)
{
    atomic_fetch_add(&n_allocs, 1);
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    atomic_fetch_add(&n_allocs, 1);
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    atomic_fetch_add(&n_allocs, 1);
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    atomic_fetch_add(&n_allocs, 1);
    return __real_aligned_alloc(align, n);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    for (int model = 0; model < N_MODELS; model++) {
        const nw_engine_options o = fixture_options();
        nw_engine *e = fixture_engine(model, &o);
        float *y = new_logits(1);
        int32_t ids[200];
        random_ids(1, ids, 200);
        nw_session *a = open_session(e);
        feed(e, a, ids, 1, y); /* the first step may set up what it likes */

        const size_t before = atomic_load(&n_allocs);
        assert_true(before > 0); /* the wrap works */
        nw_session *b = open_session(e);
        feed(e, a, ids, 120, NULL);
        feed(e, b, ids, 128, NULL);
        for (int i = 0; i < 40; i++) {
            feed(e, a, ids + i, 1, y);
            feed(e, b, ids + i, 1, y);
        }
        nw_session_truncate(a, 10);
        feed(e, a, ids, 100, NULL);
        nw_session_close(b);
        assert_int_equal(atomic_load(&n_allocs), before);

        nw_session_close(a);
        free(y);
        nw_engine_close(e);
    }
}

/* What has been allocated at a request's tokens. */
typedef struct {
    size_t at_first, at_last;
    uint32_t n;
} token_allocs;

static void count_at_tokens(void *ctx, const nw_sched_event *e)
{
    token_allocs *t = ctx;
    if (e->type == NW_SCHED_TOKEN) {
        t->at_last = atomic_load(&n_allocs);
        t->at_first = t->n++ == 0 ? t->at_last : t->at_first;
    }
}

/* Through the scheduler too: greedy, and sampled with every filter and top log-probabilities. */
static void requests_allocate_nothing_after_their_first_token(void **state)
{
    (void)state;
    const nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(0, &o);
    nw_scheduler *s = NULL;
    nw_error err = {0};
    const int32_t prompt[] = {1, 2, 3};

    assert_int_equal(nw_scheduler_open(e, &(nw_scheduler_options){0}, &s, &err), NW_OK);
    for (int sampled = 0; sampled < 2; sampled++) {
        token_allocs t = {0};
        uint64_t id = 0;
        nw_sched_request r = {.prompt = prompt,
                              .n_prompt = 3,
                              .max_tokens = 150, /* over page limits */
                              .sampling = nw_sampling_greedy(),
                              .ignore_eos = true,
                              .on_event = count_at_tokens,
                              .ctx = &t};
        if (sampled == 1) {
            r.n_top_logprobs = 4;
            r.sampling = (nw_sampling){.temperature = 0.8F,
                                       .top_p = 0.9F,
                                       .min_p = 0.01F,
                                       .repeat_penalty = 1.1F,
                                       .top_k = 40,
                                       .seed = 3};
        }
        assert_int_equal(nw_scheduler_submit(s, &r, &id, &err), NW_OK);
        nw_scheduler_drain(s);
        assert_int_equal(t.n, 150);
        assert_int_equal(t.at_last, t.at_first);
    }
    nw_scheduler_close(s);
    nw_engine_close(e);
}

/* ---- refusals ---- */

static void a_dry_pool_is_busy_and_changes_nothing(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    nw_engine *probe = fixture_engine(0, &o);
    o.kv_bytes = (size_t)nw_engine_get_facts(probe)->kv_bytes_per_token * 64 * 2; /* two pages */
    nw_engine_close(probe);

    nw_engine *e = fixture_engine(0, &o);
    float *want = new_logits(1);
    float *got = new_logits(1);
    int32_t ids[128];
    nw_error err = {0};
    random_ids(2, ids, 128);
    assert_int_equal(nw_engine_pages_total(e), 2);
    nw_session *a = open_session(e);
    nw_session *b = open_session(e);
    feed(e, a, ids, 64, NULL);
    feed(e, b, ids, 63, NULL);
    assert_int_equal(nw_engine_pages_free(e), 0);

    const nw_step_item both[] = {{b, ids, 1, 0, NULL}, {a, ids, 1, 0, NULL}};
    assert_int_equal(nw_engine_step(e, both, 2, &err), NW_E_BUSY);
    assert_non_null(strstr(err.message, "1 KV pages"));
    assert_int_equal(nw_session_len(a), 64);
    assert_int_equal(nw_session_len(b), 63);
    assert_int_equal(nw_engine_pages_free(e), 0);
    feed(e, b, ids + 63, 1, want); /* the page that b has still takes its 64th token */

    nw_session_close(b);
    assert_int_equal(nw_engine_pages_free(e), 1);
    b = open_session(e);
    feed(e, b, ids, 63, NULL);
    feed(e, b, ids + 63, 1, got);
    assert_memory_equal(want, got, NW_TINY_VOCAB * sizeof *want);
    nw_session_close(a);
    nw_session_close(b);
    nw_engine_close(e);
    free(want);
    free(got);
}

static void bad_steps_are_refused_by_name(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    o.n_ctx = 100;
    nw_engine *e = fixture_engine(0, &o);
    nw_session *s = open_session(e);
    int32_t good[200] = {0};
    const int32_t negative[] = {1, -1};
    const int32_t large[] = {NW_TINY_VOCAB};
    float *y = new_logits(4);
    nw_session *other = open_session(e);
    const struct {
        nw_step_item items[2];
        size_t n;
        const char *says;
    } bad[] = {
        {{{s, negative, 2, 0, NULL}}, 1, "token id -1"},
        {{{s, large, 1, 0, NULL}}, 1, "token id 260 is not in [0, 260)"},
        {{{s, good, 0, 0, NULL}}, 1, "0 logits wanted of 0 tokens"},
        {{{s, good, 1, 2, y}}, 1, "2 logits wanted of 1"},
        {{{s, good, 101, 0, NULL}}, 1, "context of 100"},
        {{{s, good, 1, 0, NULL}, {s, good, 1, 0, NULL}}, 2, "item 1: its session"},
        {{{s, good, 99, 0, NULL}, {other, good, 99, 0, NULL}}, 2, "198 tokens, at most 128"},
        {{{s, good, 1, 0, NULL}}, 0, "0 items"},
    };
    for (size_t i = 0; i < NW_COUNT(bad); i++) {
        nw_error err = {0};
        assert_int_equal(nw_engine_step(e, bad[i].items, bad[i].n, &err), NW_E_RANGE);
        if (strstr(err.message, bad[i].says) == NULL) {
            fail_msg("row %zu says: %s", i, err.message);
        }
        assert_int_equal(nw_session_len(s), 0);
        assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    }
    nw_session_close(s);
    nw_session_close(other);
    nw_engine_close(e);
    free(y);
}

static void bad_options_are_refused_by_name(void **state)
{
    (void)state;
    const nw_engine_options good = fixture_options();
    struct {
        nw_engine_options o;
        const char *says;
    } bad[] = {
        {good, "max_seqs is 0"}, {good, "max_seqs is 257"}, {good, "max_step_tokens is 3"},
        {good, "n_ctx is 257"},  {good, "tier 'mmx'"},      {good, "holds no page"},
        {good, "no such kind"},
    };
    bad[0].o.max_seqs = 0;
    bad[1].o.max_seqs = 257;
    bad[2].o.max_step_tokens = 3;
    bad[3].o.n_ctx = 257;
    bad[4].o.tier = "mmx";
    bad[5].o.kv_bytes = 100;
    bad[6].o.kv_k = 99;
    for (size_t i = 0; i < NW_COUNT(bad); i++) {
        nw_error err = {0};
        nw_engine *e = NULL;
        assert_int_not_equal(nw_engine_open(fixture_path[0], &bad[i].o, &e, &err), NW_OK);
        assert_null(e);
        if (strstr(err.message, bad[i].says) == NULL) {
            fail_msg("row %zu says: %s", i, err.message);
        }
    }
}

static void kv_names_parse(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    nw_error err = {0};
    assert_int_equal(nw_engine_kv_parse("int8/bf16", &o, &err), NW_OK);
    assert_int_equal(o.kv_k, NW_KV_INT8);
    assert_int_equal(o.kv_v, NW_KV_BF16);
    assert_int_equal(nw_engine_kv_parse("f32", &o, &err), NW_OK);
    assert_int_equal(o.kv_k, NW_KV_F32);
    assert_int_equal(o.kv_v, NW_KV_F32);
    assert_int_equal(nw_engine_kv_parse("fp8/int4", &o, &err), NW_OK);
    assert_int_equal(o.kv_k, NW_KV_FP8);
    assert_int_equal(o.kv_v, NW_KV_INT4);
    static const char *const bad[] = {"", "/", "int8/", "/int8", "int3", "int8/bf16/f32", "INT8"};
    for (size_t i = 0; i < NW_COUNT(bad); i++) {
        assert_int_equal(nw_engine_kv_parse(bad[i], &o, &err), NW_E_RANGE);
    }
}

static bool stop_at_5(void *ctx, size_t pos, const float *logits)
{
    (void)logits;
    *(size_t *)ctx = pos;
    return pos < 5;
}

static void sessions_run_out(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    o.max_seqs = 2;
    nw_engine *e = fixture_engine(0, &o);
    nw_session *a = open_session(e);
    nw_session *b = open_session(e);
    nw_session *c = NULL;
    nw_error err = {0};
    assert_int_equal(nw_session_open(e, &c, &err), NW_E_BUSY);
    const int32_t id = 1;
    size_t last = 7;
    assert_int_equal(nw_engine_score(e, &id, 1, 0, stop_at_5, &last, &err), NW_OK);
    assert_int_equal(last, 0);
    nw_session_close(a);
    assert_int_equal(nw_session_open(e, &c, &err), NW_OK);
    nw_session_close(b);
    nw_session_close(c);
    nw_engine_close(e);
}

static void score_limits(void **state)
{
    (void)state;
    const nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(0, &o);
    int32_t ids[300] = {0};
    size_t last = 0;
    nw_error err = {0};
    assert_int_equal(nw_engine_score(e, ids, 0, 0, stop_at_5, &last, &err), NW_E_RANGE);
    assert_int_equal(nw_engine_score(e, ids, 10, 10, stop_at_5, &last, &err), NW_E_RANGE);
    assert_int_equal(nw_engine_score(e, ids, 257, 0, stop_at_5, &last, &err), NW_E_RANGE);
    assert_int_equal(nw_engine_score(e, ids, 100, 2, stop_at_5, &last, &err), NW_E_CANCELLED);
    assert_int_equal(last, 5);
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    nw_engine_close(e);
}

/* ---- ledger and facts ---- */

static const nw_ledger_row *find_row(const nw_ledger_row *rows, size_t n, nw_op op, int32_t layer,
                                     nw_phase phase)
{
    for (size_t i = 0; i < n; i++) {
        if (rows[i].op == op && rows[i].layer == layer && rows[i].phase == phase) {
            return &rows[i];
        }
    }
    return NULL;
}

static void the_ledger_counts_what_ran(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    o.tier = "ref";
    nw_engine *e = fixture_engine(0, &o);
    nw_session *s = open_session(e);
    int32_t ids[100];
    nw_ledger_row rows[128];
    float *y = new_logits(1);
    random_ids(3, ids, 100);
    feed(e, s, ids, 80, NULL);
    for (int i = 0; i < 3; i++) {
        feed(e, s, ids + 80 + i, 1, y);
    }
    const size_t n = nw_ledger_snapshot(nw_engine_ledger(e), rows, NW_COUNT(rows));
    /* prefill without logits: embed and 10 ops in each of 2 layers; decode: norm and head too */
    assert_int_equal(n, (1 + 2 * 10) + (3 + 2 * 10));
    const nw_ledger_row *down = find_row(rows, n, NW_OP_DOWN, 1, NW_PHASE_DECODE);
    assert_non_null(down);
    assert_int_equal(down->calls, 3);
    assert_int_equal(down->tokens, 3);
    assert_int_equal(down->bytes, 3 * 48 * 56 * 4); /* 40 rows padded to 48, F32 */
    assert_int_equal(down->bytes_converted, 0);
    assert_string_equal(down->shape, "40x56");
    assert_string_equal(down->used, "ref f32 x f32");
    assert_string_equal(down->used, down->intended);
    const nw_ledger_row *qkv = find_row(rows, n, NW_OP_QKV, 0, NW_PHASE_PREFILL);
    assert_non_null(qkv);
    assert_int_equal(qkv->tokens, 80);
    assert_string_equal(qkv->op_name, "qkv");
    assert_string_equal(qkv->phase_name, "prefill");
    assert_null(find_row(rows, n, NW_OP_HEAD, -1, NW_PHASE_PREFILL));
    assert_non_null(find_row(rows, n, NW_OP_HEAD, -1, NW_PHASE_DECODE));
    assert_int_equal(nw_ledger_snapshot(nw_engine_ledger(e), rows, 1), n); /* cut, but counted */

    nw_ledger_reset(nw_engine_ledger(e));
    assert_int_equal(nw_ledger_snapshot(nw_engine_ledger(e), rows, NW_COUNT(rows)), 0);
    nw_session_close(s);
    nw_engine_close(e);
    free(y);
}

static void facts_add_up(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    o.max_seqs = 3;
    nw_engine *e = fixture_engine(0, &o);
    const nw_engine_facts *f = nw_engine_get_facts(e);
    assert_int_equal(f->n_ctx, 256);
    assert_int_equal(f->page_tokens, 64);
    assert_int_equal(f->kv_capacity_tokens, 3 * 256);
    assert_int_equal(f->kv_pool_bytes, f->kv_bytes_per_token * f->kv_capacity_tokens);
    /* K and V, 2 layers, 2 kv heads, 10 values of 4 bytes: at least */
    assert_true(f->kv_bytes_per_token >= (uint64_t)2 * 2 * 2 * 10 * 4);
    assert_true(f->weight_bytes > 0 && f->embed_bytes > 0 && f->workspace_bytes > 0);
    assert_non_null(strstr(f->kernel_map, "attention"));
    nw_engine_close(e);

    o.tier = "ref";
    e = fixture_engine(1, &o);
    assert_int_equal(nw_engine_get_facts(e)->embed_bytes, 0); /* tied: the head is counted */
    assert_string_equal(nw_engine_get_facts(e)->tier, "ref");
    nw_engine_close(e);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(requests_allocate_nothing_after_their_first_token),
        cmocka_unit_test(a_dry_pool_is_busy_and_changes_nothing),
        cmocka_unit_test(bad_steps_are_refused_by_name),
        cmocka_unit_test(bad_options_are_refused_by_name),
        cmocka_unit_test(kv_names_parse),
        cmocka_unit_test(sessions_run_out),
        cmocka_unit_test(score_limits),
        cmocka_unit_test(the_ledger_counts_what_ran),
        cmocka_unit_test(facts_add_up),
    };
    return cmocka_run_group_tests_name("engine_limits", tests, fixture_setup, fixture_teardown);
}
