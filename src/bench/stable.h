/* The highest rate that a service holds (MEASURES section 5): doubled until it no longer does, halved in
 * to 5 %, then confirmed by three arrival files that it has not seen. A rate is held where requests do not
 * pile up: the upper bound of the drift in flight and of TTFT is at most 10 % of their means (steady.h),
 * completions are at least 0.98 of the arrivals, and the lower 95 % bound of the attainment is at least
 * the one asked for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_STABLE_H
#define NW_BENCH_STABLE_H

#include "bench/steady.h"

#define NW_STABLE_CONFIRMATIONS 3
#define NW_STABLE_MAX_TRIES     24
/* Where nothing queues, Poisson arrivals keep the bound of the drift in flight in 98 % of the windows of so
 * many requests, in 7 of 10 windows of 10,000, in none of 1,000 or fewer (simulated). */
#define NW_STABLE_MIN_POISSON 20000

/* Whether the window was held; what failed, first of all, into why ("" where it was). */
bool nw_stable_held(const nw_load_result *r, double attainment, char why[160]);

/* The most of attainment that n requests can show: the bound where all of them are good; always below 1. */
double nw_stable_most_attainment(double n);

typedef struct {
    double next;     /* the rate to try, on arrivals of their own; 0: the search has ended */
    double first;    /* the rate it began with; none below an eighth of it is tried */
    double lo, hi;   /* the highest that held, the lowest that did not; 0: none yet */
    bool confirming; /* next is lo, on further arrivals */
    unsigned n_confirmed, n_tries, n_held;
    double held[NW_STABLE_MAX_TRIES]; /* [n_held] */
    bool found;                       /* lo is confirmed */
} nw_stable_search;

/* first > 0, requests/s. */
void nw_stable_begin(nw_stable_search *s, double first);
/* What came of `next`. */
void nw_stable_tell(nw_stable_search *s, bool held);

#endif
