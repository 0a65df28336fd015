/* Sampler: which ids can be drawn, how often, and what log-probability is reported.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "engine/sampler.h"
#include "table.h"

/* Probabilities 0.4 0.3 0.15 0.1 0.05 in shuffled order: id 2 is the most likely. */
#define N_VOCAB 5
static const double prob[N_VOCAB] = {0.10, 0.30, 0.40, 0.05, 0.15};
#define N_DRAWS 20000

static struct row {
    const char *name;
    nw_sampling s;
    int32_t seen; /* id in the history, or -1 */
    double want[N_VOCAB];
} rows[] = {
    {"greedy_takes_the_largest", {0, 1, 0, 1, 0, 1}, -1, {0, 0, 1, 0, 0}},
    {"temperature_1_is_the_model", {1, 1, 0, 1, 0, 1}, -1, {0.10, 0.30, 0.40, 0.05, 0.15}},
    /* squares 0.01 0.09 0.16 0.0025 0.0225, sum 0.285 */
    {"temperature_half_squares",
     {0.5F, 1, 0, 1, 0, 2},
     -1,
     {0.01 / 0.285, 0.09 / 0.285, 0.16 / 0.285, 0.0025 / 0.285, 0.0225 / 0.285}},
    {"top_k_2_renormalises", {1, 1, 0, 1, 2, 3}, -1, {0, 3.0 / 7, 4.0 / 7, 0, 0}},
    {"top_k_1_is_greedy", {1, 1, 0, 1, 1, 3}, -1, {0, 0, 1, 0, 0}},
    {"top_k_past_the_vocabulary_is_off", {1, 1, 0, 1, 9, 1}, -1, {0.10, 0.30, 0.40, 0.05, 0.15}},
    /* 0.4 + 0.3 < 0.75 <= 0.4 + 0.3 + 0.15 */
    {"top_p_keeps_the_one_that_crosses",
     {1, 0.75F, 0, 1, 0, 4},
     -1,
     {0, 0.30 / 0.85, 0.40 / 0.85, 0, 0.15 / 0.85}},
    {"top_p_tiny_is_greedy", {1, 1e-6F, 0, 1, 0, 4}, -1, {0, 0, 1, 0, 0}},
    /* of the two that top-k leaves, 4/7 >= 0.5 */
    {"top_p_counts_what_top_k_left", {1, 0.5F, 0, 1, 2, 4}, -1, {0, 0, 1, 0, 0}},
    /* at least 0.3 of 0.4 = 0.12 */
    {"min_p_is_a_share_of_the_first",
     {1, 1, 0.3F, 1, 0, 5},
     -1,
     {0, 0.30 / 0.85, 0.40 / 0.85, 0, 0.15 / 0.85}},
    {"penalty_moves_greedy_to_the_second", {0, 1, 0, 1.5F, 0, 1}, 2, {0, 1, 0, 0, 0}},
    {"penalty_below_1_favours_a_seen_id", {0, 1, 0, 0.5F, 0, 1}, 1, {0, 1, 0, 0, 0}},
};

/* ln p: negative, so that a penalty multiplies. */
static void fill_logits(float *logits)
{
    for (int i = 0; i < N_VOCAB; i++) {
        logits[i] = (float)log(prob[i]);
    }
}

static nw_pick pick(const nw_sampler *s, nw_sampler_scratch *scratch, const float *logits,
                    uint64_t index, uint32_t n_top)
{
    nw_error err = {0};
    nw_pick p = {.id = -1};
    assert_int_equal(nw_sampler_pick(s, scratch, logits, index, n_top, &p, &err), NW_OK);
    return p;
}

static void frequencies(void **state)
{
    const struct row *r = *state;
    nw_error err = {0};
    nw_sampler *s = NULL;
    nw_sampler_scratch *scratch = NULL;
    float logits[N_VOCAB];
    uint32_t count[N_VOCAB] = {0};

    fill_logits(logits);
    assert_int_equal(nw_sampler_open(&r->s, N_VOCAB, &s, &err), NW_OK);
    assert_int_equal(nw_sampler_scratch_open(N_VOCAB, &scratch, &err), NW_OK);
    if (r->seen >= 0) {
        nw_sampler_saw(s, &r->seen, 1);
    }
    for (uint64_t k = 0; k < N_DRAWS; k++) {
        const nw_pick p = pick(s, scratch, logits, k, 0);
        assert_in_range(p.id, 0, N_VOCAB - 1);
        assert_true(fabs((double)p.logprob - log(prob[p.id])) < 1e-6);
        count[p.id]++;
    }
    for (int i = 0; i < N_VOCAB; i++) {
        /* five standard deviations of a binomial: a false alarm in 1.7 million */
        const double sd = sqrt(r->want[i] * (1 - r->want[i]) / N_DRAWS);
        assert_true(fabs((double)count[i] / N_DRAWS - r->want[i]) <= 5 * sd);
    }
    nw_sampler_scratch_close(scratch);
    nw_sampler_close(s);
}

#define N_BIG 300

/* Top log-probabilities are the model's, whatever top-p leaves, and most likely first. */
static void top_logprobs_are_before_sampling(void **state)
{
    (void)state;
    const nw_sampling settings = {.temperature = 2, .top_p = 0.3F, .repeat_penalty = 1.2F};
    nw_error err = {0};
    nw_sampler *s = NULL;
    nw_sampler_scratch *scratch = NULL;
    float logits[N_BIG];
    double sum = 0;

    for (int i = 0; i < N_BIG; i++) {
        logits[i] = (float)sin(i * 1.7) * 6;
    }
    assert_int_equal(nw_sampler_open(&settings, N_BIG, &s, &err), NW_OK);
    assert_int_equal(nw_sampler_scratch_open(N_BIG, &scratch, &err), NW_OK);
    const nw_pick p = pick(s, scratch, logits, 0, 20);
    assert_int_equal(p.n_top, 20);
    for (int i = 0; i < N_BIG; i++) {
        sum += exp((double)logits[i]);
    }
    double mass = 0;
    for (uint32_t i = 0; i < p.n_top; i++) {
        const double want = (double)logits[p.top[i].id] - log(sum);
        assert_true(fabs((double)p.top[i].logprob - want) < 1e-5);
        assert_true(i == 0 || p.top[i].logprob <= p.top[i - 1].logprob);
        mass += exp((double)p.top[i].logprob);
    }
    assert_true(mass <= 1 && mass > 0);
    for (int i = 0; i < N_BIG; i++) {
        int among = 0;
        for (uint32_t k = 0; k < p.n_top; k++) {
            among += p.top[k].id == i;
        }
        assert_true(among == 1 || (double)logits[i] - log(sum) <= (double)p.top[19].logprob + 1e-5);
    }
    nw_sampler_scratch_close(scratch);
    nw_sampler_close(s);
}

static void draws_depend_on_seed_and_index_only(void **state)
{
    (void)state;
    nw_sampling a = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 7};
    nw_error err = {0};
    nw_sampler *s[3] = {0};
    nw_sampler_scratch *scratch = NULL;
    float logits[N_VOCAB];
    int differ = 0;

    fill_logits(logits);
    assert_int_equal(nw_sampler_scratch_open(N_VOCAB, &scratch, &err), NW_OK);
    for (int i = 0; i < 3; i++) {
        a.seed = i < 2 ? 7 : 8;
        assert_int_equal(nw_sampler_open(&a, N_VOCAB, &s[i], &err), NW_OK);
    }
    for (uint64_t k = 0; k < 100; k++) {
        const int32_t first = pick(s[0], scratch, logits, k, 0).id;
        /* the other sampler draws its outputs backwards */
        (void)pick(s[1], scratch, logits, 99 - k, 0);
        assert_int_equal(first, pick(s[1], scratch, logits, k, 0).id);
        differ += first != pick(s[2], scratch, logits, k, 0).id;
    }
    assert_true(differ > 20); /* two independent draws agree with probability 0.29 */
    for (int i = 0; i < 3; i++) {
        nw_sampler_close(s[i]);
    }
    nw_sampler_scratch_close(scratch);
}

static void equal_logits_give_the_lowest_id(void **state)
{
    (void)state;
    const nw_sampling g = nw_sampling_greedy();
    const float logits[N_VOCAB] = {1, 2, 2, 2, 0};
    nw_error err = {0};
    nw_sampler *s = NULL;
    nw_sampler_scratch *scratch = NULL;

    assert_int_equal(nw_sampler_open(&g, N_VOCAB, &s, &err), NW_OK);
    assert_int_equal(nw_sampler_scratch_open(N_VOCAB, &scratch, &err), NW_OK);
    assert_int_equal(pick(s, scratch, logits, 0, 0).id, 1);
    nw_sampler_scratch_close(scratch);
    nw_sampler_close(s);
}

static void logits_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    const nw_sampling g = nw_sampling_greedy();
    const float logits[N_VOCAB] = {1, 2, NAN, 2, 0};
    nw_error err = {0};
    nw_pick p = {.id = 77};
    nw_sampler *s = NULL;
    nw_sampler_scratch *scratch = NULL;

    assert_int_equal(nw_sampler_open(&g, N_VOCAB, &s, &err), NW_OK);
    assert_int_equal(nw_sampler_scratch_open(N_VOCAB, &scratch, &err), NW_OK);
    assert_int_equal(nw_sampler_pick(s, scratch, logits, 3, 0, &p, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "id 2"));
    assert_int_equal(p.id, 77);
    nw_sampler_scratch_close(scratch);
    nw_sampler_close(s);
}

static void settings_out_of_range_are_named(void **state)
{
    (void)state;
    static const struct {
        nw_sampling s;
        const char *field;
    } bad[] = {
        {{-1, 1, 0, 1, 0, 0}, "temperature"},
        {{NAN, 1, 0, 1, 0, 0}, "temperature"},
        {{1, 0, 0, 1, 0, 0}, "top_p"},
        {{1, 1.5F, 0, 1, 0, 0}, "top_p"},
        {{1, 1, -0.1F, 1, 0, 0}, "min_p"},
        {{1, 1, 0, 0, 0, 0}, "repeat_penalty"},
        {{1, 1, 0, INFINITY, 0, 0}, "repeat_penalty"},
    };
    for (size_t i = 0; i < NW_COUNT(bad); i++) {
        nw_error err = {0};
        nw_sampler *s = NULL;
        assert_int_equal(nw_sampler_open(&bad[i].s, N_VOCAB, &s, &err), NW_E_RANGE);
        assert_non_null(strstr(err.message, bad[i].field));
        assert_null(s);
    }
}

/* Against long double sums over spreads from a flat row to one that underflows. */
static void log_sum_exp_is_exact_to_float(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 3, 16, 255, 256, 257, 5000};
    static const float spreads[] = {0, 1e-3F, 1, 12, 60, 400};
    float *x = calloc(5000, sizeof *x);
    nw_rng rng = nw_rng_seed(5);

    assert_non_null(x);
    for (size_t a = 0; a < NW_COUNT(lengths); a++) {
        for (size_t b = 0; b < NW_COUNT(spreads); b++) {
            const size_t n = lengths[a];
            long double sum = 0;
            size_t best = 0;
            for (size_t i = 0; i < n; i++) {
                x[i] = 7 + spreads[b] * (float)(2 * nw_rng_unit(&rng) - 1);
                best = x[i] > x[best] ? i : best;
            }
            for (size_t i = 0; i < n; i++) {
                sum += expl((long double)x[i] - (long double)x[best]);
            }
            const double want = (double)(logl(sum) + (long double)x[best]);
            /* terms err by 2^-22 and are positive, so their sum and its logarithm do too */
            assert_true(fabs(nw_log_sum_exp(x, n) - want) <= 0x1p-22 + 1e-15 * fabs(want));
            assert_int_equal(nw_argmax(x, n), best);
            assert_true(nw_all_finite(x, n));
            x[n - 1] = b % 2 == 0 ? NAN : -INFINITY;
            assert_false(nw_all_finite(x, n));
        }
    }
    free(x);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_logprobs_are_before_sampling),
        cmocka_unit_test(draws_depend_on_seed_and_index_only),
        cmocka_unit_test(equal_logits_give_the_lowest_id),
        cmocka_unit_test(logits_that_are_not_finite_are_refused),
        cmocka_unit_test(settings_out_of_range_are_named),
        cmocka_unit_test(log_sum_exp_is_exact_to_float),
    };
    int failed = NW_RUN_TABLE("sampler_frequencies", rows, frequencies);
    failed += cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
    return failed;
}
