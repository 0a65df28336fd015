/* narrow bench --regime load: rates or arrival files into windows, one after the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/bench_print.h"
#include "cli/bench_run.h"

#define MAX_WINDOWS 32

/* Rates of --sweep, as shares of the capacity that is measured first. */
static const double sweep_shares[] = {0.25, 0.5, 0.75, 0.9, 1.0, 1.1};

static nw_status parse_rates(const char *text, double *out, size_t *n, nw_error *err)
{
    const char *at = text;

    *n = 0;
    while (*at != '\0') {
        char *end = NULL;
        const double r = strtod(at, &end);
        if (end == at || !(r > 0) || r > 1e5 || (*end != ',' && *end != '\0') ||
            *n == MAX_WINDOWS) {
            return nw_fail(err, NW_E_USAGE,
                           "--rates %s: up to %d rates above 0, with commas between "
                           "them, are wanted",
                           text, MAX_WINDOWS);
        }
        out[(*n)++] = r;
        at = *end == ',' ? end + 1 : end;
    }
    return *n > 0 ? NW_OK : nw_fail(err, NW_E_USAGE, "--rates: empty");
}

typedef struct {
    nw_arrivals arrivals;
    char name[96];
    double window_s; /* 0: to the last arrival */
} window;

typedef struct {
    window windows[MAX_WINDOWS];
    size_t n;
    nw_digest hash; /* of all arrivals */
} windows;

static void windows_release(windows *w)
{
    for (size_t i = 0; i < w->n; i++) {
        nw_arrivals_release(&w->windows[i].arrivals);
    }
}

static void on_load_tick(void *ctx, double t_s, size_t n_started, size_t n_done, size_t n_in_flight)
{
    nw_bench *b = ctx;

    (void)t_s;
    (void)n_started;
    (void)n_in_flight;
    nw_progress_step(&b->progress, n_done);
    nw_bench_costs_sample(&b->costs, &b->energy, &b->service, nw_now_ns() - b->begin_ns);
}

nw_load_options nw_bench_load_options(nw_bench *b)
{
    const nw_args *a = b->args;

    return (nw_load_options){.warmup_s = nw_args_double(a, "warmup-s"),
                             .window_s = nw_args_double(a, "duration"),
                             .tail_s = nw_args_count(a, "arrivals") > 0
                                           ? nw_args_double(a, "tail-s")
                                           : 0, /* made ones have their tail */
                             .drain_s = nw_args_double(a, "drain-s"),
                             .slo = {.ttft_ms = nw_args_double(a, "slo-ttft"),
                                     .tpot_ms = nw_args_double(a, "slo-tpot"),
                                     .gap_ms = nw_args_double(a, "slo-gap")},
                             .seed = (uint64_t)nw_args_int(a, "seed"),
                             .ignore_eos = !nw_args_flag(a, "natural-stop"),
                             .no_stream = nw_args_flag(a, "no-stream"),
                             .on_tick = on_load_tick,
                             .ctx = b};
}

static nw_status read_files(const nw_args *a, windows *w, nw_error *err)
{
    const size_t n = nw_args_count(a, "arrivals");

    if (n > MAX_WINDOWS) {
        return nw_fail(err, NW_E_USAGE, "%zu arrival files, at most %d are taken", n, MAX_WINDOWS);
    }
    for (size_t i = 0; i < n; i++) {
        const char *path = nw_args_nth(a, "arrivals", i);
        if (nw_arrivals_read(path, &w->windows[i].arrivals, err) != NW_OK) {
            return err->code;
        }
        w->windows[i].window_s = nw_args_double(a, "duration");
        (void)snprintf(w->windows[i].name, sizeof w->windows[i].name, "%.90s", path);
        w->n++;
    }
    return NW_OK;
}

/* A search spaces arrivals evenly unless told otherwise: see NW_STABLE_MIN_POISSON. */
static nw_arrival_kind process_of(const nw_args *a)
{
    const bool even = strcmp(nw_args_str(a, "process"), "constant") == 0;
    const bool by_default = nw_args_flag(a, "search") && !nw_args_given(a, "process");

    return even || by_default ? NW_ARRIVE_CONSTANT : NW_ARRIVE_POISSON;
}

nw_status nw_bench_arrivals(const nw_args *a, double rate, uint64_t n, const nw_load_options *o,
                            nw_arrivals *out, double *window_s, nw_error *err)
{
    nw_arrival_plan p = {.rate = rate, .seed = (uint64_t)nw_args_int(a, "seed") + n};

    if (nw_bench_range(a, "prompt", &p.prompt, err) != NW_OK ||
        nw_bench_range(a, "output", &p.output, err) != NW_OK) {
        return err->code;
    }
    *window_s = o->window_s > 0 ? o->window_s : (double)nw_args_int(a, "requests") / rate;
    p.kind = process_of(a);
    p.duration_s = o->warmup_s + *window_s + o->drain_s;
    return nw_arrivals_make(&p, out, err);
}

static nw_status make_window(const nw_args *a, double rate, const nw_load_options *o, windows *w,
                             nw_error *err)
{
    window *x = &w->windows[w->n];

    if (nw_bench_arrivals(a, rate, w->n, o, &x->arrivals, &x->window_s, err) != NW_OK) {
        return err->code;
    }
    (void)snprintf(x->name, sizeof x->name, "rate %.3f", rate);
    w->n++;
    const char *keep = nw_args_str(a, "write-arrivals");
    return keep != NULL ? nw_arrivals_write(&x->arrivals, keep, err) : NW_OK;
}

/* What the service can do at most: a burst of two requests for each place in the batch, completed
 * requests a second. */
static nw_status measure_capacity(nw_bench *b, double *rps, nw_error *err)
{
    const nw_args *a = b->args;
    nw_load_options o = nw_bench_load_options(b);
    nw_arrivals burst = {0};
    nw_load_result r;
    nw_arrival_plan p = {.kind = NW_ARRIVE_CONSTANT,
                         .rate = 1e5,
                         .duration_s = 60,
                         .max_requests = 2 * (size_t)nw_bench_max_seqs(a),
                         .seed = (uint64_t)nw_args_int(a, "seed")};

    if (nw_bench_range(a, "prompt", &p.prompt, err) != NW_OK ||
        nw_bench_range(a, "output", &p.output, err) != NW_OK ||
        nw_arrivals_make(&p, &burst, err) != NW_OK) {
        return err->code;
    }
    o.warmup_s = 0;
    o.window_s = 0;
    o.tail_s = 0;
    nw_progress_begin(&b->progress, "capacity", "requests", burst.n);
    nw_status st = nw_load_run(b->service.target, &burst, &o, &r, err);
    nw_arrivals_release(&burst);
    if (st == NW_OK) {
        *rps = nw_load_requests_per_s(&r);
        nw_load_result_release(&r);
        (void)json_object_set_new(b->out, "capacity_rps", json_real(*rps));
        nw_log(NW_LOG_INFO, "capacity: %.3f requests/s", *rps);
    }
    return st == NW_OK && !(*rps > 0)
               ? nw_fail(err, NW_E_NETWORK, "capacity: no request of the burst was answered")
               : st;
}

static nw_status list_rates(nw_bench *b, double *rates, size_t *n, nw_error *err)
{
    const nw_args *a = b->args;
    double capacity = 1;

    *n = 0;
    if (nw_args_str(a, "rates") != NULL) {
        if (parse_rates(nw_args_str(a, "rates"), rates, n, err) != NW_OK) {
            return err->code;
        }
    } else if (nw_args_flag(a, "sweep")) {
        *n = NW_COUNT(sweep_shares);
        memcpy(rates, sweep_shares, sizeof sweep_shares);
    } else if (nw_args_double(a, "rate") > 0) {
        rates[(*n)++] = nw_args_double(a, "rate");
    } else {
        return nw_fail(err, NW_E_USAGE, "load needs --rate, --rates, --sweep or --arrivals");
    }
    if (nw_args_flag(a, "sweep") && measure_capacity(b, &capacity, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; i < *n; i++) {
        rates[i] *= capacity;
    }
    return NW_OK;
}

static nw_status hash_windows(windows *w, nw_error *err)
{
    nw_sha256 h;

    if (nw_sha256_init(&h, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; i < w->n; i++) {
        nw_sha256_add(&h, w->windows[i].arrivals.rows,
                      w->windows[i].arrivals.n * sizeof *w->windows[i].arrivals.rows);
    }
    w->hash = nw_sha256_end(&h);
    return NW_OK;
}

static nw_status gather_windows(nw_bench *b, windows *w, nw_error *err)
{
    const nw_load_options o = nw_bench_load_options(b);
    double rates[MAX_WINDOWS];
    size_t n = 0;
    nw_status st = NW_OK;

    if (nw_args_count(b->args, "arrivals") > 0) {
        st = read_files(b->args, w, err);
    } else {
        st = list_rates(b, rates, &n, err);
        for (size_t i = 0; st == NW_OK && i < n; i++) {
            st = make_window(b->args, rates[i], &o, w, err);
        }
    }
    return st == NW_OK ? hash_windows(w, err) : st;
}

static json_t *load_settings(nw_bench *b, const windows *w)
{
    const nw_load_options o = nw_bench_load_options(b);

    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:b, s:b, s:I}", "regime",
                     "load", "arrivals", w->hash.hex, "warmup_s", o.warmup_s, "window_s",
                     o.window_s, "tail_s", o.tail_s, "drain_s", o.drain_s, "slo_ttft_ms",
                     o.slo.ttft_ms, "slo_tpot_ms", o.slo.tpot_ms, "slo_gap_ms", o.slo.gap_ms,
                     "seed", (json_int_t)o.seed, "ignore_eos", o.ignore_eos, "no_stream",
                     o.no_stream, "max_seqs", (json_int_t)nw_bench_max_seqs(b->args));
}

/* Requests up to the window's end; those of the tail only keep the load up. */
static uint64_t counted(const window *x, const nw_load_options *o)
{
    const double end_s = o->warmup_s + x->window_s;
    uint64_t n = 0;

    while (n < x->arrivals.n &&
           (x->window_s <= 0 || (double)x->arrivals.rows[n].t_ns * 1e-9 < end_s)) {
        n++;
    }
    return n;
}

static nw_status measure_window(nw_bench *b, const window *x, size_t file_no, json_t *list,
                                nw_error *err)
{
    nw_load_options o = nw_bench_load_options(b);
    nw_load_result r;

    o.window_s = x->window_s;
    nw_progress_begin(&b->progress, x->name, "requests", counted(x, &o));
    if (nw_load_run(b->service.target, &x->arrivals, &o, &r, err) != NW_OK) {
        return nw_context(err, "%s", x->name);
    }
    nw_status st = NW_OK;
    if (b->record != NULL) {
        st = nw_bench_keep_load(b->record, b->run_id, (int64_t)file_no, &o, &r, err);
    }
    if (b->args->json) {
        json_t *row = nw_load_json(&o, &r);
        (void)json_object_set_new(row, "name", json_string(x->name));
        (void)json_array_append_new(list, row);
    } else {
        nw_bench_print_load(x->name, &o, &r);
    }
    nw_load_result_release(&r);
    return st;
}

/* One window gives its keys at the top too, so that a script need not look into the list. */
static void conclude_load(nw_bench *b, json_t *list)
{
    if (json_array_size(list) == 1) {
        (void)json_object_update(b->out, json_array_get(list, 0));
    }
    json_t *costs = nw_bench_costs_json(&b->costs);
    (void)json_object_update(b->out, costs);
    json_decref(costs);
    (void)json_object_set_new(b->out, "regime", json_string("load"));
    (void)json_object_set_new(b->out, "model", json_string(nw_target_model(b->service.target)));
    (void)json_object_set(b->out, "windows", list);
}

static nw_status measure_load(nw_bench *b, const windows *w, nw_error *err)
{
    const nw_load_options o = nw_bench_load_options(b);
    json_t *list = json_array();
    nw_status st = NW_OK;

    if (!b->args->json) {
        nw_bench_print_load_head(&o);
    }
    for (size_t i = 0; st == NW_OK && i < w->n; i++) {
        st = measure_window(b, &w->windows[i], i, list, err);
    }
    if (st == NW_OK) {
        st = nw_bench_finish_run(b, err);
    }
    if (st == NW_OK && b->args->json) {
        conclude_load(b, list);
    } else if (st == NW_OK) {
        nw_bench_print_costs(&b->costs);
    }
    json_decref(list);
    return st;
}

nw_status nw_bench_load(nw_bench *b, nw_error *err)
{
    windows w = {.n = 0};
    json_t *settings = NULL;
    bool done = false;
    nw_status st = NW_OK;

    if (nw_args_flag(b->args, "search")) {
        return nw_bench_search(b, err);
    }
    st = nw_bench_open_service(b, err);
    if (st == NW_OK) {
        st = gather_windows(b, &w, err);
    }
    if (st == NW_OK) {
        settings = load_settings(b, &w);
        st = nw_bench_begin_run(b, "load", "load", settings, w.hash.hex, &done, err);
    }
    if (st == NW_OK && !done) {
        st = measure_load(b, &w, err);
    }
    json_decref(settings);
    windows_release(&w);
    return st;
}
