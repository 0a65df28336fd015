/* Asking for quality, deciding, reporting: everything but the artifacts (stages_artifact.c) and
 * the speed stages (stages_speed.c). SPDX-License-Identifier: Apache-2.0 */
#include "study/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "decide/policy.h"
#include "eval/suite.h"
#include "quant/recipe.h"
#include "record/record.h"
#include "study/stages_parts.h"
#include "target/target.h"

enum { EXIT_GATES = 1 };

nw_status nw_stage_child(nw_stages *st, nw_child_args *args, const char *what, const char *out,
                         int *exit_code, nw_error *err)
{
    const double start = nw_now_s();

    st->step++;
    nw_log(NW_LOG_INFO, "[%u/%u] %s", st->step, st->n_steps, what);
    if (nw_child_run(args, out, exit_code, err) != NW_OK) {
        return err->code;
    }
    nw_log(NW_LOG_INFO, "[%u/%u] %s: %.1f s", st->step, st->n_steps, what, nw_now_s() - start);
    return NW_OK;
}

nw_status nw_stage_failed(const char *what, const nw_child_args *args, int code, nw_error *err)
{
    return nw_fail(err, code == NW_STAGE_REFUSED ? NW_E_FORMAT : NW_E_IO,
                   "%s: narrow %s ended with exit code %d", what, args->argv[1], code);
}

nw_status nw_stage_must(nw_stages *st, nw_child_args *args, const char *what, nw_error *err)
{
    int code = 0;

    if (nw_stage_child(st, args, what, st->log, &code, err) != NW_OK) {
        return err->code;
    }
    return code == 0 ? NW_OK : nw_stage_failed(what, args, code, err);
}

void nw_stage_engine_options(const nw_stages *st, size_t i, nw_child_args *a)
{
    const nw_study_candidate *c = &st->study.candidates[i];

    nw_child_option(a, "--kv", c->kv);
    nw_child_option(a, "--act", c->act);
    nw_child_option(a, "--record", st->record);
    nw_child_option(a, "--candidate", c->name);
    if (nw_target_spec_is_url(
            st->artifact[i])) { /* the model's own ids, held against the server's */
        nw_child_option(a, "--tokenizer", st->study.model);
    }
}

static nw_status model_digest(const char *path, nw_digest *out, nw_error *err)
{
    nw_checkpoint *c = NULL;
    nw_status st = nw_checkpoint_open(path, &c, err);

    st = st == NW_OK ? nw_checkpoint_digest(c, out, err) : st;
    nw_checkpoint_close(c);
    return st;
}

nw_status nw_stage_quality(nw_stages *st, size_t i, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_child_args args = {.n = 0};
    char n_ctx[16];
    char windows[16];
    char items[16];
    char seed[16];
    char stride[16];
    char what[160];

    (void)snprintf(n_ctx, sizeof n_ctx, "%u", s->quality.n_ctx);
    (void)snprintf(stride, sizeof stride, "%u", s->quality.stride);
    (void)snprintf(windows, sizeof windows, "%u", s->quality.windows);
    (void)snprintf(items, sizeof items, "%u", s->quality.items);
    (void)snprintf(seed, sizeof seed, "%u", s->quality.seed);
    nw_child_arg(&args, "eval");
    nw_child_arg(&args, st->artifact[i]);
    nw_child_option(&args, "--role", i == 0 ? "baseline" : "candidate");
    const bool url = nw_target_spec_is_url(st->artifact[i]);
    if (s->quality.text != NULL) {
        nw_child_option(&args, "--layer", "perplexity");
        nw_child_option(&args, "--baseline", i == 0 || url ? NULL : st->artifact[0]);
        nw_child_option(&args, "--text", s->quality.text);
        nw_child_option(&args, "--context", n_ctx);
        nw_child_option(&args, "--stride", stride);
        nw_child_option(&args, "--chunks", windows);
    }
    if (s->quality.choice != NULL) {
        nw_child_option(&args, "--layer", "choice");
        nw_child_option(&args, "--choice", s->quality.choice);
    }
    if (s->quality.generate != NULL) {
        nw_child_option(&args, "--layer", "generate");
        nw_child_option(&args, "--generate", s->quality.generate);
    }
    nw_child_option(&args, "--items", items);
    nw_child_option(&args, "--seed", seed);
    nw_stage_engine_options(st, i, &args);
    (void)snprintf(what, sizeof what, "quality of %s", s->candidates[i].name);
    return nw_stage_must(st, &args, what, err);
}

/* A candidate with a FAIL at a gate that is not advisory, under the newest policy of the record. */
static nw_status read_rejected(nw_stages *st, nw_error *err)
{
    nw_record *record = NULL;
    nw_arena arena = {.head = NULL};
    nw_rec_policy *policies = NULL;
    nw_rec_verdict *rows = NULL;
    size_t n = 0;
    nw_status status = nw_record_open(st->record, NW_RECORD_READ, &record, err);

    status = status == NW_OK ? nw_record_policies(record, &arena, &policies, &n, err) : status;
    if (status == NW_OK && n > 0) {
        status = nw_record_verdicts(record, policies[0].policy_hash, &arena, &rows, &n, err);
    }
    for (size_t k = 0; rows != NULL && k < n && status == NW_OK; k++) {
        for (size_t i = 1; i < st->study.n_candidates; i++) {
            st->rejected[i] =
                st->rejected[i] || (!rows[k].advisory && strcmp(rows[k].verdict, "FAIL") == 0 &&
                                    strcmp(rows[k].candidate, st->study.candidates[i].name) == 0);
        }
    }
    nw_record_close(record);
    nw_arena_release(&arena);
    return status;
}

nw_status nw_stage_decide(nw_stages *st, bool early, nw_error *err)
{
    nw_child_args args = {.n = 0};
    int code = 0;

    nw_child_arg(&args, "decide");
    nw_child_arg(&args, st->record);
    nw_child_option(&args, "--policy", st->study.policy);
    if (st->json && !early) {
        nw_child_arg(&args, "--json");
    }
    if (nw_stage_child(st, &args, early ? "quality gates" : "decide", early ? st->log : NULL, &code,
                       err) != NW_OK) {
        return err->code;
    }
    if (code > EXIT_GATES) {
        return nw_stage_failed("decide", &args, code, err);
    }
    return early ? read_rejected(st, err) : NW_OK;
}

nw_status nw_stage_report(nw_stages *st, nw_error *err)
{
    nw_child_args args = {.n = 0};

    nw_child_arg(&args, "report");
    nw_child_arg(&args, st->record);
    nw_child_option(&args, "--out", st->report);
    nw_child_option(&args, "--title", st->study.name);
    return nw_stage_must(st, &args, "report", err);
}

static char *in_work(const nw_stages *st, const char *name)
{
    return nw_path_join(st->study.work, name);
}

/* What is on disk under that name, file or folder. */
static nw_status check_there(const nw_stages *st, const char *what, const char *path, nw_error *err)
{
    return path == NULL || nw_file_exists(path) || nw_file_is_dir(path)
               ? NW_OK
               : nw_fail(err, NW_E_IO, "%s: %s %s is not there", st->study.path, what, path);
}

static nw_status check_candidate(nw_stages *st, size_t i, nw_error *err)
{
    const nw_study_candidate *c = &st->study.candidates[i];
    nw_recipe *recipe = NULL;

    if (c->recipe == NULL && !nw_target_spec_is_url(c->artifact)) {
        return check_there(st, "artifact", c->artifact, err);
    }
    if (c->recipe == NULL) {
        return c->kv == NULL && c->act == NULL
                   ? NW_OK
                   : nw_fail(err, NW_E_USAGE,
                             "%s: candidate '%s': %s: is for an artifact, %s runs already",
                             st->study.path, c->name, c->kv != NULL ? "kv" : "act", c->artifact);
    }
    if (st->study.model == NULL) {
        return nw_fail(err, NW_E_USAGE,
                       "%s: '%s' is made by a recipe, but there is no model:", st->study.path,
                       c->name);
    }
    if (nw_recipe_open(c->recipe, &recipe, err) != NW_OK) {
        return nw_context(err, "%s: candidate '%s'", st->study.path, c->name);
    }
    st->calibrated[i] = st->calibration != NULL && nw_recipe_calibration(recipe) != NULL;
    nw_recipe_close(recipe);
    return NW_OK;
}

static nw_status check_suite(const nw_stages *st, const char *spec, nw_item_kind kind,
                             nw_error *err)
{
    nw_suite suite;

    if (spec == NULL) {
        return NW_OK;
    }
    if (nw_suite_open(spec, kind, st->study.quality.seed, st->study.quality.items, &suite, err) !=
        NW_OK) {
        return nw_context(err, "%s", st->study.path);
    }
    nw_suite_release(&suite);
    return NW_OK;
}

static nw_status check_policy(const nw_stages *st, nw_error *err)
{
    nw_policy policy;

    if (nw_policy_load(st->study.policy, &policy, err) != NW_OK) {
        return nw_context(err, "%s", st->study.path);
    }
    nw_policy_release(&policy);
    return NW_OK;
}

/* An hour of work must not end at a file name: all that later stages open is opened now. */
static nw_status check_inputs(nw_stages *st, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_status status = check_there(st, "model", s->model, err);

    status = status == NW_OK ? check_there(st, "text", s->quality.text, err) : status;
    status = status == NW_OK ? check_there(st, "log", s->calibration.log, err) : status;
    status = status == NW_OK ? check_there(st, "text", s->calibration.text, err) : status;
    for (size_t i = 0; i < s->n_candidates && status == NW_OK; i++) {
        status = check_candidate(st, i, err);
    }
    if (status != NW_OK || check_policy(st, err) != NW_OK ||
        check_suite(st, s->quality.choice, NW_ITEM_CHOICE, err) != NW_OK ||
        check_suite(st, s->quality.generate, NW_ITEM_GENERATE, err) != NW_OK) {
        return err->code;
    }
    return s->model != NULL ? model_digest(s->model, &st->model, err) : NW_OK;
}

nw_status nw_stages_open(nw_stages *st, nw_error *err)
{
    nw_study *s = &st->study;

    if (s->work == NULL) {
        return nw_fail(err, NW_E_USAGE, "%s: no work: folder", s->path);
    }
    if (s->calibration.log != NULL || s->calibration.text != NULL) {
        st->calibration = in_work(st, "calibration");
    }
    if (check_inputs(st, err) != NW_OK) {
        return err->code;
    }
    st->record = in_work(st, "study.db");
    st->log = in_work(st, "study.log");
    st->report = in_work(st, "report.html");
    char *artifacts = in_work(st, "artifacts");
    nw_status status = artifacts == NULL || st->report == NULL || st->log == NULL
                           ? nw_fail(err, NW_E_NOMEM, "%s: no memory", s->path)
                           : nw_file_mkdirs(artifacts, err);
    free(artifacts);
    return status;
}

unsigned nw_stages_batch1_steps(const nw_study *s)
{
    return (s->batch1.requests > 0 ? 1U : 0U) +
           (s->batch1.requests > 0 && s->batch1.natural > 0 ? 1U : 0U);
}

void nw_stages_drop(nw_stages *st, size_t i, bool with_quality)
{
    const nw_study *s = &st->study;

    free(st->artifact[i]);
    st->artifact[i] = NULL;
    st->n_steps -= (with_quality ? 1U : 0U) + nw_stages_batch1_steps(s) +
                   (s->load.requests > 0 ? (unsigned)s->load.n_rates : 0U);
}

void nw_stages_close(nw_stages *st)
{
    for (size_t i = 0; i < NW_STUDY_MAX_CANDIDATES; i++) {
        free(st->artifact[i]);
    }
    free(st->calibration);
    free(st->record);
    free(st->log);
    free(st->report);
    nw_study_release(&st->study);
}
