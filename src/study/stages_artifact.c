/* Making what is measured: statistics of the study's log, once, and an artifact for each candidate.
 * Both are taken up again where what they depend on is the same.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/manifest.h"
#include "base/file.h"
#include "base/log.h"
#include "quant/recipe.h"
#include "quant/stats_folder.h"
#include "study/stages_parts.h"

static bool same_text(const json_t *obj, const char *key, const char *want)
{
    const char *have = json_string_value(json_object_get(obj, key));

    return have == NULL ? want == NULL : want != NULL && strcmp(have, want) == 0;
}

/* Whether the manifest's recipe is what the recipe says now: a file may have been edited since. */
static bool same_recipe(const nw_manifest *m, const char *spec)
{
    static const char *const optional[] = {"transform",  "outliers", "activation_scale",
                                           "last_group", "kv",       "kv_scales"};
    nw_error ignored = {.code = NW_OK};
    nw_recipe *recipe = NULL;
    json_t *now = NULL;
    json_t *value = NULL;
    const char *key = NULL;

    if (nw_recipe_open(spec, &recipe, &ignored) == NW_OK) {
        now = nw_recipe_json(recipe, NULL, 0);
    }
    bool same = now != NULL && strcmp(m->recipe_name, nw_recipe_name(recipe)) == 0;
    json_object_foreach(now, key, value)
    {
        same = same && (strcmp(key, "kept_tensors") == 0 ||
                        json_equal(value, json_object_get(m->recipe, key)));
    }
    for (size_t i = 0; i < NW_COUNT(optional); i++) { /* a line of the file that is gone */
        same = same && (json_object_get(m->recipe, optional[i]) != NULL) ==
                           (json_object_get(now, optional[i]) != NULL);
    }
    json_decref(now);
    nw_recipe_close(recipe);
    return same;
}

/* An artifact of this recipe, made from this model under these statistics ("" without any), that is
 * whole as far as its manifest says. */
static bool is_made(const char *path, const char *recipe, const nw_digest *model, const char *stats)
{
    nw_manifest m = {.version = 0};
    nw_error ignored = {.code = NW_OK};
    char *file = nw_path_join(path, "manifest.json");
    const bool made =
        file != NULL && nw_file_exists(file) && nw_manifest_load(file, &m, &ignored) == NW_OK &&
        same_recipe(&m, recipe) && strcmp(m.source.hex, model->hex) == 0 &&
        strcmp(m.tool_version, "narrow " NW_VERSION) == 0 &&
        (stats[0] == '\0' || same_text(json_object_get(m.recipe, "calibration"), "hash", stats));

    nw_manifest_release(&m);
    free(file);
    return made;
}

/* Whether the folder holds what the study asks for: this model, these bytes, drawn the same way. */
static bool is_drawn(const nw_stages *st, const nw_stats *stats, const nw_digest *data)
{
    const nw_study *s = &st->study;
    const json_t *d = json_object_get(nw_stats_manifest(stats), "data");

    return nw_stats_is_of(stats, &st->model) && same_text(d, "sha256", data->hex) &&
           same_text(d, "stratify", s->calibration.by) &&
           json_integer_value(json_object_get(d, "seed")) == s->calibration.seed &&
           json_integer_value(json_object_get(d, "samples")) == s->calibration.samples &&
           json_integer_value(json_object_get(d, "n_ctx")) == s->calibration.n_ctx;
}

/* The hash of the folder into st->stats_hash; "" where it is absent, broken or of other data. */
static nw_status read_stats(nw_stages *st, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_stats *stats = NULL;
    nw_digest data;
    nw_error ignored = {.code = NW_OK};

    st->stats_hash.hex[0] = '\0';
    if (nw_digest_file(s->calibration.log != NULL ? s->calibration.log : s->calibration.text, &data,
                       err) != NW_OK) {
        return err->code;
    }
    if (nw_stats_open(st->calibration, &stats, &ignored) == NW_OK && is_drawn(st, stats, &data)) {
        (void)snprintf(st->stats_hash.hex, sizeof st->stats_hash.hex, "%s", nw_stats_hash(stats));
    }
    nw_stats_close(stats);
    return NW_OK;
}

static nw_status run_calibrate(nw_stages *st, nw_error *err)
{
    const nw_study *s = &st->study;
    nw_child_args args = {.n = 0};
    char samples[16];
    char n_ctx[16];
    char seed[16];

    (void)snprintf(samples, sizeof samples, "%u", s->calibration.samples);
    (void)snprintf(n_ctx, sizeof n_ctx, "%u", s->calibration.n_ctx);
    (void)snprintf(seed, sizeof seed, "%u", s->calibration.seed);
    nw_child_arg(&args, "calibrate");
    nw_child_arg(&args, s->model);
    nw_child_option(&args, "--log", s->calibration.log);
    nw_child_option(&args, "--text", s->calibration.text);
    nw_child_option(&args, "--stratify", s->calibration.by);
    nw_child_option(&args, "--samples", samples);
    nw_child_option(&args, "--n-ctx", n_ctx);
    nw_child_option(&args, "--seed", seed);
    nw_child_option(&args, "--out", st->calibration);
    nw_child_arg(&args, "--force");
    return nw_stage_must(st, &args, "calibrate", err);
}

nw_status nw_stage_calibrate(nw_stages *st, nw_error *err)
{
    if (read_stats(st, err) != NW_OK) {
        return err->code;
    }
    if (st->stats_hash.hex[0] != '\0') {
        st->step++;
        return NW_OK;
    }
    nw_status status = run_calibrate(st, err);
    status = status == NW_OK ? read_stats(st, err) : status;
    return status != NW_OK || st->stats_hash.hex[0] != '\0'
               ? status
               : nw_fail(err, NW_E_IO, "%s: not the statistics that were asked for",
                         st->calibration);
}

nw_status nw_stage_quantize(nw_stages *st, size_t i, nw_error *err)
{
    const nw_study_candidate *c = &st->study.candidates[i];
    nw_child_args args = {.n = 0};
    char folder[128];
    char what[160];
    int code = 0;

    if (c->artifact != NULL) {
        st->artifact[i] = strdup(c->artifact);
        return st->artifact[i] != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory", c->name);
    }
    (void)snprintf(folder, sizeof folder, "artifacts/%s", c->name);
    char *path = nw_path_join(st->study.work, folder);
    if (path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory", c->name);
    }
    st->artifact[i] = path;
    if (is_made(path, c->recipe, &st->model, st->calibrated[i] ? st->stats_hash.hex : "")) {
        st->step++;
        return NW_OK;
    }
    nw_child_arg(&args, "quantize");
    nw_child_arg(&args, st->study.model);
    nw_child_option(&args, "--recipe", c->recipe);
    nw_child_option(&args, "--out", path);
    nw_child_option(&args, "--calibration", st->calibrated[i] ? st->calibration : NULL);
    nw_child_arg(&args, "--force");
    (void)snprintf(what, sizeof what, "quantize %s", c->name);
    if (nw_stage_child(st, &args, what, st->log, &code, err) != NW_OK) {
        return err->code;
    }
    if (code != 0 && (i == 0 || code != NW_STAGE_REFUSED)) {
        return nw_stage_failed(what, &args, code, err);
    }
    if (code != 0) {
        nw_log(NW_LOG_WARN, "%s: the recipe does not fit this model; the study goes on without it",
               c->name);
        nw_stages_drop(st, i, true);
    }
    return NW_OK;
}
