/* Rows of the record as the gates and the frontier want them: items with the mean over their samples,
 * sums per window of text, requests with their times worked out. Everything lives in the arena.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_DECIDE_DATA_H
#define NW_DECIDE_DATA_H

#include "decide/policy.h"
#include "record/record.h"

typedef struct {
    const char *id, *cluster; /* cluster: the id where the item has none */
    double score;             /* mean over samples; NaN when any sample has none */
    double n_output, stop;    /* tokens a reply, share that stopped by itself; NaN unknown */
    double n_bytes;           /* of the reply; NaN unknown */
    double chance;            /* score of a blind guess; 0 where it cannot be told */
    unsigned n_samples;
} nw_dec_item;

typedef struct {
    nw_dec_item *items; /* by id */
    size_t n;
} nw_dec_items;

/* Per window: number of tokens and sums over them; NaN where a token has none. */
typedef struct {
    int64_t window;
    double count, nll, kl, flips;
} nw_dec_window;

typedef struct {
    nw_dec_window *windows; /* by number */
    size_t n;
} nw_dec_windows;

typedef struct {
    int64_t file_no, idx;
    bool ok;
    double ttft_ms, tpot_ms, e2e_ms; /* NaN: not measured, or undefined (TPOT of one token) */
    double received_tokens;          /* in the window */
    int correct;                     /* 1, 0; -1 not graded */
} nw_dec_request;

/* The requests that count: scheduled in the window of their file. */
typedef struct {
    const nw_rec_run *run;
    nw_dec_request *requests; /* by file and number */
    size_t n, n_files;
    double window_s; /* over all files */
    double offered_rps;
    int steady; /* 1 all, 0 not all, -1 not all tested, none unsteady */
} nw_dec_speed;

NW_MUST_USE nw_status nw_data_items(nw_record *rec, int64_t run, nw_arena *arena, nw_dec_items *out,
                                    nw_error *err);
NW_MUST_USE nw_status nw_data_windows(nw_record *rec, int64_t run, nw_arena *arena,
                                      nw_dec_windows *out, nw_error *err);
/* A run without windows counts whole: from its first scheduled request to its last token. */
NW_MUST_USE nw_status nw_data_speed(nw_record *rec, const nw_rec_run *run, nw_arena *arena,
                                    nw_dec_speed *out, nw_error *err);

/* Inside the service level: answered, and neither limit (0: none) exceeded. */
bool nw_request_good(const nw_dec_request *q, const nw_regime_rule *slo);

/* Why a candidate has no run of a suite, from its row's "not_measured": {"layer": reason}; *buf is filled
 * and returned; NULL where nothing is said. */
const char *nw_data_absent(const nw_rec_candidate *c, const char *suite, char *buf, size_t n);
/* Two runs may be compared: same suite, same data, same settings (what is said there about the
 * baseline itself aside). NULL, or what differs. Another tokenizer is another model, whose chat template
 * is its own: its tasks pair by item all the same. */
const char *nw_data_mismatch(const nw_rec_run *a, const nw_rec_run *b);
/* The same suite over the same data, whatever the settings are. */
bool nw_data_same_data(const nw_rec_run *a, const nw_rec_run *b);
/* Both name a tokenizer, and not the same: what is counted in tokens cannot be compared. */
bool nw_data_other_tokenizer(const nw_rec_run *a, const nw_rec_run *b);

#endif
