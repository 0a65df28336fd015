/* Function-preserving channel rescaling, so that weights that were once quantized no longer sit on
 * the grid of that quantization:
 *
 *   norm gain[i] / s[i], and column i of what reads it (q, k, v; gate, up; an untied head) * s[i]
 *   row j of up * t[j], column j of down / t[j]
 *   row d of v * u[d], column d of o of every query head that shares the key-value head / u[d]
 *
 * s, t, u are log-uniform in [0.8, 1.25], from streams of the seed that depend on layer and place
 * only. In exact arithmetic the model is the same function; products are taken in double.
 * The factors commute with q/k norms and soft caps, since neither stands between v and o.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_OFFGRID_H
#define NW_QUANT_OFFGRID_H

#include "model/checkpoint.h"

typedef struct nw_offgrid nw_offgrid;

NW_MUST_USE nw_status nw_offgrid_new(const nw_model_config *config, uint64_t seed, nw_offgrid **out,
                                     nw_error *err);
void nw_offgrid_free(nw_offgrid *g);

/* rows [n_rows][t->n_cols] of tensor t, beginning at row0, in HF order; rescaled in place. */
void nw_offgrid_apply(const nw_offgrid *g, const nw_ckpt_tensor *t, uint32_t row0, uint32_t n_rows,
                      float *rows);

#endif
