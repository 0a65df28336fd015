/* A benchmark into the record: the run, its raw requests, windows, metrics, kernel rows and series, in
 * one transaction each, so that a run in the record is whole or not there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_KEEP_H
#define NW_BENCH_KEEP_H

#include "bench/result.h"

typedef struct {
    nw_record *record;     /* borrowed */
    const char *candidate; /* row of the record; made when it is not there */
    const char *role;      /* of a new one: "baseline" or "candidate" */
    const char *stage;     /* "micro" "load" */
    const char *suite;     /* "batch1" "batch1-natural" "load" */
    json_t *settings;      /* what must be equal for runs to be compared; borrowed */
    const char *data_hash; /* of the arrivals; NULL */
    int64_t seed;
} nw_bench_run;

/* *id of a finished run of this candidate with the same settings and artifact; 0: none. */
NW_MUST_USE nw_status nw_bench_find(const nw_bench_run *b, const nw_service *s, int64_t *id,
                                    nw_error *err);
/* Puts machine and candidate, begins the run (an unfinished one of the same kind is deleted). */
NW_MUST_USE nw_status nw_bench_begin(const nw_bench_run *b, const nw_service *s, int64_t *id,
                                     nw_error *err);
NW_MUST_USE nw_status nw_bench_keep_rows(nw_record *rec, int64_t run, int64_t file_no,
                                         const nw_bench_rows *rows, nw_error *err);
NW_MUST_USE nw_status nw_bench_keep_load(nw_record *rec, int64_t run, int64_t file_no,
                                         const nw_load_options *o, const nw_load_result *r,
                                         nw_error *err);
NW_MUST_USE nw_status nw_bench_keep_micro(nw_record *rec, int64_t run, const nw_micro_result *r,
                                          nw_error *err);
/* Costs, ledger, and the end of the run: "done". */
NW_MUST_USE nw_status nw_bench_finish(nw_record *rec, int64_t run, const nw_bench_costs *c,
                                      nw_error *err);

#endif
