/* Streams parts into safetensors and makes a Hugging Face folder of them: see export_parts.h. Plain values
 * pass in blocks of rows; the parts of a matrix of codes are made whole, one at a time, panel by panel on
 * all threads. Each tensor is decoded again as a reader will, and held to the source's values.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/export_parts.h"
#include "artifact/hf_files.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/signal.h"
#include "formats/fp4.h"
#include "formats/fp8.h"
#include "model/safetensors.h"

#define BLOCK_VALUES ((size_t)1 << 21) /* plain values that are held at one time */
#define MEGABYTE     1000000U          /* what progress counts in */

/* What one thread works with. */
typedef struct {
    nw_export_row row;
    float *values, *back; /* [n_cols] */
    void *scratch;        /* of nw_export_codes */
} worker_mem;

/* Rows [row0, row0 + n_rows) of a part; items of the pool are panels of them. */
typedef struct {
    const nw_export_job *job;
    const nw_export_part *part;
    uint32_t row0, n_rows;
    size_t row_bytes;        /* of plain values */
    uint8_t *out;            /* plain values: of the block; else the whole part */
    worker_mem *mem;         /* [n threads] */
    nw_tensor_error *errors; /* [panels] */
    atomic_int status;
    nw_error error;
} block;

typedef struct {
    const nw_export_job *job;
    const nw_export_parts *parts;
    size_t *shard_of; /* [parts] */
    size_t n_shards;
    uint64_t total_bytes, n_done;
    nw_progress progress;
} writer;

/* Values of a row of codes as a reader of the written bytes has them. */
static void decode(const nw_export_part *p, const nw_export_row *r, float *out)
{
    const nw_panel_type t = p->tensor->type;
    const uint32_t group = t.group > 0 ? t.group : p->tensor->n_cols;
    const float factor = 1 / p->global;
    /* who reads such a file divides the scale; a panel multiplies: one rounding apart */
    const bool divides = p->tensor->ckpt != NULL && p->tensor->ckpt->quant != NULL;

    for (uint32_t c = 0; c < p->tensor->n_cols; c++) {
        const uint32_t g = c / group;
        const float scale = nw_export_rounded(r->scales[g], p->scale_format);
        const uint8_t code = (uint8_t)r->codes[c];
        switch (t.kind) {
        case NW_PANEL_INT4:
            out[c] = scale * (float)(code - r->zeros[g]);
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
            out[c] = scale * (float)r->codes[c]; /* int8: no other kind gets here */
            break;
        }
    }
}

/* Made whole, of codes; other parts pass in blocks of rows. */
static bool is_whole(const nw_export_part *p)
{
    return p->put != NULL || p->put_values != NULL;
}

static nw_status put_row(const block *b, uint32_t row, worker_mem *m, nw_error *err)
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
        uint8_t *dst = b->out + (size_t)(row - b->row0) * b->row_bytes;
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

static void put_panel(void *ctx, size_t item, unsigned worker)
{
    block *b = ctx;
    const uint32_t first = (uint32_t)item * NW_PANEL_ROWS;
    const uint32_t left = b->n_rows - first;
    worker_mem *m = &b->mem[worker];
    nw_error err = {0};
    int none = NW_OK;
    nw_status st = NW_OK;

    b->errors[item] = (nw_tensor_error){0};
    for (uint32_t r = 0; st == NW_OK && r < left && r < NW_PANEL_ROWS; r++) {
        st = put_row(b, b->row0 + first + r, m, &err);
        if (st == NW_OK && b->part->to != NULL) {
            nw_tensor_error_measure(&b->errors[item], m->values, m->back, b->part->tensor->n_cols);
        }
    }
    if (st != NW_OK && atomic_compare_exchange_strong(&b->status, &none, (int)st)) {
        b->error = err;
    }
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
    free(b->errors);
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

static nw_status block_open(const writer *w, const nw_export_part *p, block *b,
                            uint32_t *block_rows, nw_error *err)
{
    const nw_export_tensor *t = p->tensor;
    const unsigned n_threads = nw_pool_threads(w->job->pool);
    const size_t fit = BLOCK_VALUES / t->n_cols / NW_PANEL_ROWS * NW_PANEL_ROWS;
    const size_t rows = is_whole(p) ? t->n_rows : fit < NW_PANEL_ROWS ? NW_PANEL_ROWS : fit;

    *b = (block){.job = w->job, .part = p};
    *block_rows = rows < t->n_rows ? (uint32_t)rows : t->n_rows;
    b->row_bytes = (size_t)t->n_cols * nw_format_get(p->format)->block_bytes;
    b->out = is_whole(p) ? calloc(part_bytes(p), 1) : calloc(*block_rows, b->row_bytes);
    b->errors = calloc(nw_panel_count(*block_rows), sizeof *b->errors);
    b->mem = calloc(n_threads, sizeof *b->mem);
    bool ok = b->out != NULL && b->errors != NULL && b->mem != NULL;
    for (unsigned i = 0; ok && i < n_threads; i++) {
        ok = mem_open(t, &b->mem[i]);
    }
    return ok ? NW_OK
              : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for %u rows", p->name,
                        (unsigned)*block_rows);
}

static nw_status run_block(const writer *w, block *b, nw_st_writer *st_writer, nw_tensor_error *sum,
                           nw_error *err)
{
    const uint32_t n_panels = nw_panel_count(b->n_rows);

    nw_pool_run(w->job->pool, n_panels, put_panel, b);
    if (atomic_load(&b->status) != NW_OK) {
        *err = b->error;
        return err->code;
    }
    for (uint32_t i = 0; i < n_panels; i++) {
        nw_tensor_error_add(sum, &b->errors[i]);
    }
    if (nw_stop_requested()) {
        return nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'; nothing was left behind",
                       b->part->name);
    }
    return nw_st_writer_write(st_writer, b->part->name, b->out,
                              is_whole(b->part) ? part_bytes(b->part) : b->n_rows * b->row_bytes,
                              err);
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

static nw_status write_part(writer *w, nw_st_writer *st_writer, const nw_export_part *p,
                            nw_error *err)
{
    const uint32_t n_rows = p->tensor->n_rows;
    nw_tensor_error sum = {0};
    uint32_t block_rows = 0;
    block b;

    if (p->numbers != NULL) {
        w->n_done += part_bytes(p);
        return nw_st_writer_write(st_writer, p->name, p->numbers, part_bytes(p), err);
    }
    nw_status st = block_open(w, p, &b, &block_rows, err);

    for (uint32_t r = 0; st == NW_OK && r < n_rows; r += block_rows) {
        b.row0 = r;
        b.n_rows = n_rows - r < block_rows ? n_rows - r : block_rows;
        st = run_block(w, &b, st_writer, &sum, err);
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

static nw_status assign_shards(writer *w, nw_error *err)
{
    const uint64_t most = w->job->shard_bytes > 0 ? w->job->shard_bytes : UINT64_MAX;
    uint64_t used = 0;

    w->shard_of = calloc(w->parts->n + 1, sizeof *w->shard_of);
    if (w->shard_of == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu tensors", w->parts->n);
    }
    w->n_shards = 1;
    for (size_t i = 0; i < w->parts->n; i++) {
        const uint64_t bytes = part_bytes(&w->parts->items[i]);
        if (used > 0 && bytes > most - (used < most ? used : most)) {
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
    nw_st_decl *decls = calloc(w->parts->n + 1, sizeof *decls);
    char name[64];
    size_t k = 0;

    nw_st_shard_name(shard, w->n_shards, name);
    char *path = nw_path_join(w->job->dir, name);
    nw_status st = NW_OK;
    if (decls == NULL || path == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tensors", name, w->parts->n);
        goto out;
    }
    for (size_t i = 0; i < w->parts->n; i++) {
        const nw_export_part *p = &w->parts->items[i];
        if (w->shard_of[i] == shard) {
            decls[k++] = (nw_st_decl){.name = p->name,
                                      .format = p->format,
                                      .n_dims = p->n_dims,
                                      .dims = {p->dims[0], p->dims[1], p->dims[2]}};
        }
    }
    st = nw_st_writer_open(path, decls, k, NULL, 8, out, err);
out:
    free(decls);
    free(path);
    return st;
}

static nw_status write_shard(writer *w, size_t shard, nw_error *err)
{
    nw_st_writer *st_writer = NULL;
    nw_status st = open_shard(w, shard, &st_writer, err);

    for (size_t i = 0; st == NW_OK && i < w->parts->n; i++) {
        if (w->shard_of[i] == shard) {
            st = write_part(w, st_writer, &w->parts->items[i], err);
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

    for (size_t i = 0; i < w->parts->n; i++) {
        nw_st_shard_name(w->shard_of[i], w->n_shards, name);
        (void)json_object_set_new(map, w->parts->items[i].name, json_string(name));
    }
    return nw_hf_json_write(w->job->dir, "model.safetensors.index.json",
                            json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                                      (json_int_t)w->total_bytes, "weight_map", map),
                            err);
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
    st = assign_shards(&w, err);
    if (st == NW_OK && job->progress != NULL) {
        nw_progress_begin(&w.progress, job->progress, "MB", w.total_bytes / MEGABYTE);
    }
    for (size_t s = 0; st == NW_OK && s < w.n_shards; s++) {
        st = write_shard(&w, s, err);
    }
    if (st == NW_OK && w.n_shards > 1) {
        st = write_index(&w, err);
    }
    if (st == NW_OK) {
        st = nw_export_hf_files(job, err);
    }
    if (st == NW_OK) {
        *job->n_bytes = w.total_bytes;
        st = write_config(job, torch_dtype, quantization, err);
    } else {
        json_decref(quantization);
    }
    free(w.shard_of);
    return st;
}
