/* The knapsack of layouts against trying every choice, and its bound against both; budgets as they are
 * written.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "quant/mixed.h"
#include "table.h"

#define N_GROUPS 7

/* Random options whose bytes are multiples of `unit`; larger ones mostly lose less. */
static void make_problem(nw_rng *rng, uint64_t unit, nw_alloc_group groups[N_GROUPS])
{
    for (size_t g = 0; g < N_GROUPS; g++) {
        groups[g].n = 1 + (size_t)nw_rng_below(rng, 3);
        for (size_t i = 0; i < groups[g].n; i++) {
            groups[g].bytes[i] = unit * (10 + nw_rng_below(rng, 90));
            groups[g].loss[i] =
                (1 + (double)nw_rng_below(rng, 100)) * (double)unit / (double)groups[g].bytes[i];
        }
    }
}

typedef struct {
    double loss;
    uint64_t bytes;
    bool found;
} best_choice;

/* Tries all: the least loss within a budget, or the fewest bytes within a limit. */
static best_choice brute_force(const nw_alloc_group *groups, bool by_bytes, uint64_t budget,
                               double limit)
{
    best_choice best = {0};
    size_t pick[N_GROUPS] = {0};

    for (;;) {
        double loss = 0;
        uint64_t bytes = 0;
        for (size_t g = 0; g < N_GROUPS; g++) {
            loss += groups[g].loss[pick[g]];
            bytes += groups[g].bytes[pick[g]];
        }
        const bool fits = by_bytes ? bytes <= budget : loss <= limit;
        const bool better = by_bytes ? loss < best.loss : bytes < best.bytes;
        if (fits && (!best.found || better)) {
            best = (best_choice){.loss = loss, .bytes = bytes, .found = true};
        }
        size_t g = 0;
        while (g < N_GROUPS && ++pick[g] == groups[g].n) {
            pick[g++] = 0;
        }
        if (g == N_GROUPS) {
            return best;
        }
    }
}

static void check_sums(const nw_alloc_group *groups, const nw_allocation *a)
{
    double loss = 0;
    uint64_t bytes = 0;

    for (size_t g = 0; g < N_GROUPS; g++) {
        assert_true(a->pick[g] < groups[g].n);
        loss += groups[g].loss[a->pick[g]];
        bytes += groups[g].bytes[a->pick[g]];
    }
    assert_true(fabs(loss - a->loss) <= 1e-9 * loss);
    assert_int_equal(bytes, a->bytes);
}

static void a_budget_is_solved_as_by_trying_every_choice(void **state)
{
    nw_rng rng = nw_rng_seed(3);
    nw_alloc_group groups[N_GROUPS];
    size_t n_solved = 0;

    (void)state;
    for (int k = 0; k < 300; k++) {
        nw_error err = {0};
        nw_allocation a = {0};
        make_problem(&rng, 64, groups);
        const uint64_t budget = 64 * (N_GROUPS * 10 + nw_rng_below(&rng, N_GROUPS * 90));
        const best_choice best = brute_force(groups, true, budget, 0);
        const nw_status st = nw_allocate_bytes(groups, N_GROUPS, budget, &a, &err);
        assert_int_equal(st == NW_OK, best.found);
        if (st == NW_OK) {
            n_solved++;
            check_sums(groups, &a);
            assert_true(a.exact);
            assert_true(a.bytes <= budget);
            assert_true(fabs(a.loss - best.loss) <= 1e-9 * best.loss);
            assert_true(a.bound <= best.loss * (1 + 1e-9));
            assert_true(a.bound > 0.5 * best.loss);
        } else {
            assert_int_equal(st, NW_E_RANGE);
        }
        free(a.pick);
    }
    assert_true(n_solved > 100);
}

static void a_limit_of_loss_is_solved_as_by_trying_every_choice(void **state)
{
    nw_rng rng = nw_rng_seed(4);
    nw_alloc_group groups[N_GROUPS];
    size_t n_solved = 0;

    (void)state;
    for (int k = 0; k < 300; k++) {
        nw_error err = {0};
        nw_allocation a = {0};
        make_problem(&rng, 64, groups);
        const double limit = (double)(1 + nw_rng_below(&rng, 1000)) / 100;
        const best_choice best = brute_force(groups, false, 0, limit);
        const nw_status st = nw_allocate_loss(groups, N_GROUPS, limit, &a, &err);
        assert_int_equal(st == NW_OK, best.found);
        if (st == NW_OK) {
            n_solved++;
            check_sums(groups, &a);
            assert_true(a.loss <= limit);
            assert_int_equal(a.bytes, best.bytes);
            assert_true(a.bound <= (double)best.bytes * (1 + 1e-9));
        }
        free(a.pick);
    }
    assert_true(n_solved > 100);
}

/* Bytes without a common divisor, and more than the table has steps: a budget still holds, is used up,
 * and the answer is within 1 % of the bound. */
static void large_models_are_solved_in_steps(void **state)
{
    enum { N = 400 };
    nw_rng rng = nw_rng_seed(5);
    nw_alloc_group *groups = calloc(N, sizeof *groups);
    nw_error err = {0};
    nw_allocation a = {0};
    uint64_t least = 0;
    uint64_t most = 0;

    (void)state;
    assert_non_null(groups);
    for (size_t g = 0; g < N; g++) {
        const uint64_t weights = 10000001 + nw_rng_below(&rng, 1000000);
        const double sensitivity = exp(4 * (double)nw_rng_below(&rng, 1000) / 1000);
        groups[g].n = 4;
        for (size_t i = 0; i < 4; i++) {
            const double bits = 4 + 1.25 * (double)i;
            groups[g].bytes[i] = (uint64_t)((double)weights * bits / 8) + i;
            groups[g].loss[i] = sensitivity * pow(0.25, bits - 4);
        }
        least += groups[g].bytes[0];
        most += groups[g].bytes[3];
    }
    const uint64_t budget = least + (most - least) * 2 / 5;
    assert_int_equal(nw_allocate_bytes(groups, N, budget, &a, &err), NW_OK);
    assert_false(a.exact);
    assert_true(a.bytes <= budget);
    assert_true((double)a.bytes >= 0.995 * (double)budget);
    assert_true(a.loss >= a.bound);
    assert_true(a.loss <= 1.01 * a.bound);
    free(a.pick);
    assert_int_equal(nw_allocate_loss(groups, N, 200, &a, &err), NW_OK);
    assert_true(a.loss <= 200);
    assert_true((double)a.bytes <= 1.01 * a.bound);
    free(a.pick);
    free(groups);
}

static const struct {
    const char *text;
    bool ok;
    nw_budget_kind kind;
    double value;
} budgets[] = {
    {"105.5MB", true, NW_BUDGET_BYTES, 105.5e6},
    {"4.85bits", true, NW_BUDGET_BITS, 4.85},
    {"kl=0.03", true, NW_BUDGET_KL, 0.03},
    {"4000000", true, NW_BUDGET_BYTES, 4e6},
    {"2GB", true, NW_BUDGET_BYTES, 2e9},
    {"7kB", true, NW_BUDGET_BYTES, 7e3},
    {"", false, 0, 0},
    {"bits", false, 0, 0},
    {"-1MB", false, 0, 0},
    {"0", false, 0, 0},
    {"nan", false, 0, 0},
    {"inf", false, 0, 0},
    {"4 bits", false, 0, 0},
    {"kl=", false, 0, 0},
    {"kl=0.1MB", false, 0, 0},
    {"1e99", false, 0, 0},
};

static void budgets_are_read_as_they_are_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < NW_COUNT(budgets); i++) {
        nw_budget b = {0};
        assert_int_equal(nw_budget_parse(budgets[i].text, &b), budgets[i].ok);
        if (budgets[i].ok) {
            assert_int_equal(b.kind, budgets[i].kind);
            assert_true(fabs(b.value - budgets[i].value) <= 1e-12 * b.value);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_is_solved_as_by_trying_every_choice),
        cmocka_unit_test(a_limit_of_loss_is_solved_as_by_trying_every_choice),
        cmocka_unit_test(large_models_are_solved_in_steps),
        cmocka_unit_test(budgets_are_read_as_they_are_written),
    };
    return cmocka_run_group_tests_name("allocate", tests, NULL, NULL);
}
