/* Engine: the same bits however tokens are cut into steps, batches and threads; the right values;
 * errors that change nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "engine_fixture.h"
#include "naive_model.h"

#define N_IDS 132 /* three pages, the last one just begun */

/* Every way of running that must give its own bits again: model x tier x formats. */
typedef struct {
    const char *name;
    int model;
    const char *kv;
    int act;
} setup_row;

static setup_row setups[] = {
    {"int8_w8a8", 2, "int8", -1},
    {"int4_a16", 3, "bf16", -1},
    {"int4_a8", 3, "f32", 1},
    {"bf16", 4, "bf16", -1},
    {"llama_f32", 0, "f32", -1},
    {"llama_bf16", 0, "bf16", 0},
    {"llama_int8_a8", 0, "int8", 1},
    {"gemma3_f32", 1, "f32", -1},
    {"gemma3_int8_bf16", 1, "int8/bf16", 0},
    {"qwen2_f32", 5, "f32", -1},
    {"qwen3_f32", 6, "f32", -1},
    {"qwen3_int8_a8", 6, "int8", 1},
    {"mistral_f32", 7, "f32", -1},
};

static nw_engine_options options_of(const setup_row *r, const char *tier, unsigned n_threads)
{
    nw_error err = {0};
    nw_engine_options o = fixture_options();
    assert_int_equal(nw_engine_kv_parse(r->kv, &o, &err), NW_OK);
    o.tier = tier;
    o.act = r->act;
    o.n_threads = n_threads;
    return o;
}

/* Calls fn for each tier that this CPU runs. */
static void each_tier(const setup_row *r, void (*fn)(const setup_row *r, const char *tier))
{
    size_t n = 0;
    const nw_kernels *const *list = nw_kernels_list(&n);
    for (size_t i = 0; i < n; i++) {
        if ((list[i]->need & nw_cpu_features()) == list[i]->need) {
            fn(r, list[i]->tier);
        }
    }
}

/* Logits of ids [N_IDS], token by token: the definition. */
static float *one_by_one(nw_engine *e, const int32_t *ids)
{
    float *y = new_logits(N_IDS);
    nw_session *s = open_session(e);
    for (size_t i = 0; i < N_IDS; i++) {
        feed(e, s, ids + i, 1, y + i * NW_TINY_VOCAB);
    }
    nw_session_close(s);
    return y;
}

static void same_bits(const float *a, const float *b, size_t n_rows)
{
    assert_memory_equal(a, b, n_rows * NW_TINY_VOCAB * sizeof *a);
}

static void chunks_for(const setup_row *r, const char *tier)
{
    const nw_engine_options o = options_of(r, tier, 2);
    nw_engine *e = fixture_engine(r->model, &o);
    int32_t ids[N_IDS];
    random_ids(1, ids, N_IDS);
    float *want = one_by_one(e, ids);
    float *got = new_logits(N_IDS);
    nw_session *s = open_session(e);
    static const size_t cuts[] = {7, 64, 1, 52, 8};
    size_t at = 0;

    for (size_t i = 0; i < NW_COUNT(cuts); i++) {
        feed(e, s, ids + at, cuts[i], got + at * NW_TINY_VOCAB);
        at += cuts[i];
    }
    assert_int_equal(at, N_IDS);
    assert_int_equal(nw_session_len(s), N_IDS);
    same_bits(want, got, N_IDS);
    free(want);
    free(got);
    nw_session_close(s);
    nw_engine_close(e);
}

static void chunks_equal_single_tokens(void **state)
{
    each_tier(*state, chunks_for);
}

/* Three sessions at different depths, decoding and reading prompts in the same steps. */
static void batch_for(const setup_row *r, const char *tier)
{
    const nw_engine_options o = options_of(r, tier, 2);
    nw_engine *e = fixture_engine(r->model, &o);
    int32_t ids[3][N_IDS];
    float *want[3];
    float *got[3];
    size_t at[3] = {0};
    nw_session *s[3];
    nw_error err = {0};

    for (int k = 0; k < 3; k++) {
        random_ids(20 + (uint64_t)k, ids[k], N_IDS);
        want[k] = one_by_one(e, ids[k]);
        got[k] = new_logits(N_IDS);
        s[k] = open_session(e);
    }
    for (size_t step = 0; at[0] < N_IDS || at[1] < N_IDS || at[2] < N_IDS; step++) {
        const size_t cut[3] = {1, 1 + step % 40, step < 3 ? 1 : 23};
        nw_step_item items[3];
        size_t n = 0;
        for (size_t k = 0; k < 3; k++) {
            const size_t left = N_IDS - at[k];
            const size_t m = cut[k] < left ? cut[k] : left;
            if (m > 0) {
                items[n++] = (nw_step_item){s[k], ids[k] + at[k], (uint32_t)m, (uint32_t)m,
                                            got[k] + at[k] * NW_TINY_VOCAB};
                at[k] += m;
            }
        }
        assert_int_equal(nw_engine_step(e, items, n, &err), NW_OK);
    }
    for (int k = 0; k < 3; k++) {
        same_bits(want[k], got[k], N_IDS);
        free(want[k]);
        free(got[k]);
        nw_session_close(s[k]);
    }
    nw_engine_close(e);
}

static void a_batch_equals_each_alone(void **state)
{
    each_tier(*state, batch_for);
}

static void threads_for(const setup_row *r, const char *tier)
{
    int32_t ids[N_IDS];
    float *y[3];

    random_ids(3, ids, N_IDS);
    for (unsigned t = 0; t < 3; t++) {
        const nw_engine_options o = options_of(r, tier, t + 1);
        nw_engine *e = fixture_engine(r->model, &o);
        nw_session *s = open_session(e);
        assert_int_equal(nw_engine_get_facts(e)->n_threads, t + 1);
        y[t] = new_logits(N_IDS);
        feed(e, s, ids, 100, y[t]);
        for (size_t i = 100; i < N_IDS; i++) {
            feed(e, s, ids + i, 1, y[t] + i * NW_TINY_VOCAB);
        }
        nw_session_close(s);
        nw_engine_close(e);
    }
    same_bits(y[0], y[1], N_IDS);
    same_bits(y[0], y[2], N_IDS);
    for (int t = 0; t < 3; t++) {
        free(y[t]);
    }
}

static void threads_do_not_change_bits(void **state)
{
    each_tier(*state, threads_for);
}

/* F32 weights, activations and KV: what differs from doubles is rounding of about 20 operations a
 * layer at 2^-24 each, amplified by norms and softmax of values near 1: 1e-4 of the largest logit
 * is a hundred times that, and a wrong mask, head or angle moves logits by their own size. */
static void naive_for(const setup_row *r, const char *tier)
{
    const nw_engine_options o = options_of(r, tier, 2);
    nw_engine *e = fixture_engine(r->model, &o);
    int32_t ids[N_IDS];
    random_ids(4, ids, N_IDS);
    float *got = one_by_one(e, ids);
    double *want = nw_naive_logits(fixture_path[r->model], ids, N_IDS);
    double largest = 0;
    double worst = 0;

    for (size_t i = 0; i < (size_t)N_IDS * NW_TINY_VOCAB; i++) {
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, fabs(want[i] - (double)got[i]));
    }
    if (worst > 1e-4 * largest) {
        fail_msg("tier %s: logits up to %g differ by %g", tier, largest, worst);
    }
    assert_true(largest > 0.5);
    free(got);
    free(want);
    nw_engine_close(e);
}

static void logits_equal_the_naive_model(void **state)
{
    const setup_row *r = *state;
    if ((r->model >= N_MODELS && r->model < N_MODELS + N_ARTIFACTS) || strcmp(r->kv, "f32") != 0) {
        skip(); /* the naive model has F32 weights and KV */
    }
    each_tier(r, naive_for);
}

static void truncate_for(const setup_row *r, const char *tier)
{
    const nw_engine_options o = options_of(r, tier, 2);
    nw_engine *e = fixture_engine(r->model, &o);
    static const uint32_t keep[] = {37, 64, 0, 65};
    int32_t ids[N_IDS];
    int32_t other[N_IDS];
    random_ids(5, ids, N_IDS);
    random_ids(6, other, N_IDS);
    float *want = one_by_one(e, ids);
    nw_session *s = open_session(e);

    for (size_t i = 0; i < NW_COUNT(keep); i++) {
        nw_session_truncate(s, 0);
        feed(e, s, other, 128, NULL);
        nw_session_truncate(s, 0);
        feed(e, s, ids, keep[i] > 0 ? keep[i] : 1, NULL);
        feed(e, s, other, 60, NULL); /* to be forgotten */
        nw_session_truncate(s, keep[i]);
        assert_int_equal(nw_session_len(s), keep[i]);
        float *got = new_logits(N_IDS - keep[i]);
        for (size_t t = keep[i]; t < N_IDS; t++) {
            feed(e, s, ids + t, 1, got + (t - keep[i]) * NW_TINY_VOCAB);
        }
        same_bits(want + (size_t)keep[i] * NW_TINY_VOCAB, got, N_IDS - keep[i]);
        free(got);
    }
    free(want);
    nw_session_close(s);
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    nw_engine_close(e);
}

static void truncate_forgets_the_tail_only(void **state)
{
    each_tier(*state, truncate_for);
}

typedef struct {
    const float *want;
    size_t first, next;
} score_check;

static bool check_row(void *ctx, size_t pos, const float *logits)
{
    score_check *c = ctx;
    assert_int_equal(pos, c->next);
    same_bits(c->want + pos * NW_TINY_VOCAB, logits, 1);
    c->next++;
    return true;
}

static void score_for(const setup_row *r, const char *tier)
{
    const nw_engine_options o = options_of(r, tier, 2);
    nw_engine *e = fixture_engine(r->model, &o);
    static const size_t firsts[] = {0, 1, 75, N_IDS - 1};
    int32_t ids[N_IDS];
    nw_error err = {0};
    random_ids(7, ids, N_IDS);
    float *want = one_by_one(e, ids);

    for (size_t i = 0; i < NW_COUNT(firsts); i++) {
        score_check c = {.want = want, .next = firsts[i]};
        assert_int_equal(nw_engine_score(e, ids, N_IDS, firsts[i], check_row, &c, &err), NW_OK);
        assert_int_equal(c.next, N_IDS);
    }
    free(want);
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    nw_engine_close(e);
}

static void scores_are_the_logits_of_steps(void **state)
{
    each_tier(*state, score_for);
}

/* The manifest's activation mode is used unless another is asked for, and the ledger says so. */
static void activations_follow_the_manifest(void **state)
{
    (void)state;
    static const struct {
        int model, act;
        bool a8;
        const char *used; /* of the down projection */
    } want[] = {
        {2, -1, true, "int8 x int8"},     {2, 0, false, "int8 x f32"},
        {3, -1, false, "int4-g32 x f32"}, {3, 1, true, "int4-g32 x int8"},
        {4, 1, true, "bf16 x f32"},
    };
    for (size_t i = 0; i < NW_COUNT(want); i++) {
        nw_engine_options o = fixture_options();
        nw_ledger_row rows[64];
        int32_t id = 5;
        o.tier = "ref";
        o.act = want[i].act;
        nw_engine *e = fixture_engine(want[i].model, &o);
        nw_session *s = open_session(e);
        feed(e, s, &id, 1, NULL);
        const size_t n = nw_ledger_snapshot(nw_engine_ledger(e), rows, NW_COUNT(rows));
        bool found = false;
        for (size_t k = 0; k < n; k++) {
            if (rows[k].op == NW_OP_DOWN) {
                found = true;
                assert_non_null(strstr(rows[k].used, want[i].used));
                assert_string_equal(rows[k].used, rows[k].intended);
            }
            if (rows[k].op == NW_OP_DOWN_PACK) {
                assert_int_equal(rows[k].bytes_converted > 0, want[i].a8 && want[i].model != 4);
            }
        }
        assert_true(found);
        assert_int_equal(nw_engine_get_facts(e)->act == NW_ACT_RULE_A8, want[i].a8);
        nw_session_close(s);
        nw_engine_close(e);
    }
}

/* Where nobody says otherwise: F32 of an F32 model, BF16 of one in BF16 and of what was quantized. */
static void keys_and_values_are_as_wide_as_the_model(void **state)
{
    static const struct {
        int model;
        const char *kv;
    } want[] = {{0, "f32"}, {2, "bf16"}, {3, "bf16"}, {4, "bf16"}};
    (void)state;
    for (size_t i = 0; i < NW_COUNT(want); i++) {
        const nw_engine_options o = fixture_options();
        nw_engine *e = fixture_engine(want[i].model, &o);
        assert_string_equal(nw_engine_get_facts(e)->kv_k, want[i].kv);
        assert_string_equal(nw_engine_get_facts(e)->kv_v, want[i].kv);
        nw_engine_close(e);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_follow_the_manifest),
        cmocka_unit_test(keys_and_values_are_as_wide_as_the_model),
    };
    int failed = 0;

    (void)fixture_setup(NULL);
    fixture_quantize();
    failed += NW_RUN_TABLE("chunks_equal_single_tokens", setups, chunks_equal_single_tokens);
    failed += NW_RUN_TABLE("a_batch_equals_each_alone", setups, a_batch_equals_each_alone);
    failed += NW_RUN_TABLE("threads_do_not_change_bits", setups, threads_do_not_change_bits);
    failed += NW_RUN_TABLE("logits_equal_the_naive_model", setups, logits_equal_the_naive_model);
    failed +=
        NW_RUN_TABLE("truncate_forgets_the_tail_only", setups, truncate_forgets_the_tail_only);
    failed +=
        NW_RUN_TABLE("scores_are_the_logits_of_steps", setups, scores_are_the_logits_of_steps);
    failed += cmocka_run_group_tests_name("activations", tests, NULL, NULL);
    (void)fixture_teardown(NULL);
    return failed;
}
