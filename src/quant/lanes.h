/* Products of a matrix with 16 rows at a time, the rows in the lanes of a vector (x [n][16]): what the
 * quantizers do most. A matrix is read once for 16 rows, eight of its rows or columns at a time, so that
 * the sums stay in registers. Sums run over one index in rising order, unfused: the same bits on every
 * processor (lanes_ops.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_LANES_H
#define NW_QUANT_LANES_H

#include <stddef.h>
#include <stdint.h>

#define NW_LANES 16u

/* y[i] -= sum over k < m of a[i][k] x[k], for i < n; a [n][ld]. */
void nw_lanes_take_off(const float *a, size_t ld, uint32_t n, uint32_t m, const float *x, float *y);
/* y[i] -= sum over k < m of a[k][i] x[k], for i < n; a [m][ld]. */
void nw_lanes_take_off_t(const float *a, size_t ld, uint32_t n, uint32_t m, const float *x,
                         float *y);
/* out = sum over i, k < n of x[i] a[i][k] x[k] for each lane, a [n][ld] symmetric: the half below its
 * diagonal twice. */
void nw_lanes_form(const float *a, size_t ld, uint32_t n, const float *x, float *out);

#endif
