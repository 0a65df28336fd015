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

#endif
