/* Rows of the record from results: see keep.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/keep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "record/fingerprint.h"

static const char *fact_str(const json_t *facts, const char *key)
{
    return json_string_value(json_object_get(facts, key));
}

static int64_t fact_int(const json_t *facts, const char *key)
{
    const json_t *v = json_object_get(facts, key);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static double fact_real(const json_t *facts, const char *key)
{
    const json_t *v = json_object_get(facts, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* Names what was measured: the artifact's hash, or the server's model name where that is all there is. */
static const char *artifact_hash(const nw_service *s)
{
    const char *hash = fact_str(s->facts, "artifact_hash");
    return hash != NULL ? hash : nw_target_model(s->target);
}

static nw_status settings_hash(const nw_bench_run *b, char **text, nw_digest *hash, nw_error *err)
{
    *text = nw_json_canonical(b->settings);
    if (*text == NULL) {
        return nw_fail(err, NW_E_NOMEM, "bench: no memory for the settings");
    }
    return nw_digest_bytes(*text, strlen(*text), hash, err);
}

nw_status nw_bench_find(const nw_bench_run *b, const nw_service *s, int64_t *id, nw_error *err)
{
    char *text = NULL;
    nw_digest hash;
    nw_status st = settings_hash(b, &text, &hash, err);

    if (st == NW_OK) {
        st = nw_record_run_done(b->record, b->candidate, b->stage, b->suite, hash.hex,
                                artifact_hash(s), fact_str(s->facts, "kernel_map"), id, err);
    }
    free(text);
    return st;
}

/* A candidate that an earlier stage has put keeps its row. */
static nw_status put_candidate(const nw_bench_run *b, const nw_service *s, nw_error *err)
{
    nw_arena arena = {0};
    const nw_rec_candidate *there = NULL;
    nw_status st = nw_record_candidate_get(b->record, b->candidate, &arena, &there, err);

    if (st == NW_OK && there == NULL) {
        const nw_rec_candidate row = {.name = b->candidate,
                                      .role = b->role,
                                      .artifact = fact_str(s->facts, "model"),
                                      .artifact_hash = artifact_hash(s),
                                      .weights = fact_str(s->facts, "recipe"),
                                      .kv = fact_str(s->facts, "kv"),
                                      .act = fact_str(s->facts, "act"),
                                      .file_bytes = fact_int(s->facts, "file_bytes"),
                                      .weight_bytes = fact_int(s->facts, "weight_bytes"),
                                      .effective_bits = fact_real(s->facts, "effective_bits")};
        st = nw_record_candidate_put(b->record, &row, err);
    }
    nw_arena_release(&arena);
    return st;
}

nw_status nw_bench_begin(const nw_bench_run *b, const nw_service *s, int64_t *id, nw_error *err)
{
    nw_fingerprint machine = {0};
    char *text = NULL;
    nw_digest hash;
    bool resumed = false;
    nw_status st = settings_hash(b, &text, &hash, err);

    if (st == NW_OK) {
        st = nw_fingerprint_take(&machine, err);
    }
    if (st == NW_OK) {
        st = nw_record_machine_put(b->record, machine.hash.hex, machine.json, err);
    }
    if (st == NW_OK) {
        st = put_candidate(b, s, err);
    }
    if (st == NW_OK) {
        const nw_rec_run run = {.candidate = b->candidate,
                                .stage = b->stage,
                                .suite = b->suite,
                                .settings_hash = hash.hex,
                                .settings_json = text,
                                .data_hash = b->data_hash,
                                .artifact_hash = artifact_hash(s),
                                .machine_hash = machine.hash.hex,
                                .kernel_map = fact_str(s->facts, "kernel_map"),
                                .threads = fact_int(s->facts, "threads"),
                                .seed = b->seed,
                                .tool_version = NW_VERSION};
        st = nw_record_run_begin(b->record, &run, false, id, &resumed, err);
    }
    nw_fingerprint_release(&machine);
    free(text);
    return st;
}

static nw_status keep_row(nw_record *rec, int64_t run, int64_t file_no, const nw_bench_row *r,
                          nw_error *err)
{
    nw_rec_event *events = calloc(r->n_events + 1, sizeof *events);
    nw_rec_request row = {.idx = r->idx,
                          .file_no = file_no,
                          .s_ns = r->s_ns,
                          .d_ns = r->d_ns,
                          .f_ns = r->f_ns,
                          .l_ns = r->l_ns,
                          .n_prompt = r->n_prompt,
                          .n_asked = r->n_asked,
                          .n_output = r->n_output,
                          .status = nw_bench_row_status(r),
                          .finish = nw_gen_finish_name(r->finish),
                          .error = r->error[0] != '\0' ? r->error : NULL,
                          .events = events,
                          .n_events = r->n_events,
                          .correct = -1};

    if (events == NULL) {
        return nw_fail(err, NW_E_NOMEM, "request %u: no memory for its events", r->idx);
    }
    for (size_t i = 0; i < r->n_events; i++) {
        events[i] = (nw_rec_event){r->events[i].t_ns, r->events[i].n_tokens};
    }
    const nw_status st = nw_record_add_requests(rec, run, &row, 1, err);
    free(events);
    return st;
}

nw_status nw_bench_keep_rows(nw_record *rec, int64_t run, int64_t file_no,
                             const nw_bench_rows *rows, nw_error *err)
{
    nw_status st = nw_record_begin(rec, err);

    if (st != NW_OK) {
        return st;
    }
    for (size_t i = 0; st == NW_OK && i < rows->n; i++) {
        st = keep_row(rec, run, file_no, &rows->rows[i], err);
    }
    if (st != NW_OK) {
        nw_record_rollback(rec);
        return st;
    }
    return nw_record_commit(rec, err);
}

static nw_status keep_in_flight(nw_record *rec, int64_t run, int64_t file_no,
                                const nw_load_result *r, nw_error *err)
{
    char name[32];
    nw_rec_sample *rows = calloc(r->n_series + 1, sizeof *rows);

    if (rows == NULL) {
        return nw_fail(err, NW_E_NOMEM, "bench: no memory for %zu samples", r->n_series);
    }
    (void)snprintf(name, sizeof name, "in_flight/%lld", (long long)file_no);
    for (size_t i = 0; i < r->n_series; i++) {
        rows[i] = (nw_rec_sample){name, r->series[i].t_ns, r->series[i].n};
    }
    const nw_status st = nw_record_add_series(rec, run, rows, r->n_series, err);
    free(rows);
    return st;
}

nw_status nw_bench_keep_load(nw_record *rec, int64_t run, int64_t file_no, const nw_load_options *o,
                             const nw_load_result *r, nw_error *err)
{
    json_t *json = nw_load_json(o, r);
    char *text = json != NULL ? nw_json_canonical(json) : NULL;
    const nw_rec_window w = {.file_no = file_no,
                             .start_ns = r->w0_ns,
                             .end_ns = r->w1_ns,
                             .offered_rps = r->summary.request_rate_asked,
                             .steady = nw_load_steady(r).steady,
                             .json = text};
    nw_status st = nw_bench_keep_rows(rec, run, file_no, &r->rows, err);

    json_decref(json);
    if (st == NW_OK) {
        st = nw_record_add_windows(rec, run, &w, 1, err);
    }
    if (st == NW_OK) {
        st = keep_in_flight(rec, run, file_no, r, err);
    }
    free(text);
    return st;
}

nw_status nw_bench_keep_micro(nw_record *rec, int64_t run, const nw_micro_result *r, nw_error *err)
{
    const nw_rec_metric rows[] = {
        {"decode_tokens_per_s", r->decode_tokens_per_s.p50, "tokens/s", NULL},
        {"prefill_tokens_per_s", r->prefill_tokens_per_s.p50, "tokens/s", NULL},
        {"client_cpu_s", r->client_cpu_s, "s", NULL},
        {"wall_s", r->wall_s, "s", NULL},
    };
    const nw_status st = nw_bench_keep_rows(rec, run, 0, &r->rows, err);

    return st == NW_OK ? nw_record_add_metrics(rec, run, rows, NW_COUNT(rows), err) : st;
}

static nw_status keep_kernels(nw_record *rec, int64_t run, const json_t *ledger, nw_error *err)
{
    const size_t n = json_array_size(ledger);
    nw_rec_kernel *rows = calloc(n + 1, sizeof *rows);

    if (rows == NULL) {
        return nw_fail(err, NW_E_NOMEM, "bench: no memory for %zu kernel rows", n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *k = json_array_get(ledger, i);
        const char *text[5] = {fact_str(k, "op"), fact_str(k, "shape"), fact_str(k, "phase"),
                               fact_str(k, "intended"), fact_str(k, "used")};
        for (size_t j = 0; j < NW_COUNT(text); j++) {
            text[j] = text[j] != NULL ? text[j] : "";
        }
        rows[i] = (nw_rec_kernel){.op = text[0],
                                  .layer = fact_int(k, "layer"),
                                  .shape = text[1],
                                  .phase = text[2],
                                  .intended = text[3],
                                  .used = text[4],
                                  .calls = fact_int(k, "calls"),
                                  .ns = fact_int(k, "ns"),
                                  .bytes = fact_int(k, "bytes"),
                                  .bytes_converted = fact_int(k, "bytes_converted")};
    }
    const nw_status st = nw_record_add_kernels(rec, run, rows, n, err);
    free(rows);
    return st;
}

static nw_status keep_rss(nw_record *rec, int64_t run, const nw_bench_costs *c, nw_error *err)
{
    nw_rec_sample *rows = calloc(c->n_rss + 1, sizeof *rows);

    if (rows == NULL) {
        return nw_fail(err, NW_E_NOMEM, "bench: no memory for %zu samples", c->n_rss);
    }
    for (size_t i = 0; i < c->n_rss; i++) {
        rows[i] = (nw_rec_sample){"rss_bytes", c->rss[i].t_ns, (double)c->rss[i].rss_bytes};
    }
    const nw_status st = nw_record_add_series(rec, run, rows, c->n_rss, err);
    free(rows);
    return st;
}

static nw_status keep_costs(nw_record *rec, int64_t run, const nw_bench_costs *c, nw_error *err)
{
    const double nan_ = (double)NAN;
    json_t *reason = json_string(c->energy_why != NULL ? c->energy_why : "");
    char *why = json_dumps(reason, JSON_ENCODE_ANY);
    const nw_rec_metric rows[] = {
        {"load_s", fact_real(c->facts, "load_s"), "s", NULL},
        {"peak_rss_bytes", c->has_memory ? (double)c->peak_rss_bytes : nan_, "bytes", NULL},
        {"rss_bytes", c->has_memory ? (double)c->rss_bytes : nan_, "bytes", NULL},
        {"weight_bytes", fact_real(c->facts, "weight_bytes"), "bytes", NULL},
        {"kv_bytes_per_token", fact_real(c->facts, "kv_bytes_per_token"), "bytes", NULL},
        {"kv_capacity_tokens", fact_real(c->facts, "kv_capacity_tokens"), "tokens", NULL},
        {"kv_pool_bytes", fact_real(c->facts, "kv_bytes"), "bytes", NULL},
        {"workspace_bytes", fact_real(c->facts, "workspace_bytes"), "bytes", NULL},
        {"energy_j", c->energy_j, "J", why},
    };
    const nw_status st = nw_record_add_metrics(rec, run, rows, NW_COUNT(rows), err);

    free(why);
    json_decref(reason);
    return st;
}

nw_status nw_bench_finish(nw_record *rec, int64_t run, const nw_bench_costs *c, nw_error *err)
{
    nw_status st = keep_costs(rec, run, c, err);

    if (st == NW_OK) {
        st = keep_kernels(rec, run, json_object_get(c->facts, "ledger"), err);
    }
    if (st == NW_OK) {
        st = keep_rss(rec, run, c, err);
    }
    return st == NW_OK ? nw_record_run_end(rec, run, "done", err) : st;
}
