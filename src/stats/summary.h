/* One-pass facts of a sample: mean, variance, nearest-rank percentiles.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STATS_SUMMARY_H
#define NW_STATS_SUMMARY_H

#include <stddef.h>

double nw_mean(const double *x, size_t n);     /* n > 0 */
double nw_variance(const double *x, size_t n); /* divides by n - 1; 0 for n = 1 */
void nw_sort(double *x, size_t n);             /* ascending; no NaN */

/* Rank of the p-th percentile by nearest rank, ceil(p n), from 1; 0 < p <= 1. */
size_t nw_nearest_rank(double p, size_t n);
double nw_percentile(const double *sorted, size_t n, double p);

typedef struct {
    size_t n;
    double mean, sd, min, p50, p90, p99, max; /* p99 NaN below NW_P99_MIN_N; all NaN for n = 0 */
} nw_summary;

/* Below it a one-sided 95% bound of the 99th percentile does not exist: 0.99^298 > 0.05. */
#define NW_P99_MIN_N 299

nw_summary nw_summarize(double *x, size_t n); /* sorts x */

/* Slope of y over x by least squares, with its standard error; n >= 3, x not all equal. */
typedef struct {
    double slope, se;
} nw_slope;
nw_slope nw_slope_of(const double *x, const double *y, size_t n);

#endif
