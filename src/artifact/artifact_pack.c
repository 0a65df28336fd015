/* Opens a checkpoint as an artifact: its matrices are packed into memory, panel by panel on all
 * threads. Formats with a layout of their own go into it code by code (formats/repack.h), the rest
 * becomes F32: both hold the source's values exactly.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact_parts.h"
#include "artifact/source_note.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "formats/repack.h"

/* One tensor being packed; items of the pool are panels. */
typedef struct {
    const nw_checkpoint *ckpt;
    const nw_ckpt_tensor *tensor;
    nw_panel_type type;
    uint8_t *out;
    size_t panel_bytes;
    uint8_t *scratch;     /* [n_threads][scratch_bytes] */
    size_t scratch_bytes; /* f32: [16][n_cols] values */
    atomic_int status;    /* the first failure, an nw_status */
    nw_error error;       /* of the thread that set it */
    atomic_bool inexact;  /* a row cannot be kept in `type` */
} pack_job;

static void job_fail(pack_job *job, const nw_error *err)
{
    int none = NW_OK;

    if (atomic_compare_exchange_strong(&job->status, &none, (int)err->code)) {
        job->error = *err;
    }
}

/* Values to an F32 panel. */
static void pack_values(pack_job *job, uint32_t row0, uint32_t n_rows, float *rows, uint8_t *panel)
{
    const nw_ckpt_tensor *t = job->tensor;
    nw_error err = {0};

    if (nw_checkpoint_read_f32(job->ckpt, t, row0, n_rows, rows, &err) != NW_OK) {
        job_fail(job, &err);
        return;
    }
    for (size_t i = 0; i < (size_t)n_rows * t->n_cols; i++) {
        if (!isfinite(rows[i])) {
            (void)nw_fail(&err, NW_E_FORMAT,
                          "tensor '%s' has a value that is not finite in row %zu", t->name,
                          row0 + i / t->n_cols);
            job_fail(job, &err);
            return;
        }
    }
    nw_panel_pack_f32(rows, t->n_cols, n_rows, t->n_cols, panel);
}

static void pack_panel(void *ctx, size_t item, unsigned worker)
{
    pack_job *job = ctx;
    const nw_ckpt_tensor *t = job->tensor;
    const uint32_t row0 = (uint32_t)item * NW_PANEL_ROWS;
    const uint32_t left = t->n_rows - row0;
    const uint32_t n_rows = left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS;
    void *scratch = job->scratch + worker * job->scratch_bytes;
    uint8_t *panel = job->out + item * job->panel_bytes;
    const uint8_t *rows[NW_PANEL_ROWS];
    uint32_t bad_row = 0;

    if (job->type.kind == NW_PANEL_F32) {
        pack_values(job, row0, n_rows, scratch, panel);
        return;
    }
    if (t->quant != NULL) {
        if (!nw_quant_pack_panel(t->quant, job->type, row0, n_rows, panel, scratch)) {
            atomic_store(&job->inexact, true);
        }
        return;
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        rows[r] = nw_checkpoint_row(t, row0 + r);
    }
    if (!nw_repack_panel(t->format, rows, n_rows, t->n_cols, panel, scratch, &bad_row)) {
        atomic_store(&job->inexact, true);
    } else if (t->scale != 1) {
        nw_panel_set_tensor_scale(job->type, panel, t->scale);
    }
}

/* Packs the tensor as job->type; job->out and *n_bytes are set. */
static nw_status run_job(nw_artifact *a, pack_job *job, nw_pool *pool, size_t *n_bytes,
                         nw_error *err)
{
    const nw_ckpt_tensor *t = job->tensor;
    const unsigned n_threads = nw_pool_threads(pool);
    const size_t scratch = job->type.kind == NW_PANEL_F32
                               ? (size_t)NW_PANEL_ROWS * t->n_cols * sizeof(float)
                           : t->quant != NULL ? nw_quant_scratch_bytes(job->type, t->n_cols)
                                              : nw_repack_scratch_bytes(t->format, t->n_cols);

    if (!nw_panel_bytes(job->type, t->n_cols, &job->panel_bytes) ||
        !nw_panel_tensor_bytes(job->type, t->n_rows, t->n_cols, n_bytes)) {
        return nw_fail(err, NW_E_RANGE, "tensor '%s' of %u x %u does not fit an address", t->name,
                       (unsigned)t->n_rows, (unsigned)t->n_cols);
    }
    job->scratch_bytes = (scratch + 63) / 64 * 64;
    job->out = nw_arena_alloc(&a->arena, *n_bytes);
    job->scratch = calloc(n_threads, job->scratch_bytes);
    if (job->out == NULL || job->scratch == NULL) {
        free(job->scratch);
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for %zu bytes", t->name, *n_bytes);
    }
    nw_pool_run(pool, nw_panel_count(t->n_rows), pack_panel, job);
    free(job->scratch);
    if (atomic_load(&job->status) != NW_OK) {
        *err = job->error;
        return err->code;
    }
    return NW_OK;
}

#define NVFP4_MOST 2688.0F /* 6 * 448: the largest value before the tensor scale */

/* The layout for a tensor: that of its format where there is one, else F32. */
static nw_panel_type choose_type(const nw_ckpt_tensor *t)
{
    const nw_panel_type f32 = {.kind = NW_PANEL_F32};
    nw_panel_type type = f32;

    if (t->quant != NULL) {
        return nw_quant_panel_type(t->quant, &type) ? type : f32;
    }
    if (nw_checkpoint_row(t, 0) == NULL || !nw_repack_type(t->format, &type)) {
        return f32;
    }
    if (t->scale != 1 && (type.kind != NW_PANEL_NVFP4 || !isfinite(t->scale * NVFP4_MOST))) {
        return f32;
    }
    return type;
}

static nw_status pack_matrix(nw_artifact *a, const nw_checkpoint *c, const nw_ckpt_tensor *t,
                             nw_pool *pool, nw_error *err)
{
    pack_job job = {.ckpt = c, .tensor = t, .type = choose_type(t)};
    nw_artifact_slot *s = nw_artifact_slot_of(a, t->role, t->layer);
    size_t n_bytes = 0;

    nw_status st = run_job(a, &job, pool, &n_bytes, err);
    if (st == NW_OK && atomic_load(&job.inexact)) {
        job.type = (nw_panel_type){.kind = NW_PANEL_F32};
        st = run_job(a, &job, pool, &n_bytes, err);
    }
    if (st != NW_OK) {
        return st;
    }
    s->matrix = (nw_artifact_matrix){.name = nw_arena_strndup(&a->arena, t->name, strlen(t->name)),
                                     .type = job.type,
                                     .data = job.out,
                                     .n_rows = t->n_rows,
                                     .n_cols = t->n_cols,
                                     .n_bytes = n_bytes,
                                     .coded = t->quant != NULL};
    if (s->matrix.name == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for its name", t->name);
    }
    a->facts.weight_bytes += n_bytes;
    return NW_OK;
}

/* What the file fixes of the input. Matrices that read one input have it rounded once. */
static nw_status take_input(nw_artifact *a, const nw_ckpt_tensor *t, bool *differ, nw_error *err)
{
    nw_role reader = NW_ROLE_COUNT;

    if (t->quant == NULL || !(t->quant->act.scale > 0)) {
        return NW_OK;
    }
    if (!nw_input_reader(t->role, &reader)) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "tensor '%s' has a fixed scale of its input, which is read of matrices of "
                       "layers only",
                       t->name);
    }
    nw_act_fixed *f = &nw_artifact_slot_of(a, reader, t->layer)->input.fixed;
    const bool same = f->scale == t->quant->act.scale && f->zero == t->quant->act.zero;
    *differ = *differ || (f->scale > 0 && !same);
    nw_act_fixed_join(f, &t->quant->act);
    return NW_OK;
}

static nw_status pack_vector(nw_artifact *a, const nw_checkpoint *c, const nw_ckpt_tensor *t,
                             nw_error *err)
{
    float *gain = nw_arena_array(&a->arena, t->n_cols, sizeof *gain);
    nw_status st = NW_OK;

    if (gain == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for %u values", t->name,
                       (unsigned)t->n_cols);
    }
    st = nw_checkpoint_read_f32(c, t, 0, 1, gain, err);
    if (st != NW_OK) {
        return st;
    }
    a->facts.weight_bytes += (uint64_t)t->n_cols * sizeof *gain;
    return nw_artifact_set_vector(a, t->name, t->role, t->layer, gain, t->n_cols, err);
}

/* One line, however many there are. */
static void warn_widened(const nw_artifact *a, const nw_checkpoint *c)
{
    const nw_ckpt_tensor *first = NULL;
    size_t n = 0;
    char name[32];

    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        if (t->quant != NULL &&
            nw_artifact_slot_of(a, t->role, t->layer)->matrix.type.kind == NW_PANEL_F32) {
            first = n++ == 0 ? t : first;
        }
    }
    if (n > 0) {
        nw_log(NW_LOG_WARN, "%s: %zu quantized matri%s held as F32: no layout has %s of '%s'",
               a->path, n, n == 1 ? "x is" : "ces are", nw_ckpt_format_name(first, name),
               first->name);
    }
}

static nw_status pack_all(nw_artifact *a, const nw_checkpoint *c, nw_pool *pool, nw_error *err)
{
    bool differ = false;

    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        nw_status st = nw_role_is_vector(t->role) ? pack_vector(a, c, t, err)
                                                  : pack_matrix(a, c, t, pool, err);
        st = st == NW_OK ? take_input(a, t, &differ, err) : st;
        if (st != NW_OK) {
            return nw_context(err, "%s", a->path);
        }
        a->facts.n_params += (uint64_t)t->n_rows * t->n_cols;
        /* a vector's bytes in the file, too: the source's own size of its weights */
        a->facts.file_bytes += t->n_bytes;
    }
    a->facts.effective_bits =
        8 * (double)a->facts.weight_bytes / fmax(1, (double)a->facts.n_params);
    a->facts.nominal_bits = a->facts.target_bits = a->facts.effective_bits;
    warn_widened(a, c);
    if (differ) {
        nw_log(NW_LOG_WARN,
               "%s: matrices that read one input have different scales of it: one that holds them "
               "all is used",
               a->path);
    }
    return NW_OK;
}

nw_status nw_artifact_open_checkpoint(nw_artifact *a, nw_error *err)
{
    nw_checkpoint *c = NULL;
    nw_pool *pool = NULL;
    nw_status st = nw_checkpoint_open(a->path, &c, err);

    if (st != NW_OK) {
        return st;
    }
    a->config = *nw_checkpoint_config(c);
    a->facts.act = nw_checkpoint_act(c);
    st = nw_artifact_init_slots(a, err);
    if (st == NW_OK) {
        st = nw_pool_open(0, &pool, err);
    }
    if (st == NW_OK) {
        st = pack_all(a, c, pool, err);
    }
    if (st == NW_OK) {
        st = nw_artifact_take_ckpt_kv(a, c, err);
    }
    if (st == NW_OK) {
        st = nw_checkpoint_digest(c, &a->hash, err);
    }
    if (st == NW_OK) {
        st = nw_source_note(c, &a->note, err);
    }
    nw_pool_close(pool);
    nw_checkpoint_close(c);
    return st;
}
