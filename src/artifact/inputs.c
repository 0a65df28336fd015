/* Reading of inputs.safetensors: see inputs.h. Every number is checked before the engine sees it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/inputs.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact_parts.h"
#include "base/file.h"
#include "model/safetensors.h"

#define NAME_BYTES 64

static const struct {
    nw_role role, reader;
} readers[] = {{NW_ROLE_Q, NW_ROLE_Q},       {NW_ROLE_K, NW_ROLE_Q},
               {NW_ROLE_V, NW_ROLE_Q},       {NW_ROLE_O, NW_ROLE_O},
               {NW_ROLE_GATE, NW_ROLE_GATE}, {NW_ROLE_UP, NW_ROLE_GATE},
               {NW_ROLE_DOWN, NW_ROLE_DOWN}};

bool nw_input_reader(nw_role role, nw_role *reader)
{
    for (size_t i = 0; i < NW_COUNT(readers); i++) {
        if (readers[i].role == role) {
            *reader = readers[i].reader;
            return true;
        }
    }
    return false;
}

static const nw_st_tensor *find(const nw_artifact *a, nw_role role, int32_t layer, const char *part,
                                size_t *n_found)
{
    char name[NAME_BYTES];

    (void)snprintf(name, sizeof name, "layers.%d.%s.%s", (int)layer, nw_role_name(role), part);
    const nw_st_tensor *t = nw_st_find(a->inputs, name);
    *n_found += t != NULL;
    return t;
}

static nw_status bad(const nw_artifact *a, const nw_st_tensor *t, const char *why, nw_error *err)
{
    return nw_fail(err, NW_E_FORMAT, "%s/%s: '%s' %s", a->path, NW_INPUTS_FILE, t->name, why);
}

static nw_status take_columns(nw_artifact *a, const nw_st_tensor *t, uint32_t n_cols,
                              nw_artifact_input *in, nw_error *err)
{
    if (t->format != NW_FMT_F32 || t->n_elems == 0 || t->n_elems > n_cols) {
        return bad(a, t, "is no list of columns of its input", err);
    }
    uint32_t *wide = nw_arena_array(&a->arena, t->n_elems, sizeof *wide);
    if (wide == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for '%s'", a->path, t->name);
    }
    for (size_t i = 0; i < t->n_elems; i++) {
        float c = 0;
        memcpy(&c, t->data + i * sizeof c, sizeof c);
        if (!(c >= 0) || !(c < (float)n_cols) || truncf(c) < c ||
            (i > 0 && !(c > (float)wide[i - 1]))) {
            return bad(a, t, "has a column that is out of range or out of order", err);
        }
        wide[i] = (uint32_t)c;
    }
    in->wide = wide;
    in->n_wide = (uint32_t)t->n_elems;
    return NW_OK;
}

static nw_status take_number(const nw_artifact *a, const nw_st_tensor *t, float *out, nw_error *err)
{
    if (t->format != NW_FMT_F32 || t->n_elems != 1) {
        return bad(a, t, "is no single F32 number", err);
    }
    memcpy(out, t->data, sizeof *out);
    return NW_OK;
}

/* What is fixed; zero may be NULL. */
static nw_status take_fixed(const nw_artifact *a, const nw_st_tensor *scale,
                            const nw_st_tensor *zero, nw_act_fixed *f, nw_error *err)
{
    float z = 0;
    nw_status st = take_number(a, scale, &f->scale, err);

    if (st == NW_OK && !(isfinite(f->scale) && f->scale >= FLT_MIN)) { /* 1 / scale is finite */
        st = bad(a, scale, "is no scale: not above 0, or below 2^-126", err);
    }
    if (st == NW_OK && zero != NULL) {
        st = take_number(a, zero, &z, err);
        if (st == NW_OK && (!(z >= -128 && z <= 127) || truncf(z) != z)) {
            st = bad(a, zero, "is no whole number of 8 bits", err);
        }
    }
    f->zero = st == NW_OK ? (int32_t)z : 0;
    return st;
}

/* The matrices of a reader's input. */
static nw_status take_panels(nw_artifact *a, nw_role reader, int32_t layer, size_t *n_found,
                             nw_error *err)
{
    for (size_t i = 0; i < NW_COUNT(readers); i++) {
        nw_artifact_slot *s = nw_artifact_slot_of(a, readers[i].role, layer);
        const uint32_t n_wide = nw_artifact_slot_of(a, reader, layer)->input.n_wide;
        const nw_panel_type type = {.kind = NW_PANEL_BF16};
        size_t want = 0;
        if (readers[i].reader != reader) {
            continue;
        }
        const nw_st_tensor *t = find(a, readers[i].role, layer, "panels", n_found);
        const bool fits = nw_panel_tensor_bytes(type, s->matrix.n_rows, n_wide, &want);
        if (t == NULL || !fits || t->format != NW_FMT_U8 || t->n_bytes != want ||
            (uintptr_t)t->data % 64 != 0) {
            return nw_fail(err, NW_E_FORMAT,
                           "%s/%s: no panels of %u wide columns of %s in layer %d, of %zu bytes",
                           a->path, NW_INPUTS_FILE, n_wide, nw_role_name(readers[i].role),
                           (int)layer, want);
        }
        s->wide = (nw_artifact_matrix){.name = t->name,
                                       .type = type,
                                       .data = t->data,
                                       .n_rows = s->matrix.n_rows,
                                       .n_cols = n_wide,
                                       .n_bytes = want};
        a->facts.weight_bytes += want;
    }
    return NW_OK;
}

static nw_status take_input(nw_artifact *a, nw_role reader, int32_t layer, size_t *n_found,
                            nw_error *err)
{
    nw_artifact_slot *s = nw_artifact_slot_of(a, reader, layer);
    const nw_st_tensor *wide = find(a, reader, layer, "wide", n_found);
    const nw_st_tensor *scale = find(a, reader, layer, "scale", n_found);
    const nw_st_tensor *zero = scale != NULL ? find(a, reader, layer, "zero", n_found) : NULL;
    nw_status st = NW_OK;

    if (scale != NULL) {
        st = take_fixed(a, scale, zero, &s->input.fixed, err);
    }
    if (st == NW_OK && wide != NULL) {
        st = take_columns(a, wide, s->matrix.n_cols, &s->input, err);
        st = st == NW_OK ? take_panels(a, reader, layer, n_found, err) : st;
    }
    return st;
}

nw_status nw_artifact_open_inputs(nw_artifact *a, const char *path, nw_error *err)
{
    size_t n_found = 0;
    nw_status st = nw_st_open(path, &a->inputs, err);

    for (int32_t layer = 0; st == NW_OK && layer < (int32_t)a->config.n_layers; layer++) {
        for (size_t i = 0; st == NW_OK && i < NW_COUNT(readers); i++) {
            if (readers[i].role == readers[i].reader) {
                st = take_input(a, readers[i].reader, layer, &n_found, err);
            }
        }
    }
    st = st == NW_OK ? nw_artifact_take_kv(a, &n_found, err) : st;
    if (st == NW_OK && n_found != nw_st_n_tensors(a->inputs)) {
        st = nw_fail(err, NW_E_FORMAT, "%s: %zu tensors, %zu of them are known", path,
                     nw_st_n_tensors(a->inputs), n_found);
    }
    return st;
}

const nw_artifact_input *nw_artifact_get_input(const nw_artifact *a, nw_role reader, int32_t layer)
{
    const nw_artifact_slot *s = nw_artifact_slot_of(a, reader, layer);
    return s != NULL && (s->input.n_wide > 0 || s->input.fixed.scale > 0) ? &s->input : NULL;
}

const nw_artifact_matrix *nw_artifact_get_wide(const nw_artifact *a, nw_role role, int32_t layer)
{
    const nw_artifact_slot *s = nw_artifact_slot_of(a, role, layer);
    return s != NULL && s->wide.data != NULL ? &s->wide : NULL;
}

/* ---- writing ---- */
typedef struct {
    char name[NAME_BYTES];
    float value;
} number;

/* The numbers of one input, at most two; how many. */
static size_t list_fixed(const nw_act_fixed *f, uint32_t layer, nw_role reader, number *out)
{
    const char *role = nw_role_name(reader);

    if (!(f->scale > 0)) {
        return 0;
    }
    (void)snprintf(out[0].name, NAME_BYTES, "layers.%u.%s.scale", (unsigned)layer, role);
    out[0].value = f->scale;
    if (f->zero == 0) {
        return 1;
    }
    (void)snprintf(out[1].name, NAME_BYTES, "layers.%u.%s.zero", (unsigned)layer, role);
    out[1].value = (float)f->zero;
    return 2;
}

static nw_status write_numbers(const char *path, const number *list, size_t n, nw_error *err)
{
    nw_st_decl *decls = calloc(n + 1, sizeof *decls);
    nw_st_writer *w = NULL;
    nw_status st = NW_OK;

    if (decls == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tensors", path, n);
    }
    for (size_t i = 0; i < n; i++) {
        decls[i] =
            (nw_st_decl){.name = list[i].name, .format = NW_FMT_F32, .n_dims = 1, .dims = {1}};
    }
    st = nw_st_writer_open(path, decls, n, NULL, 64, &w, err);
    for (size_t i = 0; st == NW_OK && i < n; i++) {
        st = nw_st_writer_write(w, list[i].name, &list[i].value, sizeof list[i].value, err);
    }
    st = st == NW_OK ? nw_st_writer_commit(w, err) : st;
    nw_st_writer_close(w);
    free(decls);
    return st;
}

nw_status nw_inputs_write_fixed(const char *dir, const nw_act_fixed *fixed, uint32_t n_layers,
                                nw_digest *hash, uint64_t *n_bytes, nw_error *err)
{
    number *list = calloc((size_t)n_layers * NW_ROLE_COUNT + 1, 2 * sizeof *list);
    char *path = nw_path_join(dir, NW_INPUTS_FILE);
    nw_file f = {0};
    size_t n = 0;
    nw_status st = NW_OK;

    if (list == NULL || path == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for scales of inputs", dir);
    }
    for (uint32_t l = 0; st == NW_OK && l < n_layers; l++) {
        for (int r = 0; r < NW_ROLE_COUNT; r++) {
            n += list_fixed(&fixed[(size_t)l * NW_ROLE_COUNT + (size_t)r], l, (nw_role)r, list + n);
        }
    }
    st = st == NW_OK ? write_numbers(path, list, n, err) : st;
    st = st == NW_OK ? nw_digest_file(path, hash, err) : st;
    st = st == NW_OK ? nw_file_map(path, &f, err) : st;
    *n_bytes = f.size;
    nw_file_unmap(&f);
    free(path);
    free(list);
    return st;
}
