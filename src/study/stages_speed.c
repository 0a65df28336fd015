/* The speed stages: batch 1, and the same arrival files replayed for every candidate. Rates are
 * shares of what the baseline can do at most, which is measured first: all requests of a burst at
 * once, completed requests a second.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "bench/arrivals.h"
#include "study/stages_parts.h"

enum { BURST_PER_SEQ = 2, BURST_RATE = 100000, JSON_MAX = 1 << 20, MAX_TAG = 1 << 16 };

static void put_u32(char buf[16], uint32_t value)
{
    (void)snprintf(buf, 16, "%u", value);
}

/* Answers of equal length for speed; or those that end by themselves, for equality of service. */
static nw_status batch1(nw_stages *st, size_t i, bool natural, nw_error *err)
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
    put_u32(requests, natural ? s->batch1.natural : s->batch1.requests);
    put_u32(warmup, s->batch1.warmup);
    nw_child_arg(&args, "bench");
    nw_child_arg(&args, st->artifact[i]);
    nw_child_option(&args, "--regime", "micro");
    nw_child_option(&args, "--prompt", prompt);
    nw_child_option(&args, "--output", output);
    nw_child_option(&args, "--requests", requests);
    nw_child_option(&args, "--warmup", warmup);
    if (natural) {
        nw_child_arg(&args, "--natural-stop");
    }
    nw_stage_engine_options(st, i, &args);
    (void)snprintf(what, sizeof what, "batch 1 of %s%s", s->candidates[i].name,
                   natural ? ", answers that end by themselves" : "");
    return nw_stage_must(st, &args, what, err);
}

nw_status nw_stage_batch1(nw_stages *st, size_t i, nw_error *err)
{
    const nw_status status = batch1(st, i, false, err);

    return status == NW_OK && st->study.batch1.natural > 0 ? batch1(st, i, true, err) : status;
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

/* ---- capacity of the baseline ---- */

/* Everything the capacity and the arrivals depend on: files of other plans are never taken up. */
static nw_status make_tag(nw_stages *st, nw_error *err)
{
    const nw_study *s = &st->study;
    const nw_study_candidate *b = &s->candidates[0];
    const char *parts[] = {st->artifact[0], b->recipe, b->kv, b->act, st->model.hex};
    nw_digest digest;
    nw_buf text;

    nw_buf_init(&text, MAX_TAG);
    (void)nw_buf_printf(&text, "%u-%u %u-%u %u %u %g %u", s->load.prompt_lo, s->load.prompt_hi,
                        s->load.output_lo, s->load.output_hi, s->load.requests, s->quality.seed,
                        s->load.warmup_s, s->load.max_seqs);
    for (size_t i = 0; i < NW_COUNT(parts); i++) {
        (void)nw_buf_printf(&text, "|%s", parts[i] != NULL ? parts[i] : "");
    }
    const nw_status status = text.failed ? nw_fail(err, NW_E_NOMEM, "no memory for the load's plan")
                                         : nw_digest_bytes(text.data, text.len, &digest, err);
    nw_buf_release(&text);
    if (status == NW_OK) {
        (void)snprintf(st->load_tag, sizeof st->load_tag, "%.8s", digest.hex);
    }
    return status;
}

/* "WORK/WHAT-TAG.EXT", owned by the caller; NULL without memory. */
static char *tagged_path(const nw_stages *st, const char *what, const char *ext)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%s-%s.%s", what, st->load_tag, ext);
    return nw_path_join(st->study.work, name);
}

static char *arrivals_path(const nw_stages *st, size_t rate, uint32_t file)
{
    char what[64];
    (void)snprintf(what, sizeof what, "arrivals-%g-%u", st->study.load.rates[rate], file + 1);
    return tagged_path(st, what, "csv");
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

/* Runs the burst; its JSON goes to the file `json`. */
static nw_status run_burst(nw_stages *st, const char *csv, const char *json, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_child_args args = {.n = 0};
    char seqs[16];
    int code = 0;

    put_u32(seqs, s->load.max_seqs);
    nw_child_arg(&args, "bench");
    nw_child_arg(&args, st->artifact[0]);
    nw_child_option(&args, "--regime", "load");
    nw_child_option(&args, "--arrivals", csv);
    nw_child_option(&args, "--warmup-s", "0");
    nw_child_option(&args, "--tail-s", "0"); /* a burst ends */
    nw_child_option(&args, "--max-seqs", seqs);
    nw_child_option(&args, "--kv", s->candidates[0].kv);
    nw_child_option(&args, "--act", s->candidates[0].act);
    nw_child_arg(&args, "--json");
    if (nw_stage_child(st, &args, "capacity of the baseline", json, &code, err) != NW_OK) {
        return err->code;
    }
    return code == 0
               ? NW_OK
               : nw_fail(err, NW_E_IO,
                         "capacity of the baseline: narrow bench ended with exit code %d", code);
}

/* The result gets its final name when it is whole: a stopped burst leaves none. */
static nw_status measure_capacity(nw_stages *st, const char *json, nw_error *err)
{
    const nw_study *s = &st->study;
    char *csv = tagged_path(st, "burst", "csv");
    char *partial = tagged_path(st, "capacity", "partial");
    nw_status status =
        csv == NULL || partial == NULL
            ? nw_fail(err, NW_E_NOMEM, "no memory")
            : write_arrivals(s, csv, NW_ARRIVE_CONSTANT, BURST_RATE,
                             BURST_PER_SEQ * (size_t)s->load.max_seqs, s->quality.seed, err);

    if (status == NW_OK) {
        (void)remove(partial);
        status = run_burst(st, csv, partial, err);
    }
    if (status == NW_OK && rename(partial, json) != 0) {
        status = nw_fail(err, NW_E_IO, "%s: cannot rename: %s", partial, strerror(errno));
    } else if (status != NW_OK && partial != NULL) {
        (void)remove(partial);
    }
    free(partial);
    free(csv);
    return status;
}

nw_status nw_stage_arrivals(nw_stages *st, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_status status = make_tag(st, err);
    char *json = status == NW_OK ? tagged_path(st, "capacity", "json") : NULL;
    double capacity = 0;

    if (status == NW_OK && json == NULL) {
        status = nw_fail(err, NW_E_NOMEM, "no memory");
    } else if (status == NW_OK && nw_file_exists(json)) {
        st->step++;
    } else if (status == NW_OK) {
        status = measure_capacity(st, json, err);
    }
    status = status == NW_OK ? read_capacity(json, &capacity, err) : status;
    free(json);
    for (size_t k = 0; k < s->load.n_rates * s->load.files && status == NW_OK; k++) {
        const double rate = s->load.rates[k / s->load.files] * capacity;
        const size_t n = s->load.requests + (size_t)(rate * s->load.warmup_s);
        char *path = arrivals_path(st, k / s->load.files, (uint32_t)(k % s->load.files));
        if (path == NULL) {
            status = nw_fail(err, NW_E_NOMEM, "no memory");
        } else if (!nw_file_exists(path)) {
            status = write_arrivals(s, path, NW_ARRIVE_POISSON, rate, n, s->quality.seed + k, err);
        }
        free(path);
    }
    return status;
}

/* ---- load ---- */

/* One run of the record: the arrival files of one rate are repetitions of one workload. */
static nw_status load_at(nw_stages *st, size_t i, size_t rate, char *const *files, nw_error *err)
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
    for (size_t k = 0; k < s->load.files; k++) {
        nw_child_option(&args, "--arrivals", files[k]);
    }
    nw_child_option(&args, "--warmup-s", warmup);
    nw_child_option(&args, "--slo-ttft", ttft);
    nw_child_option(&args, "--slo-tpot", tpot);
    nw_child_option(&args, "--max-seqs", seqs);
    nw_stage_engine_options(st, i, &args);
    (void)snprintf(what, sizeof what, "load on %s at %g of the baseline's capacity",
                   s->candidates[i].name, s->load.rates[rate]);
    return nw_stage_must(st, &args, what, err);
}

nw_status nw_stage_load(nw_stages *st, size_t i, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_status status = NW_OK;

    for (size_t rate = 0; rate < s->load.n_rates && status == NW_OK; rate++) {
        char *files[NW_STUDY_MAX_FILES] = {NULL};
        bool ok = true;
        for (uint32_t k = 0; k < s->load.files; k++) {
            files[k] = arrivals_path(st, rate, k);
            ok = ok && files[k] != NULL;
        }
        status = ok ? load_at(st, i, rate, files, err) : nw_fail(err, NW_E_NOMEM, "no memory");
        for (uint32_t k = 0; k < s->load.files; k++) {
            free(files[k]);
        }
    }
    return status;
}
