/* The Hessian of a matrix's squared output error, H = E[x x^T], made ready for GPTQ: damped until it
 * can be factored, and the factor of its inverse in the order in which columns are quantized.
 *
 * With P the permutation by falling diagonal (act-order) and J the reversal of an order,
 * J P (H + damp) P^T J = L L^T gives U = J L^-1 J, upper triangular with P (H + damp)^-1 P^T = U^T U:
 * one Cholesky factorization and one triangular inverse in place of two of each.
 *
 * A channel that is always 0 gets the mean of the diagonal: it is then rounded to nearest.
 * Source: E. Frantar et al., GPTQ (arXiv 2210.17323). Factorizations are LAPACK's, on one thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_HESSIAN_H
#define NW_QUANT_HESSIAN_H

#include "quant/input_stats.h"

#define NW_GPTQ_DAMP     0.01 /* of the mean of the diagonal, at first */
#define NW_GPTQ_DAMP_MAX 1.0  /* times 10 at each failure, up to this */

typedef struct {
    uint32_t n;
    const float *h;    /* [n][n] damped, in the order of the columns */
    float *importance; /* [n] diagonal of E[x x^T]; dead channels get the mean */
    uint32_t *order;   /* [n] column of each step */
    float *u;          /* [n][n] upper triangle, in the order of the steps; rows below are unused */
    double damp;       /* what was added, as a share of the mean of the diagonal */
    uint32_t n_dead, n_tries;
} nw_hessian;

/* Takes s->moments over (it becomes h); s can still be released. With `with_factor`, u is made; it stays
 * NULL, with all else whole, where no damping made H positive definite. */
NW_MUST_USE nw_status nw_hessian_make(nw_input_stats *s, bool with_factor, nw_hessian *out,
                                      nw_error *err);
void nw_hessian_release(nw_hessian *h); /* takes a zero object */

#endif
