/* One measured request, as kept, and what is computed from rows and from nothing else: every figure
 * of a benchmark can be recomputed from its rows. Definitions: MEASURES section 5.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_ROWS_H
#define NW_BENCH_ROWS_H

#include "target/target.h"

/* Times are ns since t0 of the run; -1 where the event never happened. */
typedef struct {
    uint32_t idx;
    int64_t s_ns, d_ns, f_ns, l_ns;
    uint32_t n_prompt, n_asked, n_output;
    bool ok;       /* an answer came to its end: stop or length */
    bool streamed; /* false: TTFT, gaps and TPOT are "not measured: not streaming" */
    nw_gen_finish finish;
    char error[256];
    nw_gen_mark *events; /* owned; t_ns since t0 */
    size_t n_events;
} nw_bench_row;

typedef struct {
    nw_bench_row *rows;
    size_t n, cap;
} nw_bench_rows; /* all zero is empty */

/* Copies a result; times are rebased on t0. */
NW_MUST_USE nw_status nw_bench_row_from(const nw_gen_result *r, uint32_t idx, int64_t t0_ns,
                                        bool streamed, nw_bench_row *out, nw_error *err);
/* "ok", "cancelled", "rejected" (the server had no room) or "error". */
const char *nw_bench_row_status(const nw_bench_row *r);
void nw_bench_rows_release(nw_bench_rows *rows);

/* p50 and p90 by nearest rank, ceil(p n). p99 only from n >= 299 on: below, has_p99 is false and
 * n_lacking says how many requests are missing. */
typedef struct {
    size_t n;
    double mean, min, max, p50, p90, p99;
    bool has_p99;
    size_t n_lacking;
} nw_bench_dist;

/* Sorts v. */
nw_bench_dist nw_bench_dist_of(double *v, size_t n);

typedef struct {
    double ttft_ms, tpot_ms; /* 0: no such limit */
    double gap_ms;           /* largest gap inside a request; 0: no such limit */
} nw_slo;

/* Window [w0, w1): what counts by schedule (s in it) and by receipt (tokens received in it). */
typedef struct {
    size_t n_scheduled, n_ok, n_error, n_good;
    size_t n_stop, n_length; /* finish reasons */
    size_t n_tpot_undefined; /* ok with fewer than 2 output tokens */
    size_t n_not_streamed;   /* ok, but TTFT, gaps and TPOT not measured */
    uint64_t prompt_tokens, asked_tokens, output_tokens; /* over requests scheduled in the window */
    uint64_t received_tokens;                            /* in the window, whoever they belong to */
    size_t received_completions;
    double window_s;
    double request_rate_asked, request_rate_done; /* scheduled/|W|, dispatched-in-W/|W| */
    double throughput_tokens_s, throughput_requests_s;
    double goodput_s;  /* good requests per second */
    double attainment; /* good / all scheduled in W */
    nw_bench_dist lag_ms, ttft_ms, ttft_send_ms, tpot_ms, ntpot_ms, e2e_ms, gap_ms, max_gap_ms;
    double mean_in_flight, max_in_flight; /* time mean and maximum of requests in flight in W */
    bool valid;                           /* lag and rate within the limits of MEASURES 5 */
    char why_invalid[160];
} nw_bench_summary;

NW_MUST_USE nw_status nw_bench_summarize(const nw_bench_row *rows, size_t n, int64_t w0_ns,
                                         int64_t w1_ns, const nw_slo *slo, nw_bench_summary *out,
                                         nw_error *err);

#endif
