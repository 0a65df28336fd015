/* Round to nearest into 8-bit and 4-bit floats: 16 rows of F32 weights to one panel.
 *
 *   fp8     F32 scale of a row (or of the tensor) = absmax / 448 (E4M3) or absmax / 57344 (E5M2)
 *   nvfp4   F32 scale of the tensor = absmax / (6 * 448), absmax of all matrices that a runtime fuses
 *           with it (q, k, v; gate, up); E4M3 scale of each block of 16: absmax:
 *           that of its absmax / 6; search: the least squared error of that one, the five codes
 *           below and the eight above it
 *   mxfp4   E8M0 scale of each block of 32: absmax: 2^(floor(log2 absmax) - 2), the OCP rule, which
 *           clips values between 6 and 8 steps; search: the least squared error of that one and its
 *           two neighbours
 *
 * Codes are nearest, ties to even (formats/fp8.h, fp4.h), under the scale as stored.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_RTN_FLOAT_H
#define NW_QUANT_RTN_FLOAT_H

#include "quant/rtn.h"

bool nw_rtn_float_writes(nw_panel_type type); /* fp8, nvfp4, mxfp4 */
/* As nw_rtn_pack_panel. */
bool nw_rtn_float_pack(nw_panel_type type, const nw_scales *scales, const float *rows,
                       uint32_t n_rows, uint32_t n_cols, uint8_t *panel, void *scratch,
                       uint32_t *bad_row);
size_t nw_rtn_float_scratch_bytes(nw_panel_type type, uint32_t n_cols);
const char *nw_rtn_float_rule_text(nw_panel_type type, nw_scale_rule rule);

#endif
