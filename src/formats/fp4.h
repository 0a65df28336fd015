/* E2M1, the four-bit float: sign, two bits of exponent, one of mantissa. The codes 0 to 7 stand for
 * 0, 0.5, 1, 1.5, 2, 3, 4 and 6; bit 3 is the sign. It has neither infinity nor NaN.
 *
 * To the narrow side: round to nearest, ties to the even code, saturate at 6. So the thresholds are
 * 0.25 0.75 1.25 1.75 2.5 3.5 5, and a value on one of them gets the even code of its neighbours:
 * 0.25 -> 0, 0.75 -> 1, 1.25 -> 1, 1.75 -> 2, 2.5 -> 2, 3.5 -> 4, 5 -> 4. A sign is kept, that of a zero
 * too; a NaN becomes 6.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_FP4_H
#define NW_FORMATS_FP4_H

#include "formats/half.h"

#define NW_E2M1_MAX 6.0F

static inline float nw_e2m1_to_f32(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 8U) << 28;
    const uint32_t exp = code >> 1 & 3U;
    const uint32_t frac = code & 1U;

    if (exp == 0) {
        return nw_f32_from_bits(sign | (frac != 0 ? 0x3F000000U : 0U)); /* 0.5 or 0 */
    }
    return nw_f32_from_bits(sign | (exp + 126U) << 23 | frac << 22);
}

static inline uint8_t nw_e2m1_from_f32(float x)
{
    const float mag = nw_f32_from_bits(nw_f32_bits(x) & 0x7FFFFFFFU);
    const uint32_t sign = nw_f32_bits(x) >> 28 & 8U;
    /* how many thresholds lie below: those that round down at a tie are passed by more than them,
     * those that round up are reached */
    const unsigned code = (unsigned)(mag > 0.25F) + (unsigned)(mag >= 0.75F) +
                          (unsigned)(mag > 1.25F) + (unsigned)(mag >= 1.75F) +
                          (unsigned)(mag > 2.5F) + (unsigned)(mag >= 3.5F) + (unsigned)(mag > 5.0F);

    return (uint8_t)(sign | (mag == mag ? code : 7U));
}

#endif
