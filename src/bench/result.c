/* Results as JSON, and the costs beside them. A value that was not measured is null or says why; it
 * is never 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void nw_bench_costs_sample(nw_bench_costs *c, nw_energy *e, const nw_service *s, int64_t t_ns)
{
    uint64_t peak = 0;
    nw_rss_sample row = {.t_ns = t_ns};

    nw_energy_sample(e);
    if (s->pid == 0 || !nw_process_memory(s->pid, &peak, &row.rss_bytes)) {
        return;
    }
    if (c->n_rss == c->cap_rss) {
        const size_t cap = c->cap_rss == 0 ? 256 : c->cap_rss * 2;
        nw_rss_sample *p = realloc(c->rss, cap * sizeof *p);
        if (p == NULL) {
            return; /* a sample less */
        }
        c->rss = p;
        c->cap_rss = cap;
    }
    c->rss[c->n_rss++] = row;
}

void nw_bench_costs_end(nw_bench_costs *c, nw_energy *e, const nw_service *s)
{
    nw_energy_sample(e);
    c->energy_j = nw_energy_joules(e);
    c->energy_why = e->why_not != NULL ? e->why_not : "";
    c->has_memory = s->pid != 0 && nw_process_memory(s->pid, &c->peak_rss_bytes, &c->rss_bytes);
    c->facts = nw_service_facts(s);
}

void nw_bench_costs_release(nw_bench_costs *c)
{
    json_decref(c->facts);
    free(c->rss);
    *c = (nw_bench_costs){0};
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static void put(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

json_t *nw_bench_dist_json(const nw_bench_dist *d)
{
    json_t *o = json_object();

    put(o, "n", json_integer((json_int_t)d->n));
    put(o, "mean", real(d->mean));
    put(o, "min", real(d->min));
    put(o, "max", real(d->max));
    put(o, "p50", real(d->p50));
    put(o, "p90", real(d->p90));
    put(o, "p99", real(d->p99));
    if (!d->has_p99) {
        put(o, "p99_lacking", json_integer((json_int_t)d->n_lacking));
    }
    return o;
}

static void put_latencies(json_t *o, const nw_bench_summary *s)
{
    const struct {
        const char *key;
        const nw_bench_dist *d;
    } rows[] = {
        {"lag_ms", &s->lag_ms},
        {"ttft_ms", &s->ttft_ms},
        {"ttft_send_ms", &s->ttft_send_ms},
        {"tpot_ms", &s->tpot_ms},
        {"ntpot_ms", &s->ntpot_ms},
        {"e2e_ms", &s->e2e_ms},
        {"gap_ms", &s->gap_ms},
        {"max_gap_ms", &s->max_gap_ms},
    };

    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        put(o, rows[i].key, nw_bench_dist_json(rows[i].d));
    }
    put(o, "tpot_undefined", json_integer((json_int_t)s->n_tpot_undefined));
    if (s->n_not_streamed > 0) {
        put(o, "not_measured", json_string("ttft, tpot, gaps and goodput: not streaming"));
    }
}

static void put_counts(json_t *o, const nw_bench_summary *s)
{
    const struct {
        const char *key;
        uint64_t n;
    } rows[] = {
        {"scheduled", s->n_scheduled},
        {"ok", s->n_ok},
        {"errors", s->n_error},
        {"finish_stop", s->n_stop},
        {"finish_length", s->n_length},
        {"prompt_tokens", s->prompt_tokens},
        {"asked_tokens", s->asked_tokens},
        {"output_tokens", s->output_tokens},
        {"received_tokens", s->received_tokens},
    };

    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        put(o, rows[i].key, json_integer((json_int_t)rows[i].n));
    }
}

double nw_load_requests_per_s(const nw_load_result *r)
{
    int64_t last = 0;

    for (size_t i = 0; i < r->rows.n; i++) {
        const nw_bench_row *row = &r->rows.rows[i];
        if (row->ok && row->s_ns >= r->w0_ns && row->s_ns < r->w1_ns && row->l_ns > last) {
            last = row->l_ns;
        }
    }
    return last > r->w0_ns ? (double)r->summary.n_ok * 1e9 / (double)(last - r->w0_ns) : 0;
}

json_t *nw_load_json(const nw_load_options *opt, const nw_load_result *r)
{
    const nw_bench_summary *s = &r->summary;
    const nw_steady steady = nw_load_steady(r);
    json_t *o = json_object();

    put(o, "window_s", real(s->window_s));
    put(o, "warmup_s", real((double)r->w0_ns * 1e-9));
    put(o, "offered_rps", real(s->request_rate_asked));
    put(o, "achieved_rps", real(s->request_rate_done));
    put(o, "requests_per_s", real(nw_load_requests_per_s(r)));
    put(o, "throughput_tokens_per_s", real(s->throughput_tokens_s));
    put(o, "throughput_requests_per_s", real(s->throughput_requests_s));
    if (s->n_not_streamed == 0) {
        put(o, "goodput_rps", real(s->goodput_s));
        put(o, "attainment", real(s->attainment));
    }
    put(o, "slo_ttft_ms", real(opt->slo.ttft_ms));
    put(o, "slo_tpot_ms", real(opt->slo.tpot_ms));
    put(o, "slo_gap_ms", real(opt->slo.gap_ms));
    put(o, "mean_in_flight", real(s->mean_in_flight));
    put(o, "max_in_flight", real(s->max_in_flight));
    put(o, "warmup_completions", json_integer((json_int_t)r->n_warmup_done));
    put(o, "warmup_enough", json_boolean(r->warmup_enough));
    put(o, "load_kept_past_window", json_boolean(!r->ran_dry));
    put(o, "steady", steady.steady < 0 ? json_null() : json_boolean(steady.steady == 1));
    put(o, "halves_ratio", real(steady.halves_ratio));
    put(o, "ttft_drift_hi", real(steady.ttft_drift_hi));
    put(o, "in_flight_drift_hi", real(steady.in_flight_drift_hi));
    put(o, "valid", json_boolean(s->valid));
    if (!s->valid) {
        put(o, "why_invalid", json_string(s->why_invalid));
    }
    put(o, "client_cpu_s", real(r->client_cpu_s));
    put(o, "wall_s", real(r->wall_s));
    put_counts(o, s);
    put_latencies(o, s);
    return o;
}

json_t *nw_bench_costs_json(const nw_bench_costs *c)
{
    static const char *const keys[] = {"load_s",
                                       "weight_bytes",
                                       "file_bytes",
                                       "kv_bytes_per_token",
                                       "kv_capacity_tokens",
                                       "kv_bytes",
                                       "workspace_bytes",
                                       "tier",
                                       "threads",
                                       "act",
                                       "kv",
                                       "artifact_hash",
                                       "kernel_map"};
    json_t *o = json_object();

    put(o, "peak_rss_bytes",
        c->has_memory ? json_integer((json_int_t)c->peak_rss_bytes) : json_null());
    put(o, "rss_bytes", c->has_memory ? json_integer((json_int_t)c->rss_bytes) : json_null());
    put(o, "energy_j", real(c->energy_j));
    if (c->energy_why != NULL && c->energy_why[0] != '\0') {
        put(o, "energy_not_measured", json_string(c->energy_why));
    }
    for (size_t i = 0; i < NW_COUNT(keys); i++) {
        json_t *v = json_object_get(c->facts, keys[i]);
        put(o, keys[i], v != NULL ? json_incref(v) : json_null());
    }
    return o;
}

json_t *nw_micro_json(const nw_micro_options *opt, const nw_micro_result *r, const nw_service *s,
                      const nw_bench_costs *c)
{
    json_t *o = nw_bench_costs_json(c);

    put(o, "regime", json_string("micro"));
    put(o, "model", json_string(nw_target_model(s->target)));
    put(o, "requests", json_integer((json_int_t)r->rows.n));
    put(o, "warmup_requests", json_integer(opt->n_warmup));
    put(o, "prompt", json_integer(opt->n_prompt));
    put(o, "output", json_integer(opt->n_output));
    put(o, "ignore_eos", json_boolean(!opt->natural_stop));
    put(o, "decode_tokens_per_s", real(r->decode_tokens_per_s.p50));
    put(o, "prefill_tokens_per_s", real(r->prefill_tokens_per_s.p50));
    put(o, "decode", nw_bench_dist_json(&r->decode_tokens_per_s));
    put(o, "prefill", nw_bench_dist_json(&r->prefill_tokens_per_s));
    put(o, "client_cpu_s", real(r->client_cpu_s));
    put(o, "wall_s", real(r->wall_s));
    put_counts(o, &r->summary);
    put_latencies(o, &r->summary);
    return o;
}
