/* Round to nearest: 16 rows of F32 weights to one panel of INT8 or INT4 (small floats: rtn_float.h).
 *
 *   INT8  scale = absmax / 127 of the row, code = rint(w / scale)
 *   INT4  symmetric: w' = s (q - 8), q in 0..15. absmax: s = signed absmax / -8 (the value of the
 *         largest magnitude gets code 0 exactly); search: the best of NW_RTN_CANDIDATES fractions
 *         of that scale, of either sign, by the sum of squared errors
 *   INT4  zero point: w' = s (q - z), s = (max - min) / 15 with zero inside [min, max]; search: the
 *         best of as many fractions of that range
 *
 * Scales are rounded to the stored type (FP16, F32; to BF16 values before that, where asked) first;
 * codes and errors are taken against the stored value. A group of zeros gets scale 0 and codes that
 * decode to 0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_RTN_H
#define NW_QUANT_RTN_H

#include "formats/half.h"
#include "formats/panel.h"

typedef enum {
    NW_SCALE_SEARCH,
    NW_SCALE_ABSMAX,
    NW_SCALE_TENSOR, /* absmax of the whole tensor in place of a row's: int8 and fp8 by rows */
    NW_SCALE_RULES
} nw_scale_rule;

/* How scales are chosen and what they may be. */
typedef struct {
    nw_scale_rule rule;
    bool bf16; /* scales of INT4 and INT8 are BF16 values */
    uint8_t
        code_bits; /* INT4 and INT8 use codes of so many bits of the place that they have; 0: all */
    float absmax;  /* of the tensor and of those it shares a scale with (nvfp4, NW_SCALE_TENSOR);
                   * 0: of the rows at hand */
    float scale,
        zero; /* of the tensor, of layouts with one scale for all of it; 0: found for the rows
                        * at hand */
} nw_scales;

/* A scale as an FP16 field holds it. As a BF16 value first, the result is both: FP16 has all of
 * BF16's bits from 2^-16 on, and no more than BF16 has below. Beyond 65504 it is infinite. */
static inline float nw_scale_store(float x, bool bf16)
{
    return nw_f16_round(bf16 ? nw_bf16_to_f32(nw_bf16_from_f32(x)) : x);
}

/* Fractions of the absmax scale tried by the search, each with both signs. */
#define NW_RTN_CANDIDATES 19

/* Sentence for the manifest: what the rule does to this layout. */
const char *nw_rtn_rule_text(nw_panel_type type, nw_scale_rule rule);

/* Whether the functions below take this layout: F32, BF16, INT8 by rows, INT4 without minima whose groups have
 * scales of their own, FP8, NVFP4, MXFP4. */
bool nw_rtn_writes(nw_panel_type type);

/* rows [n_rows][n_cols], n_rows <= 16, finite; panel: nw_panel_bytes of (type, n_cols), written
 * whole. scratch: nw_rtn_scratch_bytes, for one caller at a time. False when a scale does not fit
 * its stored type (a group whose absmax exceeds what FP16 can scale); *bad_row then names the row. */
bool nw_rtn_pack_panel(nw_panel_type type, const nw_scales *scales, const float *rows,
                       uint32_t n_rows, uint32_t n_cols, uint8_t *panel, void *scratch,
                       uint32_t *bad_row);
size_t nw_rtn_scratch_bytes(nw_panel_type type, uint32_t n_cols);

#endif
