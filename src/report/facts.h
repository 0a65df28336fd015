/* What a page shows, computed from the rows of a record and from nothing else: per candidate its
 * quality, its latencies at batch 1 and under load, its costs; and what decide concluded. Where a
 * candidate has several finished runs of a kind, the newest counts. NaN, NULL and 0 rows mean "not
 * measured". Definitions: docs/methods.md and the arithmetic of bench, computed again.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_REPORT_FACTS_H
#define NW_REPORT_FACTS_H

#include "record/record.h"
#include "stats/interval.h"

typedef struct {
    double value, lo, hi; /* lo, hi: 95% interval, two-sided; NaN: none */
} nw_estimate;

/* One latency of one regime: values in ms, ascending. */
typedef struct {
    double *ms;
    size_t n;
} nw_latency;

/* One offered rate of a load run, over one arrival file or several. Counts are of requests scheduled
 * inside the windows of the files; a run without windows is left out. */
typedef struct {
    int64_t run;
    const char *data_hash; /* of the arrivals; NULL unknown */
    double offered_rps, window_s;
    size_t n_files;
    int steady; /* 1 all files, 0 not all, -1 not tested */
    size_t n, n_ok, n_good;
    nw_estimate goodput_rps; /* interval: Wilson on the share that is good, times the rate */
    double attainment, throughput_tps, mean_in_flight;
    nw_latency ttft, tpot;
} nw_load_point;

typedef struct {
    const char *item_id, *cluster;
    double score;
    int64_t n_output;
    const char *finish, *output, *expected;
} nw_task_item;

typedef struct {
    int64_t run;
    const char *suite;   /* "choice:basics" */
    nw_task_item *items; /* [n] in order of id, sample 0 */
    size_t n, n_scored;
    nw_estimate score;  /* interval: cluster bootstrap */
    nw_estimate change; /* against the baseline, over items both have; NaN for the baseline */
    size_t n_pairs, gain, loss;
    double mean_output, stop_share; /* tokens; share that ended by itself */
} nw_task;

typedef struct {
    int64_t run;
    size_t n_tokens, n_windows;
    nw_estimate ppl, ln_ratio, kl_mean, top1;
    double bits_per_byte;
    double *kl; /* ascending [n_kl], nats */
    size_t n_kl;
} nw_text_quality;

/* Batch 1 with answers that end by themselves: is it equal service? */
typedef struct {
    nw_latency e2e; /* from the request to its last token, of those that were answered */
    size_t n, n_tokens, n_stop; /* answered; that say their length; that stopped by themselves */
    double mean_tokens;         /* NaN: none */
} nw_natural;

typedef struct {
    nw_rec_candidate row;
    const char *label; /* the name as valid UTF-8, for figures */
    bool baseline;
    nw_text_quality text;
    nw_task *tasks;
    size_t n_tasks;
    int64_t micro_run, load_run; /* load_run: the one with the highest rate; 0: none */
    nw_latency ttft1, tpot1;     /* batch 1 */
    nw_estimate decode_tps, prefill_tps;
    nw_natural natural;
    nw_load_point *load; /* [n_load] in order of the offered rate */
    size_t n_load;
    double peak_rss_bytes, weight_bytes, kv_bytes_per_token, workspace_bytes, load_s;
    nw_rec_kernel *kernels; /* of the load run, or of batch 1; summed over layers */
    size_t n_kernels;
} nw_facts_candidate;

typedef struct {
    nw_arena arena;
    nw_facts_candidate *c; /* [n]; baseline first */
    size_t n;
    const nw_rec_policy *policy;                 /* NULL: nothing decided */
    double slo_ttft_ms, slo_tpot_ms, attainment; /* of the policy; 0: no such limit */
    nw_rec_verdict *verdicts;
    size_t n_verdicts;
    nw_rec_decision *decisions;
    size_t n_decisions;
    nw_rec_run *runs; /* all, in order of id */
    size_t n_runs;
    size_t operating; /* index into load[] of the baseline: latencies under load are shown there */
    bool has_load;
} nw_facts;

/* policy_hash: whole or the first 8 or more characters; NULL or "newest". NW_E_RANGE names it where
 * the record has none of that hash. */
NW_MUST_USE nw_status nw_facts_load(nw_record *r, const char *policy_hash, nw_facts *out,
                                    nw_error *err);
void nw_facts_release(nw_facts *f);

/* The newest finished run of the kind; suite NULL: of any. NULL: none. */
const nw_rec_run *nw_facts_run(const nw_facts *f, const char *candidate, const char *stage,
                               const char *suite);
/* The load point of candidate c at the operating rate; NULL: none. */
const nw_load_point *nw_facts_point(const nw_facts *f, const nw_facts_candidate *c);
/* What the binding gates say together: of quality what the decision says, which knows of Holm's
 * correction, of speed what the verdicts say. */
typedef enum { NW_STAND_NONE, NW_STAND_PASS, NW_STAND_FAIL, NW_STAND_OPEN } nw_stand;
nw_stand nw_facts_stand(const nw_facts *f, const char *candidate);

/* Parts of nw_facts_load. */
NW_MUST_USE nw_status nw_facts_quality(nw_record *r, nw_facts *f, nw_error *err);
NW_MUST_USE nw_status nw_facts_speed(nw_record *r, nw_facts *f, nw_error *err);

/* Median by nearest rank with its 95% interval by order statistics; NaN for n = 0. */
nw_estimate nw_facts_median(const double *sorted, size_t n);

/* Growing array in the arena of f: room for one more element behind n. NULL: no memory. */
void *nw_facts_grow(nw_facts *f, void *old, size_t n, size_t *cap, size_t size);

#endif
