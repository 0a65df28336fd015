/* Sums in double; the variance in two passes. Percentiles are nearest-rank values of the sample and
 * not interpolations, so that a printed p99 is a latency that a request really had.
 * SPDX-License-Identifier: Apache-2.0 */
#include "stats/summary.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

double nw_mean(const double *x, size_t n)
{
    double sum = 0;

    assert(n > 0);
    for (size_t i = 0; i < n; i++) {
        sum += x[i];
    }
    return sum / (double)n;
}

double nw_variance(const double *x, size_t n)
{
    const double mean = nw_mean(x, n);
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (x[i] - mean) * (x[i] - mean);
    }
    return n == 1 ? 0 : sum / (double)(n - 1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

void nw_sort(double *x, size_t n)
{
    if (n > 1) {
        qsort(x, n, sizeof *x, ascending);
    }
}

size_t nw_nearest_rank(double p, size_t n)
{
    assert(n > 0 && p > 0 && p <= 1);
    /* 0.07 * 100 is 7.000000000000001: products within rounding of a whole number are that number */
    const double product = p * (double)n;
    const double rank = ceil(product - product * 4e-16);
    return rank < 1 ? 1 : rank > (double)n ? n : (size_t)rank;
}

double nw_percentile(const double *sorted, size_t n, double p)
{
    return sorted[nw_nearest_rank(p, n) - 1];
}

nw_summary nw_summarize(double *x, size_t n)
{
    const double none = (double)NAN;

    if (n == 0) {
        return (nw_summary){0, none, none, none, none, none, none, none};
    }
    nw_sort(x, n);
    return (nw_summary){.n = n,
                        .mean = nw_mean(x, n),
                        .sd = sqrt(nw_variance(x, n)),
                        .min = x[0],
                        .p50 = nw_percentile(x, n, 0.5),
                        .p90 = nw_percentile(x, n, 0.9),
                        .p99 = n < NW_P99_MIN_N ? none : nw_percentile(x, n, 0.99),
                        .max = x[n - 1]};
}

nw_slope nw_slope_of(const double *x, const double *y, size_t n)
{
    assert(n >= 3);
    const double mx = nw_mean(x, n);
    const double my = nw_mean(y, n);
    double sxx = 0;
    double sxy = 0;
    double rss = 0;

    for (size_t i = 0; i < n; i++) {
        sxx += (x[i] - mx) * (x[i] - mx);
        sxy += (x[i] - mx) * (y[i] - my);
    }
    assert(sxx > 0);
    const double slope = sxy / sxx;
    for (size_t i = 0; i < n; i++) {
        const double e = y[i] - my - slope * (x[i] - mx);
        rss += e * e;
    }
    return (nw_slope){slope, sqrt(rss / (double)(n - 2) / sxx)};
}
