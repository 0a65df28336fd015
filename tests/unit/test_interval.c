/* Intervals and tests of one and of paired samples. Wilson: R. G. Newcombe, Stat. Med. 17 (1998) 857,
 * table I, method 3. Tango: Newcombe, ibid. 2635, table III (36/12/2/0 and 53 with one each way), and
 * values from a direct maximization of the constrained likelihood in mpmath; the ratio likewise with
 * scipy. McNemar: fractions by hand.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/status.h"
#include "stats/compare.h"
#include "stats/interval.h"
#include "stats/summary.h"
#include "table.h"

#define Z95              1.959963984540054
#define Z90              1.6448536269514722
#define close(a, b, tol) near_by(__LINE__, a, b, tol)

static void near_by(int line, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) {
        fail_msg("line %d: %.12g, want %.12g", line, got, want);
    }
}

static void wilson_gives_newcombes_examples(void **state)
{
    (void)state;
    static const struct {
        uint64_t k, n;
        double lo, hi;
    } t[] = {{81, 263, 0.2553, 0.3662},
             {15, 148, 0.0624, 0.1605},
             {0, 20, 0, 0.1611},
             {1, 29, 0.0061, 0.1718}};
    for (size_t i = 0; i < NW_COUNT(t); i++) {
        const nw_interval ci = nw_wilson(t[i].k, t[i].n, Z95);
        close(ci.lo, t[i].lo, 5e-5);
        close(ci.hi, t[i].hi, 5e-5);
    }
}

static void wilson_is_open_at_the_ends(void **state)
{
    (void)state;
    close(nw_wilson(0, 25, Z95).hi, 0.13319, 1e-5); /* z^2/(n + z^2): never 0 +- 0 */
    close(nw_wilson(25, 25, Z95).lo, 1 - 0.13319, 1e-5);
    close(nw_wilson(1, 1, Z95).lo, 0.20654, 1e-5);
}

static void tango_matches_the_constrained_likelihood(void **state)
{
    (void)state;
    static const struct {
        nw_paired_table t;
        double z, lo, hi;
    } t[] = {
        {{50, 36, 12, 2}, Z95, 0.06111240618634, 0.3447087482821},
        {{44, 10, 12, 9}, Z95, -0.1380341068258, 0.2685625305279},
        {{53, 20, 1, 1}, Z95, -0.08333808856847, 0.08333808856847},
        {{1000, 700, 5, 30}, Z90, -0.03570488418602, -0.01597567720514},
        {{164, 100, 0, 3}, Z90, -0.04488735484704, -0.001766327260651},
    };
    for (size_t i = 0; i < NW_COUNT(t); i++) {
        const nw_interval ci = nw_tango(&t[i].t, t[i].z);
        close(ci.lo, t[i].lo, 1e-9);
        close(ci.hi, t[i].hi, 1e-9);
    }
}

static void tango_without_flips_has_width(void **state)
{
    (void)state;
    const nw_paired_table t = {.n = 538, .both = 300};
    const nw_interval ci = nw_tango(&t, Z90);
    close(ci.hi, Z90 * Z90 / (538 + Z90 * Z90), 1e-12);
    close(ci.lo, -ci.hi, 1e-12);
}

static void ratio_matches_the_constrained_likelihood(void **state)
{
    (void)state;
    static const struct {
        nw_paired_table t;
        double theta, z;
    } t[] = {
        {{220, 150, 12, 20}, 0.95, 0.09051105149}, {{1000, 700, 5, 30}, 0.98, -1.91757593457},
        {{100, 60, 0, 0}, 0.98, 1.10656666998},    {{100, 60, 0, 3}, 0.9, 1.38586972401},
        {{50, 10, 5, 0}, 0.8, 2.95803988872},      {{60, 30, 2, 8}, 1.2, -3.30115939864},
    };
    for (size_t i = 0; i < NW_COUNT(t); i++) {
        close(nw_paired_ratio_z(&t[i].t, t[i].theta), t[i].z, 1e-6); /* the oracle's own accuracy */
    }
}

static void ratio_without_flips_has_width(void **state)
{
    (void)state;
    const nw_paired_table t = {.n = 100, .both = 60};
    const nw_interval ci = nw_paired_ratio(&t, Z90);
    close(ci.lo, 60 / (60 + Z90 * Z90), 1e-9);
    close(ci.hi, (60 + Z90 * Z90) / 60, 1e-9);
}

static void ratio_of_a_candidate_that_gets_nothing_right(void **state)
{
    (void)state;
    const nw_paired_table t = {.n = 40, .loss = 30};
    const nw_interval ci = nw_paired_ratio(&t, Z90);
    close(ci.lo, 0, 0);
    assert_true(ci.hi > 0 && ci.hi < 0.2);
}

static void p99_bound_exists_from_299_on(void **state)
{
    (void)state;
    assert_int_equal(nw_quantile_min_n(0.99, 0.05), 299);
    assert_int_equal(nw_quantile_ranks(298, 0.99, 0.05).hi, 0);
    assert_int_equal(nw_quantile_ranks(299, 0.99, 0.05).hi, 299);
    /* Bin(1000, .01): P(<= 4) = .0287, P(<= 5) = .0661, P(<= 14) = .9176, P(<= 15) = .9521 */
    const nw_ranks r = nw_quantile_ranks(1000, 0.99, 0.05);
    assert_int_equal(r.hi, 996);
    assert_int_equal(r.lo, 985);
}

static void t_bounds_of_a_textbook_sample(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3, 4, 5}; /* sd sqrt(2.5), t_.95,4 = 2.13185 */
    const nw_interval ci = nw_t_bounds(x, 5, 0.05);
    close(ci.hi - 3, 2.1318467863266503 * sqrt(2.5 / 5), 1e-12);
    close(3 - ci.lo, ci.hi - 3, 1e-12);
}

static void mcnemar_sees_what_an_unpaired_test_does_not(void **state)
{
    (void)state;
    /* 220 items, 12 lost, 2 gained: 2 (1 + 14 + 91)/2^14 */
    close(nw_mcnemar(2, 12), 212.0 / 16384, 1e-14);
    close(nw_mcnemar_loss(2, 12), 106.0 / 16384, 1e-14);
    close(nw_mcnemar(0, 0), 1, 0);
    close(nw_mcnemar(7, 7), 1, 0);
}

static void holm_steps_down_and_stays_ordered(void **state)
{
    (void)state;
    const double p[] = {0.01, 0.04, 0.03, 0.005};
    size_t order[4];
    double a[4];
    nw_holm(p, 4, order, a); /* 4 * .005, 3 * .01, 2 * .03, then max(.06, .04) */
    close(a[3], 0.02, 1e-15);
    close(a[0], 0.03, 1e-15);
    close(a[2], 0.06, 1e-15);
    close(a[1], 0.06, 1e-15);
    const double one[] = {0.7};
    nw_holm(one, 1, order, a);
    close(a[0], 0.7, 0);
}

static void percentiles_are_values_of_the_sample(void **state)
{
    (void)state;
    double x[100];
    for (size_t i = 0; i < 100; i++) {
        x[i] = (double)(100 - i);
    }
    nw_summary s = nw_summarize(x, 100);
    assert_true(s.p50 == 50 && s.p90 == 90 && s.min == 1 && s.max == 100);
    assert_true(isnan(s.p99));                       /* below n = 299 */
    assert_int_equal(nw_nearest_rank(0.07, 100), 7); /* .07 * 100 is above 7 in double */
    assert_int_equal(nw_nearest_rank(0.99, 100), 99);
    assert_int_equal(nw_nearest_rank(0.991, 100), 100);
    assert_int_equal(nw_nearest_rank(0.001, 100), 1);
    assert_int_equal(nw_nearest_rank(1, 3), 3);
    s = nw_summarize(x, 0);
    assert_true(isnan(s.mean) && s.n == 0);
}

static void p99_is_printed_from_299_on(void **state)
{
    (void)state;
    static double x[299];
    for (size_t i = 0; i < 299; i++) {
        x[i] = (double)i;
    }
    assert_true(nw_summarize(x, 299).p99 == 296); /* rank ceil(296.01) = 297 */
}

static void slope_of_a_line_with_an_error(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2, 3};
    const double y[] = {1, 3, 2, 4}; /* slope .8, residuals -.3 .9 -.9 .3: rss 1.8 */
    const nw_slope s = nw_slope_of(x, y, 4);
    close(s.slope, 0.8, 1e-14);
    close(s.se, sqrt(1.8 / 2 / 5), 1e-14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wilson_gives_newcombes_examples),
        cmocka_unit_test(wilson_is_open_at_the_ends),
        cmocka_unit_test(tango_matches_the_constrained_likelihood),
        cmocka_unit_test(tango_without_flips_has_width),
        cmocka_unit_test(ratio_matches_the_constrained_likelihood),
        cmocka_unit_test(ratio_without_flips_has_width),
        cmocka_unit_test(ratio_of_a_candidate_that_gets_nothing_right),
        cmocka_unit_test(p99_bound_exists_from_299_on),
        cmocka_unit_test(t_bounds_of_a_textbook_sample),
        cmocka_unit_test(mcnemar_sees_what_an_unpaired_test_does_not),
        cmocka_unit_test(holm_steps_down_and_stays_ordered),
        cmocka_unit_test(percentiles_are_values_of_the_sample),
        cmocka_unit_test(p99_is_printed_from_299_on),
        cmocka_unit_test(slope_of_a_line_with_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
