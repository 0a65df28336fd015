/* GPTQ on 16 rows: columns are rounded in the order of nw_hessian, and what each one's error does to
 * the output is taken up by the columns that are still to come:
 *
 *   e = (w_j - q_j) / U_jj,   w_k -= e U_jk   for k > j
 *
 * Scales are fixed beforehand, group by group in the order of the columns (static groups), so that
 * the artifact keeps its sequential layout. Rows do not depend on each other.
 *
 * Polishing afterwards: with G = (W - W') H, group by group, each code moves to the nearest one of
 * w'_k + G_k / H_kk (coordinate descent), and scale and offset of the group move to where they
 * minimize the same error tr((W - W') H (W - W')^T) for the codes as they are. Both only ever lower
 * it, up to the rounding of the stored scale.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_GPTQ_H
#define NW_QUANT_GPTQ_H

#include "quant/grid.h"
#include "quant/hessian.h"

/* 16 rows being quantized; tiles are [n_cols][16], padding rows are zero. */
typedef struct {
    const nw_grid *grid;
    uint32_t n_cols, n_groups;
    const float *w;      /* source */
    nw_grid_fit *fits;   /* [n_groups] */
    float *code, *value; /* out */
    float *work;         /* [n_cols][16] */
} nw_gptq_rows;

/* Codes and values by GPTQ under the fits as they are; h->u is there. */
void nw_gptq_round(const nw_hessian *h, const nw_gptq_rows *rows);
/* At most n_sweeps sweeps over codes, values and fits as they are. */
void nw_gptq_polish(const nw_hessian *h, const nw_gptq_rows *rows, unsigned n_sweeps);
/* tr((W - W') H (W - W')^T) and tr(W H W^T) over the first n_rows lanes. */
void nw_gptq_error(const nw_hessian *h, const nw_gptq_rows *rows, uint32_t n_rows, double *err,
                   double *power);

#endif
