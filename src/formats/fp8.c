/* binary32 to the eight-bit floats: see fp8.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/fp8.h"

/* mag: the bits of |x|. Values below the smallest normal number are multiples of `step`; the sum with
 * `big`, whose own unit is that step, is rounded by the adder, ties to even. */
static uint32_t round_subnormal(uint32_t mag, float big)
{
    return nw_f32_bits(nw_f32_from_bits(mag) + big) - nw_f32_bits(big);
}

/* Drops the low `n` bits of a mantissa, after the exponent was given the target's bias. */
static uint32_t round_bits(uint32_t v, unsigned n)
{
    return (v + ((1U << (n - 1)) - 1) + (v >> n & 1U)) >> n;
}

uint8_t nw_e4m3_from_f32(float x)
{
    const uint32_t u = nw_f32_bits(x);
    const uint32_t sign = u >> 24 & 0x80U;
    const uint32_t mag = u & 0x7FFFFFFFU;
    uint32_t code = 0;

    if (mag > 0x7F800000U) {
        return (uint8_t)(sign | 0x7FU);
    }
    if (mag >= 0x43E00000U) { /* 448 */
        return (uint8_t)(sign | NW_E4M3_MAX_BITS);
    }
    if (mag < 0x3C800000U) { /* 2^-6 */
        code = round_subnormal(mag, 0x1p14F);
    } else {
        code = round_bits(mag - 0x3C000000U, 20);
    }
    return (uint8_t)(sign | code);
}

uint8_t nw_e5m2_from_f32(float x)
{
    const uint32_t u = nw_f32_bits(x);
    const uint32_t sign = u >> 24 & 0x80U;
    const uint32_t mag = u & 0x7FFFFFFFU;
    uint32_t code = 0;

    if (mag > 0x7F800000U) {
        return (uint8_t)(sign | 0x7EU);
    }
    if (mag >= 0x47600000U) { /* 57344 */
        return (uint8_t)(sign | NW_E5M2_MAX_BITS);
    }
    if (mag < 0x38800000U) { /* 2^-14 */
        code = round_subnormal(mag, 0x1p7F);
    } else {
        code = round_bits(mag - 0x38000000U, 21);
    }
    return (uint8_t)(sign | code);
}

/* x as mantissa and exponent, 2^-127 and below as code 0 with no mantissa. up: what is to be added to
 * the mantissa so that a carry goes to the next power. */
static uint8_t power_of_two(float x, uint32_t up)
{
    const uint32_t u = nw_f32_bits(x);

    if (u >= 0x7F800000U) {
        return (uint8_t)(u == 0x80000000U ? 0 : 0xFF); /* -0 is zero */
    }
    if (u <= 0x00400000U) {
        return 0;
    }
    if (u < 0x00800000U) { /* between 2^-127 and 2^-126: the mantissa counts twice */
        const uint32_t over = u - 0x00400000U;
        return (uint8_t)(2 * over + up >= 0x00800000U);
    }
    const uint32_t code = (u + up) >> 23;
    return (uint8_t)(code < 0xFF ? code : 0xFE);
}

uint8_t nw_e8m0_floor(float x)
{
    return power_of_two(x, 0);
}

uint8_t nw_e8m0_ceil(float x)
{
    return power_of_two(x, 0x7FFFFFU);
}

uint8_t nw_e8m0_round(float x)
{
    return power_of_two(x, 0x400000U);
}
