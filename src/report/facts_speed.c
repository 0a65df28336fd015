/* Speed and cost from rows: latencies of requests, goodput of windows, metrics, kernels.
 *
 * TTFT = first token - scheduled; TPOT = (last - first) / (n - 1), undefined for n = 1. At batch 1
 * scheduled is when the request was sent. A request is good when it ended well, within both limits;
 * every request scheduled in the window counts in the denominator.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "report/facts.h"
#include "stats/summary.h"

#define Z95         1.959963984540054 /* two-sided 95% */
#define TWO_SIDED   0.025
#define RATE_SPREAD 0.05 /* offered rates closer than this are one rate */

static nw_status add_ms(nw_facts *f, nw_latency *l, size_t *cap, double ms, nw_error *err)
{
    l->ms = nw_facts_grow(f, l->ms, l->n, cap, sizeof *l->ms);
    if (l->ms == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu requests", l->n);
    }
    l->ms[l->n++] = ms;
    return NW_OK;
}

static double ttft_ms(const nw_rec_request *q)
{
    return q->s_ns >= 0 && q->f_ns >= q->s_ns ? (double)(q->f_ns - q->s_ns) * 1e-6 : (double)NAN;
}

static double tpot_ms(const nw_rec_request *q)
{
    return q->n_output >= 2 && q->f_ns >= 0 && q->l_ns >= q->f_ns
               ? (double)(q->l_ns - q->f_ns) * 1e-6 / (double)(q->n_output - 1)
               : (double)NAN;
}

typedef struct {
    nw_facts *f;
    nw_latency *ttft, *tpot, prefill;
    size_t ttft_cap, tpot_cap, prefill_cap;
} micro_reader;

static nw_status read_micro(void *ctx, const nw_rec_request *q, nw_error *err)
{
    micro_reader *m = ctx;
    const double ttft = ttft_ms(q);
    const double tpot = tpot_ms(q);
    nw_status st = NW_OK;

    if (strcmp(q->status, "ok") != 0) {
        return NW_OK;
    }
    if (!isnan(ttft)) {
        st = add_ms(m->f, m->ttft, &m->ttft_cap, ttft, err);
    }
    if (st == NW_OK && !isnan(tpot)) {
        st = add_ms(m->f, m->tpot, &m->tpot_cap, tpot, err);
    }
    if (st == NW_OK && q->d_ns >= 0 && q->f_ns > q->d_ns && q->n_prompt > 0) {
        st = add_ms(m->f, &m->prefill, &m->prefill_cap,
                    (double)q->n_prompt * 1e9 / (double)(q->f_ns - q->d_ns), err);
    }
    return st;
}

nw_estimate nw_facts_median(const double *sorted, size_t n)
{
    nw_estimate e = {(double)NAN, (double)NAN, (double)NAN};

    if (n == 0) {
        return e;
    }
    const nw_ranks r = nw_quantile_ranks(n, 0.5, TWO_SIDED);
    e.value = nw_percentile(sorted, n, 0.5);
    e.lo = r.lo > 0 ? sorted[r.lo - 1] : (double)NAN;
    e.hi = r.hi > 0 ? sorted[r.hi - 1] : (double)NAN;
    return e;
}

static nw_status load_micro(nw_record *r, nw_facts *f, nw_facts_candidate *c, nw_error *err)
{
    const nw_rec_run *run = nw_facts_run(f, c->row.name, "micro", "batch1");
    micro_reader m = {.f = f, .ttft = &c->ttft1, .tpot = &c->tpot1};

    run = run != NULL ? run : nw_facts_run(f, c->row.name, "micro", NULL);
    if (run == NULL) {
        return NW_OK;
    }
    c->micro_run = run->id;
    const nw_status st = nw_record_requests(r, run->id, read_micro, &m, err);
    nw_sort(c->ttft1.ms, c->ttft1.n);
    nw_sort(c->tpot1.ms, c->tpot1.n);
    nw_sort(m.prefill.ms, m.prefill.n);
    c->prefill_tps = nw_facts_median(m.prefill.ms, m.prefill.n);
    const nw_estimate tpot = nw_facts_median(c->tpot1.ms, c->tpot1.n);
    c->decode_tps = (nw_estimate){1e3 / tpot.value, 1e3 / tpot.hi, 1e3 / tpot.lo};
    return st;
}

typedef struct {
    nw_facts *f;
    nw_natural *out;
    size_t e2e_cap;
    double tokens;
} natural_reader;

static nw_status read_natural(void *ctx, const nw_rec_request *q, nw_error *err)
{
    natural_reader *r = ctx;
    nw_natural *o = r->out;

    if (strcmp(q->status, "ok") != 0) {
        return NW_OK;
    }
    o->n++;
    o->n_stop += q->finish != NULL && strcmp(q->finish, "stop") == 0 ? 1 : 0;
    if (q->n_output >= 0) {
        o->n_tokens++;
        r->tokens += (double)q->n_output;
    }
    return q->s_ns >= 0 && q->l_ns >= q->s_ns
               ? add_ms(r->f, &o->e2e, &r->e2e_cap, (double)(q->l_ns - q->s_ns) * 1e-6, err)
               : NW_OK;
}

static nw_status load_natural(nw_record *r, nw_facts *f, nw_facts_candidate *c, nw_error *err)
{
    const nw_rec_run *run = nw_facts_run(f, c->row.name, "micro", "batch1-natural");
    natural_reader n = {.f = f, .out = &c->natural};

    if (run == NULL) {
        return NW_OK;
    }
    const nw_status st = nw_record_requests(r, run->id, read_natural, &n, err);
    nw_sort(c->natural.e2e.ms, c->natural.e2e.n);
    c->natural.mean_tokens =
        c->natural.n_tokens > 0 ? n.tokens / (double)c->natural.n_tokens : (double)NAN;
    return st;
}

typedef struct {
    nw_facts *f;
    const nw_rec_window *windows;
    size_t n_windows;
    nw_load_point *p;
    size_t ttft_cap, tpot_cap;
    double in_flight_ns;
} load_reader;

/* Tokens that came inside [start, end). */
static double tokens_in(const nw_rec_request *q, int64_t start, int64_t end)
{
    double n = 0;

    for (size_t i = 0; i < q->n_events; i++) {
        if (q->events[i].t_ns >= start && q->events[i].t_ns < end) {
            n += q->events[i].n_tokens;
        }
    }
    return n;
}

static bool is_good(const nw_facts *f, double ttft, double tpot, int64_t n_output)
{
    const bool first = f->slo_ttft_ms <= 0 || ttft <= f->slo_ttft_ms;
    const bool each = f->slo_tpot_ms <= 0 || n_output < 2 || tpot <= f->slo_tpot_ms;
    return first && each && !isnan(ttft);
}

/* A request that lies in the window by its schedule. */
static nw_status count_scheduled(load_reader *l, const nw_rec_request *q, nw_error *err)
{
    nw_load_point *p = l->p;
    const double ttft = ttft_ms(q);
    const double tpot = tpot_ms(q);
    nw_status st = NW_OK;

    p->n++;
    if (strcmp(q->status, "ok") != 0) {
        return NW_OK;
    }
    p->n_ok++;
    p->n_good += is_good(l->f, ttft, tpot, q->n_output) ? 1 : 0;
    if (!isnan(ttft)) {
        st = add_ms(l->f, &p->ttft, &l->ttft_cap, ttft, err);
    }
    if (st == NW_OK && !isnan(tpot)) {
        st = add_ms(l->f, &p->tpot, &l->tpot_cap, tpot, err);
    }
    return st;
}

static nw_status read_load(void *ctx, const nw_rec_request *q, nw_error *err)
{
    load_reader *l = ctx;
    nw_status st = NW_OK;

    for (size_t k = 0; k < l->n_windows && st == NW_OK; k++) {
        const nw_rec_window *w = &l->windows[k];
        if (w->file_no != q->file_no) {
            continue;
        }
        if (q->s_ns >= w->start_ns && q->s_ns < w->end_ns) {
            st = count_scheduled(l, q, err);
        }
        l->p->throughput_tps += tokens_in(q, w->start_ns, w->end_ns);
        const int64_t from = q->d_ns > w->start_ns ? q->d_ns : w->start_ns;
        const int64_t to = q->l_ns < w->end_ns ? q->l_ns : w->end_ns;
        if (q->d_ns >= 0 && to > from) {
            l->in_flight_ns += (double)(to - from);
        }
    }
    return st;
}

/* The window's own limits, where no policy gives any. */
static void read_window_limits(nw_facts *f, const nw_rec_window *w)
{
    nw_error ignored = {0};
    json_t *doc = NULL;

    if (f->policy != NULL || w->json == NULL || f->slo_ttft_ms > 0 || f->slo_tpot_ms > 0 ||
        nw_json_parse("window", w->json, strlen(w->json), &doc, &ignored) != NW_OK) {
        return;
    }
    if (json_is_object(doc)) {
        (void)(nw_json_opt_double(doc, "window", "slo_ttft_ms", 0, 1e9, &f->slo_ttft_ms,
                                  &ignored) == NW_OK &&
               nw_json_opt_double(doc, "window", "slo_tpot_ms", 0, 1e9, &f->slo_tpot_ms,
                                  &ignored) == NW_OK);
    }
    json_decref(doc);
}

static void begin_point(load_reader *l)
{
    nw_load_point *p = l->p;
    double rate = 0;

    p->steady = l->n_windows > 0 ? 1 : -1;
    for (size_t k = 0; k < l->n_windows; k++) {
        const nw_rec_window *w = &l->windows[k];
        read_window_limits(l->f, w);
        p->window_s += ((double)w->end_ns - (double)w->start_ns) * 1e-9;
        rate += w->offered_rps;
        if (p->steady != 0 && (w->steady == 0 || w->steady < p->steady)) {
            p->steady = w->steady; /* unsteady outweighs not tested */
        }
    }
    p->n_files = l->n_windows;
    p->offered_rps = l->n_windows > 0 ? rate / (double)l->n_windows : (double)NAN;
}

static void finish_point(nw_load_point *p, double in_flight_ns)
{
    const double w = p->window_s;

    nw_sort(p->ttft.ms, p->ttft.n);
    nw_sort(p->tpot.ms, p->tpot.n);
    p->goodput_rps = (nw_estimate){(double)NAN, (double)NAN, (double)NAN};
    p->attainment = (double)NAN;
    if (isnan(p->offered_rps) && w > 0) { /* not in the record: what was scheduled in the windows */
        p->offered_rps = (double)p->n / w;
    }
    if (p->n > 0 && w > 0) {
        const nw_interval i = nw_wilson(p->n_good, p->n, Z95);
        const double rate = (double)p->n / w;
        p->attainment = (double)p->n_good / (double)p->n;
        p->goodput_rps =
            (nw_estimate){p->attainment * rate, p->n_good == 0 ? 0 : i.lo * rate, i.hi * rate};
    }
    p->throughput_tps = w > 0 ? p->throughput_tps / w : (double)NAN;
    p->mean_in_flight = w > 0 ? in_flight_ns * 1e-9 / w : (double)NAN;
}

static int by_rate(const void *a, const void *b)
{
    const double x = ((const nw_load_point *)a)->offered_rps;
    const double y = ((const nw_load_point *)b)->offered_rps;
    return (x > y) - (x < y);
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

/* Is run i the newest finished one over its workload? */
static bool is_newest(const nw_facts *f, size_t i)
{
    const nw_rec_run *run = &f->runs[i];

    for (size_t k = i + 1; k < f->n_runs; k++) {
        const nw_rec_run *later = &f->runs[k];
        if (same_text(later->candidate, run->candidate) && same_text(later->stage, run->stage) &&
            same_text(later->suite, run->suite) && same_text(later->status, "done") &&
            same_text(later->data_hash, run->data_hash) &&
            same_text(later->settings_hash, run->settings_hash)) {
            return false;
        }
    }
    return true;
}

static int by_offered(const void *a, const void *b)
{
    const double x = ((const nw_rec_window *)a)->offered_rps;
    const double y = ((const nw_rec_window *)b)->offered_rps;
    return (x > y) - (x < y);
}

/* How many of the windows, which are in order of their rates, belong to the rate of the first. Files of
 * one rate differ by chance; the rates of a curve lie further apart than that. */
static size_t same_rate(const nw_rec_window *w, size_t n)
{
    size_t k = 1;

    while (k < n && w[k].offered_rps <= w[0].offered_rps * (1 + RATE_SPREAD)) {
        k++;
    }
    return k;
}

/* The rates of one run; a run may hold files of several. */
static nw_status load_run(nw_record *r, nw_facts *f, nw_facts_candidate *c, size_t *cap,
                          const nw_rec_run *run, nw_error *err)
{
    nw_rec_window *windows = NULL;
    size_t n = 0;
    nw_status st = nw_record_windows(r, run->id, &f->arena, &windows, &n, err);

    if (st != NW_OK) {
        return st;
    }
    qsort(windows, n, sizeof *windows, by_offered);
    for (size_t i = 0, k = 0; i < n && st == NW_OK; i += k) {
        k = same_rate(windows + i, n - i);
        c->load = nw_facts_grow(f, c->load, c->n_load, cap, sizeof *c->load);
        if (c->load == NULL) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu load points", c->n_load);
        }
        nw_load_point *p = &c->load[c->n_load++];
        *p = (nw_load_point){.run = run->id, .data_hash = run->data_hash};
        load_reader l = {.f = f, .p = p, .windows = windows + i, .n_windows = k};
        begin_point(&l);
        st = nw_record_requests(r, run->id, read_load, &l, err);
        finish_point(p, l.in_flight_ns);
    }
    return st;
}

static nw_status load_load(nw_record *r, nw_facts *f, nw_facts_candidate *c, nw_error *err)
{
    size_t cap = 0;
    nw_status st = NW_OK;

    for (size_t i = 0; i < f->n_runs && st == NW_OK; i++) {
        const nw_rec_run *run = &f->runs[i];
        if (same_text(run->candidate, c->row.name) && same_text(run->stage, "load") &&
            same_text(run->status, "done") && is_newest(f, i)) {
            st = load_run(r, f, c, &cap, run, err);
        }
    }
    if (c->n_load > 0) {
        qsort(c->load, c->n_load, sizeof *c->load, by_rate);
        c->load_run = c->load[c->n_load - 1].run;
    }
    return st;
}

/* The metric of the load run, or else of batch 1. */
static nw_status metric_of(nw_record *r, const nw_facts_candidate *c, const char *name, double *out,
                           nw_error *err)
{
    const int64_t runs[] = {c->load_run, c->micro_run};

    *out = (double)NAN;
    for (size_t i = 0; i < NW_COUNT(runs) && isnan(*out); i++) {
        if (runs[i] != 0 && nw_record_metric(r, runs[i], name, out, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

static nw_status load_costs(nw_record *r, nw_facts_candidate *c, nw_error *err)
{
    const struct {
        const char *name;
        double *value;
    } rows[] = {
        {"peak_rss_bytes", &c->peak_rss_bytes},
        {"weight_bytes", &c->weight_bytes},
        {"workspace_bytes", &c->workspace_bytes},
        {"kv_bytes_per_token", &c->kv_bytes_per_token},
        {"load_s", &c->load_s},
    };
    nw_status st = NW_OK;

    for (size_t i = 0; i < NW_COUNT(rows) && st == NW_OK; i++) {
        st = metric_of(r, c, rows[i].name, rows[i].value, err);
    }
    if (isnan(c->weight_bytes) && c->row.weight_bytes > 0) {
        c->weight_bytes = (double)c->row.weight_bytes;
    }
    return st;
}

typedef struct {
    nw_facts *f;
    nw_facts_candidate *c;
    size_t cap;
} kernel_reader;

/* A record's numbers may be anything. */
static int64_t sum_of(int64_t a, int64_t b)
{
    int64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* Layers are summed: a row of the page is an operation in a phase with a kernel. */
static nw_status read_kernel(void *ctx, const nw_rec_kernel *row, nw_error *err)
{
    kernel_reader *k = ctx;
    nw_facts_candidate *c = k->c;

    for (size_t i = 0; i < c->n_kernels; i++) {
        nw_rec_kernel *have = &c->kernels[i];
        if (strcmp(have->op, row->op) == 0 && strcmp(have->phase, row->phase) == 0 &&
            strcmp(have->intended, row->intended) == 0 && strcmp(have->used, row->used) == 0) {
            have->calls = sum_of(have->calls, row->calls);
            have->ns = sum_of(have->ns, row->ns);
            have->bytes = sum_of(have->bytes, row->bytes);
            have->bytes_converted = sum_of(have->bytes_converted, row->bytes_converted);
            return NW_OK;
        }
    }
    c->kernels = nw_facts_grow(k->f, c->kernels, c->n_kernels, &k->cap, sizeof *c->kernels);
    if (c->kernels == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu kernels", c->n_kernels);
    }
    nw_rec_kernel *copy = &c->kernels[c->n_kernels++];
    *copy = *row;
    copy->op = nw_arena_strndup(&k->f->arena, row->op, strlen(row->op));
    copy->phase = nw_arena_strndup(&k->f->arena, row->phase, strlen(row->phase));
    copy->intended = nw_arena_strndup(&k->f->arena, row->intended, strlen(row->intended));
    copy->used = nw_arena_strndup(&k->f->arena, row->used, strlen(row->used));
    copy->shape = NULL;
    return copy->op != NULL && copy->phase != NULL && copy->intended != NULL && copy->used != NULL
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "no memory for a kernel row");
}

static nw_status load_kernels(nw_record *r, nw_facts *f, nw_facts_candidate *c, nw_error *err)
{
    kernel_reader k = {.f = f, .c = c};
    const int64_t runs[] = {c->load_run, c->micro_run};
    nw_status st = NW_OK;

    for (size_t i = 0; i < NW_COUNT(runs) && st == NW_OK && c->n_kernels == 0; i++) {
        st = runs[i] != 0 ? nw_record_kernels(r, runs[i], read_kernel, &k, err) : NW_OK;
    }
    return st;
}

/* Where latencies under load are shown: the highest rate at which the baseline still serves the share
 * that the policy asks for; the lowest where there is none. */
static void pick_operating_rate(nw_facts *f)
{
    const nw_facts_candidate *base = &f->c[0];
    const double want = f->attainment > 0 ? f->attainment : 0.9;

    f->has_load = base->n_load > 0;
    for (size_t i = 0; i < base->n_load; i++) {
        if (base->load[i].attainment >= want) {
            f->operating = i;
        }
    }
}

nw_status nw_facts_speed(nw_record *r, nw_facts *f, nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; i < f->n && st == NW_OK; i++) {
        nw_facts_candidate *c = &f->c[i];
        st = load_micro(r, f, c, err);
        st = st == NW_OK ? load_natural(r, f, c, err) : st;
        st = st == NW_OK ? load_load(r, f, c, err) : st;
        st = st == NW_OK ? load_costs(r, c, err) : st;
        st = st == NW_OK ? load_kernels(r, f, c, err) : st;
    }
    pick_operating_rate(f);
    return st;
}
