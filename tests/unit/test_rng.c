/* Known values: splitmix64 from seeds 0 and 1234567, and xoshiro256++ from the state {1, 2, 3, 4}, as
 * published with the reference code of the authors and repeated by independent implementations.
 * The moments are checked at five standard errors, so a right generator fails one run in a million;
 * the seeds are fixed.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/rng.h"
#include "table.h"

#define N_DRAWS 100000

static struct row {
    const char *name;
    uint64_t seed;
    uint64_t want[4]; /* the state, which is what splitmix64 gives */
} rows[] = {
    {"splitmix_of_0",
     0,
     {0xe220a8397b1dcdafU, 0x6e789e6aa1b965f4U, 0x06c45d188009454fU, 0xf88bb8a8724c81ecU}},
    {"splitmix_of_1234567",
     1234567,
     {6457827717110365317U, 3203168211198807973U, 9817491932198370423U, 4593380528125082431U}},
};

static void seeding(void **state)
{
    const struct row *r = *state;
    const nw_rng g = nw_rng_seed(r->seed);
    for (size_t i = 0; i < 4; i++) {
        assert_true(g.s[i] == r->want[i]);
    }
}

static void xoshiro_reference_values(void **state)
{
    static const uint64_t want[] = {
        41943041U,
        58720359U,
        3588806011781223U,
        3591011842654386U,
        9228616714210784205U,
        9973669472204895162U,
        14011001112246962877U,
        12406186145184390807U,
        15849039046786891736U,
        10450023813501588000U,
    };
    nw_rng g = {{1, 2, 3, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_true(nw_rng_u64(&g) == want[i]);
    }
}

static void streams_differ(void **state)
{
    nw_rng a = nw_rng_stream(1, 2);
    nw_rng again = nw_rng_stream(1, 2);
    nw_rng b = nw_rng_stream(2, 1);
    nw_rng c = nw_rng_stream(1, 3);
    const uint64_t x = nw_rng_u64(&a);

    (void)state;
    assert_true(x == nw_rng_u64(&again));
    assert_true(x != nw_rng_u64(&b));
    assert_true(x != nw_rng_u64(&c));
}

/* Counts of 7 boxes: each binomial with p = 1/7, sd = sqrt(n p (1 - p)) = 110.7 */
static void below_is_even(void **state)
{
    nw_rng g = nw_rng_seed(42);
    double n[7] = {0};

    (void)state;
    for (int i = 0; i < N_DRAWS; i++) {
        const uint64_t x = nw_rng_below(&g, 7);
        assert_true(x < 7);
        n[x]++;
    }
    for (int i = 0; i < 7; i++) {
        assert_true(fabs(n[i] - N_DRAWS / 7.0) < 5 * 110.7);
    }
    assert_true(nw_rng_below(&g, 1) == 0);
    assert_true(nw_rng_below(&g, UINT64_MAX) < UINT64_MAX);
}

typedef double (*draw)(nw_rng *r);

static struct moment {
    const char *name;
    draw fn;
    double mean, variance;
    double fourth; /* central moment: the variance of (x - mean)^2 is fourth - variance^2 */
} moments[] = {
    {"unit_is_uniform", nw_rng_unit, 0.5, 1.0 / 12, 1.0 / 80},
    {"normal_has_mean_0_variance_1", nw_rng_normal, 0, 1, 3},
    {"exponential_has_mean_1", nw_rng_exponential, 1, 1, 9},
};

static void has_moments(void **state)
{
    const struct moment *m = *state;
    nw_rng g = nw_rng_seed(7);
    double sum = 0;
    double squares = 0;

    for (int i = 0; i < N_DRAWS; i++) {
        const double x = m->fn(&g);
        assert_true(isfinite(x));
        sum += x;
        squares += (x - m->mean) * (x - m->mean);
    }
    const double n = N_DRAWS;
    assert_true(fabs(sum / n - m->mean) < 5 * sqrt(m->variance / n));
    assert_true(fabs(squares / n - m->variance) <
                5 * sqrt((m->fourth - m->variance * m->variance) / n));
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(xoshiro_reference_values),
        cmocka_unit_test(streams_differ),
        cmocka_unit_test(below_is_even),
    };
    return NW_RUN_TABLE("seeding", rows, seeding) + NW_RUN_TABLE("moments", moments, has_moments) +
           cmocka_run_group_tests(others, NULL, NULL);
}
