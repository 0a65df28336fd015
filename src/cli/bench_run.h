/* One benchmark on its way, shared by the two regimes of `narrow bench`: the service, the record, what
 * it costs. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_BENCH_RUN_H
#define NW_CLI_BENCH_RUN_H

#include "base/progress.h"
#include "bench/keep.h"
#include "cli/command.h"

typedef struct {
    const nw_args *args;
    nw_service service;
    nw_record *record; /* NULL: none */
    nw_bench_run run;
    int64_t run_id;
    nw_energy energy;
    nw_bench_costs costs;
    nw_progress progress;
    int64_t begin_ns;
    json_t *out; /* the result */
} nw_bench;

/* "64" or "32-96", of option --name. */
NW_MUST_USE nw_status nw_bench_range(const nw_args *args, const char *name, nw_token_range *out,
                                     nw_error *err);
/* Sequences the server serves at one time: --max-seqs, or what the regime is about. */
uint32_t nw_bench_max_seqs(const nw_args *args);
NW_MUST_USE nw_status nw_bench_open_service(nw_bench *b, nw_error *err);
/* With --record: opens it and begins a run; *done when it already holds one like it. */
NW_MUST_USE nw_status nw_bench_begin_run(nw_bench *b, const char *stage, const char *suite,
                                         json_t *settings, const char *data_hash, bool *done,
                                         nw_error *err);
NW_MUST_USE nw_status nw_bench_finish_run(nw_bench *b, nw_error *err);

/* What the options say of a window under load. */
nw_load_options nw_bench_load_options(nw_bench *b);
/* Arrivals at one rate, the n-th that are made: warm-up, the window, and a tail so that load goes on past
 * it. *window_s is the window's length. */
NW_MUST_USE nw_status nw_bench_arrivals(const nw_args *a, double rate, uint64_t n,
                                        const nw_load_options *o, nw_arrivals *out,
                                        double *window_s, nw_error *err);

NW_MUST_USE nw_status nw_bench_micro(nw_bench *b, nw_error *err);
NW_MUST_USE nw_status nw_bench_load(nw_bench *b, nw_error *err);
/* The highest rate that the service holds. */
NW_MUST_USE nw_status nw_bench_search(nw_bench *b, nw_error *err);

#endif
