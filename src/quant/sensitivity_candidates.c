/* One artifact a layout: every matrix it fits, by the method that the mix will be made with. The folder's
 * name carries a digest of all it depends on, so that one that is there is the one that is wanted, and an
 * unfinished one is gone on with.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quantize.h"
#include "quant/recipe_write.h"
#include "quant/sensitivity_parts.h"
#include "quant/stats_folder.h"

static char *plan_text(const nw_sensitivity_options *o, const nw_sensitivity *s,
                       const nw_model_config *config, size_t t)
{
    nw_panel_type *types = calloc(s->n_groups, sizeof *types);
    bool *kept = calloc(s->n_groups, sizeof *kept);
    char name[32];
    char *text = NULL;

    for (size_t g = 0; types != NULL && kept != NULL && g < s->n_groups; g++) {
        types[g] = s->types[t];
        kept[g] = !nw_group_fits(&s->groups[g], config, s->types[t]);
    }
    if (types != NULL && kept != NULL) {
        text = nw_recipe_text(&(nw_recipe_plan){.name = nw_panel_name(s->types[t], name),
                                                .calibration = o->calibration,
                                                .method = s->method,
                                                .embed_method = s->embed_method,
                                                .groups = s->groups,
                                                .n_groups = s->n_groups,
                                                .types = types,
                                                .kept = kept});
    }
    free(types);
    free(kept);
    return text;
}

static nw_status calibration_hash(const char *dir, char hash[65], nw_error *err)
{
    nw_stats *stats = NULL;

    hash[0] = '\0';
    if (dir == NULL) {
        return NW_OK;
    }
    const nw_status st = nw_stats_open(dir, &stats, err);
    if (st == NW_OK) {
        (void)snprintf(hash, 65, "%s", nw_stats_hash(stats));
    }
    nw_stats_close(stats);
    return st;
}

/* "<layout>-<12 digits>"; the caller frees it. */
static nw_status folder_name(const nw_sensitivity_options *o, const nw_sensitivity *s,
                             const nw_digest *model, size_t t, const char *text, char **out,
                             nw_error *err)
{
    char hash[65];
    char type[32];
    char name[64];
    nw_digest digest = {0};
    nw_sha256 h = {0};
    nw_status st = calibration_hash(o->calibration, hash, err);

    st = st == NW_OK ? nw_sha256_init(&h, err) : st;
    if (st != NW_OK) {
        return st;
    }
    nw_sha256_add(&h, "narrow " NW_VERSION, strlen("narrow " NW_VERSION));
    nw_sha256_add(&h, model->hex, strlen(model->hex));
    nw_sha256_add(&h, hash, strlen(hash));
    nw_sha256_add(&h, text, strlen(text));
    digest = nw_sha256_end(&h);
    (void)snprintf(name, sizeof name, "%s-%.12s", nw_panel_name(s->types[t], type), digest.hex);
    *out = nw_path_join(o->work, name);
    return *out != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", o->work);
}

static nw_status make(const nw_sensitivity_options *o, const char *dir, const char *text,
                      nw_error *err)
{
    const size_t n = strlen(dir) + sizeof ".yaml";
    char *recipe = calloc(1, n);
    nw_status st = NW_OK;

    if (recipe == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", dir);
    }
    (void)snprintf(recipe, n, "%s.yaml", dir);
    st = nw_file_write(recipe, text, strlen(text), err);
    if (st == NW_OK) {
        const nw_quantize_options q = {.source = o->model,
                                       .recipe = recipe,
                                       .out = dir,
                                       .no_tokenizer = true,
                                       .n_threads = o->n_threads,
                                       .show_progress = o->show_progress};
        st = nw_quantize(&q, NULL, err);
    }
    free(recipe);
    return st;
}

/* Bytes of each group; what is no group's, the header too, is other_bytes. */
static nw_status count_bytes(const nw_artifact *a, nw_sensitivity *s, size_t t, nw_error *err)
{
    uint64_t sum = 0;

    for (size_t g = 0; g < s->n_groups; g++) {
        nw_sensitivity_cell *cell = &s->cells[g * s->n_types + t];
        uint64_t bytes = 0;
        for (unsigned i = 0; i < s->groups[g].n_roles; i++) {
            const nw_artifact_matrix *m =
                nw_artifact_get_matrix(a, s->groups[g].roles[i], s->groups[g].layer);
            if (m == NULL) {
                return nw_fail(err, NW_E_FORMAT, "%s: has no matrices of %s", nw_artifact_path(a),
                               s->groups[g].name);
            }
            bytes += m->n_bytes;
        }
        sum += bytes;
        cell->bytes = bytes;
        cell->kl = (double)NAN;
    }
    const nw_artifact_facts *f = nw_artifact_get_facts(a);
    const uint64_t other = f->file_bytes > sum ? f->file_bytes - sum : 0;
    s->other_bytes = other > s->other_bytes ? other : s->other_bytes;
    s->n_params = f->n_params;
    return NW_OK;
}

nw_status nw_sensitivity_candidate(const nw_sensitivity_options *o, nw_sensitivity *s,
                                   const nw_model_config *config, const nw_digest *model, size_t t,
                                   nw_artifact **out, nw_error *err)
{
    char *text = plan_text(o, s, config, t);
    char *dir = NULL;
    nw_status st = text != NULL ? folder_name(o, s, model, t, text, &dir, err)
                                : nw_fail(err, NW_E_NOMEM, "no memory for a recipe of %zu groups",
                                          s->n_groups);

    if (st == NW_OK && !nw_artifact_is_native(dir)) {
        st = make(o, dir, text, err);
    }
    st = st == NW_OK ? nw_artifact_open(dir, out, err) : st;
    st = st == NW_OK ? count_bytes(*out, s, t, err) : st;
    free(text);
    free(dir);
    return st;
}
