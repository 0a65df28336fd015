/* Eight-bit floats, one value at a time, by the OCP specifications.
 *
 *   E4M3 (FN)  bias 7, largest 448 (0x7E), NaN 0x7F, no infinity; smallest normal 2^-6, step below it
 *              2^-9
 *   E5M2       bias 15, largest 57344 (0x7B), infinity 0x7C, NaN 0x7D to 0x7F; smallest normal 2^-14,
 *              step below it 2^-16
 *   E8M0       2^(e - 127), NaN 0xFF: the scales of the MX formats
 *
 * To the narrow side: round to nearest, ties to even, then saturate (an infinity too becomes the
 * largest value); a NaN stays a NaN. To the wide side: exact.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_FP8_H
#define NW_FORMATS_FP8_H

#include "formats/half.h"

#define NW_E4M3_MAX      448.0F
#define NW_E4M3_MAX_BITS 0x7EU
#define NW_E5M2_MAX      57344.0F
#define NW_E5M2_MAX_BITS 0x7BU

static inline float nw_e4m3_to_f32(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80U) << 24;
    const uint32_t exp = code >> 3 & 15U;
    const uint32_t frac = code & 7U;

    if (exp == 0) { /* zero or subnormal: frac * 2^-9 */
        return nw_f32_from_bits(nw_f32_bits((float)frac * 0x1p-9F) | sign);
    }
    if (exp == 15 && frac == 7) {
        return nw_f32_from_bits(sign | 0x7FC00000U);
    }
    return nw_f32_from_bits(sign | (exp + 120U) << 23 | frac << 20);
}

/* E5M2 is the upper byte of a binary16. */
static inline float nw_e5m2_to_f32(uint8_t code)
{
    return nw_f16_to_f32((uint16_t)(code << 8));
}

static inline float nw_e8m0_to_f32(uint8_t code)
{
    if (code == 0xFF) {
        return nw_f32_from_bits(0x7FC00000U);
    }
    return nw_f32_from_bits(code == 0 ? 0x00400000U : (uint32_t)code << 23); /* 2^-127: subnormal */
}

uint8_t nw_e4m3_from_f32(float x);
uint8_t nw_e5m2_from_f32(float x);

/* A power of two for a positive value: the largest that is not above it, the smallest that is not
 * below it, or the nearest (1.5 * 2^k, half way, goes up). Outside [2^-127, 2^127], zero included,
 * the nearest end; a NaN, an infinity or a negative value gives 0xFF. */
uint8_t nw_e8m0_floor(float x);
uint8_t nw_e8m0_ceil(float x);
uint8_t nw_e8m0_round(float x);

#endif
