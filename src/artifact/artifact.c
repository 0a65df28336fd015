/* An open artifact: what it is and where its weights lie. How they got there is the matter of
 * artifact_native.c and artifact_pack.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/artifact.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact_parts.h"
#include "base/file.h"

#define MIN_HUGE ((size_t)64 << 20) /* the page tables of less mostly stay cached */

nw_artifact_slot *nw_artifact_slot_of(const nw_artifact *a, nw_role role, int32_t layer)
{
    const size_t per_role = (size_t)a->config.n_layers + 1;
    const size_t i = (size_t)layer + 1; /* 0 for -1, the tensors of no layer */

    return layer < -1 || i >= per_role ? NULL : &a->slots[(size_t)role * per_role + i];
}

nw_status nw_artifact_init_slots(nw_artifact *a, nw_error *err)
{
    const size_t n = ((size_t)a->config.n_layers + 1) * NW_ROLE_COUNT;

    a->slots = nw_arena_array(&a->arena, n, sizeof *a->slots);
    return a->slots != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory", a->path);
}

nw_status nw_artifact_set_vector(nw_artifact *a, const char *name, nw_role role, int32_t layer,
                                 float *gain, uint32_t n, nw_error *err)
{
    nw_artifact_slot *s = nw_artifact_slot_of(a, role, layer);

    if (s == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' is of layer %d, the model has %u",
                       a->path, name, (int)layer, (unsigned)a->config.n_layers);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(gain[i])) {
            return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' has a value that is not finite",
                           a->path, name);
        }
        gain[i] += a->config.norm_plus_one ? 1.0F : 0.0F;
    }
    s->vector = gain;
    s->n = n;
    return NW_OK;
}

static nw_status check_slot(const nw_artifact *a, nw_role role, int32_t layer, nw_error *err)
{
    const nw_artifact_slot *s = nw_artifact_slot_of(a, role, layer);
    char name[256];
    uint32_t n_rows = 0;
    uint32_t n_cols = 0;

    if (!nw_role_hf_name(&a->config, role, layer, name, sizeof name)) {
        return NW_OK; /* this architecture has no such tensor */
    }
    nw_role_shape(&a->config, role, &n_rows, &n_cols);
    const bool norm = nw_role_is_vector(role);
    if (norm ? s->vector == NULL : s->matrix.data == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' is missing", a->path, name);
    }
    if (norm ? s->n != n_cols : s->matrix.n_rows != n_rows || s->matrix.n_cols != n_cols) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' is %u x %u, the config asks for %u x %u",
                       a->path, name, norm ? 1U : (unsigned)s->matrix.n_rows,
                       norm ? (unsigned)s->n : (unsigned)s->matrix.n_cols, (unsigned)n_rows,
                       (unsigned)n_cols);
    }
    return NW_OK;
}

nw_status nw_artifact_check_complete(const nw_artifact *a, nw_error *err)
{
    nw_status st = NW_OK;

    for (int role = 0; st == NW_OK && role < NW_ROLE_ATTN_NORM; role++) {
        st = check_slot(a, (nw_role)role, -1, err);
    }
    for (int32_t l = 0; st == NW_OK && l < (int32_t)a->config.n_layers; l++) {
        for (int role = NW_ROLE_ATTN_NORM; st == NW_OK && role < NW_ROLE_COUNT; role++) {
            st = check_slot(a, (nw_role)role, l, err);
        }
    }
    return st;
}

bool nw_artifact_is_native(const char *path)
{
    char *manifest = nw_path_join(path, "manifest.json");
    char *st = nw_path_join(path, "model.safetensors");
    nw_error ignored = {0};
    json_t *doc = NULL;
    bool native = false;

    /* other tools also call a file manifest.json: ours says what it is */
    if (manifest != NULL && st != NULL && nw_file_exists(manifest) && nw_file_exists(st) &&
        nw_json_load(manifest, (size_t)64 << 20, &doc, &ignored) == NW_OK) {
        const char *format = json_string_value(json_object_get(doc, "format"));
        native = format != NULL && strncmp(format, "narrow-native", 13) == 0;
    }
    json_decref(doc);
    free(manifest);
    free(st);
    return native;
}

nw_status nw_artifact_open(const char *path, nw_artifact **out, nw_error *err)
{
    nw_artifact *a = calloc(1, sizeof *a);
    nw_status st = NW_OK;

    *out = NULL;
    if (a == NULL || (a->path = strdup(path)) == NULL) {
        nw_artifact_close(a);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for an artifact", path);
    }
    a->facts.native = nw_artifact_is_native(path);
    st = a->facts.native ? nw_artifact_open_native(a, err) : nw_artifact_open_checkpoint(a, err);
    if (st == NW_OK) {
        st = nw_artifact_check_complete(a, err);
    }
    if (st != NW_OK) {
        nw_artifact_close(a);
        return st;
    }
    *out = a;
    return NW_OK;
}

void nw_artifact_close(nw_artifact *a)
{
    if (a != NULL) {
        nw_st_close(a->st);
        nw_st_close(a->inputs);
        nw_arena_release(&a->arena);
        free(a->path);
        free(a->note);
        free(a->recipe);
        free(a);
    }
}

bool nw_artifact_to_huge(nw_artifact *a, double seconds, nw_pool *pool)
{
    /* what was transcoded or packed is not read from its file again */
    return a->facts.native && a->facts.weight_bytes <= a->facts.file_bytes &&
           nw_st_to_huge(a->st, MIN_HUGE, seconds, pool);
}

const char *nw_artifact_path(const nw_artifact *a)
{
    return a->path;
}

const nw_model_config *nw_artifact_config(const nw_artifact *a)
{
    return &a->config;
}

const char *nw_artifact_hash(const nw_artifact *a)
{
    return a->hash.hex;
}

const char *nw_artifact_note(const nw_artifact *a)
{
    return a->note != NULL ? a->note : "";
}

const char *nw_artifact_recipe(const nw_artifact *a)
{
    return a->recipe != NULL ? a->recipe : "checkpoint";
}

const nw_artifact_facts *nw_artifact_get_facts(const nw_artifact *a)
{
    return &a->facts;
}

const nw_artifact_matrix *nw_artifact_get_matrix(const nw_artifact *a, nw_role role, int32_t layer)
{
    const bool shared = role == NW_ROLE_HEAD && a->config.tied;
    const nw_artifact_slot *s = nw_artifact_slot_of(a, shared ? NW_ROLE_EMBED : role, layer);

    return s == NULL || s->matrix.data == NULL ? NULL : &s->matrix;
}

const float *nw_artifact_get_vector(const nw_artifact *a, nw_role role, int32_t layer, uint32_t *n)
{
    const nw_artifact_slot *s = nw_artifact_slot_of(a, role, layer);

    if (s == NULL || s->vector == NULL) {
        return NULL;
    }
    if (n != NULL) {
        *n = s->n;
    }
    return s->vector;
}

void nw_artifact_embed_row(const nw_artifact *a, uint32_t id, float *out)
{
    const nw_artifact_matrix *m = nw_artifact_get_matrix(a, NW_ROLE_EMBED, -1);

    assert(id < m->n_rows);
    nw_panel_unpack_row(m->type, m->data, m->n_cols, id, out);
}
