/* What an export is made from: the tensors of a native artifact or of a checkpoint under one view. A
 * checkpoint's rows are moved into a panel one by one when their codes are asked for, so that both
 * sides are read by the same decoders. See export.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact_parts.h"
#include "artifact/export.h"
#include "artifact/source_note.h"
#include "base/file.h"
#include "formats/repack.h"

struct nw_export_source {
    char *path;
    nw_artifact *artifact; /* NULL: a checkpoint */
    nw_manifest manifest;  /* of the artifact */
    nw_checkpoint *ckpt;   /* NULL: an artifact */
    char *note;
    nw_export_tensor *tensors;
    size_t n;
};

/* A checkpoint's tensor as codes, where its format has a layout and its values are HF's. */
static void view_checkpoint(nw_export_source *s)
{
    for (size_t i = 0; i < nw_checkpoint_n_tensors(s->ckpt); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(s->ckpt, i);
        nw_export_tensor *e = &s->tensors[s->n++];
        *e = (nw_export_tensor){.name = t->name,
                                .role = t->role,
                                .layer = t->layer,
                                .is_vector = nw_role_is_vector(t->role),
                                .n_rows = t->n_rows,
                                .n_cols = t->n_cols,
                                .format = t->format,
                                .ckpt = t};
        const bool plain = t->scale == 1 || t->format == NW_FMT_NVFP4;
        if (t->quant != NULL) {
            if (!nw_quant_panel_type(t->quant, &e->type) || !nw_quant_holds(t->quant, e->type)) {
                e->type = (nw_panel_type){.kind = NW_PANEL_F32};
            }
        } else if (e->is_vector || !plain || nw_checkpoint_row(t, 0) == NULL ||
                   !nw_repack_type(t->format, &e->type)) {
            e->type = (nw_panel_type){.kind = NW_PANEL_F32};
        }
    }
}

static void view_tensor(nw_export_source *s, const nw_manifest_tensor *t)
{
    const nw_st_tensor *st = nw_st_find(s->artifact->st, t->name);
    /* a packed matrix is what it was transcoded to */
    const nw_artifact_matrix *m =
        t->type.packed ? nw_artifact_get_matrix(s->artifact, t->role, t->layer) : NULL;

    s->tensors[s->n++] = (nw_export_tensor){.name = t->name,
                                            .role = t->role,
                                            .layer = t->layer,
                                            .is_vector = t->is_vector,
                                            .n_rows = t->n_rows,
                                            .n_cols = t->n_cols,
                                            .type = m != NULL ? m->type : t->type,
                                            .format = NW_FMT_F32,
                                            .data = m != NULL ? m->data : st->data};
}

/* The artifact was held to its manifest and its config when it was opened. */
static void view_artifact(nw_export_source *s)
{
    for (size_t i = 0; i < s->manifest.n_tensors; i++) {
        view_tensor(s, &s->manifest.tensors[i]);
    }
}

/* Embedding, layers, out norm, head. */
static uint64_t place(const nw_export_tensor *t)
{
    const uint64_t last = UINT64_C(1) << 32;

    if (t->role == NW_ROLE_OUT_NORM || t->role == NW_ROLE_HEAD) {
        return last + (t->role == NW_ROLE_HEAD);
    }
    return t->role == NW_ROLE_EMBED
               ? 0
               : ((uint64_t)(uint32_t)t->layer + 1) * NW_ROLE_COUNT + (uint64_t)t->role;
}

static int by_place(const void *a, const void *b)
{
    const uint64_t x = place(a);
    const uint64_t y = place(b);
    return (x > y) - (x < y);
}

static bool has_wide(const nw_export_source *s)
{
    bool wide = false;

    for (size_t i = 0; i < s->manifest.n_tensors; i++) {
        const nw_manifest_tensor *t = &s->manifest.tensors[i];
        wide = wide || nw_artifact_get_wide(s->artifact, t->role, t->layer) != NULL;
    }
    return wide;
}

static nw_status open_artifact(nw_export_source *s, nw_error *err)
{
    char *path = nw_path_join(s->path, "manifest.json");
    nw_status st = path == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", s->path)
                                : nw_artifact_open(s->path, &s->artifact, err);

    if (st == NW_OK) {
        st = nw_manifest_load(path, &s->manifest, err);
    }
    if (st == NW_OK && s->manifest.hadamard_down) {
        st = nw_fail(err, NW_E_UNSUPPORTED,
                     "%s: the input of down is rotated at run time, which no other format says",
                     s->path);
    }
    if (st == NW_OK && has_wide(s)) {
        st = nw_fail(err, NW_E_UNSUPPORTED,
                     "%s: it keeps columns wide, which no format written here says", s->path);
    }
    if (st == NW_OK) {
        s->note = strdup(nw_artifact_note(s->artifact));
        st = s->note != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory", s->path);
    }
    free(path);
    return st;
}

static nw_status open_checkpoint(nw_export_source *s, nw_error *err)
{
    const nw_status st = nw_checkpoint_open(s->path, &s->ckpt, err);

    return st == NW_OK ? nw_source_note(s->ckpt, &s->note, err) : st;
}

static nw_status view(nw_export_source *s, nw_error *err)
{
    const size_t n = s->ckpt != NULL ? nw_checkpoint_n_tensors(s->ckpt) : s->manifest.n_tensors;

    s->tensors = calloc(n + 1, sizeof *s->tensors);
    if (s->tensors == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tensors", s->path, n);
    }
    if (s->ckpt != NULL) {
        view_checkpoint(s);
    } else {
        view_artifact(s);
    }
    qsort(s->tensors, s->n, sizeof *s->tensors, by_place);
    return NW_OK;
}

nw_status nw_export_source_open(const char *path, nw_export_source **out, nw_error *err)
{
    nw_export_source *s = calloc(1, sizeof *s);
    nw_status st = NW_OK;

    *out = NULL;
    if (s == NULL || (s->path = strdup(path)) == NULL) {
        nw_export_source_close(s);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a source", path);
    }
    st = nw_artifact_is_native(path) ? open_artifact(s, err) : open_checkpoint(s, err);
    if (st == NW_OK) {
        st = view(s, err);
    }
    if (st != NW_OK) {
        nw_export_source_close(s);
        return st;
    }
    *out = s;
    return NW_OK;
}

void nw_export_source_close(nw_export_source *s)
{
    if (s != NULL) {
        nw_artifact_close(s->artifact);
        nw_manifest_release(&s->manifest);
        nw_checkpoint_close(s->ckpt);
        free(s->note);
        free(s->tensors);
        free(s->path);
        free(s);
    }
}

const char *nw_export_path(const nw_export_source *s)
{
    return s->path;
}

const nw_model_config *nw_export_config(const nw_export_source *s)
{
    return s->ckpt != NULL ? nw_checkpoint_config(s->ckpt) : nw_artifact_config(s->artifact);
}

const nw_artifact_kv *nw_export_kv(const nw_export_source *s)
{
    return s->artifact != NULL ? nw_artifact_get_kv(s->artifact) : NULL;
}

const char *nw_export_note(const nw_export_source *s)
{
    return s->note;
}

const char *nw_export_recipe(const nw_export_source *s)
{
    return s->ckpt != NULL ? "checkpoint" : s->manifest.recipe_name;
}

nw_act_rule nw_export_act(const nw_export_source *s)
{
    return s->ckpt != NULL ? nw_checkpoint_act(s->ckpt) : s->manifest.act;
}

const nw_act_fixed *nw_export_fixed(const nw_export_source *s, const nw_export_tensor *t)
{
    nw_role reader = NW_ROLE_COUNT;

    if (t->ckpt != NULL) {
        const nw_hfq_matrix *q = t->ckpt->quant;
        return q != NULL && q->act.scale > 0 ? &q->act : NULL;
    }
    if (!nw_export_has_codes(t) || !nw_input_reader(t->role, &reader)) {
        return NULL;
    }
    const nw_artifact_input *in = nw_artifact_get_input(s->artifact, reader, t->layer);
    return in != NULL && in->fixed.scale > 0 ? &in->fixed : NULL;
}

const nw_checkpoint *nw_export_checkpoint(const nw_export_source *s)
{
    return s->ckpt;
}

const nw_manifest *nw_export_manifest(const nw_export_source *s)
{
    return s->ckpt != NULL ? NULL : &s->manifest;
}

size_t nw_export_n_tensors(const nw_export_source *s)
{
    return s->n;
}

const nw_export_tensor *nw_export_at(const nw_export_source *s, size_t i)
{
    return i < s->n ? &s->tensors[i] : NULL;
}

const nw_export_tensor *nw_export_find(const nw_export_source *s, nw_role role, int32_t layer)
{
    const bool global = role < NW_ROLE_ATTN_NORM;

    for (size_t i = 0; i < s->n; i++) {
        if (s->tensors[i].role == role && (global || s->tensors[i].layer == layer)) {
            return &s->tensors[i];
        }
    }
    return NULL;
}

bool nw_export_has_codes(const nw_export_tensor *t)
{
    return !t->is_vector && t->type.kind != NW_PANEL_F32 && t->type.kind != NW_PANEL_BF16 &&
           t->type.kind != NW_PANEL_BF16_12;
}

const char *nw_export_type_name(const nw_export_tensor *t, char buf[32])
{
    if (t->ckpt != NULL) {
        return nw_ckpt_format_name(t->ckpt, buf);
    }
    return t->is_vector ? "F32" : nw_panel_name(t->type, buf);
}

/* A panel of one row, and what packing it needs. */
static size_t row_panel_bytes(const nw_export_tensor *t)
{
    size_t n = 0;

    return nw_panel_bytes(t->type, t->n_cols, &n) ? n : 0;
}

size_t nw_export_scratch_bytes(const nw_export_tensor *t)
{
    if (t->ckpt == NULL || !nw_export_has_codes(t)) {
        return 0;
    }
    return row_panel_bytes(t) + (t->ckpt->quant != NULL
                                     ? nw_quant_scratch_bytes(t->type, t->n_cols)
                                     : nw_repack_scratch_bytes(t->format, t->n_cols));
}

nw_status nw_export_panel(const nw_export_tensor *t, uint32_t row, void *scratch,
                          const uint8_t **panels, uint32_t *at, nw_error *err)
{
    *panels = t->data;
    *at = row;
    if (t->ckpt != NULL) {
        assert(nw_export_has_codes(t)); /* what nw_export_scratch_bytes gives room for */
        const uint8_t *bytes = nw_checkpoint_row(t->ckpt, row);
        uint8_t *panel = scratch;
        uint8_t *work = panel + row_panel_bytes(t);
        uint32_t bad = 0;
        const nw_hfq_matrix *q = t->ckpt->quant;
        if (!(q != NULL ? nw_quant_pack_panel(q, t->type, row, 1, panel, work)
                        : nw_repack_panel(t->format, &bytes, 1, t->n_cols, panel, work, &bad))) {
            return nw_fail(err, NW_E_FORMAT,
                           "tensor '%s' has a scale in row %u that is no finite number", t->name,
                           (unsigned)row);
        }
        *panels = panel;
        *at = 0;
    }
    return NW_OK;
}

nw_status nw_export_codes(const nw_export_tensor *t, uint32_t row, void *scratch,
                          nw_export_row *out, nw_error *err)
{
    const uint8_t *panels = NULL;
    uint32_t r = 0;
    const nw_status st = nw_export_panel(t, row, scratch, &panels, &r, err);

    if (st != NW_OK) {
        return st;
    }
    nw_panel_codes_row(t->type, panels, t->n_cols, r, out->codes, out->scales, out->zeros);
    if (out->mins != NULL) {
        nw_panel_mins_row(t->type, panels, t->n_cols, r, out->mins);
    }
    return nw_panel_join_groups(t->type, t->n_cols, out->scales, out->zeros)
               ? NW_OK
               : nw_fail(
                     err, NW_E_FORMAT,
                     "tensor '%s' has groups in row %u whose scales differ, and its layout says "
                     "that they have one",
                     t->name, (unsigned)row);
}

float nw_export_tensor_scale(const nw_export_tensor *t, uint32_t row)
{
    if (t->ckpt != NULL) {
        return t->ckpt->quant != NULL ? 1 / t->ckpt->quant->global : t->ckpt->scale;
    }
    return nw_export_has_codes(t)
               ? nw_panel_tensor_scale(t->type, t->data + row / NW_PANEL_ROWS * row_panel_bytes(t))
               : 1;
}

nw_status nw_export_values(const nw_export_source *s, const nw_export_tensor *t, uint32_t row,
                           float *out, nw_error *err)
{
    if (t->ckpt != NULL) {
        const nw_status st = nw_checkpoint_read_f32(s->ckpt, t->ckpt, row, 1, out, err);
        if (st != NW_OK) {
            return st;
        }
    } else if (t->is_vector) {
        memcpy(out, t->data, (size_t)t->n_cols * sizeof *out);
    } else {
        nw_panel_unpack_row(t->type, t->data, t->n_cols, row, out);
    }
    for (uint32_t c = 0; c < t->n_cols; c++) {
        if (!isfinite(out[c])) {
            return nw_fail(err, NW_E_FORMAT, "tensor '%s' has a value that is not finite in row %u",
                           t->name, (unsigned)row);
        }
    }
    return NW_OK;
}
