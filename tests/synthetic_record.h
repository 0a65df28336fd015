/* A record with known truths, for the tests of decide and report: candidates, paired items with a
 * given number of gains and losses, windows of text, requests with given latencies.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_SYNTHETIC_RECORD_H
#define NW_TESTS_SYNTHETIC_RECORD_H

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "record/record.h"
#include "table.h"

#define SYN_MS ((int64_t)1000000)

typedef struct {
    char dir[64], path[96];
    nw_record *rec;
    const char *machine;  /* of the runs that follow; NULL: none */
    const char *settings; /* JSON, of the runs that follow; NULL: none */
} syn;

static inline void syn_ok(nw_status st, const nw_error *err)
{
    if (st != NW_OK) {
        fail_msg("%s", err->message);
    }
}

static inline void syn_open(syn *s)
{
    nw_error err = {0};
    (void)snprintf(s->dir, sizeof s->dir, "/tmp/nw_syn_XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    (void)snprintf(s->path, sizeof s->path, "%s/study.db", s->dir);
    syn_ok(nw_record_open(s->path, NW_RECORD_WRITE, &s->rec, &err), &err);
}

static inline void syn_close(syn *s)
{
    static const char *const suffix[] = {"", "-wal", "-shm"};
    nw_record_close(s->rec);
    for (size_t i = 0; i < 3; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s%s", s->path, suffix[i]);
        (void)unlink(path);
    }
    (void)rmdir(s->dir);
}

static inline void syn_candidate(syn *s, const char *name, const char *weights, double mb,
                                 double bits)
{
    nw_error err = {0};
    const nw_rec_candidate c = {.name = name,
                                .role = strcmp(weights, "bf16") == 0 ? "baseline" : "candidate",
                                .artifact_hash = name,
                                .weights = weights,
                                .kv = "bf16",
                                .act = strcmp(weights, "int8") == 0 ? "a8" : "a16",
                                .file_bytes = (int64_t)(mb * 1e6),
                                .weight_bytes = (int64_t)(mb * 1e6),
                                .effective_bits = bits};
    syn_ok(nw_record_candidate_put(s->rec, &c, &err), &err);
}

static inline int64_t syn_begin_on(syn *s, const char *candidate, const char *stage,
                                   const char *suite, const char *settings, const char *data)
{
    nw_error err = {0};
    int64_t id = 0;
    const nw_rec_run run = {.candidate = candidate,
                            .stage = stage,
                            .suite = suite,
                            .settings_hash = settings,
                            .settings_json = s->settings,
                            .data_hash = data,
                            .machine_hash = s->machine,
                            .artifact_hash = candidate};
    syn_ok(nw_record_run_begin(s->rec, &run, false, &id, NULL, &err), &err);
    return id;
}

static inline int64_t syn_begin(syn *s, const char *candidate, const char *stage, const char *suite,
                                const char *settings)
{
    return syn_begin_on(s, candidate, stage, suite, settings, "data");
}

static inline void syn_end(syn *s, int64_t id)
{
    nw_error err = {0};
    syn_ok(nw_record_run_end(s->rec, id, "done", &err), &err);
}

/* A reply of n bytes, up to 511. */
static inline const char *syn_reply(double n)
{
    static char text[512];
    memset(text, 'x', sizeof text - 1);
    return text + (n < 511 ? 511 - (size_t)n : 0);
}

/* n items: the first `right` of the baseline's are right; a candidate gains `gain` of the others and
 * loses `loss` of those. Replies of `tokens` of four bytes each, all of which stop. */
static inline void syn_items_of(syn *s, const char *candidate, const char *suite,
                                const char *settings, size_t n, size_t right, size_t gain,
                                size_t loss, double tokens)
{
    nw_error err = {0};
    const int64_t id = syn_begin(s, candidate, "quality", suite, settings);
    nw_rec_item *rows = calloc(n, sizeof *rows);
    char(*names)[24] = calloc(n, sizeof *names);
    assert_true(rows != NULL && names != NULL);
    for (size_t i = 0; i < n; i++) {
        const bool ok = (i >= loss && i < right) || (i >= right && i < right + gain);
        (void)snprintf(names[i], sizeof names[i], "q%06zu", i);
        rows[i] = (nw_rec_item){.item_id = names[i],
                                .score = ok,
                                .correct = ok,
                                .n_prompt = 50,
                                .n_output = (int64_t)(tokens + (double)(i % 7)),
                                .output = syn_reply(4 * (tokens + (double)(i % 7))),
                                .finish = "stop"};
    }
    syn_ok(nw_record_add_items(s->rec, id, rows, n, &err), &err);
    free(rows);
    free(names);
    syn_end(s, id);
}

static inline void syn_items(syn *s, const char *candidate, const char *suite, size_t n,
                             size_t right, size_t gain, size_t loss, double tokens)
{
    syn_items_of(s, candidate, suite, "settings", n, right, gain, loss, tokens);
}

/* `windows` windows of 64 tokens; the candidate's nll is higher by `rise` on the mean. */
static inline void syn_text(syn *s, const char *candidate, size_t windows, double rise, double kl)
{
    nw_error err = {0};
    nw_rec_token row[64];
    const int64_t id = syn_begin(s, candidate, "quality", "perplexity", "settings");
    for (size_t w = 0; w < windows; w++) {
        for (size_t i = 0; i < 64; i++) {
            const double x = (double)(w * 64 + i);
            row[i] = (nw_rec_token){.window = (int64_t)w,
                                    .pos = (int64_t)i,
                                    .nll = 2.8 + sin(x) + rise * (1 + 0.5 * cos(3 * x)),
                                    .kl = kl,
                                    .top1 = i % 16 != 0 || kl == 0,
                                    .rank_base = 0};
        }
        syn_ok(nw_record_add_tokens(s->rec, id, row, 64, &err), &err);
    }
    syn_end(s, id);
}

/* n requests of 32 tokens, gap_ms apart; times vary by +- 5%, alike for all candidates. */
static inline int64_t syn_requests_at(syn *s, const char *candidate, const char *stage,
                                      const char *suite, size_t n, double ttft_ms, double tpot_ms,
                                      const char *data, int64_t gap_ms)
{
    nw_error err = {0};
    nw_rng rng = nw_rng_seed(7);
    const int64_t id = syn_begin_on(s, candidate, stage, suite, data, data);
    syn_ok(nw_record_begin(s->rec, &err), &err);
    for (size_t i = 0; i < n; i++) {
        const double jitter = 0.95 + 0.1 * nw_rng_unit(&rng);
        const int64_t at = (int64_t)i * gap_ms * SYN_MS;
        const int64_t f = at + (int64_t)(ttft_ms * jitter * 1e6);
        const int64_t l = f + (int64_t)(31 * tpot_ms * jitter * 1e6);
        const nw_rec_event events[] = {{f, 1}, {l, 31}};
        const nw_rec_request row = {.idx = (int64_t)i,
                                    .s_ns = at,
                                    .d_ns = at,
                                    .f_ns = f,
                                    .l_ns = l,
                                    .n_prompt = 64,
                                    .n_asked = 32,
                                    .n_output = 32,
                                    .status = "ok",
                                    .finish = "length",
                                    .events = events,
                                    .n_events = 2,
                                    .correct = -1};
        syn_ok(nw_record_add_requests(s->rec, id, &row, 1, &err), &err);
    }
    syn_ok(nw_record_commit(s->rec, &err), &err);
    if (strcmp(stage, "load") == 0) {
        const nw_rec_window w = {0, 0,   (int64_t)n * gap_ms * SYN_MS, 1000.0 / (double)gap_ms,
                                 1, NULL};
        syn_ok(nw_record_add_windows(s->rec, id, &w, 1, &err), &err);
    }
    syn_end(s, id);
    return id;
}

static inline int64_t syn_requests(syn *s, const char *candidate, const char *stage,
                                   const char *suite, size_t n, double ttft_ms, double tpot_ms)
{
    return syn_requests_at(s, candidate, stage, suite, n, ttft_ms, tpot_ms, "data", 100);
}

static inline void syn_metric(syn *s, int64_t run, const char *name, double value)
{
    nw_error err = {0};
    const nw_rec_metric m = {name, value, NULL, NULL};
    syn_ok(nw_record_add_metrics(s->rec, run, &m, 1, &err), &err);
}

#endif
