/* Streams parts into safetensors and makes a Hugging Face folder of them: see export_parts.h. Plain values
 * pass in blocks of rows; the parts of a matrix of codes are made whole, one at a time, panel by panel on
 * all threads. Each tensor is decoded again as a reader will, and held to the source's values.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/export_parts.h"
#include "artifact/hf_files.h"
#include "artifact/row_blocks.h"
#include "artifact/shards.h"
#include "base/progress.h"
#include "formats/fp4.h"
#include "formats/fp8.h"

#define BLOCK_VALUES ((size_t)1 << 21) /* plain values that are held at one time */
#define MEGABYTE     1000000U          /* what progress counts in */

/* What one thread works with. */
typedef struct {
    nw_export_row row;
    float *values, *back; /* [n_cols] */
    void *scratch;        /* of nw_export_codes */
} worker_mem;

typedef struct {
    const nw_export_job *job;
    const nw_export_parts *parts;
    uint64_t n_done;
    nw_progress progress;
} writer;

/* Rows of a part on their way; pieces are panels of them. */
typedef struct {
    const nw_export_job *job;
    const nw_export_part *part;
    nw_st_writer *file;
    size_t row_bytes; /* of plain values */
    uint8_t *out;     /* plain values: of the block; else the whole part */
    worker_mem *mem;  /* [n threads] */
} block;

/* Values of a row of codes as a reader of the written bytes has them. */
static void decode(const nw_export_part *p, const nw_export_row *r, float *out)
{
    const nw_panel_type t = p->tensor->type;
    const uint32_t group = nw_panel_scale_cols(t, p->tensor->n_cols);
    const float factor = 1 / p->global;
    /* who reads such a file divides the scale; a panel multiplies: one rounding apart */
    const bool divides = p->tensor->ckpt != NULL && p->tensor->ckpt->quant != NULL;

    for (uint32_t c = 0; c < p->tensor->n_cols; c++) {
        const uint32_t g = c / group;
        const float scale = nw_export_rounded(r->scales[g], p->scale_format);
        const uint8_t code = (uint8_t)r->codes[c];
        switch (t.kind) {
        case NW_PANEL_INT4:
            out[c] = scale * (float)(r->codes[c] - r->zeros[g]);
            break;
        case NW_PANEL_FP8_E4M3:
            out[c] = scale * nw_e4m3_to_f32(code);
            break;
        case NW_PANEL_NVFP4:
        case NW_PANEL_MXFP4:
            out[c] = divides ? nw_e2m1_to_f32(code) * (scale / p->global)
                             : factor * (nw_e2m1_to_f32(code) * scale);
            break;
        case NW_PANEL_INT8:
        case NW_PANEL_F32:
        case NW_PANEL_BF16:
        case NW_PANEL_FP8_E5M2:
        case NW_PANEL_BF16_12:
        case NW_PANEL_KINDS:
            out[c] = scale * (float)(r->codes[c] - r->zeros[g]); /* int8: no other kind gets here */
            break;
        }
    }
}

/* Made whole, of codes; other parts pass in blocks of rows. */
static bool is_whole(const nw_export_part *p)
{
    return p->put != NULL || p->put_values != NULL;
}

static nw_status put_row(const block *b, uint32_t row, uint32_t at, worker_mem *m, nw_error *err)
{
    const nw_export_part *p = b->part;
    const nw_export_tensor *t = p->tensor;
    nw_status st = NW_OK;

    if (p->put == NULL || p->to != NULL) {
        st = nw_export_values(b->job->source, t, row, m->values, err);
    }
    if (st == NW_OK && p->put != NULL) {
        st = nw_export_codes(t, row, m->scratch, &m->row, err);
    }
    if (st != NW_OK) {
        return st;
    }
    if (p->put_values != NULL) {
        p->put_values(p, row, m->values, b->out);
        nw_block_decode(p, row, m->values, m->back);
    } else if (p->put != NULL) {
        p->put(p, row, &m->row, b->out);
        decode(p, &m->row, m->back);
    } else {
        const nw_format *f = nw_format_get(p->format);
        uint8_t *dst = b->out + (size_t)at * b->row_bytes;
        f->encode(m->values, dst, t->n_cols);
        f->decode(dst, m->back, t->n_cols);
    }
    for (uint32_t c = 0; p->to != NULL && c < t->n_cols; c++) {
        if (!isfinite(m->back[c])) {
            return nw_fail(err, NW_E_RANGE, "tensor '%s': %g in row %u is too large for %s",
                           t->name, (double)m->values[c], (unsigned)row, p->to);
        }
    }
    return NW_OK;
}

static nw_status put_panel(void *ctx, uint32_t row0, uint32_t at, uint32_t n, unsigned worker,
                           nw_tensor_error *e, nw_error *err)
{
    const block *b = ctx;
    worker_mem *m = &b->mem[worker];
    nw_status st = NW_OK;

    for (uint32_t r = 0; st == NW_OK && r < n; r++) {
        st = put_row(b, row0 + r, at + r, m, err);
        if (st == NW_OK && b->part->to != NULL) {
            nw_tensor_error_measure(e, m->values, m->back, b->part->tensor->n_cols);
        }
    }
    return st;
}

static bool mem_open(const nw_export_tensor *t, worker_mem *m)
{
    const bool codes = nw_export_has_codes(t);
    const size_t n_groups = codes ? nw_panel_groups(t->type, t->n_cols) : 1;
    const size_t n_codes = codes ? nw_panel_cols(t->type, t->n_cols) : 1;

    m->values = calloc(t->n_cols, sizeof *m->values);
    m->back = calloc(t->n_cols, sizeof *m->back);
    m->row.codes = calloc(n_codes, 1);
    m->row.scales = calloc(n_groups, sizeof *m->row.scales);
    m->row.zeros = calloc(n_groups, 1);
    m->scratch = calloc(nw_export_scratch_bytes(t) + 1, 1);
    return m->values != NULL && m->back != NULL && m->row.codes != NULL && m->row.scales != NULL &&
           m->row.zeros != NULL && m->scratch != NULL;
}

static void block_close(block *b, unsigned n_threads)
{
    for (unsigned i = 0; b->mem != NULL && i < n_threads; i++) {
        free(b->mem[i].values);
        free(b->mem[i].back);
        free(b->mem[i].row.codes);
        free(b->mem[i].row.scales);
        free(b->mem[i].row.zeros);
        free(b->mem[i].scratch);
    }
    free(b->mem);
    free(b->out);
}

static uint64_t part_bytes(const nw_export_part *p)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < p->n_dims; i++) {
        n *= p->dims[i];
    }
    return n * nw_format_get(p->format)->block_bytes;
}

static nw_status block_open(const writer *w, const nw_export_part *p, block *b, uint32_t block_rows,
                            nw_error *err)
{
    const nw_export_tensor *t = p->tensor;
    const unsigned n_threads = nw_pool_threads(w->job->pool);

    *b = (block){.job = w->job, .part = p};
    b->row_bytes = (size_t)t->n_cols * nw_format_get(p->format)->block_bytes;
    b->out = is_whole(p) ? calloc(part_bytes(p), 1) : calloc(block_rows, b->row_bytes);
    b->mem = calloc(n_threads, sizeof *b->mem);
    bool ok = b->out != NULL && b->mem != NULL;
    for (unsigned i = 0; ok && i < n_threads; i++) {
        ok = mem_open(t, &b->mem[i]);
    }
    return ok ? NW_OK
              : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for %u rows", p->name,
                        (unsigned)block_rows);
}

static nw_status write_rows(void *ctx, uint32_t n_rows, nw_error *err)
{
    const block *b = ctx;

    return nw_st_writer_write(b->file, b->part->name, b->out,
                              is_whole(b->part) ? part_bytes(b->part) : n_rows * b->row_bytes, err);
}

static nw_status report(const writer *w, const nw_export_part *p, const nw_tensor_error *e,
                        nw_error *err)
{
    char from[32];
    const nw_loss_tensor row = {.name = p->tensor->name,
                                .from = nw_export_type_name(p->tensor, from),
                                .to = p->to,
                                .fallback = p->fallback,
                                .error = *e};

    return nw_loss_add(w->job->loss, &row, err);
}

static nw_status write_part(void *ctx, size_t i, nw_st_writer *file, nw_error *err)
{
    writer *w = ctx;
    const nw_export_part *p = &w->parts->items[i];
    const nw_export_tensor *t = p->tensor;
    nw_tensor_error sum = {0};
    block b;

    if (p->numbers != NULL) {
        w->n_done += part_bytes(p);
        return nw_st_writer_write(file, p->name, p->numbers, part_bytes(p), err);
    }
    const nw_row_blocks rows = {
        .tensor = p->name,
        .n_rows = t->n_rows,
        .piece_rows = NW_PANEL_ROWS,
        .block_rows = is_whole(p)
                          ? t->n_rows
                          : nw_row_blocks_fit(BLOCK_VALUES, t->n_cols, NW_PANEL_ROWS, t->n_rows),
        .pool = w->job->pool,
        .make = put_panel,
        .write = write_rows,
        .ctx = &b};
    nw_status st = block_open(w, p, &b, rows.block_rows, err);
    b.file = file;
    if (st == NW_OK) {
        st = nw_row_blocks_run(&rows, &sum, err);
    }
    block_close(&b, nw_pool_threads(w->job->pool));
    w->n_done += part_bytes(p);
    if (st == NW_OK && w->job->progress != NULL) {
        nw_progress_step(&w->progress, w->n_done / MEGABYTE);
    }
    return st == NW_OK && p->to != NULL ? report(w, p, &sum, err) : st;
}

/* ---- files ---- */
static int by_type_and_name(const void *a, const void *b)
{
    const nw_export_part *x = a;
    const nw_export_part *y = b;
    const uint32_t sx = nw_format_get(x->format)->block_bytes;
    const uint32_t sy = nw_format_get(y->format)->block_bytes;

    return sx != sy ? (sx < sy) - (sx > sy) : strcmp(x->name, y->name);
}

static nw_status write_tensors(writer *w, nw_error *err)
{
    const nw_export_parts *l = w->parts;
    nw_st_decl *decls = calloc(l->n + 1, sizeof *decls);
    nw_shards shards = {0};

    if (decls == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu tensors", l->n);
    }
    for (size_t i = 0; i < l->n; i++) {
        const nw_export_part *p = &l->items[i];
        decls[i] = (nw_st_decl){.name = p->name,
                                .format = p->format,
                                .n_dims = p->n_dims,
                                .dims = {p->dims[0], p->dims[1], p->dims[2]}};
    }
    nw_status st = nw_shards_plan(decls, l->n, w->job->shard_bytes, &shards, err);
    if (st == NW_OK && w->job->progress != NULL) {
        nw_progress_begin(&w->progress, w->job->progress, "MB", shards.total_bytes / MEGABYTE);
    }
    if (st == NW_OK) {
        st = nw_shards_write(&shards, w->job->dir, write_part, w, err);
    }
    *w->job->n_bytes = shards.total_bytes;
    nw_shards_release(&shards);
    free(decls);
    return st;
}

static nw_status write_config(const nw_export_job *job, const char *torch_dtype,
                              json_t *quantization, nw_error *err)
{
    json_t *config = nw_config_to_json(nw_export_config(job->source), torch_dtype);

    if (config == NULL || (quantization != NULL &&
                           json_object_set_new(config, "quantization_config", quantization) != 0)) {
        json_decref(config);
        return nw_fail(err, NW_E_NOMEM, "config.json: no memory for its text");
    }
    return nw_hf_json_write(job->dir, "config.json", config, err);
}

nw_status nw_export_parts_write(const nw_export_job *job, nw_export_parts *l,
                                const char *torch_dtype, json_t *quantization, nw_error *err)
{
    writer w = {.job = job, .parts = l};
    nw_status st = NW_OK;

    qsort(l->items, l->n, sizeof *l->items, by_type_and_name);
    st = write_tensors(&w, err);
    if (st == NW_OK) {
        st = nw_export_hf_files(job, err);
    }
    if (st == NW_OK) {
        st = write_config(job, torch_dtype, quantization, err);
    } else {
        json_decref(quantization);
    }
    return st;
}
