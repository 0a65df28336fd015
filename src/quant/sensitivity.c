/* The measurement of all groups and layouts: see sensitivity.h. What is measured is a line of the
 * journal at once; a line counts again only for the same bytes (the artifact's hash).
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/sensitivity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/journal.h"
#include "base/progress.h"
#include "base/signal.h"
#include "model/config.h"
#include "quant/sensitivity_parts.h"

typedef struct {
    const nw_sensitivity_options *o;
    nw_sensitivity *s;
    nw_artifact *candidates[NW_SENSITIVITY_TYPES];
    nw_model_config config;
    nw_digest model;
    nw_engine *engine;
    nw_samples samples;
    nw_trial *trial;
    char *path;
    json_t *of, *rows;
    nw_journal *journal;
} run;

void nw_sensitivity_release(nw_sensitivity *s)
{
    free(s->groups);
    free(s->cells);
    *s = (nw_sensitivity){0};
}

/* Names, shapes and the digest of the model; the layouts' methods. */
static nw_status open_model(run *r, nw_error *err)
{
    const nw_sensitivity_options *o = r->o;
    nw_sensitivity *s = r->s;
    nw_checkpoint *c = NULL;
    nw_status st = nw_checkpoint_open(o->model, &c, err);

    if (st != NW_OK) {
        return st;
    }
    r->config = *nw_checkpoint_config(c);
    st = nw_checkpoint_digest(c, &r->model, err);
    nw_checkpoint_close(c);
    if (st == NW_OK) {
        st = nw_groups_make(&r->config, !o->per_tensor, &s->groups, &s->n_groups, err);
    }
    if (st != NW_OK) {
        return st;
    }
    s->n_types = o->n_types;
    memcpy(s->types, o->types, sizeof s->types);
    s->method = o->method;
    /* a table that is only looked up has no inputs; one that is the head too has the head's */
    s->embed_method = o->method;
    if (nw_method_needs_stats(o->method)) {
        s->embed_method = r->config.tied ? NW_METHOD_IMATRIX : NW_METHOD_REFIT;
    }
    s->cells = calloc(s->n_groups * s->n_types, sizeof *s->cells);
    return s->cells != NULL ? NW_OK
                            : nw_fail(err, NW_E_NOMEM, "no memory for %zu groups", s->n_groups);
}

static nw_status make_candidates(run *r, nw_error *err)
{
    nw_status st = nw_file_mkdirs(r->o->work, err);

    for (size_t t = 0; st == NW_OK && t < r->s->n_types; t++) {
        st = nw_sensitivity_candidate(r->o, r->s, &r->config, &r->model, t, &r->candidates[t], err);
    }
    return st;
}

static nw_status open_engine(run *r, nw_error *err)
{
    nw_engine_options eo = nw_engine_options_default();

    nw_engine_kv_plain(&eo);
    eo.n_threads = r->o->n_threads;
    eo.act = 0;
    eo.max_seqs = 1;
    eo.n_ctx = r->o->sample.n_ctx;
    eo.max_step_tokens = r->o->sample.n_ctx;
    eo.swaps = true;
    const nw_status st = nw_engine_open(r->o->model, &eo, &r->engine, err);
    return st == NW_OK
               ? nw_samples_draw(nw_engine_tokenizer(r->engine), &r->o->sample, &r->samples, err)
               : st;
}

/* Reads what an earlier run measured, and goes on behind it. */
static nw_status open_journal(run *r, nw_error *err)
{
    static const char format[] = "narrow-sensitivity";
    const char *differs = NULL;
    nw_error why = {0};

    r->path = nw_path_join(r->o->work, "sensitivity.jsonl");
    r->of =
        json_pack("{s:s, s:s, s:s, s:s}", "model", r->model.hex, "data", r->samples.data_hash.hex,
                  "sampling", r->samples.ids_hash.hex, "tool", "narrow " NW_VERSION);
    if (r->path == NULL || r->of == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its journal", r->o->work);
    }
    nw_status st = nw_journal_load(r->path, format, r->of, &r->rows, &differs, &why);
    if (differs != NULL && !r->o->replace) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: was measured with another %s; name another folder, or measure anew "
                       "with --force",
                       r->path, strcmp(differs, "tool") == 0 ? "version of narrow" : differs);
    }
    if (st != NW_OK && differs == NULL) {
        *err = why;
        return st;
    }
    return nw_journal_open(r->path, format, r->of, r->rows, json_array_size(r->rows), &r->journal,
                           err);
}

/* The line of a cell, of the same bytes; NULL: it is not measured yet. */
static const json_t *find_row(const run *r, size_t g, size_t t)
{
    char type[32];
    const json_t *want = NULL;
    json_t *key = json_pack("{s:s, s:s, s:s}", "group", r->s->groups[g].name, "type",
                            nw_panel_name(r->s->types[t], type), "artifact",
                            nw_artifact_hash(r->candidates[t]));

    for (size_t i = 0; want == NULL && i < json_array_size(r->rows); i++) {
        const json_t *row = json_array_get(r->rows, i);
        const char *name = NULL;
        json_t *value = NULL;
        bool same = true;
        json_object_foreach(key, name, value)
        {
            same = same && json_equal(json_object_get(row, name), value);
        }
        want = same && json_is_number(json_object_get(row, "kl")) ? row : NULL;
    }
    json_decref(key);
    return want;
}

static nw_status measure_cell(run *r, size_t g, size_t t, nw_error *err)
{
    nw_sensitivity_cell *cell = &r->s->cells[g * r->s->n_types + t];
    const json_t *known = find_row(r, g, t);
    char type[32];

    if (known != NULL) {
        cell->kl = json_number_value(json_object_get(known, "kl"));
        cell->kl_se = json_number_value(json_object_get(known, "kl_se"));
        return NW_OK;
    }
    nw_status st =
        nw_trial_run(r->trial, &r->s->groups[g], r->candidates[t], &cell->kl, &cell->kl_se, err);
    if (st != NW_OK) {
        return nw_context(err, "%s", nw_panel_name(r->s->types[t], type));
    }
    json_t *row = json_pack("{s:s, s:s, s:s, s:f, s:f, s:I}", "group", r->s->groups[g].name, "type",
                            nw_panel_name(r->s->types[t], type), "artifact",
                            nw_artifact_hash(r->candidates[t]), "kl", cell->kl, "kl_se",
                            cell->kl_se, "bytes", (json_int_t)cell->bytes);
    st = nw_journal_add(r->journal, row, err);
    json_decref(row);
    if (st == NW_OK && nw_stop_requested()) {
        st = nw_fail(err, NW_E_CANCELLED, "stopped behind %s; the same command goes on from there",
                     r->s->groups[g].name);
    }
    return st;
}

static nw_status measure_all(run *r, nw_error *err)
{
    nw_sensitivity *s = r->s;
    nw_progress progress = {0};
    uint64_t done = 0;
    nw_status st = nw_trial_open(r->engine, &r->samples, r->o->work,
                                 nw_engine_get_facts(r->engine)->n_threads, &r->trial, err);

    if (st == NW_OK && r->o->show_progress) {
        nw_progress_begin(&progress, "sensitivity", "trials", s->n_groups * s->n_types);
    }
    for (size_t g = 0; st == NW_OK && g < s->n_groups; g++) {
        for (size_t t = 0; st == NW_OK && t < s->n_types; t++) {
            if (nw_group_fits(&s->groups[g], &r->config, s->types[t])) {
                st = measure_cell(r, g, t, err);
            }
            if (st == NW_OK && r->o->show_progress) {
                nw_progress_step(&progress, ++done);
            }
        }
    }
    s->n_tokens = r->trial != NULL ? nw_trial_tokens(r->trial) : 0;
    return st;
}

static void close_run(run *r)
{
    nw_trial_close(r->trial);
    nw_journal_close(r->journal);
    json_decref(r->of);
    json_decref(r->rows);
    free(r->path);
    nw_samples_release(&r->samples);
    nw_engine_close(r->engine);
    for (size_t t = 0; t < NW_SENSITIVITY_TYPES; t++) {
        nw_artifact_close(r->candidates[t]);
    }
}

nw_status nw_sensitivity_measure(const nw_sensitivity_options *o, nw_sensitivity *out,
                                 nw_error *err)
{
    nw_sensitivity s = {0};
    run r = {.o = o, .s = &s};
    nw_status st = open_model(&r, err);

    st = st == NW_OK ? make_candidates(&r, err) : st;
    st = st == NW_OK ? open_engine(&r, err) : st;
    st = st == NW_OK ? open_journal(&r, err) : st;
    st = st == NW_OK ? measure_all(&r, err) : st;
    if (st == NW_OK) {
        st = nw_digest_file(r.path, &s.hash, err);
    }
    close_run(&r);
    if (st != NW_OK) {
        nw_sensitivity_release(&s);
        return st;
    }
    *out = s;
    return NW_OK;
}
