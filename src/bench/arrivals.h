/* When requests come and how long they are: made once from a seed (or read from a file of a real
 * service), written out, and replayed identically for every candidate, so that differences between
 * candidates are not differences between arrivals.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_ARRIVALS_H
#define NW_BENCH_ARRIVALS_H

#include "base/status.h"

typedef struct {
    int64_t t_ns;                /* offset from the start of the run, not decreasing */
    uint32_t n_prompt, n_output; /* tokens: prompt, and max_tokens */
} nw_arrival;

typedef struct {
    nw_arrival *rows;
    size_t n;
} nw_arrivals; /* all zero is empty */

typedef struct {
    uint32_t lo, hi; /* tokens, uniform in [lo, hi] */
} nw_token_range;

typedef enum { NW_ARRIVE_POISSON, NW_ARRIVE_CONSTANT } nw_arrival_kind;

typedef struct {
    nw_arrival_kind kind;
    double rate;         /* requests/s */
    double duration_s;   /* no arrival at or after it */
    size_t max_requests; /* 0: as many as come */
    nw_token_range prompt, output;
    uint64_t seed;
} nw_arrival_plan;

/* Poisson: exponential gaps of mean 1/rate; constant: one every 1/rate s. Lengths come from a stream
 * of their own, so that the k-th request has the same lengths at every rate. */
NW_MUST_USE nw_status nw_arrivals_make(const nw_arrival_plan *plan, nw_arrivals *out,
                                       nw_error *err);

/* CSV with the header t,prompt_tokens,output_tokens, or JSONL with these keys (by the first byte);
 * t in seconds, not decreasing. At most 1e6 rows. */
NW_MUST_USE nw_status nw_arrivals_read(const char *path, nw_arrivals *out, nw_error *err);
NW_MUST_USE nw_status nw_arrivals_write(const nw_arrivals *a, const char *path, nw_error *err);

/* (n - 1) / (last - first), per second; 0 for fewer than 2. */
double nw_arrivals_rate(const nw_arrivals *a);

void nw_arrivals_release(nw_arrivals *a);

#endif
