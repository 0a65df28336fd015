/* Is a window steady? Two looks (MEASURES section 5): the medians of TTFT of its halves lie within 5 %
 * of each other, and the upper 95 % bound of |drift| over the window, of TTFT and of requests in
 * flight, is at most 10 % of their means. The bound, and not "zero lies inside the interval": the
 * latter would reward short and noisy runs.
 *
 * Drift: least squares over the means of 20 equal blocks of the window, 18 degrees of freedom; block
 * means, since neighbouring requests are not independent.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_STEADY_H
#define NW_BENCH_STEADY_H

#include "bench/load.h"

typedef struct {
    int steady;                /* 1, 0; -1: fewer than 40 requests, or an empty block */
    double halves_ratio;       /* median TTFT of the second half / of the first */
    double ttft_drift_hi;      /* upper bound of |slope x W| / mean */
    double in_flight_drift_hi; /* likewise */
} nw_steady;

nw_steady nw_load_steady(const nw_load_result *r);

#endif
