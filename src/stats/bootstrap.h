/* Cluster bootstrap. A unit is what is drawn with replacement: a cluster of items, a window of text,
 * an arrival file. Draw number b of n units takes the same units whatever is measured on them, so
 * that all candidates, and all metrics over the same units, see the same draws.
 * Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap (1993), ch. 6, 13.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STATS_BOOTSTRAP_H
#define NW_STATS_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include "stats/interval.h"

#define NW_BOOT_DRAWS 10000
#define NW_BOOT_SEED  20260101

/* The units of one draw: n indices in [0, n). */
void nw_boot_indices(uint64_t seed, uint64_t draw, size_t n, uint32_t *idx);

/* Column totals over the units of each draw.
 *   sums  [n_units][n_columns]   per unit: a sum, a count, ...
 *   out   [n_draws][n_columns]
 * A mean is a ratio of two columns (sum and count), a ratio of means of three or four. */
void nw_boot_totals(const double *sums, size_t n_units, size_t n_columns, uint64_t seed,
                    size_t n_draws, double *out);

/* Percentile bounds, each of 1 - alpha one-sided. Sorts the draws. */
nw_interval nw_boot_bounds(double *draws, size_t n_draws, double alpha);

/* (1 + number of draws <= limit) / (1 + n_draws): one-sided p of "not above the limit"; and of the
 * draws >= limit, one-sided p of "not below it". */
double nw_boot_p_below(const double *draws, size_t n_draws, double limit);
double nw_boot_p_above(const double *draws, size_t n_draws, double limit);

#endif
