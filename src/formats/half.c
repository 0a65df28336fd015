/* binary32 to binary16: see half.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/half.h"

uint16_t nw_f16_from_f32(float x)
{
    const uint32_t u = nw_f32_bits(x);
    const uint32_t sign = u >> 16 & 0x8000U;
    const uint32_t mag = u & 0x7FFFFFFFU;

    if (mag > 0x7F800000U) {
        return (uint16_t)(sign | 0x7E00U | (mag >> 13 & 0x3FFU));
    }
    if (mag >= 0x47800000U) { /* 2^16 and more; the rounding below takes 65520 up to infinity */
        return (uint16_t)(sign | 0x7C00U);
    }
    if (mag < 0x38800000U) {
        /* below 2^-14, a multiple of 2^-24 is wanted: the sum with 0.5 has just that unit, and the
         * adder rounds ties to even */
        const float sum = nw_f32_from_bits(mag) + 0.5F;
        return (uint16_t)(sign | (nw_f32_bits(sum) - 0x3F000000U));
    }
    return (uint16_t)(sign | (mag - 0x38000000U + 0xFFFU + (mag >> 13 & 1U)) >> 13);
}
