/* The record of a study: one SQLite file (WAL) in which the stages meet. eval and bench write rows,
 * decide and report read them; a figure in a report has come through here. The tables are described
 * in schema.sql; a struct below is a row, a field is a column.
 *
 * In every row: a NULL string, a NaN, and a negative count, flag or time are stored as NULL ("not
 * measured"), and come back the same way. Strings given to a reader's callback die when it returns.
 * One thread at a time on a record; several processes may hold the same file (a writer waits up to
 * 30 s for another one). Record files are hostile input: a damaged or foreign file is refused with
 * its name, never trusted.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_RECORD_RECORD_H
#define NW_RECORD_RECORD_H

#include "base/arena.h"
#include "base/status.h"

#define NW_RECORD_VERSION 1

typedef struct nw_record nw_record;

typedef enum {
    NW_RECORD_READ, /* the file must exist and is not written to */
    NW_RECORD_WRITE /* created when it is not there */
} nw_record_mode;

typedef struct {
    const char *name, *role; /* role: "baseline" or "candidate" */
    const char *artifact, *artifact_hash;
    const char *weights, *kv, *act; /* "int4-g64", "bf16", "a16" */
    int64_t file_bytes, weight_bytes;
    double effective_bits;
    const char *json;
} nw_rec_candidate;

typedef struct {
    int64_t id;
    const char *candidate, *stage, *suite, *status; /* stage: "quality" "micro" "load" */
    const char *started, *ended;                    /* UTC; set by begin and end */
    const char *settings_hash;                      /* equal for all runs that may be compared */
    const char *settings_json, *data_hash, *artifact_hash, *machine_hash, *kernel_map;
    int64_t threads, seed;
    const char *tool_version;
} nw_rec_run;

typedef struct {
    const char *item_id, *cluster; /* cluster NULL: the item is its own */
    int64_t sample;
    double score; /* [0, 1]; NaN: not scored, json says why */
    int correct;  /* 0, 1; -1 unknown */
    int64_t n_prompt, n_output;
    const char *finish, *output, *expected, *json;
} nw_rec_item;

typedef struct {
    int64_t window, pos; /* window: the cluster of the bootstrap */
    double nll, kl;      /* nats; kl NaN on the baseline */
    int top1;            /* 1: same most likely token as the baseline; -1 unknown */
    int64_t rank_base;   /* rank, here, of the baseline's most likely token, 0 first; -1 unknown */
} nw_rec_token;

/* One non-empty event of a stream: when it came, and how many tokens came with it. */
typedef struct {
    int64_t t_ns;
    uint32_t n_tokens;
} nw_rec_event;

typedef struct {
    int64_t idx, file_no;
    int64_t s_ns, d_ns, f_ns, l_ns; /* scheduled, dispatched, first token, last token */
    int64_t n_prompt, n_asked, n_output;
    const char *status; /* "ok" "error" "timeout" "rejected" "cancelled" */
    const char *finish, *error;
    const nw_rec_event *events;
    size_t n_events;
    const char *item_id; /* the task item asked, when graded in the same run */
    int correct;         /* 0, 1; -1 not graded */
} nw_rec_request;

/* Measured window of one arrival file: requests scheduled in [start_ns, end_ns) count. */
typedef struct {
    int64_t file_no, start_ns, end_ns;
    double offered_rps; /* requests/s */
    int steady;         /* 1, 0; -1 not tested */
    const char *json;
} nw_rec_window;

/* A scalar fact of a run. Names in use: decode_tokens_per_s prefill_tokens_per_s load_s
 * peak_rss_bytes kv_bytes_per_token workspace_bytes energy_j; perplexity of a ppl run is not stored
 * (it is computed from the tokens). */
typedef struct {
    const char *name;
    double value;
    const char *unit, *json;
} nw_rec_metric;

typedef struct {
    const char *op;
    int64_t layer; /* -1: not of a layer (stored as it is) */
    const char *shape, *phase, *intended, *used;
    int64_t calls, ns, bytes, bytes_converted;
} nw_rec_kernel;

typedef struct {
    const char *name;
    int64_t t_ns;
    double value;
} nw_rec_sample;

typedef struct {
    const char *policy_hash, *candidate, *gate, *metric, *slice;
    bool advisory;
    const char *unit;
    double estimate, lo, hi, margin, p;
    int64_t n, n_needed;
    const char *verdict; /* "PASS" "FAIL" "INCONCLUSIVE" */
    const char *why;
} nw_rec_verdict;

typedef struct {
    const char *policy_hash, *regime, *candidate, *why, *json; /* regime: "batch1" "saturated" */
} nw_rec_decision;

typedef struct {
    const char *policy_hash, *name, *text, *decided;
} nw_rec_policy;

/* Refuses with the path: not SQLite, damaged, not a record, made by a newer narrow. */
NW_MUST_USE nw_status nw_record_open(const char *path, nw_record_mode mode, nw_record **out,
                                     nw_error *err);
void nw_record_close(nw_record *r); /* an open transaction is rolled back */
const char *nw_record_path(const nw_record *r);

/* One transaction around several writes. Without it each call below is one of its own. */
NW_MUST_USE nw_status nw_record_begin(nw_record *r, nw_error *err);
NW_MUST_USE nw_status nw_record_commit(nw_record *r, nw_error *err);
void nw_record_rollback(nw_record *r);

NW_MUST_USE nw_status nw_record_meta_put(nw_record *r, const char *key, const char *value,
                                         nw_error *err);
/* *value: copy in the arena; NULL when the key is absent. */
NW_MUST_USE nw_status nw_record_meta_get(nw_record *r, const char *key, nw_arena *arena,
                                         const char **value, nw_error *err);
NW_MUST_USE nw_status nw_record_machine_put(nw_record *r, const char *hash, const char *json,
                                            nw_error *err);
NW_MUST_USE nw_status nw_record_machine_get(nw_record *r, const char *hash, nw_arena *arena,
                                            const char **json, nw_error *err);

/* Inserts, or replaces the row of the same name. What is not known here (NULL, negative, NaN) stays
 * as it was, as long as the artifact is the same one. name and role must be given. */
NW_MUST_USE nw_status nw_record_candidate_put(nw_record *r, const nw_rec_candidate *c,
                                              nw_error *err);
/* *out NULL when there is none of that name; rows live in the arena. */
NW_MUST_USE nw_status nw_record_candidate_get(nw_record *r, const char *name, nw_arena *arena,
                                              const nw_rec_candidate **out, nw_error *err);
/* Baseline first, then by name. */
NW_MUST_USE nw_status nw_record_candidates(nw_record *r, nw_arena *arena, nw_rec_candidate **out,
                                           size_t *n, nw_error *err);

/* Starts a run (status, started and id are set here). A run of the same candidate, stage, suite,
 * settings_hash and artifact_hash that never ended: with `resume` it is taken up with its rows
 * (*resumed true), otherwise it and its rows are deleted. */
NW_MUST_USE nw_status nw_record_run_begin(nw_record *r, const nw_rec_run *run, bool resume,
                                          int64_t *id, bool *resumed, nw_error *err);
/* status: "done" "failed" "cancelled". */
NW_MUST_USE nw_status nw_record_run_end(nw_record *r, int64_t id, const char *status,
                                        nw_error *err);
/* *id = the newest done run with these keys, or 0. 0 too where that run used other kernels (another
 * KV format, other activations, another tier): it measured something else under the same name. */
NW_MUST_USE nw_status nw_record_run_done(nw_record *r, const char *candidate, const char *stage,
                                         const char *suite, const char *settings_hash,
                                         const char *artifact_hash, const char *kernel_map,
                                         int64_t *id, nw_error *err);
/* All runs in order of id; filters are exact, NULL means any. */
NW_MUST_USE nw_status nw_record_runs(nw_record *r, const char *candidate, const char *stage,
                                     const char *suite, const char *status, nw_arena *arena,
                                     nw_rec_run **out, size_t *n, nw_error *err);

/* Bulk writers: all n rows or none. A row with the same key is replaced, so that a resumed run may
 * write its last batch again. */
NW_MUST_USE nw_status nw_record_add_items(nw_record *r, int64_t run, const nw_rec_item *rows,
                                          size_t n, nw_error *err);
NW_MUST_USE nw_status nw_record_add_tokens(nw_record *r, int64_t run, const nw_rec_token *rows,
                                           size_t n, nw_error *err);
NW_MUST_USE nw_status nw_record_add_requests(nw_record *r, int64_t run, const nw_rec_request *rows,
                                             size_t n, nw_error *err);
NW_MUST_USE nw_status nw_record_add_windows(nw_record *r, int64_t run, const nw_rec_window *rows,
                                            size_t n, nw_error *err);
NW_MUST_USE nw_status nw_record_add_metrics(nw_record *r, int64_t run, const nw_rec_metric *rows,
                                            size_t n, nw_error *err);
NW_MUST_USE nw_status nw_record_add_kernels(nw_record *r, int64_t run, const nw_rec_kernel *rows,
                                            size_t n, nw_error *err);
NW_MUST_USE nw_status nw_record_add_series(nw_record *r, int64_t run, const nw_rec_sample *rows,
                                           size_t n, nw_error *err);

/* Readers: the callback sees each row in the order of its key and returns NW_OK to go on; anything
 * else ends the reading and is returned. Memory is one row, whatever the run holds. */
typedef nw_status (*nw_rec_item_fn)(void *ctx, const nw_rec_item *row, nw_error *err);
typedef nw_status (*nw_rec_token_fn)(void *ctx, const nw_rec_token *row, nw_error *err);
typedef nw_status (*nw_rec_request_fn)(void *ctx, const nw_rec_request *row, nw_error *err);
typedef nw_status (*nw_rec_kernel_fn)(void *ctx, const nw_rec_kernel *row, nw_error *err);
typedef nw_status (*nw_rec_sample_fn)(void *ctx, const nw_rec_sample *row, nw_error *err);

NW_MUST_USE nw_status nw_record_items(nw_record *r, int64_t run, nw_rec_item_fn each, void *ctx,
                                      nw_error *err);
NW_MUST_USE nw_status nw_record_tokens(nw_record *r, int64_t run, nw_rec_token_fn each, void *ctx,
                                       nw_error *err);
NW_MUST_USE nw_status nw_record_requests(nw_record *r, int64_t run, nw_rec_request_fn each,
                                         void *ctx, nw_error *err);
NW_MUST_USE nw_status nw_record_kernels(nw_record *r, int64_t run, nw_rec_kernel_fn each, void *ctx,
                                        nw_error *err);
NW_MUST_USE nw_status nw_record_series(nw_record *r, int64_t run, const char *name,
                                       nw_rec_sample_fn each, void *ctx, nw_error *err);
/* NW_E_FORMAT where a window begins before 0 or ends before it begins: spans can be computed. */
NW_MUST_USE nw_status nw_record_windows(nw_record *r, int64_t run, nw_arena *arena,
                                        nw_rec_window **out, size_t *n, nw_error *err);
NW_MUST_USE nw_status nw_record_metrics(nw_record *r, int64_t run, nw_arena *arena,
                                        nw_rec_metric **out, size_t *n, nw_error *err);
/* *value NaN when the run has no such metric. */
NW_MUST_USE nw_status nw_record_metric(nw_record *r, int64_t run, const char *name, double *value,
                                       nw_error *err);

/* Conclusions. Putting a policy deletes what was concluded under the same hash before. */
NW_MUST_USE nw_status nw_record_policy_put(nw_record *r, const nw_rec_policy *p, nw_error *err);
NW_MUST_USE nw_status nw_record_add_verdicts(nw_record *r, const nw_rec_verdict *rows, size_t n,
                                             nw_error *err);
NW_MUST_USE nw_status nw_record_add_decisions(nw_record *r, const nw_rec_decision *rows, size_t n,
                                              nw_error *err);
NW_MUST_USE nw_status nw_record_policies(nw_record *r, nw_arena *arena, nw_rec_policy **out,
                                         size_t *n, nw_error *err); /* newest first */
NW_MUST_USE nw_status nw_record_verdicts(nw_record *r, const char *policy_hash, nw_arena *arena,
                                         nw_rec_verdict **out, size_t *n, nw_error *err);
NW_MUST_USE nw_status nw_record_decisions(nw_record *r, const char *policy_hash, nw_arena *arena,
                                          nw_rec_decision **out, size_t *n, nw_error *err);

#endif
