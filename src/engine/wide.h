/* Columns of an input that are kept wide beside INT8, and scales of INT8 codes that no token changes
 * (artifact/inputs.h): how the input is packed, and what is added to the product.
 *
 *   y = W x'  + W_wide x[wide],   x' = x with 0 in the wide columns
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_WIDE_H
#define NW_ENGINE_WIDE_H

#include "engine/state.h"

/* Before packing: the wide columns of tokens [t0, t1) of x [..][n_cols] are packed by themselves, and
 * are 0 in x until nw_wide_restore. `in` may be NULL: nothing is done. */
void nw_wide_take(nw_engine *e, const nw_artifact_input *in, float *x, uint32_t n_cols, uint32_t t0,
                  uint32_t t1);
void nw_wide_restore(const nw_engine *e, const nw_artifact_input *in, float *x, uint32_t n_cols,
                     uint32_t t0, uint32_t t1);

/* y [..][ldy] += W_wide x[wide] for the rows of panels [p0, p1) and all tokens of the step; y begins at
 * row `row0`. A matrix without wide columns (data NULL) adds nothing. */
void nw_wide_add(const nw_engine *e, const nw_weight *wide, uint32_t p0, uint32_t p1, uint32_t row0,
                 float *y, size_t ldy, unsigned worker);

/* Scratch of the step, where any matrix has wide columns; false without memory. */
NW_MUST_USE bool nw_wide_alloc(nw_engine *e);

#endif
