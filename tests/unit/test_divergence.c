/* Known answers of the distribution measures: two tokens with p = 1/4, 3/4 against 1/2, 1/2 have
 * KL(base || candidate) = 1/2 ln(1/2 / 1/4) + 1/2 ln(1/2 / 3/4) = ln 2 - 1/2 ln 3.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/rng.h"
#include "base/status.h"
#include "eval/divergence.h"
#include "table.h"

static void known_two_tokens(void **state)
{
    const float base[2] = {0, 0};
    const float cand[2] = {0, logf(3)};
    const nw_divergence d = nw_divergence_of(cand, base, 2, 0);

    (void)state;
    assert_true(fabs(d.nll - log(4)) < 1e-6); /* logf(3) is off by up to 6e-8 */
    assert_true(fabs(d.nll_base - log(2)) < 1e-12);
    assert_true(fabs(d.kl - (log(2) - 0.5 * log(3))) < 1e-7);
    assert_int_equal(d.top1, 0); /* the baseline's first of equals is token 0 */
    assert_int_equal(d.rank_base, 1);
}

static void itself_is_exactly_zero(void **state)
{
    nw_rng r = nw_rng_seed(7);
    float l[3001];

    (void)state;
    for (size_t i = 0; i < NW_COUNT(l); i++) {
        l[i] = (float)(40 * nw_rng_unit(&r)); /* 40 nats wide: REPORTS H6 */
    }
    const nw_divergence d = nw_divergence_of(l, l, NW_COUNT(l), 5);
    assert_true(d.kl == 0);
    assert_int_equal(d.top1, 1);
    assert_int_equal(d.rank_base, 0);
    assert_true(d.nll == d.nll_base);
}

static void adding_a_constant_changes_nothing(void **state)
{
    const float a[4] = {1, 2, 3, 4};
    const float b[4] = {101, 102, 103, 104};
    const nw_divergence d = nw_divergence_of(b, a, 4, 2);

    (void)state;
    assert_true(d.kl < 5e-14); /* ln p of logits near 100 is good to 100 x 2^-53 */
    assert_true(fabs(d.nll - d.nll_base) < 1e-12);
}

static void without_baseline_measures_are_unknown(void **state)
{
    const float a[4] = {1, 2, 3, 4};
    const nw_divergence d = nw_divergence_of(a, NULL, 4, 3);

    (void)state;
    assert_true(isnan(d.kl) && isnan(d.nll_base));
    assert_int_equal(d.top1, -1);
    assert_true(fabs(d.nll - log(1 + exp(-1) + exp(-2) + exp(-3))) < 1e-12);
}

static void not_a_number_is_passed_on(void **state)
{
    const float a[3] = {1, NAN, 3};
    const nw_divergence d = nw_divergence_of(a, a, 3, 0);

    (void)state;
    assert_true(isnan(d.nll));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_two_tokens),
        cmocka_unit_test(itself_is_exactly_zero),
        cmocka_unit_test(adding_a_constant_changes_nothing),
        cmocka_unit_test(without_baseline_measures_are_unknown),
        cmocka_unit_test(not_a_number_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
