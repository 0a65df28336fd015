/* Every binary16 and bfloat16 value, and every rounding boundary between neighbours. Expected values
 * come from the definitions (ldexp of the fields; IEEE 754 ties to even), not from the code.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "formats/half.h"
#include "table.h"

/* The value of a finite half with the given field widths, by definition. */
static double value(uint32_t bits, int n_exp, int n_frac)
{
    const int bias = (1 << (n_exp - 1)) - 1;
    const int exp = (int)(bits >> n_frac & ((1U << n_exp) - 1));
    const double frac = ldexp((double)(bits & ((1U << n_frac) - 1)), -n_frac);
    const double mag = exp == 0 ? ldexp(frac, 1 - bias) : ldexp(1 + frac, exp - bias);
    return bits >> (n_exp + n_frac) != 0 ? -mag : mag;
}

struct kind {
    const char *name;
    int n_exp, n_frac;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
};

static void every_finite_value_is_exact_both_ways(void **state)
{
    const struct kind *k = *state;
    const uint32_t inf = ((1U << k->n_exp) - 1) << k->n_frac;

    for (uint32_t h = 0; h < 0x10000U; h++) {
        if ((h & 0x7FFFU) < inf) {
            const float x = k->widen((uint16_t)h);
            assert_true((double)x == value(h, k->n_exp, k->n_frac));
            assert_int_equal(k->narrow(x), h);
        }
    }
}

static void every_boundary_rounds_to_nearest_ties_to_even(void **state)
{
    const struct kind *k = *state;
    const uint32_t inf = ((1U << k->n_exp) - 1) << k->n_frac;

    for (uint32_t h = 0; h < inf; h++) {
        /* the step above the largest finite value counts as if the exponent went on */
        const double lo = value(h, k->n_exp, k->n_frac);
        const double step = h + 1 < inf ? value(h + 1, k->n_exp, k->n_frac) - lo
                                        : lo - value(h - 1, k->n_exp, k->n_frac);
        const float mid = (float)(lo + step / 2);
        const uint32_t even = h % 2 == 0 ? h : h + 1;

        if (isinf(mid)) {
            continue; /* bfloat16's last boundary is past the largest float32 */
        }
        assert_int_equal(k->narrow(mid), even);
        assert_int_equal(k->narrow(nextafterf(mid, 0.0F)), h);
        assert_int_equal(k->narrow(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(k->narrow(-mid), even | 0x8000U);
        assert_int_equal(k->narrow(-nextafterf(mid, INFINITY)), (h + 1) | 0x8000U);
    }
}

static void infinities_and_nans_keep_their_kind(void **state)
{
    const struct kind *k = *state;
    const uint32_t inf = ((1U << k->n_exp) - 1) << k->n_frac;

    assert_true(isinf(k->widen((uint16_t)inf)));
    assert_true(k->widen((uint16_t)(inf | 0x8000U)) < 0);
    assert_int_equal(k->narrow(INFINITY), inf);
    assert_int_equal(k->narrow(-INFINITY), inf | 0x8000U);
    assert_int_equal(k->narrow(0x1.fffffep127F), inf);
    for (uint32_t h = inf + 1; h < 0x8000U; h++) {
        const uint16_t back = k->narrow(k->widen((uint16_t)h));
        assert_true(isnan(k->widen((uint16_t)h)));
        assert_int_equal(back, h | 1U << (k->n_frac - 1)); /* quiet, payload kept */
    }
    /* a payload in the low bits only must not round to infinity */
    assert_true((k->narrow(nw_f32_from_bits(0x7F800001U)) & 0x7FFFU) > inf);
}

static float widen_f16(uint16_t h)
{
    return nw_f16_to_f32(h);
}

/* The rounding to a float, whose result must be one that F16 has. */
static uint16_t narrow_by_rounding(float x)
{
    const float y = nw_f16_round(x);
    const uint16_t h = nw_f16_from_f32(y);

    assert_int_equal(nw_f32_bits(y), nw_f32_bits(nw_f16_to_f32(h)));
    return h;
}

static float widen_bf16(uint16_t h)
{
    return nw_bf16_to_f32(h);
}

static uint16_t narrow_bf16(float x)
{
    return nw_bf16_from_f32(x);
}

static struct kind kinds[] = {
    {"f16", 5, 10, widen_f16, nw_f16_from_f32},
    {"f16_round", 5, 10, widen_f16, narrow_by_rounding},
    {"bf16", 8, 7, widen_bf16, narrow_bf16},
};

int main(void)
{
    int failed = NW_RUN_TABLE("exact", kinds, every_finite_value_is_exact_both_ways);

    failed += NW_RUN_TABLE("rounding", kinds, every_boundary_rounds_to_nearest_ties_to_even);
    failed += NW_RUN_TABLE("special", kinds, infinities_and_nans_keep_their_kind);
    return failed;
}
