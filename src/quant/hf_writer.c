/* Streams tensors into safetensors shards: see hf_writer.h. A tensor passes in blocks of rows; pieces
 * of a block are read, rescaled and rounded on all threads and written in order. Memory does not
 * grow with the model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/hf_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/row_blocks.h"
#include "artifact/shards.h"
#include "base/progress.h"
#include "formats/half.h"

#define PIECE_VALUES ((size_t)1 << 18) /* an item of the pool: about 1 MiB of F32 */
#define MEGABYTE     1000000U          /* what progress counts in */
#define BLOCK_PIECES 16                /* pieces read before any is written */

typedef struct {
    const nw_hf_job *job;
    nw_hf_tensor_fn on_tensor;
    void *ctx;
    uint64_t n_done;
    nw_progress progress;
} writer;

/* A block of rows of one tensor. */
typedef struct {
    const nw_hf_job *job;
    writer *writer;
    nw_st_writer *file;
    const nw_ckpt_tensor *tensor;
    size_t value_bytes;
    float *rows;    /* [block rows][n_cols] */
    float *written; /* same: the values as written */
    uint8_t *out;   /* [block rows][n_cols * value_bytes] */
} block;

static void encode(const block *b, size_t first, size_t n)
{
    const float *src = b->rows + first;
    float *back = b->written + first;

    if (b->job->dtype == NW_FMT_F32) {
        memcpy(b->out + first * sizeof *src, src, n * sizeof *src);
        memcpy(back, src, n * sizeof *src);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint16_t h = nw_bf16_from_f32(src[i]);
        memcpy(b->out + (first + i) * sizeof h, &h, sizeof h);
        back[i] = nw_bf16_to_f32(h);
    }
}

static nw_status convert_piece(void *ctx, uint32_t row0, uint32_t at, uint32_t n_rows,
                               unsigned worker, nw_tensor_error *e, nw_error *err)
{
    const block *b = ctx;
    const nw_ckpt_tensor *t = b->tensor;
    const size_t first = (size_t)at * t->n_cols;
    const size_t n = (size_t)n_rows * t->n_cols;
    nw_status st = nw_checkpoint_read_f32(b->job->ckpt, t, row0, n_rows, b->rows + first, err);

    (void)worker;
    for (size_t i = 0; st == NW_OK && i < n; i++) {
        if (!isfinite(b->rows[first + i])) {
            st = nw_fail(err, NW_E_FORMAT, "tensor '%s' has a value that is not finite in row %zu",
                         t->name, row0 + i / t->n_cols);
        }
    }
    if (st == NW_OK) {
        encode(b, first, n);
        nw_tensor_error_measure(e, b->rows + first, b->written + first, n);
    }
    return st;
}

static nw_status block_open(writer *w, const nw_ckpt_tensor *t, block *b, nw_row_blocks *rows,
                            nw_error *err)
{
    const size_t fit = PIECE_VALUES / t->n_cols;

    rows->piece_rows = fit == 0 ? 1 : (uint32_t)fit;
    const uint64_t most = (uint64_t)rows->piece_rows * BLOCK_PIECES;
    rows->block_rows = most < t->n_rows ? (uint32_t)most : t->n_rows;
    *b = (block){.job = w->job,
                 .writer = w,
                 .tensor = t,
                 .value_bytes = nw_format_get(w->job->dtype)->block_bytes};
    const size_t n = (size_t)rows->block_rows * t->n_cols;
    b->rows = calloc(n, sizeof *b->rows);
    b->written = calloc(n, sizeof *b->written);
    b->out = calloc(n, b->value_bytes);
    if (b->rows == NULL || b->written == NULL || b->out == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for %u rows", t->name,
                       (unsigned)rows->block_rows);
    }
    return NW_OK;
}

static void block_close(block *b)
{
    free(b->rows);
    free(b->written);
    free(b->out);
}

static nw_status write_rows(void *ctx, uint32_t n_rows, nw_error *err)
{
    block *b = ctx;
    writer *w = b->writer;
    const size_t n_bytes = (size_t)n_rows * b->tensor->n_cols * b->value_bytes;
    const nw_status st = nw_st_writer_write(b->file, b->tensor->name, b->out, n_bytes, err);

    w->n_done += n_bytes;
    if (st == NW_OK && w->job->progress != NULL) {
        nw_progress_step(&w->progress, w->n_done / MEGABYTE);
    }
    return st;
}

static nw_status write_tensor(void *ctx, size_t i, nw_st_writer *file, nw_error *err)
{
    writer *w = ctx;
    const nw_ckpt_tensor *t = nw_checkpoint_at(w->job->ckpt, i);
    nw_tensor_error sum = {0};
    block b;
    nw_row_blocks rows = {.tensor = t->name,
                          .n_rows = t->n_rows,
                          .pool = w->job->pool,
                          .make = convert_piece,
                          .write = write_rows,
                          .ctx = &b};
    nw_status st = block_open(w, t, &b, &rows, err);

    b.file = file;
    if (st == NW_OK) {
        st = nw_row_blocks_run(&rows, &sum, err);
    }
    block_close(&b);
    if (st == NW_OK && w->on_tensor != NULL) {
        w->on_tensor(w->ctx, t, &sum);
    }
    return st;
}

/* Tensors in order. */
static nw_st_decl *declare(const nw_hf_job *job, size_t n, nw_error *err)
{
    nw_st_decl *decls = calloc(n + 1, sizeof *decls);

    if (decls == NULL) {
        (void)nw_fail(err, NW_E_NOMEM, "no memory for %zu tensors", n);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(job->ckpt, i);
        const bool vector = nw_role_is_vector(t->role);
        decls[i] = (nw_st_decl){.name = t->name,
                                .format = job->dtype,
                                .n_dims = vector ? 1 : 2,
                                .dims = {vector ? t->n_cols : t->n_rows, t->n_cols}};
    }
    return decls;
}

nw_status nw_hf_write(const nw_hf_job *job, nw_hf_tensor_fn on_tensor, void *ctx, size_t *n_shards,
                      nw_error *err)
{
    const size_t n = nw_checkpoint_n_tensors(job->ckpt);
    writer w = {.job = job, .on_tensor = on_tensor, .ctx = ctx};
    nw_shards shards = {0};
    nw_st_decl *decls = declare(job, n, err);

    if (decls == NULL) {
        return err->code;
    }
    nw_status st = nw_shards_plan(decls, n, job->shard_bytes, &shards, err);
    if (st == NW_OK && job->progress != NULL) {
        nw_progress_begin(&w.progress, job->progress, "MB", shards.total_bytes / MEGABYTE);
    }
    if (st == NW_OK) {
        st = nw_shards_write(&shards, job->dir, write_tensor, &w, err);
    }
    *n_shards = shards.n_shards;
    nw_shards_release(&shards);
    free(decls);
    return st;
}
