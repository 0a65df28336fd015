/* Steadiness of a window, by halves and by drift: see steady.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/steady.h"

#include <math.h>
#include <stdlib.h>

#include "stats/summary.h"

#define N_BLOCKS 20
#define T_18     1.734 /* Student's t, 18 degrees of freedom, one-sided 95 % */
#define MIN_ROWS 40

/* Upper bound of |slope| over y[0..N_BLOCKS-1], as a share of the mean; x runs over a range of 1, so
 * that the slope is the drift over the window. NaN where the mean is 0. */
static double drift_bound(const double y[N_BLOCKS])
{
    double x[N_BLOCKS];
    const double mean = nw_mean(y, N_BLOCKS);

    for (int i = 0; i < N_BLOCKS; i++) {
        x[i] = (i + 0.5) / N_BLOCKS;
    }
    const nw_slope s = nw_slope_of(x, y, N_BLOCKS);
    return mean > 0 ? (fabs(s.slope) + T_18 * s.se) / mean : (double)NAN;
}

/* Mean TTFT of the requests scheduled in each block. False: a block without any. */
static bool ttft_blocks(const nw_load_result *r, double y[N_BLOCKS])
{
    size_t n[N_BLOCKS] = {0};
    const double w = (double)(r->w1_ns - r->w0_ns);

    for (int b = 0; b < N_BLOCKS; b++) {
        y[b] = 0;
    }
    for (size_t i = 0; i < r->rows.n; i++) {
        const nw_bench_row *row = &r->rows.rows[i];
        if (row->ok && row->f_ns >= 0 && row->s_ns >= r->w0_ns && row->s_ns < r->w1_ns) {
            const int b = (int)((double)(row->s_ns - r->w0_ns) / w * N_BLOCKS);
            y[b] += (double)(row->f_ns - row->s_ns);
            n[b]++;
        }
    }
    for (int b = 0; b < N_BLOCKS; b++) {
        if (n[b] == 0) {
            return false;
        }
        y[b] /= (double)n[b];
    }
    return true;
}

/* Time mean of the requests in flight in each block, from the series of changes. */
static void in_flight_blocks(const nw_load_result *r, double y[N_BLOCKS])
{
    const double block = (double)(r->w1_ns - r->w0_ns) / N_BLOCKS;

    for (int b = 0; b < N_BLOCKS; b++) {
        const double from = (double)r->w0_ns + b * block;
        double at = from;
        double level = 0;
        double area = 0;
        for (size_t i = 0; i < r->n_series && (double)r->series[i].t_ns < from + block; i++) {
            if ((double)r->series[i].t_ns > at) {
                area += level * ((double)r->series[i].t_ns - at);
                at = (double)r->series[i].t_ns;
            }
            level = r->series[i].n;
        }
        y[b] = (area + level * (from + block - at)) / block;
    }
}

/* Median TTFT over requests scheduled in [from, to). */
static double median_ttft(const nw_load_result *r, int64_t from, int64_t to, double *scratch)
{
    size_t n = 0;

    for (size_t i = 0; i < r->rows.n; i++) {
        const nw_bench_row *row = &r->rows.rows[i];
        if (row->ok && row->f_ns >= 0 && row->s_ns >= from && row->s_ns < to) {
            scratch[n++] = (double)(row->f_ns - row->s_ns);
        }
    }
    return nw_bench_dist_of(scratch, n).p50;
}

nw_steady nw_load_steady(const nw_load_result *r)
{
    nw_steady s = {-1, (double)NAN, (double)NAN, (double)NAN};
    double ttft[N_BLOCKS];
    double in_flight[N_BLOCKS];
    const int64_t mid = r->w0_ns + (r->w1_ns - r->w0_ns) / 2;
    double *scratch = calloc(r->rows.n + 1, sizeof *scratch);

    if (scratch == NULL || r->summary.n_ok < MIN_ROWS || !ttft_blocks(r, ttft)) {
        free(scratch);
        return s;
    }
    in_flight_blocks(r, in_flight);
    s.halves_ratio =
        median_ttft(r, mid, r->w1_ns, scratch) / median_ttft(r, r->w0_ns, mid, scratch);
    s.ttft_drift_hi = drift_bound(ttft);
    s.in_flight_drift_hi = drift_bound(in_flight);
    s.steady =
        fabs(s.halves_ratio - 1) <= 0.05 && s.ttft_drift_hi <= 0.10 && s.in_flight_drift_hi <= 0.10;
    free(scratch);
    return s;
}
