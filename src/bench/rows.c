/* Figures from rows. Pure: the same rows, window and limits give the same figures, whether they were
 * just measured or read back from a record.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stats/summary.h"

static int64_t rebase(int64_t t_ns, int64_t t0_ns)
{
    return t_ns != 0 ? t_ns - t0_ns : -1;
}

nw_status nw_bench_row_from(const nw_gen_result *r, uint32_t idx, int64_t t0_ns, bool streamed,
                            nw_bench_row *out, nw_error *err)
{
    nw_bench_row row = {.idx = idx,
                        .s_ns = rebase(r->s_ns, t0_ns),
                        .d_ns = rebase(r->d_ns, t0_ns),
                        .f_ns = streamed ? rebase(r->f_ns, t0_ns) : -1,
                        .l_ns = rebase(r->l_ns, t0_ns),
                        .n_prompt = r->n_prompt,
                        .n_asked = r->n_asked,
                        .n_output = r->n_output,
                        .ok = r->status == NW_OK,
                        .streamed = streamed,
                        .finish = r->finish};

    (void)snprintf(row.error, sizeof row.error, "%s", r->error);
    if (r->n_events > 0) {
        row.events = calloc(r->n_events, sizeof *row.events);
        if (row.events == NULL) {
            return nw_fail(err, NW_E_NOMEM, "request %u: no memory for %zu events", idx,
                           r->n_events);
        }
        row.n_events = r->n_events;
        for (size_t i = 0; i < r->n_events; i++) {
            row.events[i] = (nw_gen_mark){r->events[i].t_ns - t0_ns, r->events[i].n_tokens};
        }
    }
    *out = row;
    return NW_OK;
}

const char *nw_bench_row_status(const nw_bench_row *r)
{
    static const char no_room[] = "HTTP status 429:"; /* as the endpoint words it */

    if (r->ok) {
        return "ok";
    }
    if (r->finish == NW_GEN_CANCELLED) {
        return "cancelled";
    }
    return strncmp(r->error, no_room, sizeof no_room - 1) == 0 ? "rejected" : "error";
}

void nw_bench_rows_release(nw_bench_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        free(rows->rows[i].events);
    }
    free(rows->rows);
    *rows = (nw_bench_rows){0};
}

nw_bench_dist nw_bench_dist_of(double *v, size_t n)
{
    const nw_summary s = nw_summarize(v, n);

    return (nw_bench_dist){.n = n,
                           .mean = s.mean,
                           .min = s.min,
                           .max = s.max,
                           .p50 = s.p50,
                           .p90 = s.p90,
                           .p99 = s.p99,
                           .has_p99 = n >= NW_P99_MIN_N,
                           .n_lacking = n < NW_P99_MIN_N ? NW_P99_MIN_N - n : 0};
}

/* One list of values for each distribution of a summary. */
enum { LAG, TTFT, TTFT_SEND, TPOT, NTPOT, E2E, MAX_GAP, N_PER_REQUEST };

typedef struct {
    double *v[N_PER_REQUEST];
    size_t n[N_PER_REQUEST];
    double *gaps;
    size_t n_gaps;
} columns;

static void columns_release(columns *c)
{
    for (int i = 0; i < N_PER_REQUEST; i++) {
        free(c->v[i]);
    }
    free(c->gaps);
}

static bool columns_init(columns *c, const nw_bench_row *rows, size_t n)
{
    size_t n_events = 1;

    *c = (columns){0};
    for (size_t i = 0; i < n; i++) {
        n_events += rows[i].n_events;
    }
    bool ok = true;
    for (int i = 0; i < N_PER_REQUEST; i++) {
        c->v[i] = calloc(n + 1, sizeof(double));
        ok = ok && c->v[i] != NULL;
    }
    c->gaps = calloc(n_events, sizeof(double));
    return ok && c->gaps != NULL;
}

static double ms(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) * 1e-6;
}

static void put(columns *c, int which, double value)
{
    c->v[which][c->n[which]++] = value;
}

/* Gaps between receipts; the largest of the request, or -1 when there is none. */
static double put_gaps(columns *c, const nw_bench_row *r)
{
    double worst = -1;

    for (size_t k = 1; k < r->n_events; k++) {
        const double gap = ms(r->events[k - 1].t_ns, r->events[k].t_ns);
        c->gaps[c->n_gaps++] = gap;
        worst = fmax(worst, gap);
    }
    return worst;
}

/* The good request: ok, streamed, every limit that is set is kept. A request of one token has no
 * TPOT, so no TPOT limit can be broken by it. */
static bool is_good(const nw_slo *slo, double ttft, double tpot, double worst_gap)
{
    return (slo->ttft_ms <= 0 || (ttft >= 0 && ttft <= slo->ttft_ms)) &&
           (slo->tpot_ms <= 0 || tpot <= slo->tpot_ms) &&
           (slo->gap_ms <= 0 || worst_gap <= slo->gap_ms);
}

static void add_latencies(columns *c, const nw_bench_row *r, const nw_slo *slo, nw_bench_summary *s)
{
    double tpot = -1;
    double worst = -1;

    if (r->n_output > 0 && r->l_ns >= 0) {
        put(c, NTPOT, ms(r->s_ns, r->l_ns) / r->n_output);
        put(c, E2E, ms(r->s_ns, r->l_ns));
    }
    if (!r->streamed) {
        s->n_not_streamed++;
        return;
    }
    if (r->f_ns < 0) { /* an answer without any text has no first token */
        return;
    }
    put(c, TTFT, ms(r->s_ns, r->f_ns));
    if (r->d_ns >= 0) {
        put(c, TTFT_SEND, ms(r->d_ns, r->f_ns));
    }
    if (r->n_output >= 2) {
        tpot = ms(r->f_ns, r->l_ns) / (r->n_output - 1);
        put(c, TPOT, tpot);
    } else {
        s->n_tpot_undefined++;
    }
    worst = put_gaps(c, r);
    if (worst >= 0) {
        put(c, MAX_GAP, worst);
    }
    s->n_good += is_good(slo, ms(r->s_ns, r->f_ns), tpot, worst);
}

static void add_scheduled(columns *c, const nw_bench_row *r, const nw_slo *slo, nw_bench_summary *s)
{
    s->n_scheduled++;
    s->prompt_tokens += r->n_prompt;
    s->asked_tokens += r->n_asked;
    s->output_tokens += r->n_output;
    if (r->d_ns >= 0) {
        put(c, LAG, ms(r->s_ns, r->d_ns));
    }
    if (!r->ok) {
        s->n_error++;
        return;
    }
    s->n_ok++;
    s->n_stop += r->finish == NW_GEN_STOP;
    s->n_length += r->finish == NW_GEN_LENGTH;
    add_latencies(c, r, slo, s);
}

/* Tokens of r received in [w0, w1). Where the server did not say how many an event carried, the
 * request's tokens are shared out evenly over its events: right in sum, and only used for sums. */
static double received_in(const nw_bench_row *r, int64_t w0_ns, int64_t w1_ns)
{
    uint64_t known = 0;
    uint64_t inside = 0;
    size_t events_inside = 0;

    for (size_t k = 0; k < r->n_events; k++) {
        const bool in = r->events[k].t_ns >= w0_ns && r->events[k].t_ns < w1_ns;
        known += r->events[k].n_tokens;
        inside += in ? r->events[k].n_tokens : 0;
        events_inside += in;
    }
    if (known > 0 || r->n_events == 0) {
        return (double)inside;
    }
    return (double)r->n_output * (double)events_inside / (double)r->n_events;
}

typedef struct {
    int64_t t_ns;
    int change;
} edge;

static int by_time(const void *a, const void *b)
{
    const edge *x = a;
    const edge *y = b;
    if (x->t_ns != y->t_ns) {
        return x->t_ns < y->t_ns ? -1 : 1;
    }
    return x->change - y->change; /* an end before a start at the same instant */
}

/* In flight: from dispatch (or schedule, when never sent) to the last token (or, for an answer that
 * failed, until the window's end is the best that is known of it: it is left out). */
static nw_status in_flight(const nw_bench_row *rows, size_t n, int64_t w0, int64_t w1,
                           nw_bench_summary *s, nw_error *err)
{
    edge *e = calloc(2 * n + 1, sizeof *e);
    size_t n_edges = 0;
    double area = 0;
    int64_t level = 0;
    int64_t at = w0;

    if (e == NULL) {
        return nw_fail(err, NW_E_NOMEM, "summary: no memory for %zu requests", n);
    }
    for (size_t i = 0; i < n; i++) {
        if (rows[i].d_ns >= 0 && rows[i].l_ns >= 0) {
            e[n_edges++] = (edge){rows[i].d_ns, 1};
            e[n_edges++] = (edge){rows[i].l_ns, -1};
        }
    }
    qsort(e, n_edges, sizeof *e, by_time);
    for (size_t i = 0; i < n_edges && e[i].t_ns < w1; i++) {
        if (e[i].t_ns > at) {
            area += (double)level * (double)(e[i].t_ns - at);
            at = e[i].t_ns;
            s->max_in_flight = fmax(s->max_in_flight, (double)level);
        }
        level += e[i].change;
    }
    area += (double)level * (double)(w1 - at);
    s->max_in_flight = fmax(s->max_in_flight, (double)level);
    s->mean_in_flight = area / (double)(w1 - w0);
    free(e);
    return NW_OK;
}

/* The p99 of the lag as the limit needs it: by rank, or the maximum where n is too small for a p99. */
static void judge(nw_bench_summary *s, const nw_slo *slo, size_t n_dispatched)
{
    const double limit = fmax(2.0, 0.02 * slo->ttft_ms);
    const double lag = s->lag_ms.has_p99 ? s->lag_ms.p99 : s->lag_ms.max;
    const double ratio =
        s->request_rate_asked > 0 ? s->request_rate_done / s->request_rate_asked : 1;
    const double slack = s->n_scheduled > 0 ? 1.5 / (double)s->n_scheduled : 1;

    s->valid = true;
    if (s->lag_ms.n > 0 && lag > limit) {
        s->valid = false;
        (void)snprintf(s->why_invalid, sizeof s->why_invalid,
                       "%s lag of dispatch is %.2f ms, at most %.2f ms is allowed",
                       s->lag_ms.has_p99 ? "p99" : "largest", lag, limit);
    } else if (n_dispatched > 0 && fabs(ratio - 1) > fmax(0.02, slack)) {
        /* one request at the edge of a short window is no rate error: slack */
        s->valid = false;
        (void)snprintf(s->why_invalid, sizeof s->why_invalid,
                       "achieved %.3f of the asked request rate, 0.98 to 1.02 is allowed", ratio);
    }
}

static void fill(nw_bench_summary *s, columns *c)
{
    nw_bench_dist *const to[N_PER_REQUEST] = {&s->lag_ms,    &s->ttft_ms,  &s->ttft_send_ms,
                                              &s->tpot_ms,   &s->ntpot_ms, &s->e2e_ms,
                                              &s->max_gap_ms};

    for (int i = 0; i < N_PER_REQUEST; i++) {
        *to[i] = nw_bench_dist_of(c->v[i], c->n[i]);
    }
    s->gap_ms = nw_bench_dist_of(c->gaps, c->n_gaps);
}

nw_status nw_bench_summarize(const nw_bench_row *rows, size_t n, int64_t w0_ns, int64_t w1_ns,
                             const nw_slo *slo, nw_bench_summary *out, nw_error *err)
{
    nw_bench_summary s = {0};
    columns c;
    size_t n_dispatched = 0;
    double received = 0;

    if (w1_ns <= w0_ns) {
        return nw_fail(err, NW_E_RANGE, "summary: the window ends %.3f s before it begins",
                       (double)(w0_ns - w1_ns) * 1e-9);
    }
    if (!columns_init(&c, rows, n)) {
        columns_release(&c);
        return nw_fail(err, NW_E_NOMEM, "summary: no memory for %zu requests", n);
    }
    for (size_t i = 0; i < n; i++) {
        const nw_bench_row *r = &rows[i];
        received += received_in(r, w0_ns, w1_ns);
        s.received_completions += r->ok && r->l_ns >= w0_ns && r->l_ns < w1_ns;
        n_dispatched += r->d_ns >= w0_ns && r->d_ns < w1_ns;
        if (r->s_ns >= w0_ns && r->s_ns < w1_ns) {
            add_scheduled(&c, r, slo, &s);
        }
    }
    s.window_s = (double)(w1_ns - w0_ns) * 1e-9;
    s.received_tokens = (uint64_t)llround(received);
    s.request_rate_asked = (double)s.n_scheduled / s.window_s;
    s.request_rate_done = (double)n_dispatched / s.window_s;
    s.throughput_tokens_s = received / s.window_s;
    s.throughput_requests_s = (double)s.received_completions / s.window_s;
    s.goodput_s = (double)s.n_good / s.window_s;
    s.attainment = s.n_scheduled > 0 ? (double)s.n_good / (double)s.n_scheduled : (double)NAN;
    fill(&s, &c);
    judge(&s, slo, n_dispatched);
    columns_release(&c);
    if (in_flight(rows, n, w0_ns, w1_ns, &s, err) != NW_OK) {
        return err->code;
    }
    *out = s;
    return NW_OK;
}
