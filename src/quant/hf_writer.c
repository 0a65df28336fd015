/* Streams tensors into safetensors shards: see hf_writer.h. A tensor passes in blocks of rows; pieces
 * of a block are read, rescaled and rounded on all threads and written in order. Memory does not
 * grow with the model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/hf_writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/hf_files.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/signal.h"
#include "formats/half.h"
#include "model/safetensors.h"

#define PIECE_VALUES ((size_t)1 << 18) /* an item of the pool: about 1 MiB of F32 */
#define MEGABYTE     1000000U          /* what progress counts in */
#define BLOCK_PIECES 16                /* pieces read before any is written */

/* A block of rows of one tensor. */
typedef struct {
    const nw_hf_job *job;
    const nw_ckpt_tensor *tensor;
    uint32_t row0, n_rows; /* of the block */
    uint32_t piece_rows;
    size_t value_bytes;
    float *rows;    /* [block rows][n_cols] */
    float *written; /* same: the values as written */
    uint8_t *out;   /* [block rows][n_cols * value_bytes] */
    nw_tensor_error errors[BLOCK_PIECES];
    atomic_int status;
    nw_error error;
} block;

typedef struct {
    const nw_hf_job *job;
    size_t *shard_of; /* [n tensors] */
    size_t n_shards;
    uint64_t total_bytes, n_done;
    nw_progress progress;
} writer;

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

static void convert_piece(void *ctx, size_t item, unsigned worker)
{
    block *b = ctx;
    const nw_ckpt_tensor *t = b->tensor;
    const uint32_t r0 = (uint32_t)item * b->piece_rows;
    const uint32_t n_rows = b->n_rows - r0 < b->piece_rows ? b->n_rows - r0 : b->piece_rows;
    const size_t first = (size_t)r0 * t->n_cols;
    const size_t n = (size_t)n_rows * t->n_cols;
    int none = NW_OK;
    nw_error err = {0};
    nw_status st =
        nw_checkpoint_read_f32(b->job->ckpt, t, b->row0 + r0, n_rows, b->rows + first, &err);

    (void)worker;
    for (size_t i = 0; st == NW_OK && i < n; i++) {
        if (!isfinite(b->rows[first + i])) {
            st = nw_fail(&err, NW_E_FORMAT, "tensor '%s' has a value that is not finite in row %zu",
                         t->name, b->row0 + r0 + i / t->n_cols);
        }
    }
    if (st != NW_OK) {
        if (atomic_compare_exchange_strong(&b->status, &none, (int)st)) {
            b->error = err;
        }
        return;
    }
    encode(b, first, n);
    b->errors[item] = (nw_tensor_error){0};
    nw_tensor_error_measure(&b->errors[item], b->rows + first, b->written + first, n);
}

static nw_status block_open(const nw_hf_job *job, const nw_ckpt_tensor *t, block *b,
                            uint32_t *block_rows, nw_error *err)
{
    const size_t fit = PIECE_VALUES / t->n_cols;
    const uint32_t piece = fit == 0 ? 1 : (uint32_t)fit;
    const uint64_t rows = (uint64_t)piece * BLOCK_PIECES;

    *b = (block){.job = job,
                 .tensor = t,
                 .piece_rows = piece,
                 .value_bytes = nw_format_get(job->dtype)->block_bytes};
    *block_rows = rows < t->n_rows ? (uint32_t)rows : t->n_rows;
    const size_t n = (size_t)*block_rows * t->n_cols;
    b->rows = calloc(n, sizeof *b->rows);
    b->written = calloc(n, sizeof *b->written);
    b->out = calloc(n, b->value_bytes);
    if (b->rows == NULL || b->written == NULL || b->out == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for %u rows", t->name,
                       (unsigned)*block_rows);
    }
    return NW_OK;
}

static void block_close(block *b)
{
    free(b->rows);
    free(b->written);
    free(b->out);
}

static nw_status run_block(block *b, nw_st_writer *st_writer, nw_tensor_error *sum, nw_error *err)
{
    const size_t pieces = (b->n_rows + b->piece_rows - 1) / b->piece_rows;

    nw_pool_run(b->job->pool, pieces, convert_piece, b);
    if (atomic_load(&b->status) != NW_OK) {
        *err = b->error;
        return err->code;
    }
    for (size_t i = 0; i < pieces; i++) {
        nw_tensor_error_add(sum, &b->errors[i]);
    }
    if (nw_stop_requested()) {
        return nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'; nothing was left behind",
                       b->tensor->name);
    }
    return nw_st_writer_write(st_writer, b->tensor->name, b->out,
                              (size_t)b->n_rows * b->tensor->n_cols * b->value_bytes, err);
}

static nw_status write_tensor(writer *w, nw_st_writer *st_writer, const nw_ckpt_tensor *t,
                              nw_tensor_error *sum, nw_error *err)
{
    block b;
    uint32_t block_rows = 0;
    nw_status st = block_open(w->job, t, &b, &block_rows, err);

    for (uint32_t r = 0; st == NW_OK && r < t->n_rows; r += block_rows) {
        b.row0 = r;
        b.n_rows = t->n_rows - r < block_rows ? t->n_rows - r : block_rows;
        st = run_block(&b, st_writer, sum, err);
        w->n_done += (uint64_t)b.n_rows * t->n_cols * b.value_bytes;
        if (st == NW_OK && w->job->progress != NULL) {
            nw_progress_step(&w->progress, w->n_done / MEGABYTE);
        }
    }
    block_close(&b);
    return st;
}

static uint64_t tensor_bytes(const nw_hf_job *job, const nw_ckpt_tensor *t)
{
    return (uint64_t)t->n_rows * t->n_cols * nw_format_get(job->dtype)->block_bytes;
}

/* Tensors in order; a new shard where the next one would exceed the limit. */
static nw_status assign_shards(writer *w, nw_error *err)
{
    const size_t n = nw_checkpoint_n_tensors(w->job->ckpt);
    uint64_t used = 0;

    w->shard_of = calloc(n + 1, sizeof *w->shard_of);
    if (w->shard_of == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu tensors", n);
    }
    w->n_shards = 1;
    for (size_t i = 0; i < n; i++) {
        const uint64_t bytes = tensor_bytes(w->job, nw_checkpoint_at(w->job->ckpt, i));
        if (used > 0 && bytes > w->job->shard_bytes -
                                    (used < w->job->shard_bytes ? used : w->job->shard_bytes)) {
            w->n_shards++;
            used = 0;
        }
        w->shard_of[i] = w->n_shards - 1;
        used += bytes;
        w->total_bytes += bytes;
    }
    return NW_OK;
}

static nw_status open_shard(const writer *w, size_t shard, nw_st_writer **out, nw_error *err)
{
    const size_t n = nw_checkpoint_n_tensors(w->job->ckpt);
    nw_st_decl *decls = calloc(n + 1, sizeof *decls);
    char name[64];
    size_t k = 0;

    nw_st_shard_name(shard, w->n_shards, name);
    char *path = nw_path_join(w->job->dir, name);
    nw_status st = NW_OK;
    if (decls == NULL || path == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tensors", name, n);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(w->job->ckpt, i);
        const bool vector = nw_role_is_vector(t->role);
        if (w->shard_of[i] == shard) {
            decls[k++] = (nw_st_decl){.name = t->name,
                                      .format = w->job->dtype,
                                      .n_dims = vector ? 1 : 2,
                                      .dims = {vector ? t->n_cols : t->n_rows, t->n_cols}};
        }
    }
    st = nw_st_writer_open(path, decls, k, NULL, 8, out, err);
out:
    free(decls);
    free(path);
    return st;
}

static nw_status write_shard(writer *w, size_t shard, nw_hf_tensor_fn on_tensor, void *ctx,
                             nw_error *err)
{
    nw_st_writer *st_writer = NULL;
    nw_status st = open_shard(w, shard, &st_writer, err);

    for (size_t i = 0; st == NW_OK && i < nw_checkpoint_n_tensors(w->job->ckpt); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(w->job->ckpt, i);
        nw_tensor_error sum = {0};
        if (w->shard_of[i] != shard) {
            continue;
        }
        st = write_tensor(w, st_writer, t, &sum, err);
        if (st == NW_OK && on_tensor != NULL) {
            on_tensor(ctx, t, &sum);
        }
    }
    if (st == NW_OK) {
        st = nw_st_writer_commit(st_writer, err);
    }
    nw_st_writer_close(st_writer);
    return st;
}

static nw_status write_index(const writer *w, nw_error *err)
{
    json_t *map = json_object();
    char name[64];

    for (size_t i = 0; i < nw_checkpoint_n_tensors(w->job->ckpt); i++) {
        nw_st_shard_name(w->shard_of[i], w->n_shards, name);
        (void)json_object_set_new(map, nw_checkpoint_at(w->job->ckpt, i)->name, json_string(name));
    }
    return nw_hf_json_write(w->job->dir, "model.safetensors.index.json",
                            json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                                      (json_int_t)w->total_bytes, "weight_map", map),
                            err);
}

nw_status nw_hf_write(const nw_hf_job *job, nw_hf_tensor_fn on_tensor, void *ctx, size_t *n_shards,
                      nw_error *err)
{
    writer w = {.job = job};
    nw_status st = assign_shards(&w, err);

    if (st == NW_OK && job->progress != NULL) {
        nw_progress_begin(&w.progress, job->progress, "MB", w.total_bytes / MEGABYTE);
    }
    for (size_t s = 0; st == NW_OK && s < w.n_shards; s++) {
        st = write_shard(&w, s, on_tensor, ctx, err);
    }
    if (st == NW_OK && w.n_shards > 1) {
        st = write_index(&w, err);
    }
    *n_shards = w.n_shards;
    free(w.shard_of);
    return st;
}
