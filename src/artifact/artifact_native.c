/* Opens a native artifact by mapping it. The manifest says what each tensor is; the config says what
 * must be there; the safetensors header says where the bytes lie. All three have to agree.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact_parts.h"
#include "base/file.h"

static nw_status find_tensor(const nw_artifact *a, const nw_manifest_tensor *t,
                             const nw_st_tensor **out, nw_error *err)
{
    const nw_st_tensor *st = nw_st_find(a->st, t->name);

    if (st == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' stands in the manifest only", a->path,
                       t->name);
    }
    if (st->format != (t->is_vector ? NW_FMT_F32 : NW_FMT_U8) || st->n_bytes != t->n_bytes) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' has %zu bytes, the manifest says %llu",
                       a->path, t->name, st->n_bytes, (unsigned long long)t->n_bytes);
    }
    if (!t->is_vector && (uintptr_t)st->data % 64 != 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' does not begin at a multiple of 64 bytes",
                       a->path, t->name);
    }
    *out = st;
    return NW_OK;
}

static nw_status place_vector(nw_artifact *a, const nw_manifest_tensor *t, const nw_st_tensor *st,
                              nw_error *err)
{
    float *gain = nw_arena_array(&a->arena, t->n_cols, sizeof *gain);

    if (t->n_rows != 1) {
        return nw_fail(err, NW_E_FORMAT, "%s: vector '%s' has %u rows", a->path, t->name,
                       (unsigned)t->n_rows);
    }
    if (gain == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for '%s'", a->path, t->name);
    }
    memcpy(gain, st->data, st->n_bytes);
    return nw_artifact_set_vector(a, st->name, t->role, t->layer, gain, t->n_cols, err);
}

static nw_status place(nw_artifact *a, const nw_manifest_tensor *t, nw_error *err)
{
    const nw_st_tensor *st = NULL;
    nw_status status = find_tensor(a, t, &st, err);
    nw_artifact_slot *s = nw_artifact_slot_of(a, t->role, t->layer);

    if (status != NW_OK) {
        return status;
    }
    if (s == NULL || s->matrix.data != NULL || s->vector != NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s': %s", a->path, t->name,
                       s == NULL ? "its layer is beyond the config's"
                                 : "a second one in its place");
    }
    a->facts.n_params += (uint64_t)t->n_rows * t->n_cols;
    if (t->type.packed) {
        return nw_artifact_place_packed(a, t, st, s, err);
    }
    a->facts.weight_bytes += t->n_bytes;
    if (t->is_vector) {
        return place_vector(a, t, st, err);
    }
    s->matrix = (nw_artifact_matrix){.name = st->name,
                                     .type = t->type,
                                     .data = st->data,
                                     .n_rows = t->n_rows,
                                     .n_cols = t->n_cols,
                                     .n_bytes = st->n_bytes};
    return NW_OK;
}

static nw_status take_facts(nw_artifact *a, nw_manifest *m, nw_error *err)
{
    nw_status st = NW_OK;

    a->hash = m->hash;
    a->note = m->note;
    a->recipe = m->recipe_name;
    m->note = m->recipe_name = NULL;
    a->kv.format = m->kv[0] == '\0' ? "" : nw_arena_strndup(&a->arena, m->kv, strlen(m->kv));
    if (a->kv.format == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its KV format", a->path);
    }
    a->facts.act = m->act;
    a->facts.hadamard_down = m->hadamard_down;
    a->facts.nominal_bits = m->nominal_bits;
    a->facts.target_bits = m->target_bits;
    a->facts.effective_bits = m->effective_bits;
    for (uint32_t i = 0; st == NW_OK && i < nw_st_n_files(a->st); i++) {
        nw_file f = {0};
        st = nw_file_map(nw_st_path(a->st, i), &f, err);
        a->facts.file_bytes += f.size;
        nw_file_unmap(&f);
    }
    return st;
}

/* The size is checked here, the hash by verify. */
static nw_status open_inputs(nw_artifact *a, const nw_manifest *m, nw_error *err)
{
    char *path = nw_path_join(a->path, NW_INPUTS_FILE);
    nw_file f = {0};
    nw_status st = path == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", a->path)
                                : nw_file_map(path, &f, err);

    if (st == NW_OK && f.size != m->inputs_bytes) {
        st = nw_fail(err, NW_E_FORMAT, "%s: %zu bytes, the manifest says %llu", path, f.size,
                     (unsigned long long)m->inputs_bytes);
    }
    nw_file_unmap(&f);
    a->facts.file_bytes += m->inputs_bytes;
    st = st == NW_OK ? nw_artifact_open_inputs(a, path, err) : st;
    free(path);
    return st;
}

nw_status nw_artifact_open_native(nw_artifact *a, nw_error *err)
{
    char *manifest_path = nw_path_join(a->path, "manifest.json");
    nw_manifest m = {0};
    nw_status st = NW_OK;

    if (manifest_path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", a->path);
    }
    st = nw_manifest_load(manifest_path, &m, err);
    if (st == NW_OK) {
        st = nw_config_load(a->path, &a->config, err);
    }
    if (st == NW_OK) {
        st = nw_st_open(a->path, &a->st, err);
    }
    if (st == NW_OK) {
        st = nw_artifact_init_slots(a, err);
    }
    for (size_t i = 0; st == NW_OK && i < m.n_tensors; i++) {
        st = place(a, &m.tensors[i], err);
    }
    nw_pool_close(a->pool);
    a->pool = NULL;
    if (st == NW_OK && m.inputs.hex[0] != '\0') {
        st = open_inputs(a, &m, err);
    }
    if (st == NW_OK) {
        st = take_facts(a, &m, err);
    }
    nw_manifest_release(&m);
    free(manifest_path);
    return st;
}
