/* Paired tests and corrections for several of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STATS_COMPARE_H
#define NW_STATS_COMPARE_H

#include <stddef.h>
#include <stdint.h>

/* Exact McNemar test of "gains and losses are equally likely". gain + loss = 0 gives 1. */
double nw_mcnemar(uint64_t gain, uint64_t loss);      /* two-sided */
double nw_mcnemar_loss(uint64_t gain, uint64_t loss); /* one-sided: more losses than gains */

/* Holm's step-down: adjusted[i] <= alpha rejects hypothesis i with family-wise error alpha. Any n;
 * p and adjusted may be the same array. order is scratch of n. */
void nw_holm(const double *p, size_t n, size_t *order, double *adjusted);

#endif
