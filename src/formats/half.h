/* Half precision both ways: IEEE binary16 (F16) and bfloat16 (the upper half of a binary32). To the
 * narrow side: round to nearest, ties to even; overflow becomes infinity; a NaN stays a NaN, made
 * quiet, with as much of its payload as fits. To the wide side: exact, subnormals included; a
 * signalling F16 NaN is made quiet, as the hardware conversion does.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_HALF_H
#define NW_FORMATS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t nw_f32_bits(float x)
{
    uint32_t u = 0;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float nw_f32_from_bits(uint32_t u)
{
    float x = 0;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float nw_bf16_to_f32(uint16_t h)
{
    return nw_f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t nw_bf16_from_f32(float x)
{
    const uint32_t u = nw_f32_bits(x);

    if ((u & 0x7FFFFFFFU) > 0x7F800000U) {
        return (uint16_t)(u >> 16 | 0x40U);
    }
    return (uint16_t)((u + 0x7FFFU + (u >> 16 & 1U)) >> 16);
}

static inline float nw_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000U) << 16;
    const uint32_t exp = h >> 10 & 0x1FU;
    const uint32_t frac = h & 0x3FFU;

    if (exp == 0) { /* zero or subnormal: frac * 2^-24, exact in binary32 */
        const float mag = (float)frac * 0x1p-24F;
        return nw_f32_from_bits(nw_f32_bits(mag) | sign);
    }
    if (exp == 0x1F) {
        return nw_f32_from_bits(sign | 0x7F800000U | frac << 13 | (frac != 0 ? 0x400000U : 0U));
    }
    return nw_f32_from_bits(sign | (exp + 112U) << 23 | frac << 13);
}

uint16_t nw_f16_from_f32(float x);

/* nw_f16_to_f32(nw_f16_from_f32(x)) without a branch, so that a loop over it becomes vectors. */
static inline float nw_f16_round(float x)
{
    const uint32_t u = nw_f32_bits(x);
    const uint32_t mag = u & 0x7FFFFFFFU;
    const int32_t m = (int32_t)mag; /* compared as signed: SSE2 has no other */
    /* below 2^-14 a multiple of 2^-24 is wanted, the unit of the sum with 0.5 */
    const uint32_t small = nw_f32_bits((nw_f32_from_bits(mag) + 0.5F) - 0.5F);
    const uint32_t rounded = (mag + 0xFFFU + (mag >> 13 & 1U)) & 0xFFFFE000U;
    const uint32_t normal = (int32_t)rounded >= 0x47800000 ? 0x7F800000U : rounded;
    const uint32_t finite = m < 0x38800000 ? small : normal;
    const uint32_t nan = (mag & 0xFFFFE000U) | 0x400000U;

    return nw_f32_from_bits((m > 0x7F800000 ? nan : finite) | (u & 0x80000000U));
}

#endif
