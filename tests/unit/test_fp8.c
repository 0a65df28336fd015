/* Every code of E4M3, E5M2, E2M1 and E8M0, and every boundary between neighbours with the two float32
 * values beside it. Expected values come from the definitions (ldexp of the fields, ties to the even
 * code), not from the code under test.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/status.h"
#include "formats/fp4.h"
#include "formats/fp8.h"
#include "table.h"

static float widen_e2m1(uint8_t code)
{
    return nw_e2m1_to_f32(code);
}

static float widen_e4m3(uint8_t code)
{
    return nw_e4m3_to_f32(code);
}

static float widen_e5m2(uint8_t code)
{
    return nw_e5m2_to_f32(code);
}

static uint8_t narrow_e2m1(float x)
{
    return nw_e2m1_from_f32(x);
}

static struct kind {
    const char *name;
    int n_exp, n_frac, bias;
    uint32_t max; /* the code of the largest finite value */
    float (*widen)(uint8_t);
    uint8_t (*narrow)(float);
} kinds[] = {
    {"e2m1", 2, 1, 1, 0x7, widen_e2m1, narrow_e2m1},
    {"e4m3", 4, 3, 7, 0x7E, widen_e4m3, nw_e4m3_from_f32},
    {"e5m2", 5, 2, 15, 0x7B, widen_e5m2, nw_e5m2_from_f32},
};

/* The magnitude of a code by definition; the step above the largest counts as if exponents went on. */
static double value(const struct kind *k, uint32_t code)
{
    const int exp = (int)(code >> k->n_frac);
    const double frac = ldexp((double)(code & ((1U << k->n_frac) - 1)), -k->n_frac);
    return exp == 0 ? ldexp(frac, 1 - k->bias) : ldexp(1 + frac, exp - k->bias);
}

static uint32_t sign_bit(const struct kind *k)
{
    return 1U << (k->n_exp + k->n_frac);
}

static void every_code_is_exact_both_ways(void **state)
{
    const struct kind *k = *state;

    for (uint32_t c = 0; c <= k->max; c++) {
        const float plus = k->widen((uint8_t)c);
        const float minus = k->widen((uint8_t)(c | sign_bit(k)));
        assert_true((double)plus == value(k, c) && !signbit(plus));
        assert_true((double)minus == -value(k, c) && signbit(minus));
        assert_int_equal(k->narrow(plus), c);
        assert_int_equal(k->narrow(minus), c | sign_bit(k));
    }
}

static void every_boundary_rounds_to_nearest_ties_to_even(void **state)
{
    const struct kind *k = *state;

    for (uint32_t c = 0; c < k->max; c++) {
        const float mid = (float)((value(k, c) + value(k, c + 1)) / 2);
        const uint32_t even = c % 2 == 0 ? c : c + 1;
        assert_int_equal(k->narrow(mid), even);
        assert_int_equal(k->narrow(nextafterf(mid, 0)), c);
        assert_int_equal(k->narrow(nextafterf(mid, INFINITY)), c + 1);
        assert_int_equal(k->narrow(-mid), even | sign_bit(k));
        assert_int_equal(k->narrow(-nextafterf(mid, 0)), c | sign_bit(k));
        assert_int_equal(k->narrow(-nextafterf(mid, INFINITY)), (c + 1) | sign_bit(k));
    }
}

/* Every upper half of a float32 with three lower halves: the nearest code by comparing distances. */
static void the_nearest_code_is_taken_everywhere(void **state)
{
    static const uint32_t low[] = {0, 1, 0xFFFF};
    const struct kind *k = *state;
    uint32_t c = 0;

    for (uint32_t u = 0; u < 0x7F80U; u++) {
        for (size_t i = 0; i < NW_COUNT(low); i++) {
            const float x = nw_f32_from_bits(u << 16 | low[i]);
            while (c < k->max && value(k, c + 1) <= (double)x) {
                c++;
            }
            const double down = (double)x - value(k, c);
            const double up = c < k->max ? value(k, c + 1) - (double)x : HUGE_VAL;
            const bool goes_up = up < down || (up == down && c % 2 == 1);
            assert_int_equal(k->narrow(x), c + (goes_up ? 1 : 0));
        }
    }
}

static void what_is_too_large_saturates(void **state)
{
    const struct kind *k = *state;
    const float max = k->widen((uint8_t)k->max);

    assert_int_equal(k->narrow(nextafterf(max, INFINITY)), k->max);
    assert_int_equal(k->narrow(2 * max), k->max);
    assert_int_equal(k->narrow(0x1.fffffep127F), k->max);
    assert_int_equal(k->narrow(INFINITY), k->max);
    assert_int_equal(k->narrow(-INFINITY), k->max | sign_bit(k));
}

static void nan_and_infinity_have_their_codes(void **state)
{
    const float nan_low = nw_f32_from_bits(0x7F800001U);

    (void)state;
    assert_true(isnan(nw_e4m3_to_f32(0x7F)) && isnan(nw_e4m3_to_f32(0xFF)));
    assert_true(signbit(nw_e4m3_to_f32(0xFF)) != 0);
    assert_int_equal(nw_e4m3_from_f32(NAN), 0x7F);
    assert_int_equal(nw_e4m3_from_f32(nan_low), 0x7F);
    assert_int_equal(nw_e4m3_from_f32(-nan_low), 0xFF);
    assert_true(isinf(nw_e5m2_to_f32(0x7C)) && nw_e5m2_to_f32(0xFC) < 0);
    for (int c = 0x7D; c <= 0x7F; c++) {
        assert_true(isnan(nw_e5m2_to_f32((uint8_t)c)) &&
                    isnan(nw_e5m2_to_f32((uint8_t)(c | 0x80))));
    }
    assert_true(isnan(nw_e5m2_to_f32(nw_e5m2_from_f32(NAN))));
    assert_int_equal(nw_e5m2_from_f32(nan_low), 0x7E);
    assert_int_equal(nw_e2m1_from_f32(NAN), 7);
}

static void every_scale_is_a_power_of_two(void **state)
{
    (void)state;
    for (int e = 0; e < 255; e++) {
        const float x = nw_e8m0_to_f32((uint8_t)e);
        assert_true((double)x == ldexp(1, e - 127));
        assert_int_equal(nw_e8m0_floor(x), e);
        assert_int_equal(nw_e8m0_ceil(x), e);
        assert_int_equal(nw_e8m0_round(x), e);
    }
    assert_true(isnan(nw_e8m0_to_f32(0xFF)));
}

static void a_value_between_powers_goes_where_its_rule_says(void **state)
{
    (void)state;
    for (int e = 0; e < 254; e++) {
        const float low = nw_e8m0_to_f32((uint8_t)e);
        const float high = nw_e8m0_to_f32((uint8_t)(e + 1));
        const float mid = 1.5F * low;
        const float inside[] = {nextafterf(low, high), nextafterf(mid, low), mid,
                                nextafterf(mid, high), nextafterf(high, low)};
        for (size_t i = 0; i < NW_COUNT(inside); i++) {
            assert_int_equal(nw_e8m0_floor(inside[i]), e);
            assert_int_equal(nw_e8m0_ceil(inside[i]), e + 1);
            assert_int_equal(nw_e8m0_round(inside[i]), e + (inside[i] >= mid ? 1 : 0));
        }
    }
}

static void scales_end_at_the_ends(void **state)
{
    static const float small[] = {0.0F, -0.0F, 0x1p-149F, 0x1.fffffcp-128F};
    static const float none[] = {INFINITY, NAN, -1.0F, -INFINITY, -0x1p-149F};
    static uint8_t (*const rules[])(float) = {nw_e8m0_floor, nw_e8m0_ceil, nw_e8m0_round};

    (void)state;
    for (size_t r = 0; r < NW_COUNT(rules); r++) {
        for (size_t i = 0; i < NW_COUNT(small); i++) {
            assert_int_equal(rules[r](small[i]), 0);
        }
        for (size_t i = 0; i < NW_COUNT(none); i++) {
            assert_int_equal(rules[r](none[i]), 0xFF);
        }
        assert_int_equal(rules[r](0x1.fffffep127F), 254);
        assert_int_equal(rules[r](0x1p127F), 254);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_and_infinity_have_their_codes),
        cmocka_unit_test(every_scale_is_a_power_of_two),
        cmocka_unit_test(a_value_between_powers_goes_where_its_rule_says),
        cmocka_unit_test(scales_end_at_the_ends),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    failed += NW_RUN_TABLE("exact", kinds, every_code_is_exact_both_ways);
    failed += NW_RUN_TABLE("rounding", kinds, every_boundary_rounds_to_nearest_ties_to_even);
    failed += NW_RUN_TABLE("nearest", kinds, the_nearest_code_is_taken_everywhere);
    failed += NW_RUN_TABLE("saturation", kinds, what_is_too_large_saturates);
    return failed;
}
