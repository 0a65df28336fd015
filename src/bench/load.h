/* Open-loop load: each request leaves at its scheduled time whatever the server does, and its clock
 * starts there, so that a slow server cannot hide its queue (no coordinated omission). Warm-up has
 * the same distribution and hands over undrained; requests keep coming past the window until its own
 * have ended, so that nothing in it is censored.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_LOAD_H
#define NW_BENCH_LOAD_H

#include "bench/arrivals.h"
#include "bench/prompts.h"
#include "bench/rows.h"

typedef struct {
    double warmup_s; /* from t0; requests scheduled in it are kept but not counted */
    double window_s; /* W; 0: until the last arrival */
    double tail_s;   /* past the last arrival its gaps come again for so long, or until the window's
                      * requests have ended: those meet the load they came in; 0: no */
    double drain_s;  /* past W: what is still open then is cancelled, and is an error if of W */
    nw_slo slo;
    uint64_t seed; /* of the prompts */
    double temperature;
    bool ignore_eos;
    bool no_stream;
    /* Called about five times a second from the sending thread; NULL: not wanted. */
    void (*on_tick)(void *ctx, double t_s, size_t n_started, size_t n_done, size_t n_in_flight);
    void *ctx;
} nw_load_options;

typedef struct {
    int64_t t_ns; /* since t0 */
    uint32_t n;
} nw_in_flight;

typedef struct {
    int64_t t0_ns;      /* of the run on CLOCK_MONOTONIC */
    nw_bench_rows rows; /* every request sent, warm-up and tail included, in order of arrival */
    int64_t w0_ns, w1_ns;
    nw_in_flight *series; /* one row at every change */
    size_t n_series;
    nw_bench_summary summary;
    size_t n_warmup_done; /* completions before the window */
    bool warmup_enough;   /* they are at least twice the mean in flight (MEASURES 5) */
    bool ran_dry;         /* the arrivals ended before the window's requests did */
    double client_cpu_s;  /* of this process over the run */
    double wall_s;
} nw_load_result; /* all zero may be released */

/* ^C ends the run with NW_E_CANCELLED. */
NW_MUST_USE nw_status nw_load_run(nw_target *t, const nw_arrivals *arrivals,
                                  const nw_load_options *opt, nw_load_result *out, nw_error *err);
void nw_load_result_release(nw_load_result *r);

#endif
