/* See native_write.h. A matrix passes in blocks of panels, which are made on all threads and written in
 * order; each is decoded again and held to the source's values.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/native_write.h"

#include <stdlib.h>
#include <string.h>

#include "artifact/artifact_parts.h"
#include "artifact/panel_block.h"
#include "artifact/writer.h"
#include "base/progress.h"
#include "base/signal.h"
#include "formats/repack.h"

#define BLOCK_BYTES ((size_t)8 << 20) /* of panels that are held at one time */

/* Panels of one matrix. */
typedef struct {
    const nw_export_job *job;
    const nw_export_tensor *tensor;
    nw_panel_block panels;
} block;

/* The codes of the rows as they stand; false where a scale has no place in the panel. */
static bool pack_codes(const nw_export_tensor *t, uint32_t row0, uint32_t n_rows, uint8_t *panel,
                       void *scratch)
{
    const uint8_t *rows[NW_PANEL_ROWS];
    uint32_t bad = 0;

    if (t->ckpt->quant != NULL) {
        return nw_quant_pack_panel(t->ckpt->quant, t->type, row0, n_rows, panel, scratch);
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        rows[r] = nw_checkpoint_row(t->ckpt, row0 + r);
    }
    if (!nw_repack_panel(t->format, rows, n_rows, t->n_cols, panel, scratch, &bad)) {
        return false;
    }
    if (t->type.kind == NW_PANEL_NVFP4) {
        nw_panel_set_tensor_scale(t->type, panel, t->ckpt->scale);
    }
    return true;
}

static nw_status make_panel(const block *b, const nw_panel_place *p, nw_error *err)
{
    const nw_export_tensor *t = b->tensor;

    for (uint32_t r = 0; r < p->n_rows; r++) {
        const nw_status st =
            nw_export_values(b->job->source, t, p->row0 + r, p->rows + (size_t)r * t->n_cols, err);
        if (st != NW_OK) {
            return st;
        }
    }
    if (t->type.kind == NW_PANEL_F32) {
        nw_panel_pack_f32(p->rows, t->n_cols, p->n_rows, t->n_cols, p->panel);
    } else if (!pack_codes(t, p->row0, p->n_rows, p->panel, p->scratch)) {
        return nw_fail(err, NW_E_FORMAT,
                       "tensor '%s' has a scale in rows %u to %u that no panel holds", t->name,
                       (unsigned)p->row0, (unsigned)(p->row0 + p->n_rows - 1));
    }
    return NW_OK;
}

static void pack_item(void *ctx, size_t item, unsigned worker)
{
    block *b = ctx;
    nw_error err = {0};
    const nw_panel_place p = nw_panel_block_place(&b->panels, item, worker);

    if (make_panel(b, &p, &err) != NW_OK) {
        nw_panel_block_fail(&b->panels, &err);
    } else {
        nw_panel_block_measure(&b->panels, item, &p, p.panel);
    }
}

static nw_status block_open(const nw_export_job *job, const nw_export_tensor *t, block *b,
                            nw_error *err)
{
    const size_t n_threads = job->pool != NULL ? nw_pool_threads(job->pool) : 1;
    const size_t codes = t->type.kind == NW_PANEL_F32 ? 0
                         : t->ckpt->quant != NULL     ? nw_quant_scratch_bytes(t->type, t->n_cols)
                                                  : nw_repack_scratch_bytes(t->format, t->n_cols);

    *b = (block){.job = job,
                 .tensor = t,
                 .panels = {.name = t->name,
                            .type = t->type,
                            .n_rows = t->n_rows,
                            .n_cols = t->n_cols,
                            .scratch_bytes = codes}};
    if (!nw_panel_bytes(t->type, t->n_cols, &b->panels.panel_bytes)) {
        return nw_fail(err, NW_E_RANGE, "tensor '%s': %u columns are too many", t->name,
                       (unsigned)t->n_cols);
    }
    return nw_panel_block_open(&b->panels, n_threads, BLOCK_BYTES / b->panels.panel_bytes + 1, err);
}

static nw_status write_matrix(const nw_export_job *job, nw_artifact_writer *w,
                              const nw_export_tensor *t, nw_tensor_error *sum, nw_error *err)
{
    const uint32_t n_panels = nw_panel_count(t->n_rows);
    block b;
    nw_status st = block_open(job, t, &b, err);
    const uint32_t step = b.panels.n_panels;

    for (uint32_t p = 0; st == NW_OK && p < n_panels; p += step) {
        const uint32_t n = n_panels - p < step ? n_panels - p : step;
        b.panels.panel0 = p;
        nw_pool_run(job->pool, n, pack_item, &b);
        st = nw_panel_block_check(&b.panels, err);
        for (uint32_t i = 0; st == NW_OK && i < n; i++) {
            nw_tensor_error_add(sum, &b.panels.errors[i]);
        }
        if (st == NW_OK) {
            st = nw_artifact_writer_add(w, b.panels.out, n * b.panels.panel_bytes, err);
        }
        if (st == NW_OK && nw_stop_requested()) {
            st = nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'; nothing was left behind",
                         t->name);
        }
    }
    nw_panel_block_close(&b.panels);
    return st;
}

static nw_status write_vector(const nw_export_job *job, nw_artifact_writer *w,
                              const nw_export_tensor *t, nw_tensor_error *sum, nw_error *err)
{
    float *v = calloc((size_t)t->n_cols + 1, sizeof *v);
    nw_status st = v != NULL ? nw_export_values(job->source, t, 0, v, err)
                             : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory", t->name);

    if (st == NW_OK) {
        nw_tensor_error_measure(sum, v, v, t->n_cols);
        st = nw_artifact_writer_add(w, v, t->n_cols * sizeof *v, err);
    }
    free(v);
    return st;
}

static nw_status write_tensor(const nw_export_job *job, nw_artifact_writer *w,
                              const nw_export_tensor *t, nw_error *err)
{
    nw_tensor_error sum = {0};
    char from[32];
    char to[32];
    nw_status st =
        t->is_vector ? write_vector(job, w, t, &sum, err) : write_matrix(job, w, t, &sum, err);

    if (st == NW_OK) {
        st = nw_artifact_writer_end_tensor(w, &sum, NULL, err);
    }
    if (st != NW_OK) {
        return st;
    }
    const nw_loss_tensor row = {.name = t->name,
                                .from = nw_export_type_name(t, from),
                                .to = t->is_vector ? "F32" : nw_panel_name(t->type, to),
                                .error = sum};
    return nw_loss_add(job->loss, &row, err);
}

/* The i-th tensor in writing order: matrices, then vectors; NULL past the last. */
static const nw_export_tensor *in_order(const nw_export_source *s, size_t i)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t k = 0; k < nw_export_n_tensors(s); k++) {
            const nw_export_tensor *t = nw_export_at(s, k);
            if (t->is_vector == (pass == 1) && i-- == 0) {
                return t;
            }
        }
    }
    return NULL;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static bool fill_tensors(const nw_export_source *s, nw_manifest *m)
{
    const nw_export_tensor *t = NULL;
    bool ok = true;

    m->tensors = calloc(nw_export_n_tensors(s) + 1, sizeof *m->tensors);
    for (size_t i = 0; m->tensors != NULL && ok && (t = in_order(s, i)) != NULL; i++) {
        m->tensors[i] = (nw_manifest_tensor){.name = strdup(t->name),
                                             .role = t->role,
                                             .layer = t->layer,
                                             .targeted = nw_export_has_codes(t),
                                             .is_vector = t->is_vector,
                                             .type = t->type,
                                             .n_rows = t->n_rows,
                                             .n_cols = t->n_cols};
        m->n_tensors = i + 1;
        ok = m->tensors[i].name != NULL;
    }
    return m->tensors != NULL && ok;
}

static nw_status fill_manifest(const nw_export_source *s, nw_manifest *m, nw_error *err)
{
    const nw_checkpoint *c = nw_export_checkpoint(s);

    m->version = NW_MANIFEST_VERSION;
    m->tool_version = strdup("narrow " NW_VERSION);
    m->source_name = strdup(base_name(nw_export_path(s)));
    m->note = strdup(nw_export_note(s));
    m->recipe_name = strdup(NW_RECIPE_AS_IS);
    m->scale_rule = strdup("codes and scales of the source, as they are");
    m->act = nw_checkpoint_act(c);
    m->recipe = json_pack("{s:s}", "keep", "codes of the source");
    if (m->tool_version == NULL || m->source_name == NULL || m->note == NULL ||
        m->recipe_name == NULL || m->scale_rule == NULL || m->recipe == NULL ||
        !fill_tensors(s, m)) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a manifest");
    }
    return nw_checkpoint_digest(c, &m->source, err);
}

/* What the source fixes of inputs, by reader, as when it is opened itself. */
static void collect_fixed(const nw_export_source *s, nw_act_fixed *out, size_t *n)
{
    for (size_t i = 0; i < nw_export_n_tensors(s); i++) {
        const nw_export_tensor *t = nw_export_at(s, i);
        const nw_act_fixed *f = nw_export_fixed(s, t);
        nw_role reader = NW_ROLE_COUNT;
        if (f == NULL || !nw_input_reader(t->role, &reader)) {
            continue;
        }
        nw_act_fixed *to = &out[(size_t)t->layer * NW_ROLE_COUNT + (size_t)reader];
        *n += to->scale == 0;
        nw_act_fixed_join(to, f);
    }
}

static nw_status write_inputs(const nw_export_job *job, nw_artifact_writer *w, nw_error *err)
{
    const uint32_t n_layers = nw_export_config(job->source)->n_layers;
    nw_act_fixed *fixed = calloc((size_t)n_layers * NW_ROLE_COUNT + 1, sizeof *fixed);
    nw_digest hash = {{0}};
    uint64_t n_bytes = 0;
    size_t n = 0;
    nw_status st = NW_OK;

    if (fixed == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for scales of inputs");
    }
    collect_fixed(job->source, fixed, &n);
    if (n > 0) {
        st =
            nw_inputs_write_fixed(nw_artifact_writer_dir(w), fixed, n_layers, &hash, &n_bytes, err);
        if (st == NW_OK) {
            nw_artifact_writer_inputs(w, &hash, n_bytes);
        }
    }
    free(fixed);
    return st;
}

/* A matrix of codes that is held as values would have its inputs unrounded. */
static nw_status check_rounding(const nw_export_source *s, nw_error *err)
{
    char from[32];

    for (size_t i = 0; nw_act_rule_rounds(nw_export_act(s)) && i < nw_export_n_tensors(s); i++) {
        const nw_export_tensor *t = nw_export_at(s, i);
        if (t->ckpt->quant != NULL && nw_panel_code_bits(t->type) > 8) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "tensor '%s': no panels hold %s, and as values its activations would "
                           "not be rounded; use the folder itself",
                           t->name, nw_export_type_name(t, from));
        }
    }
    return NW_OK;
}

static nw_status write_all(const nw_export_job *job, nw_artifact_writer *w, nw_error *err)
{
    const size_t n = nw_export_n_tensors(job->source);
    nw_progress progress;
    nw_status st = NW_OK;

    if (job->progress != NULL) {
        nw_progress_begin(&progress, job->progress, "tensors", n);
    }
    for (size_t i = 0; st == NW_OK && i < n; i++) {
        st = write_tensor(job, w, in_order(job->source, i), err);
        if (st == NW_OK && job->progress != NULL) {
            nw_progress_step(&progress, i + 1);
        }
    }
    if (st == NW_OK) {
        st = write_inputs(job, w, err);
    }
    return st == NW_OK ? nw_artifact_writer_commit(w, err) : st;
}

nw_status nw_native_export(const nw_export_job *job, nw_error *err)
{
    const nw_artifact_target target = {.path = job->dir,
                                       .inside = true,
                                       .no_tokenizer = job->no_tokenizer,
                                       .source = nw_export_checkpoint(job->source)};
    nw_artifact_writer *w = NULL;
    nw_manifest m = {0};
    nw_status st = NW_OK;

    if (target.source == NULL) {
        return nw_fail(err, NW_E_USAGE, "%s: is a native artifact already",
                       nw_export_path(job->source));
    }
    st = check_rounding(job->source, err);
    st = st == NW_OK ? fill_manifest(job->source, &m, err) : st;
    if (st == NW_OK) {
        st = nw_artifact_writer_open(&target, &m, &w, err);
    }
    nw_manifest_release(&m);
    if (st == NW_OK) {
        st = write_all(job, w, err);
    }
    if (st == NW_OK) {
        m = nw_artifact_writer_take_manifest(w);
        for (size_t i = 0; i < m.n_tensors; i++) {
            *job->n_bytes += m.tensors[i].n_bytes;
        }
        nw_manifest_release(&m);
    }
    nw_artifact_writer_close(w);
    return st;
}
