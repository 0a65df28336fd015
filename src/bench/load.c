/* The open-loop client. One thread sleeps until the next arrival and starts it; the target's thread
 * stamps what comes back. Prompts are made before t0, rows have their place before they are needed,
 * so that nothing but the clock decides when a request leaves.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/load.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/signal.h"
#include "bench/usage.h"

#define LEAD_NS ((int64_t)50000000)  /* from "ready" to t0 */
#define TICK_NS ((int64_t)200000000) /* of on_tick and of looking for the window's end */

typedef struct load load;

typedef struct {
    load *owner;
    uint64_t id; /* of the target; 0 until started */
    bool in_window, started, done;
    char *prompt;
} slot;

struct load {
    nw_target *target;
    const nw_arrivals *arrivals;
    const nw_load_options *opt;
    int64_t t0_ns;
    slot *slots;
    nw_bench_row *rows;   /* [arrivals->n], by index of arrival */
    pthread_mutex_t lock; /* guards what follows, and rows of requests in flight */
    pthread_cond_t changed;
    size_t n_started, n_done, n_window_open;
    nw_in_flight *series;
    size_t n_series;
    nw_error row_error; /* the first row that could not be kept */
};

static void note_in_flight(load *l, int64_t t_ns)
{
    l->series[l->n_series++] =
        (nw_in_flight){t_ns - l->t0_ns, (uint32_t)(l->n_started - l->n_done)};
}

static void on_done(void *ctx, uint64_t id, const nw_gen_result *r)
{
    slot *s = ctx;
    load *l = s->owner;
    const size_t i = (size_t)(s - l->slots);
    const int64_t now = nw_now_ns();

    (void)id;
    pthread_mutex_lock(&l->lock);
    nw_error err = {0};
    if (nw_bench_row_from(r, (uint32_t)i, l->t0_ns, !l->opt->no_stream, &l->rows[i], &err) !=
            NW_OK &&
        l->row_error.code == NW_OK) {
        l->row_error = err;
    }
    s->done = true;
    l->n_done++;
    l->n_window_open -= s->in_window;
    note_in_flight(l, now);
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* A request that could not even be started (no room in the client): an error of the run's rows. */
static void not_started(load *l, size_t i, const nw_error *err)
{
    nw_bench_row *row = &l->rows[i];

    *row = (nw_bench_row){.idx = (uint32_t)i,
                          .s_ns = l->arrivals->rows[i].t_ns,
                          .d_ns = -1,
                          .f_ns = -1,
                          .l_ns = -1,
                          .n_asked = l->arrivals->rows[i].n_output,
                          .streamed = !l->opt->no_stream,
                          .finish = NW_GEN_ERROR};
    (void)snprintf(row->error, sizeof row->error, "%.255s", err->message);
    l->slots[i].done = true;
    l->n_done++;
    l->n_window_open -= l->slots[i].in_window;
}

static void start_one(load *l, size_t i, int64_t w0, int64_t w1)
{
    slot *s = &l->slots[i];
    const nw_arrival *a = &l->arrivals->rows[i];
    const nw_gen_callbacks cb = {.on_done = on_done, .ctx = s};
    const nw_gen_request req = {.prompt = s->prompt,
                                .n_prompt_bytes = strlen(s->prompt),
                                .max_tokens = a->n_output,
                                .temperature = l->opt->temperature,
                                .seed = i + 1,
                                .ignore_eos = l->opt->ignore_eos,
                                .no_stream = l->opt->no_stream,
                                .scheduled_ns = l->t0_ns + a->t_ns};
    nw_error err = {0};
    uint64_t id = 0;

    pthread_mutex_lock(&l->lock);
    s->started = true;
    s->in_window = a->t_ns >= w0 && a->t_ns < w1;
    l->n_started++;
    l->n_window_open += s->in_window;
    note_in_flight(l, nw_now_ns());
    pthread_mutex_unlock(&l->lock);
    const nw_status st = nw_target_start(l->target, &req, &cb, &id, &err);
    pthread_mutex_lock(&l->lock);
    if (st != NW_OK) {
        not_started(l, i, &err);
    }
    s->id = id;
    pthread_mutex_unlock(&l->lock);
}

static void tick(load *l, int64_t now)
{
    if (l->opt->on_tick != NULL) {
        pthread_mutex_lock(&l->lock);
        const size_t started = l->n_started;
        const size_t done = l->n_done;
        pthread_mutex_unlock(&l->lock);
        l->opt->on_tick(l->opt->ctx, (double)(now - l->t0_ns) * 1e-9, started, done,
                        started - done);
    }
}

/* All of the window's requests, of which arrivals i.. are still to come, were sent and have ended. */
static bool window_over(load *l, size_t i, int64_t now, int64_t w1)
{
    if (i < l->arrivals->n && l->arrivals->rows[i].t_ns < w1) {
        return false;
    }
    pthread_mutex_lock(&l->lock);
    const bool open = l->n_window_open > 0;
    pthread_mutex_unlock(&l->lock);
    return now - l->t0_ns >= w1 && !open;
}

/* Sends until the window's requests have ended, the arrivals are used up, or time is up. */
static size_t send_all(load *l, int64_t w0, int64_t w1, int64_t end)
{
    size_t i = 0;
    int64_t next_tick = l->t0_ns;

    for (;;) {
        const int64_t now = nw_now_ns();
        if (now >= next_tick) {
            tick(l, now);
            next_tick = now + TICK_NS;
        }
        if (nw_stop_requested() || now - l->t0_ns >= end || window_over(l, i, now, w1)) {
            return i;
        }
        if (i == l->arrivals->n) {
            return i;
        }
        const int64_t due = l->t0_ns + l->arrivals->rows[i].t_ns;
        if (now >= due) {
            start_one(l, i++, w0, w1);
        } else {
            nw_sleep_until_ns(due < next_tick ? due : next_tick);
        }
    }
}

/* Waits for the window's requests until `end`, then cancels what is open and waits for that. */
static void drain(load *l, size_t n_sent, int64_t end)
{
    for (;;) {
        pthread_mutex_lock(&l->lock);
        const bool open = l->n_window_open > 0;
        pthread_mutex_unlock(&l->lock);
        const int64_t now = nw_now_ns();
        if (!open || nw_stop_requested() || now - l->t0_ns >= end) {
            break;
        }
        tick(l, now);
        nw_sleep_until_ns(now + TICK_NS / 4);
    }
    for (size_t i = 0; i < n_sent; i++) {
        pthread_mutex_lock(&l->lock);
        const uint64_t id = l->slots[i].done ? 0 : l->slots[i].id;
        pthread_mutex_unlock(&l->lock);
        if (id != 0) {
            nw_target_cancel(l->target, id);
        }
    }
    pthread_mutex_lock(&l->lock);
    while (l->n_done < l->n_started) {
        pthread_cond_wait(&l->changed, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
}

static nw_status make_prompts(load *l, nw_error *err)
{
    for (size_t i = 0; i < l->arrivals->n; i++) {
        uint32_t n = 0;
        l->slots[i].owner = l;
        if (nw_stop_requested()) {
            return nw_fail(err, NW_E_CANCELLED, "load: stopped while making prompts");
        }
        if (nw_prompt_make(l->target, l->arrivals->rows[i].n_prompt, l->opt->seed, i,
                           &l->slots[i].prompt, &n, err) != NW_OK) {
            return nw_context(err, "prompt of request %zu", i);
        }
    }
    return NW_OK;
}

static void load_release(load *l)
{
    for (size_t i = 0; l->slots != NULL && i < l->arrivals->n; i++) {
        free(l->slots[i].prompt);
    }
    free(l->slots);
    free(l->series);
    for (size_t i = 0; l->rows != NULL && i < l->arrivals->n; i++) {
        free(l->rows[i].events);
    }
    free(l->rows);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
}

static nw_status load_init(load *l, nw_target *t, const nw_arrivals *arrivals,
                           const nw_load_options *opt, nw_error *err)
{
    const size_t n = arrivals->n;

    *l = (load){.target = t, .arrivals = arrivals, .opt = opt};
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_cond_init(&l->changed, NULL);
    l->slots = calloc(n + 1, sizeof *l->slots);
    l->rows = calloc(n + 1, sizeof *l->rows);
    l->series = calloc(2 * n + 1, sizeof *l->series);
    if (l->slots == NULL || l->rows == NULL || l->series == NULL) {
        return nw_fail(err, NW_E_NOMEM, "load: no memory for %zu requests", n);
    }
    return make_prompts(l, err);
}

static size_t warmup_completions(const load *l, size_t n, int64_t w0)
{
    size_t done = 0;

    for (size_t i = 0; i < n; i++) {
        done += l->rows[i].ok && l->rows[i].l_ns < w0;
    }
    return done;
}

/* When the last request of the window ended. */
static int64_t window_end(const load *l, size_t n, int64_t w0, int64_t w1)
{
    int64_t end = 0;

    for (size_t i = 0; i < n; i++) {
        const nw_bench_row *r = &l->rows[i];
        end = r->s_ns >= w0 && r->s_ns < w1 && r->l_ns > end ? r->l_ns : end;
    }
    return end;
}

/* Moves what was measured into *out and computes its figures. */
static nw_status conclude(load *l, size_t n_sent, int64_t w0, int64_t w1, nw_load_result *out,
                          nw_error *err)
{
    nw_load_result r = {.t0_ns = l->t0_ns, .w0_ns = w0, .w1_ns = w1};

    if (l->row_error.code != NW_OK) {
        *err = l->row_error;
        return nw_context(err, "load");
    }
    if (nw_bench_summarize(l->rows, n_sent, w0, w1, &l->opt->slo, &r.summary, err) != NW_OK) {
        return nw_context(err, "load");
    }
    r.n_warmup_done = warmup_completions(l, n_sent, w0);
    r.warmup_enough = (double)r.n_warmup_done >= 2 * r.summary.mean_in_flight;
    r.rows = (nw_bench_rows){l->rows, n_sent, l->arrivals->n};
    r.series = l->series;
    r.n_series = l->n_series;
    r.ran_dry = n_sent == l->arrivals->n &&
                window_end(l, n_sent, w0, w1) > l->arrivals->rows[l->arrivals->n - 1].t_ns;
    r.wall_s = (double)(nw_now_ns() - l->t0_ns) * 1e-9;
    l->rows = NULL;
    l->series = NULL;
    *out = r;
    return NW_OK;
}

/* A copy of the arrivals with their own gaps and lengths once more after the last, for tail_s. */
static nw_status with_tail(const nw_arrivals *a, double tail_s, nw_arrivals *out, nw_error *err)
{
    const int64_t first = a->rows[0].t_ns;
    const int64_t last = a->rows[a->n - 1].t_ns;
    const int64_t gap = a->n > 1 ? (last - first) / (int64_t)(a->n - 1) : 0;
    const int64_t end = last + (int64_t)(tail_s * 1e9);
    size_t n = a->n;

    out->rows = calloc(2 * a->n, sizeof *out->rows);
    if (out->rows == NULL) {
        return nw_fail(err, NW_E_NOMEM, "load: no memory for %zu requests", 2 * a->n);
    }
    memcpy(out->rows, a->rows, a->n * sizeof *a->rows);
    for (size_t k = 0; k < a->n && gap > 0; k++) {
        out->rows[n] = a->rows[k];
        out->rows[n].t_ns = last + gap + (a->rows[k].t_ns - first);
        if (out->rows[n].t_ns >= end) {
            break;
        }
        n++;
    }
    out->n = n;
    return NW_OK;
}

nw_status nw_load_run(nw_target *t, const nw_arrivals *arrivals, const nw_load_options *opt,
                      nw_load_result *out, nw_error *err)
{
    load l;
    const double cpu_s = nw_client_cpu_s();
    const int64_t w0 = (int64_t)(opt->warmup_s * 1e9);
    const int64_t last = arrivals->n > 0 ? arrivals->rows[arrivals->n - 1].t_ns : 0;
    const int64_t w1 = opt->window_s > 0 ? w0 + (int64_t)(opt->window_s * 1e9) : last + 1;
    nw_arrivals all = {0};

    if (arrivals->n == 0 || last < w0 || w1 <= w0) {
        return nw_fail(err, NW_E_RANGE,
                       "load: %zu arrivals over %.3f s, and a warm-up of %.3f s: "
                       "none is left to measure",
                       arrivals->n, (double)last * 1e-9, opt->warmup_s);
    }
    if (with_tail(arrivals, opt->tail_s, &all, err) != NW_OK) {
        return err->code;
    }
    nw_status st = load_init(&l, t, &all, opt, err);
    if (st == NW_OK) {
        const int64_t end = w1 + (int64_t)(opt->drain_s * 1e9);
        (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* ns; default 50 us late */
        l.t0_ns = nw_now_ns() + LEAD_NS;
        const size_t n_sent = send_all(&l, w0, w1, end);
        drain(&l, n_sent, end);
        st = nw_stop_requested()
                 ? nw_fail(err, NW_E_CANCELLED, "load: stopped after %zu requests", n_sent)
                 : conclude(&l, n_sent, w0, w1, out, err);
    }
    if (st == NW_OK) {
        out->client_cpu_s = nw_client_cpu_s() - cpu_s;
    }
    load_release(&l);
    nw_arrivals_release(&all);
    return st;
}

void nw_load_result_release(nw_load_result *r)
{
    nw_bench_rows_release(&r->rows);
    free(r->series);
    *r = (nw_load_result){0};
}
