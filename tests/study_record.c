/* See study_record.h. Latencies are log-normal around a rate that each candidate has; scores of items
 * flip with a share that each candidate has.
 * SPDX-License-Identifier: Apache-2.0 */
#include "study_record.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define N_WINDOWS 12
#define N_TOKENS  40
#define N_ITEMS   48
#define N_RATES   3

static const struct {
    const char *name, *weights, *act;
    double bits, weight_mib, tpot_ms, ttft_ms, nll_more, flips, capacity;
} looks[] = {
    {"bf16", "bf16", "a16", 16, 256.6, 16.0, 900, 0, 0, 2.2},
    {"int8-w8a8", "int8-w8a8", "a8", 8.03, 162.4, 9.4, 520, 0.004, 0.02, 4.1},
    {"int4-g64", "int4-g64", "a16", 4.25, 110.3, 7.0, 910, 0.09, 0.16, 2.6},
    {"int4-g32", "int4-g32", "a16", 4.5, 113.0, 7.3, 905, 0.05, 0.09, 2.5},
};

static void must(nw_status st, const nw_error *err)
{
    if (st != NW_OK) {
        (void)fprintf(stderr, "study record: %s\n", err->message);
        exit(1);
    }
}

typedef struct {
    nw_record *rec;
    const nw_study_record *o;
    nw_rng rng;
    nw_error err;
} maker;

static const char *name_of(const maker *m, size_t c)
{
    return c == 2 && m->o->name != NULL ? m->o->name : looks[c].name;
}

static int64_t begin(maker *m, size_t c, const char *stage, const char *suite, const char *settings,
                     const char *data)
{
    int64_t id = 0;
    bool resumed = false;
    const nw_rec_run run = {.candidate = name_of(m, c),
                            .stage = stage,
                            .suite = suite,
                            .settings_hash = settings,
                            .settings_json = "{\"seed\":1}",
                            .data_hash = data,
                            .artifact_hash = looks[c].name,
                            .machine_hash = "machine",
                            .kernel_map = "q: int4 x avx512",
                            .threads = 2,
                            .seed = 1,
                            .tool_version = "0.1.0"};
    must(nw_record_run_begin(m->rec, &run, false, &id, &resumed, &m->err), &m->err);
    return id;
}

static void end(maker *m, int64_t id)
{
    must(nw_record_run_end(m->rec, id, "done", &m->err), &m->err);
}

static void put_candidates(maker *m)
{
    must(nw_record_machine_put(m->rec, "machine",
                               "{\"cpu\":\"Test CPU\",\"threads\":2,\"memory_bytes\":8589934592}",
                               &m->err),
         &m->err);
    for (size_t c = 0; c < NW_COUNT(looks); c++) {
        const nw_rec_candidate row = {
            .name = name_of(m, c),
            .role = c == 0 ? "baseline" : "candidate",
            .artifact = "artifacts/x",
            .artifact_hash = looks[c].name,
            .weights = looks[c].weights,
            .kv = "bf16",
            .act = looks[c].act,
            .file_bytes = (int64_t)(looks[c].weight_mib * 1048576) + 4096,
            .weight_bytes = (int64_t)(looks[c].weight_mib * 1048576),
            .effective_bits = looks[c].bits,
            .json = m->o->hostile ? "{\"note\":\"</code><script>alert(2)</script>\"}"
                                  : "{\"note\":\"BF16 made from published 4-bit weights\"}"};
        must(nw_record_candidate_put(m->rec, &row, &m->err), &m->err);
    }
}

/* The same text for all: what a window costs is drawn with one seed, what a candidate adds with
 * another. */
static void put_tokens(maker *m, size_t c)
{
    nw_rec_token rows[N_WINDOWS * N_TOKENS];
    nw_rng text;
    const int64_t id = begin(m, c, "quality", "perplexity", "ppl", "text");

    text = nw_rng_seed(99);
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        const double base = 3 * nw_rng_exponential(&text);
        const double kl = looks[c].nll_more * nw_rng_exponential(&m->rng);
        rows[i] = (nw_rec_token){.window = (int64_t)(i / N_TOKENS),
                                 .pos = (int64_t)(i % N_TOKENS),
                                 .nll = base + kl,
                                 .kl = kl,
                                 .top1 = nw_rng_unit(&m->rng) >= looks[c].flips,
                                 .rank_base = 0};
    }
    must(nw_record_add_tokens(m->rec, id, rows, NW_COUNT(rows), &m->err), &m->err);
    end(m, id);
}

static void put_items(maker *m, size_t c)
{
    static const char *const kinds[] = {"addition", "copy", "lookup"};
    const size_t n = m->o->n_items > 0 ? m->o->n_items : N_ITEMS;
    nw_rng task;
    const int64_t id = begin(m, c, "quality", "generate:assistant", "gen", "items");

    task = nw_rng_seed(98);
    for (size_t i = 0; i < n; i++) {
        char name[32];
        char cluster[32];
        char text[96];
        const bool right = nw_rng_unit(&task) < 0.7;
        const bool flip = nw_rng_unit(&m->rng) < looks[c].flips;
        (void)snprintf(name, sizeof name, "item-%04zu", i);
        (void)snprintf(cluster, sizeof cluster, "%s/%zu", kinds[i % 3], i / 3);
        (void)snprintf(text, sizeof text, "%s%zu%s",
                       m->o->hostile ? "]]> \"quoted\" 'single' & <b onclick=x> "
                                     : "The answer is ",
                       flip ? i + 1 : i, right != flip ? "." : ", I think.");
        const nw_rec_item row = {.item_id = name,
                                 .cluster = cluster,
                                 .score = right != flip,
                                 .correct = right != flip,
                                 .n_prompt = 30,
                                 .n_output = 12 + (int64_t)(i % 5),
                                 .finish = "stop",
                                 .output = text,
                                 .expected = "42"};
        must(nw_record_add_items(m->rec, id, &row, 1, &m->err), &m->err);
    }
    end(m, id);
}

static double jitter(maker *m, double spread)
{
    return exp(spread * nw_rng_normal(&m->rng));
}

static void put_request(maker *m, int64_t run, int64_t idx, int64_t s_ns, double ttft_ms,
                        double tpot_ms)
{
    enum { N_OUT = 16 };
    nw_rec_event events[N_OUT];
    const int64_t f_ns = s_ns + (int64_t)(ttft_ms * 1e6);
    const bool failed = m->o->hostile && idx == 3;

    for (int64_t i = 0; i < N_OUT; i++) {
        events[i] = (nw_rec_event){f_ns + (int64_t)((double)i * tpot_ms * 1e6), 1};
    }
    const nw_rec_request row = {.idx = idx,
                                .s_ns = s_ns,
                                .d_ns = s_ns + 1000,
                                .f_ns = failed ? -1 : f_ns,
                                .l_ns = failed ? -1 : events[N_OUT - 1].t_ns,
                                .n_prompt = 64,
                                .n_asked = N_OUT,
                                .n_output = failed ? 0 : N_OUT,
                                .status = failed ? "error" : "ok",
                                .finish = failed ? "error" : "length",
                                .error = failed ? "<img src=x onerror=alert(3)>" : NULL,
                                .events = events,
                                .n_events = failed ? 0 : N_OUT,
                                .correct = -1};
    must(nw_record_add_requests(m->rec, run, &row, 1, &m->err), &m->err);
}

static void put_costs(maker *m, size_t c, int64_t run)
{
    const nw_rec_metric rows[] = {
        {"peak_rss_bytes", (looks[c].weight_mib + 62) * 1048576, "bytes", NULL},
        {"weight_bytes", looks[c].weight_mib * 1048576, "bytes", NULL},
        {"kv_bytes_per_token", 23040, "bytes", NULL},
        {"workspace_bytes", 31 * 1048576.0, "bytes", NULL},
        {"load_s", 0.4, "s", NULL},
    };
    const nw_rec_kernel kernels[] = {
        {"gate_up", 0, "3072x576", "decode", "avx512 int4", "avx512 int4", 900, 61000000, 800000000,
         0},
        {"gate_up", 1, "3072x576", "decode", "avx512 int4", "avx512 int4", 900, 60000000, 800000000,
         0},
        {"down", 0, "576x1536", "decode", "avx512 int4", c == 3 ? "ref bf16" : "avx512 int4", 900,
         40000000, 400000000, c == 3 ? 3000000 : 0},
        {"attention", 0, "9/3x64", "prefill", "avx512", "avx512", 30, 20000000, 1000000, 0},
    };
    must(nw_record_add_metrics(m->rec, run, rows, NW_COUNT(rows), &m->err), &m->err);
    must(nw_record_add_kernels(m->rec, run, kernels, NW_COUNT(kernels), &m->err), &m->err);
}

static void put_micro(maker *m, size_t c)
{
    const int64_t id = begin(m, c, "micro", "batch1", "batch1", NULL);

    for (size_t i = 0; i < m->o->n_micro; i++) {
        put_request(m, id, (int64_t)i, (int64_t)i * 4000000000, looks[c].ttft_ms * jitter(m, 0.04),
                    looks[c].tpot_ms * jitter(m, 0.05));
    }
    put_costs(m, c, id);
    end(m, id);
}

/* Answers that end by themselves, half as long again with the second candidate; a tenth hits the limit. */
static void put_natural(maker *m, size_t c)
{
    const int64_t id = begin(m, c, "micro", "batch1-natural", "batch1-natural", NULL);

    for (int64_t i = 0; i < (int64_t)m->o->n_micro; i++) {
        const int64_t n = (16 + i % 9) * (c == 2 ? 3 : 2) / 2;
        const int64_t s_ns = i * 4000000000;
        const int64_t f_ns = s_ns + (int64_t)(looks[c].ttft_ms * 1e6);
        const nw_rec_request row = {.idx = i,
                                    .s_ns = s_ns,
                                    .d_ns = s_ns,
                                    .f_ns = f_ns,
                                    .l_ns = f_ns + (int64_t)((double)n * looks[c].tpot_ms * 1e6),
                                    .n_prompt = 64,
                                    .n_asked = 40,
                                    .n_output = n,
                                    .status = "ok",
                                    .finish = i % 10 == 9 ? "length" : "stop",
                                    .correct = -1};
        must(nw_record_add_requests(m->rec, id, &row, 1, &m->err), &m->err);
    }
    end(m, id);
}

static void put_load(maker *m, size_t c, size_t rate)
{
    static const double rates[N_RATES] = {0.9, 1.8, 3.6};
    char name[16];
    (void)snprintf(name, sizeof name, "arrivals-%zu", rate);
    const int64_t id = begin(m, c, "load", "load", name, name);
    const double gap_ns = 1e9 / rates[rate];
    const double busy = rates[rate] / looks[c].capacity;
    const nw_rec_window w = {.start_ns = 0,
                             .end_ns = (int64_t)((double)m->o->n_load * gap_ns),
                             .offered_rps = rates[rate],
                             .steady = busy < 1};

    for (size_t i = 0; i < m->o->n_load; i++) {
        const double queue = busy < 0.95 ? busy / (1 - busy) : 18 + 30 * busy;
        put_request(m, id, (int64_t)i, (int64_t)((double)i * gap_ns),
                    looks[c].ttft_ms * 0.25 * (1 + queue * jitter(m, 0.4)) * jitter(m, 0.15),
                    looks[c].tpot_ms * (1 + 2 * busy) * jitter(m, 0.12));
    }
    must(nw_record_add_windows(m->rec, id, &w, 1, &m->err), &m->err);
    put_costs(m, c, id);
    end(m, id);
}

static const char policy_text[] =
    "policy: test\nsaturated: {ttft_ms: 1000, tpot_ms: 60, attainment: 0.9}\n";

static void put_verdicts(maker *m)
{
    static const nw_rec_verdict rows[] = {
        {"policyhash0", "int8-w8a8", "task score", "relative", "generate:assistant", false, "%",
         -0.52, -1.61, 0.48, 8, 0.01, 480, -1, "PASS", "the loss lies inside the margin"},
        {"policyhash0", NULL, "task score", "relative", "generate:assistant", false, "%", -14.2,
         -21.0, -8.8, 8, 0.99, 480, -1, "FAIL", "keep the offending layers unquantized"},
        {"policyhash0", "int4-g32", "task score", "relative", "generate:assistant", false, "%",
         -5.1, -11.0, 1.2, 8, 0.4, 48, 309, "INCONCLUSIVE", "261 more items needed (309 in all)"},
        {"policyhash0", "int8-w8a8", "perplexity", "perplexity", "perplexity", true, "ln", 0.004,
         0.002, 0.006, 0.015, 0.001, 480, -1, "PASS", "the loss lies inside the margin"},
        {"policyhash0", NULL, "perplexity", "perplexity", "perplexity", true, "ln", 0.09, 0.08, 0.1,
         0.03, 1, 480, -1, "FAIL", "recalibrate on better data"},
        {"policyhash0", "int4-g32", "perplexity", "perplexity", "perplexity", true, "ln", 0.05,
         0.045, 0.056, 0.03, 1, 480, -1, "FAIL", "recalibrate on better data"},
    };
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        nw_rec_verdict v = rows[i];
        v.candidate = v.candidate != NULL ? v.candidate : name_of(m, 2);
        must(nw_record_add_verdicts(m->rec, &v, 1, &m->err), &m->err);
    }
}

static json_t *point(const maker *m, size_t c, double cost, double quality, const char *what)
{
    json_t *name = json_string(name_of(m, c)); /* NULL where it is not UTF-8 */
    return json_pack("{s:o, s:b, s:b, s:[{s:s, s:s, s:f, s:f, s:f}], s:f, s:f, s:f, s:f}",
                     "candidate", name != NULL ? name : json_null(), "eligible",
                     strcmp(what, "pass") == 0, "hollow", strcmp(what, "open") == 0, "objectives",
                     "name", "worst slice", "unit", "%", "value", quality, "lo", quality * 1.6,
                     "hi", quality * 0.5, "cost", cost, "cost_lo", cost * 0.97, "cost_hi",
                     cost * 1.04, "p_frontier", strcmp(what, "pass") == 0 ? 0.98 : 0.0);
}

static void put_decision(maker *m, const char *regime, const double cost[4], const char *name,
                         const char *unit)
{
    json_t *doc =
        json_pack("{s:s, s:b, s:s, s:s, s:s, s:s, s:[s], s:[o, o, o, o]}", "regime", regime,
                  "fallback", 0, "mechanism", "fewer bytes of weights are read for each token",
                  "operating", "a test, 48 requests", "cost_name", name, "cost_unit", unit,
                  "missing", "int4-g32, task score: 261 more items needed (309 in all)", "points",
                  point(m, 0, cost[0], 0, "pass"), point(m, 1, cost[1], -0.52, "pass"),
                  point(m, 2, cost[2], -14.2, "fail"), point(m, 3, cost[3], -5.1, "open"));
    char *text = json_dumps(doc, JSON_SORT_KEYS | JSON_COMPACT);
    const nw_rec_decision row = {"policyhash0", regime, "int8-w8a8",
                                 "passes every gate and costs least", text};

    must(nw_record_add_decisions(m->rec, &row, 1, &m->err), &m->err);
    free(text);
    json_decref(doc);
}

static void put_conclusions(maker *m)
{
    const nw_rec_policy policy = {"policyhash0", "test", policy_text, "2026-01-01T00:00:00Z"};
    const double batch1[] = {2.9e3, 1.7e3, 1.8e3, 1.82e3};
    const double load[] = {0.55, 0.29, 0.41, 0.42};

    must(nw_record_policy_put(m->rec, &policy, &m->err), &m->err);
    put_verdicts(m);
    put_decision(m, "batch1", batch1, "time per request", "ms");
    put_decision(m, "saturated", load, "machine time per request", "s");
}

void nw_study_record_make(const char *path, const nw_study_record *o)
{
    maker m = {.o = o};

    m.rng = nw_rng_seed(20260101);
    must(nw_record_open(path, NW_RECORD_WRITE, &m.rec, &m.err), &m.err);
    must(nw_record_begin(m.rec, &m.err), &m.err);
    put_candidates(&m);
    for (size_t c = 0; c < NW_COUNT(looks); c++) {
        put_tokens(&m, c);
        put_items(&m, c);
        put_micro(&m, c);
        for (size_t r = 0; r < N_RATES && o->n_load > 0; r++) {
            put_load(&m, c, r);
        }
    }
    for (size_t c = 0; c < NW_COUNT(looks); c++) {
        put_natural(&m, c);
    }
    if (o->decided) {
        put_conclusions(&m);
    }
    must(nw_record_commit(m.rec, &m.err), &m.err);
    nw_record_close(m.rec);
}
