/* The speed stages: batch 1, and the same arrival files replayed for every candidate. Rates are
 * shares of what the baseline can do at most, which is measured first: all requests of a burst at
 * once, completed requests a second.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "bench/arrivals.h"
#include "study/stages_parts.h"

enum { BURST_PER_SEQ = 2, BURST_RATE = 100000, JSON_MAX = 1 << 20 };

static void put_u32(char buf[16], uint32_t value)
{
    (void)snprintf(buf, 16, "%u", value);
}

nw_status nw_stage_batch1(nw_stages *st, size_t i, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_child_args args = {.n = 0};
    char prompt[16];
    char output[16];
    char requests[16];
    char warmup[16];
    char what[160];

    put_u32(prompt, s->batch1.prompt);
    put_u32(output, s->batch1.output);
    put_u32(requests, s->batch1.requests);
    put_u32(warmup, s->batch1.warmup);
    nw_child_arg(&args, "bench");
    nw_child_arg(&args, st->artifact[i]);
    nw_child_option(&args, "--regime", "micro");
    nw_child_option(&args, "--prompt", prompt);
    nw_child_option(&args, "--output", output);
    nw_child_option(&args, "--requests", requests);
    nw_child_option(&args, "--warmup", warmup);
    nw_stage_engine_options(st, i, &args);
    (void)snprintf(what, sizeof what, "batch 1 of %s", s->candidates[i].name);
    return nw_stage_must(st, &args, what, err);
}

/* Arrivals with the study's lengths, written to `path`. */
static nw_status write_arrivals(const nw_study *s, const char *path, nw_arrival_kind kind,
                                double rate, size_t n, uint64_t seed, nw_error *err)
{
    const nw_arrival_plan plan = {.kind = kind,
                                  .rate = rate,
                                  .duration_s = 86400,
                                  .max_requests = n,
                                  .prompt = {s->load.prompt_lo, s->load.prompt_hi},
                                  .output = {s->load.output_lo, s->load.output_hi},
                                  .seed = seed};
    nw_arrivals a = {.n = 0};
    nw_status status = nw_arrivals_make(&plan, &a, err);

    status = status == NW_OK ? nw_arrivals_write(&a, path, err) : status;
    nw_arrivals_release(&a);
    return status;
}

/* Completed requests a second of the burst, from the child's JSON. */
static nw_status read_capacity(const char *path, double *rps, nw_error *err)
{
    json_t *out = NULL;

    if (nw_json_load(path, JSON_MAX, &out, err) != NW_OK) {
        return err->code;
    }
    *rps = json_number_value(json_object_get(out, "requests_per_s"));
    json_decref(out);
    return *rps > 0 ? NW_OK
                    : nw_fail(err, NW_E_FORMAT, "%s: no requests_per_s above 0 in it", path);
}

static nw_status measure_capacity(nw_stages *st, const char *json, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_child_args args = {.n = 0};
    char seqs[16];
    int code = 0;
    char *csv = nw_path_join(s->work, "burst.csv");
    nw_status status = csv == NULL ? nw_fail(err, NW_E_NOMEM, "no memory")
                                   : write_arrivals(s, csv, NW_ARRIVE_CONSTANT, BURST_RATE,
                                                    BURST_PER_SEQ * (size_t)s->load.max_seqs,
                                                    s->quality.seed, err);

    put_u32(seqs, s->load.max_seqs);
    nw_child_arg(&args, "bench");
    nw_child_arg(&args, st->artifact[0]);
    nw_child_option(&args, "--regime", "load");
    nw_child_option(&args, "--arrivals", csv);
    nw_child_option(&args, "--warmup-s", "0");
    nw_child_option(&args, "--max-seqs", seqs);
    nw_child_arg(&args, "--json");
    if (status == NW_OK) {
        status = nw_stage_child(st, &args, "capacity of the baseline", json, &code, err);
    }
    free(csv);
    if (status == NW_OK && code != 0) {
        status = nw_fail(err, NW_E_IO, "capacity of the baseline: narrow bench ended with code %d",
                         code);
    }
    return status;
}

nw_status nw_stage_arrivals(nw_stages *st, nw_error *err)
{
    const nw_study *s = &st->study;
    char *json = nw_path_join(s->work, "capacity.json");
    nw_status status = json == NULL ? nw_fail(err, NW_E_NOMEM, "no memory") : NW_OK;
    double capacity = 0;

    if (status == NW_OK && nw_file_exists(json)) {
        st->step++;
    } else if (status == NW_OK) {
        status = measure_capacity(st, json, err);
    }
    status = status == NW_OK ? read_capacity(json, &capacity, err) : status;
    free(json);
    for (size_t k = 0; k < s->load.n_rates && status == NW_OK; k++) {
        char name[64];
        (void)snprintf(name, sizeof name, "arrivals-%.2f.csv", s->load.rates[k]);
        st->arrivals[k] = nw_path_join(s->work, name);
        if (st->arrivals[k] == NULL) {
            status = nw_fail(err, NW_E_NOMEM, "no memory");
        } else if (!nw_file_exists(st->arrivals[k])) {
            const double rate = s->load.rates[k] * capacity;
            const size_t n = s->load.requests + (size_t)(rate * s->load.warmup_s);
            status = write_arrivals(s, st->arrivals[k], NW_ARRIVE_POISSON, rate, n,
                                    s->quality.seed + k, err);
        }
    }
    return status;
}

nw_status nw_stage_load(nw_stages *st, size_t i, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_child_args args = {.n = 0};
    char seqs[16];
    char warmup[32];
    char ttft[32];
    char tpot[32];
    char what[160];

    put_u32(seqs, s->load.max_seqs);
    (void)snprintf(warmup, sizeof warmup, "%g", s->load.warmup_s);
    (void)snprintf(ttft, sizeof ttft, "%g", s->load.slo_ttft_ms);
    (void)snprintf(tpot, sizeof tpot, "%g", s->load.slo_tpot_ms);
    nw_child_arg(&args, "bench");
    nw_child_arg(&args, st->artifact[i]);
    nw_child_option(&args, "--regime", "load");
    for (size_t k = 0; k < s->load.n_rates; k++) {
        nw_child_option(&args, "--arrivals", st->arrivals[k]);
    }
    nw_child_option(&args, "--warmup-s", warmup);
    nw_child_option(&args, "--slo-ttft", ttft);
    nw_child_option(&args, "--slo-tpot", tpot);
    nw_child_option(&args, "--max-seqs", seqs);
    nw_stage_engine_options(st, i, &args);
    (void)snprintf(what, sizeof what, "load on %s", s->candidates[i].name);
    return nw_stage_must(st, &args, what, err);
}
