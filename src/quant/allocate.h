/* Which layout each group of matrices gets, so that the sum of their losses is least within a budget of
 * bytes, or the sum of their bytes within a limit of loss: a knapsack with one choice a group.
 *
 * Solved by dynamic programming over bytes in units of their common divisor: exactly, where that makes
 * no more than 2^17 steps; with a coarser unit otherwise (bytes are then rounded up, so that a budget
 * always holds). `bound` is the Lagrangian's: no choice at all can have a lower sum, so that
 * (value - bound) / bound is how far from the best the answer can be.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_ALLOCATE_H
#define NW_QUANT_ALLOCATE_H

#include "base/status.h"

#define NW_ALLOC_OPTIONS 16

typedef struct {
    size_t n;                      /* options of the group, in no order; 1..NW_ALLOC_OPTIONS */
    double loss[NW_ALLOC_OPTIONS]; /* finite, >= 0 */
    uint64_t bytes[NW_ALLOC_OPTIONS];
} nw_alloc_group;

typedef struct {
    uint8_t *pick; /* [n_groups] option of each; the caller frees it */
    uint64_t bytes;
    double loss;
    double bound;  /* of loss under a budget, of bytes under a limit */
    uint64_t unit; /* bytes of a step; the answer is exact where `exact` */
    bool exact;
} nw_allocation;

/* NW_E_RANGE where even the smallest options take more than the budget, naming both. */
NW_MUST_USE nw_status nw_allocate_bytes(const nw_alloc_group *groups, size_t n, uint64_t budget,
                                        nw_allocation *out, nw_error *err);
/* NW_E_RANGE where even the least losses add up to more than the limit. */
NW_MUST_USE nw_status nw_allocate_loss(const nw_alloc_group *groups, size_t n, double limit,
                                       nw_allocation *out, nw_error *err);

#endif
