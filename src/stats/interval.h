/* Intervals for one sample and for paired proportions. z is the normal quantile of the wanted
 * confidence: 1.959964 for 95% two-sided, 1.644854 for two one-sided bounds of 95%.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STATS_INTERVAL_H
#define NW_STATS_INTERVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    double lo, hi;
} nw_interval;

/* Share k/n; 0 < n. */
nw_interval nw_wilson(uint64_t k, uint64_t n, double z);

/* A 2 x 2 table of n paired answers: `gain` right only with the candidate, `loss` right only with
 * the baseline, `both` right with both. */
typedef struct {
    uint64_t n, both, gain, loss;
} nw_paired_table;

/* Difference of two paired shares, (gain - loss) / n. */
nw_interval nw_tango(const nw_paired_table *t, double z);
/* Score statistic of H0: difference = delta, standard normal under it; -1 < delta < 1. */
double nw_tango_z(const nw_paired_table *t, double delta);

/* Ratio of two paired shares, (both + gain) / (both + loss); hi is INFINITY where there is none.
 * Requires both + loss > 0. */
nw_interval nw_paired_ratio(const nw_paired_table *t, double z);
/* Score statistic of H0: ratio = theta; theta > 0. */
double nw_paired_ratio_z(const nw_paired_table *t, double theta);

/* Distribution-free bounds of the p-th quantile from order statistics: ranks from 1 such that
 * P(x_(lo) <= quantile) >= 1 - alpha and P(quantile <= x_(hi)) >= 1 - alpha, each one-sided. 0 where
 * n is too small for the bound to exist. */
typedef struct {
    size_t lo, hi;
} nw_ranks;
nw_ranks nw_quantile_ranks(size_t n, double p, double alpha);
/* Smallest n for which the upper bound exists: 299 for p = .99 and alpha = .05. */
size_t nw_quantile_min_n(double p, double alpha);

/* Mean by Student's t, two bounds of 1 - alpha each; n >= 2. */
nw_interval nw_t_bounds(const double *x, size_t n, double alpha);

#endif
