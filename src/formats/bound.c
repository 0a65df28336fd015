/* The bounds of bound.h and where they come from.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/bound.h"

#include <math.h>

/* A scale d is stored in binary16: relative error 2^-11, or 2^-25 for subnormal ones; a code c carries it
 * to c times as much. FLOAT: a few roundings of float32 on the way, each 2^-24 of the peak. */
#define HALF      0x1p-11
#define HALF_TINY 0x1p-25
#define FLOAT     0x1p-20

/* A symmetric grid of N steps whose peak is one end: the other end is one step short, so a value
 * may be clipped by a step, d = P / N; N times the error of d. */
#define SYMMETRIC(n) .of_peak = (1 + (n)*HALF) / (n) + FLOAT, .floor = (n)*HALF_TINY

/* M steps from the least value to the greatest: half a step, M times the error of d (of the range),
 * the error of the minimum (of the peak). The range with zero inside is no smaller than without. */
#define MINIMUM(m) \
    .of_range = 0.5 / (m) + HALF, .of_peak = HALF + FLOAT, .floor = ((m) + 1) * HALF_TINY

/* K-quants with minima. The fit of a sub-block is no worse than half a step of its range, R / 2M. A
 * search's scale is at most 1.05 * 1.25 R / M, its minimum at most P + 0.2625 R deep; rounding the
 * small scale to a 63rd of the largest moves a value by M / 2 * 1.3125 R / M / 63 at most, the
 * small minimum by (P + 0.2625 R) / 126. Two scales in binary16, each carried to at most 1.3125 R
 * and P + 0.2625 R. */
#define K_MINIMUM(m)                                                    \
    .of_range = 0.5 / (m) + 1.3125 / 126 + 0.2625 / 126 + 1.575 * HALF, \
    .of_peak = 1.0 / 126 + HALF + FLOAT, .floor = 64 * 32 * HALF_TINY, .rms = true

static const nw_error_bound bounds[] = {
    {NW_FMT_F32, .floor = 0},
    /* half a unit in the last place: of a significand of 11, 8, 4, 3 and 2 bits; half the step of
     * the subnormal numbers */
    {NW_FMT_F16, .of_value = 0x1p-11, .floor = 0x1p-25},
    {NW_FMT_BF16, .of_value = 0x1p-8, .floor = 0x1p-134},
    {NW_FMT_F8_E4M3, .of_value = 0x1p-4, .floor = 0x1p-10},
    {NW_FMT_F8_E5M2, .of_value = 0x1p-3, .floor = 0x1p-17},
    {NW_FMT_F4, .of_value = 0x1p-2, .floor = 0x1p-2},
    {NW_FMT_Q4_0, SYMMETRIC(8)},
    {NW_FMT_Q5_0, SYMMETRIC(16)},
    {NW_FMT_Q4_1, MINIMUM(15)},
    {NW_FMT_Q5_1, MINIMUM(31)},
    /* half a step of P / 127, 127 times the error of d */
    {NW_FMT_Q8_0, .of_peak = 0.5 / 127 + HALF + FLOAT, .floor = 127 * HALF_TINY},
    /* P is 4 to 8 steps s: between 4 s and 6 s a value is s from a level, beyond 6 s up to 2 s: at
     * most P / 4. Steps below 2^-127 there are not */
    {NW_FMT_MXFP4, .of_peak = 0.25, .floor = 0x1p-127},
    /* the scale P / 6, rounded to E4M3 (by a 16th, or 2^-10), is among those tried: up to its size
     * between levels; six times what it was rounded by where it is subnormal */
    {NW_FMT_NVFP4, .of_peak = 17.0 / 96 + FLOAT, .floor = 6 * 0x1p-10, .rms = true},
    {NW_FMT_Q4_K, K_MINIMUM(15)},
    {NW_FMT_Q5_K, K_MINIMUM(31)},
    /* a sub-block clips at most a step of P / 32; rounding the small scale to a 128th of the largest
     * moves a value by 32 / 2 * 1.3125 P / 32 / 128 */
    {NW_FMT_Q6_K, .of_peak = 1.0 / 32 + 1.3125 / 256 + 1.3125 * HALF + FLOAT,
     .floor = 128 * 32 * HALF_TINY, .rms = true},
};

const nw_error_bound *nw_format_bound(nw_format_id format)
{
    for (size_t i = 0; i < NW_COUNT(bounds); i++) {
        if (bounds[i].format == format) {
            return &bounds[i];
        }
    }
    return NULL;
}

/* ---- panels ---- */

/* N codes below the one of zero, or above it, of integers with a scale in binary16 and nothing else. INT8 has
 * as many on both sides: half a step of P / N, N times the error of d. INT4 has one less above. */
static nw_error_bound symmetric(double n, bool even_ends, bool f32_scale)
{
    const double half = f32_scale ? 0 : HALF;
    const double tiny = f32_scale ? 0x1p-149 : HALF_TINY;

    return (nw_error_bound){.of_peak = ((even_ends ? 0.5 : 1) + n * half) / n + FLOAT,
                            .floor = n * tiny};
}

/* M steps from the least value to the greatest with zero inside. Zero point: rounding it moves the grid by
 * half a step, by which one end may be clipped; steps are of a scale that is a 2^-11 off. Minimum: as of
 * blocks that have one. */
static nw_error_bound ranged(double m, bool minimum)
{
    if (minimum) {
        return (nw_error_bound){MINIMUM(m)};
    }
    return (nw_error_bound){
        .of_range = 0.5 / m + 2 * HALF, .of_peak = FLOAT, .floor = (m + 1) * HALF_TINY};
}

bool nw_panel_bound(nw_panel_type type, unsigned code_bits, nw_error_bound *out)
{
    const unsigned bits = code_bits > 0 ? code_bits : nw_panel_code_bits(type);
    const double levels = ldexp(1, (int)bits);

    if (type.packed || type.two_level) {
        return false;
    }
    switch (type.kind) {
    case NW_PANEL_INT8:
        *out = type.min || type.zero_point ? ranged(levels - 1, type.min)
                                           : symmetric(levels / 2 - 1, true, type.group == 0);
        break;
    case NW_PANEL_INT4:
        *out = type.min || type.zero_point ? ranged(levels - 1, type.min)
                                           : symmetric(levels / 2, false, false);
        break;
    case NW_PANEL_BF16:
    case NW_PANEL_MXFP4:
        *out = *nw_format_bound(type.kind == NW_PANEL_BF16 ? NW_FMT_BF16 : NW_FMT_MXFP4);
        break;
    case NW_PANEL_FP8_E4M3: /* the row's peak is 448: subnormal steps are of 2^-9 */
        *out = (nw_error_bound){.of_value = 0x1p-4, .of_peak = 0x1p-10 / 448 + FLOAT};
        break;
    case NW_PANEL_FP8_E5M2:
        *out = (nw_error_bound){.of_value = 0x1p-3, .of_peak = 0x1p-17 / 57344 + FLOAT};
        break;
    case NW_PANEL_NVFP4: /* as the block, whose scales are here in units of the tensor's */
        *out = *nw_format_bound(NW_FMT_NVFP4);
        out->floor = 0;
        out->of_tensor = 6 * 0x1p-10 / (6 * 448);
        break;
    case NW_PANEL_F32:
    case NW_PANEL_BF16_12:
    case NW_PANEL_KINDS:
        return false;
    }
    out->format = NW_FMT_F32;
    out->rms = type.kind == NW_PANEL_INT8 || type.group > 0; /* of what shares a scale */
    return true;
}
