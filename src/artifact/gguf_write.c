/* Streams a model into model.gguf: see gguf_write.h. A tensor passes in blocks of rows; the rows of a
 * block are made on all threads and written in order, and each is decoded again and held to the
 * source's values for the loss report. Memory does not grow with the model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/gguf_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/gguf_keys.h"
#include "artifact/gguf_write_parts.h"
#include "artifact/row_blocks.h"
#include "base/file.h"
#include "base/progress.h"
#include "formats/unpack_blocks.h"

#define BLOCK_VALUES ((size_t)1 << 21) /* values of the rows that are held at one time */
#define PIECE_ROWS   16                /* rows of an item of the pool */
#define MEGABYTE     1000000U          /* what progress counts in */

#define QUANTIZATION_VERSION 2 /* of the block layouts, as ggml counts */

typedef struct writer writer;

/* Rows of one tensor. */
typedef struct {
    const nw_export_job *job;
    writer *writer;
    const nw_gguf_item *item;
    size_t row_bytes;
    uint8_t *out;     /* [block rows][row_bytes] */
    float *values;    /* [n threads][2][n_cols]: as in the source, as written */
    int8_t *codes;    /* [n threads][n_cols] */
    uint8_t *scratch; /* [n threads][scratch_bytes], of nw_export_panel */
    size_t scratch_bytes;
} block;

struct writer {
    const nw_export_job *job;
    nw_gguf_writer *file;
    nw_gguf_plan plan;
    nw_progress progress;
    uint64_t n_done;
};

/* Bytes of one row from the values that the model has. */
static nw_status encode_row(const block *b, float *source, uint8_t *dst, nw_error *err)
{
    const nw_gguf_item *item = b->item;
    const uint32_t n = item->tensor->n_cols;

    for (uint32_t c = 0; item->offset != 0 && c < n; c++) {
        source[c] += item->offset;
    }
    const nw_format *f = nw_format_get(item->format);
    if (f->encode == NULL) {
        return nw_fail(err, NW_E_UNSUPPORTED, "tensor '%s' cannot be written as %s",
                       item->tensor->name, f->name);
    }
    f->encode(source, dst, n / f->block_elems);
    return NW_OK;
}

/* What the bytes say against what they were made from. */
static nw_status measure_row(const block *b, const float *source, float *back, const uint8_t *bytes,
                             nw_tensor_error *e, nw_error *err)
{
    const nw_gguf_item *item = b->item;
    const nw_format *f = nw_format_get(item->format);
    const uint32_t n = item->tensor->n_cols;

    f->decode(bytes, back, n / f->block_elems);
    for (uint32_t c = 0; c < n; c++) {
        back[c] *= item->scale;
        if (!isfinite(back[c])) {
            return nw_fail(err, NW_E_RANGE, "tensor '%s': %g in column %u is too large for %s",
                           item->tensor->name, (double)source[c], (unsigned)c, f->name);
        }
    }
    nw_tensor_error_measure(e, source, back, n);
    return NW_OK;
}

static nw_status make_row(const block *b, uint32_t row, uint32_t at_row, unsigned worker,
                          nw_tensor_error *e, nw_error *err)
{
    const nw_gguf_item *item = b->item;
    const nw_export_tensor *t = item->tensor;
    const uint32_t hf_row = nw_gguf_item_row(item, row);
    float *source = b->values + (size_t)worker * 2 * t->n_cols;
    uint8_t *dst = b->out + (size_t)at_row * b->row_bytes;

    if (item->raw) { /* the same bytes: nothing to measure */
        memcpy(dst, t->is_vector ? t->ckpt->data : nw_checkpoint_row(t->ckpt, hf_row),
               b->row_bytes);
        e->n += t->n_cols;
        return NW_OK;
    }
    nw_status st = nw_export_values(b->job->source, t, hf_row, source, err);
    if (st == NW_OK && item->unpack) {
        const uint8_t *panels = NULL;
        uint32_t at = 0;
        st = nw_export_panel(t, hf_row, b->scratch + worker * b->scratch_bytes, &panels, &at, err);
        if (st == NW_OK) {
            nw_unpack_row(t->type, panels, t->n_cols, at, item->format,
                          b->codes + (size_t)worker * t->n_cols, dst);
        }
    } else if (st == NW_OK) {
        st = encode_row(b, source, dst, err);
    }
    return st == NW_OK ? measure_row(b, source, source + t->n_cols, dst, e, err) : st;
}

static nw_status make_piece(void *ctx, uint32_t row0, uint32_t at, uint32_t n, unsigned worker,
                            nw_tensor_error *e, nw_error *err)
{
    nw_status st = NW_OK;

    for (uint32_t r = 0; st == NW_OK && r < n; r++) {
        st = make_row(ctx, row0 + r, at + r, worker, e, err);
    }
    return st;
}

static nw_status block_open(writer *w, const nw_gguf_item *item, block *b, uint32_t block_rows,
                            nw_error *err)
{
    const nw_export_tensor *t = item->tensor;
    const size_t n_threads = w->job->pool != NULL ? nw_pool_threads(w->job->pool) : 1;

    *b = (block){.job = w->job, .writer = w, .item = item};
    if (!nw_format_bytes(nw_format_get(item->format), t->n_cols, &b->row_bytes)) {
        return nw_fail(err, NW_E_RANGE, "tensor '%s': %u columns are no whole blocks of %s",
                       t->name, (unsigned)t->n_cols, nw_format_get(item->format)->name);
    }
    b->out = calloc(block_rows, b->row_bytes);
    b->values = calloc(n_threads * 2 * t->n_cols, sizeof *b->values);
    b->codes = calloc(n_threads * t->n_cols, sizeof *b->codes);
    b->scratch_bytes = (nw_export_scratch_bytes(t) + 63) / 64 * 64;
    b->scratch = calloc(n_threads, b->scratch_bytes + 64);
    if (b->scratch == NULL || b->out == NULL || b->values == NULL || b->codes == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for %u rows", t->name,
                       (unsigned)block_rows);
    }
    return NW_OK;
}

static void block_close(block *b)
{
    free(b->out);
    free(b->values);
    free(b->codes);
    free(b->scratch);
}

static nw_status write_rows(void *ctx, uint32_t n_rows, nw_error *err)
{
    const block *b = ctx;
    writer *w = b->writer;
    const nw_status st = nw_gguf_writer_write(w->file, b->out, n_rows * b->row_bytes, err);

    w->n_done += (uint64_t)n_rows * b->row_bytes;
    if (st == NW_OK && w->job->progress != NULL) {
        nw_progress_step(&w->progress, w->n_done / MEGABYTE);
    }
    return st;
}

static nw_status report(const writer *w, const nw_gguf_item *item, const nw_tensor_error *e,
                        nw_error *err)
{
    char from[32];
    const nw_loss_tensor row = {.name = item->tensor->name,
                                .from = nw_export_type_name(item->tensor, from),
                                .to = nw_format_get(item->format)->name,
                                .fallback = item->fallback,
                                .error = *e};

    return nw_loss_add(w->job->loss, &row, err);
}

static nw_status write_tensor(writer *w, const nw_gguf_item *item, nw_error *err)
{
    const nw_export_tensor *t = item->tensor;
    nw_tensor_error sum = {0};
    block b;
    const nw_row_blocks rows = {
        .tensor = t->name,
        .n_rows = t->n_rows,
        .piece_rows = PIECE_ROWS,
        .block_rows = nw_row_blocks_fit(BLOCK_VALUES, t->n_cols, PIECE_ROWS, t->n_rows),
        .pool = w->job->pool,
        .make = make_piece,
        .write = write_rows,
        .ctx = &b};
    nw_status st = block_open(w, item, &b, rows.block_rows, err);

    if (st == NW_OK) {
        st = nw_row_blocks_run(&rows, &sum, err);
    }
    block_close(&b);
    return st == NW_OK ? report(w, item, &sum, err) : st;
}

static nw_status write_item(writer *w, const nw_gguf_item *item, nw_error *err)
{
    if (item->tensor != NULL) {
        return write_tensor(w, item, err);
    }
    return item->extra != NULL
               ? nw_gguf_writer_write(w->file, item->extra->data, item->extra->n_bytes, err)
               : nw_gguf_writer_write(w->file, item->values, item->n_values * sizeof(float), err);
}

/* ---- keys ---- */

/* Whether every tensor goes over as it is. */
static bool all_raw(const nw_gguf_plan *plan)
{
    bool all = true;

    for (size_t i = 0; i < plan->n; i++) {
        all = all && (plan->items[i].tensor == NULL || plan->items[i].raw);
    }
    return all;
}

static nw_status put_tokenizer(const writer *w, nw_error *err)
{
    const nw_export_source *s = w->job->source;
    nw_tokenizer *tok = NULL;
    nw_status st = nw_tokenizer_open(nw_export_path(s), &tok, err);

    if (st != NW_OK) {
        return nw_context(err, "tokenizer (--no-tokenizer does without one)");
    }
    st = nw_gguf_put_tokenizer(w->file, tok, nw_export_config(s)->n_vocab, err);
    nw_tokenizer_close(tok);
    return st;
}

/* Keys of a GGUF source, or what an artifact kept of them; else made from config and tokenizer. */
static nw_status put_keys(const writer *w, nw_error *err)
{
    const nw_export_source *s = w->job->source;
    const nw_checkpoint *ckpt = nw_export_checkpoint(s);
    const nw_gguf *g = ckpt != NULL ? nw_checkpoint_gguf(ckpt) : NULL;
    nw_gguf *kept = NULL;
    nw_status st = ckpt == NULL ? nw_gguf_keys_open(nw_export_path(s), &kept, err) : NW_OK;
    bool same_types = g != NULL && all_raw(&w->plan);

    if (kept != NULL) {
        g = kept;
        same_types = strcmp(nw_export_recipe(s), NW_RECIPE_AS_IS) == 0 && !w->job->has_dtype;
    }
    if (st == NW_OK && g != NULL) {
        nw_gguf_keys_put(w->file, g, same_types);
    } else if (st == NW_OK) {
        st = nw_gguf_put_config(w->file, nw_export_config(s), err);
        if (st == NW_OK && !w->job->no_tokenizer) {
            st = put_tokenizer(w, err);
        }
    }
    if (!same_types) {
        nw_gguf_put_u32(w->file, "general.file_type", nw_gguf_plan_file_type(&w->plan));
        nw_gguf_put_u32(w->file, "general.quantization_version", QUANTIZATION_VERSION);
    }
    nw_gguf_close(kept);
    return st;
}

static nw_status declare(const writer *w, nw_error *err)
{
    nw_gguf_decl *decls = calloc(w->plan.n + 1, sizeof *decls);

    if (decls == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu tensors", w->plan.n);
    }
    for (size_t i = 0; i < w->plan.n; i++) {
        const nw_gguf_item *item = &w->plan.items[i];
        const nw_export_tensor *t = item->tensor;
        const bool matrix = t != NULL && !t->is_vector;
        decls[i] = (nw_gguf_decl){.name = item->name,
                                  .format = item->format,
                                  .n_dims = matrix ? 2 : 1,
                                  .ne = {t != NULL             ? t->n_cols
                                         : item->extra != NULL ? item->extra->n_elems
                                                               : item->n_values,
                                         matrix ? t->n_rows : 1}};
    }
    const nw_status st = nw_gguf_writer_declare(w->file, decls, w->plan.n, err);
    free(decls);
    return st;
}

static nw_status write_all(writer *w, nw_error *err)
{
    nw_status st = put_keys(w, err);

    if (st == NW_OK) {
        st = declare(w, err);
    }
    if (st != NW_OK) {
        return st;
    }
    *w->job->n_bytes = nw_gguf_writer_bytes(w->file);
    if (w->job->progress != NULL) {
        nw_progress_begin(&w->progress, w->job->progress, "MB", *w->job->n_bytes / MEGABYTE);
    }
    for (size_t i = 0; st == NW_OK && i < w->plan.n; i++) {
        st = write_item(w, &w->plan.items[i], err);
    }
    return st == NW_OK ? nw_gguf_writer_commit(w->file, err) : st;
}

nw_status nw_gguf_export(const nw_export_job *job, nw_error *err)
{
    writer w = {.job = job};
    char *path = nw_path_join(job->dir, "model.gguf");
    nw_status st = path != NULL ? nw_gguf_plan_make(job, &w.plan, err)
                                : nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", job->dir);

    if (st == NW_OK) {
        st = nw_gguf_writer_open(path, &w.file, err);
    }
    if (st == NW_OK) {
        st = write_all(&w, err);
    }
    nw_gguf_writer_close(w.file);
    nw_gguf_plan_release(&w.plan);
    free(path);
    return st;
}
