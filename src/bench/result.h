/* A whole benchmark as it is kept and shown: JSON with stable keys, and rows of the record.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_RESULT_H
#define NW_BENCH_RESULT_H

#include "bench/load.h"
#include "bench/micro.h"
#include "bench/service.h"
#include "bench/steady.h"
#include "bench/usage.h"
#include "record/record.h"

typedef struct {
    int64_t t_ns; /* since the run's begin */
    uint64_t rss_bytes;
} nw_rss_sample;

/* What both regimes note beside their rows. */
typedef struct {
    json_t *facts;   /* after the run, with the ledger; NULL: absent; owned */
    bool has_memory; /* of the server's process */
    uint64_t peak_rss_bytes, rss_bytes;
    double energy_j;        /* NaN: see energy_why */
    const char *energy_why; /* "" or why it is not measured; static */
    nw_rss_sample *rss;     /* owned */
    size_t n_rss, cap_rss;
} nw_bench_costs; /* all zero may be released */

/* Samples memory and energy; call it from on_tick. t_ns since the run's begin. */
void nw_bench_costs_sample(nw_bench_costs *c, nw_energy *e, const nw_service *s, int64_t t_ns);
void nw_bench_costs_end(nw_bench_costs *c, nw_energy *e, const nw_service *s);
void nw_bench_costs_release(nw_bench_costs *c);

/* {"n", "mean", "min", "max", "p50", "p90", "p99"}; p99 is null below n = 299 and "p99_lacking" then
 * says how many requests are missing; all null where n is 0. */
json_t *nw_bench_dist_json(const nw_bench_dist *d);

/* Keys: regime, model, decode_tokens_per_s, prefill_tokens_per_s, decode, prefill, ttft_ms, tpot_ms,
 * gap_ms, requests, ... New reference; NULL: no memory. */
json_t *nw_micro_json(const nw_micro_options *o, const nw_micro_result *r, const nw_service *s,
                      const nw_bench_costs *c);
/* One window: keys as in nw_bench_summary. */
json_t *nw_load_json(const nw_load_options *o, const nw_load_result *r);
/* requests of the window that ended well / (their last token - the window's begin): of a burst, the
 * capacity; 0 when none did. */
double nw_load_requests_per_s(const nw_load_result *r);
/* Memory, load time, KV and energy as one object. */
json_t *nw_bench_costs_json(const nw_bench_costs *c);

#endif
