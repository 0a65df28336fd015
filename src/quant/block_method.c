/* See block_method.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/block_method.h"

#include <string.h>

#include "formats/encode.h"
#include "formats/repack.h"
#include "quant/gptq.h"

static const struct row {
    const char *name;
    nw_format_id block, instead; /* instead: where the columns are no whole blocks */
    bool grid;                   /* its panel's codes are an integer grid of their own */
} rows_of[] = {
    {"q4_0", NW_FMT_Q4_0, NW_FMT_Q4_0, true},  {"q4_1", NW_FMT_Q4_1, NW_FMT_Q4_1, true},
    {"q5_0", NW_FMT_Q5_0, NW_FMT_Q5_0, false}, {"q5_1", NW_FMT_Q5_1, NW_FMT_Q5_1, false},
    {"q8_0", NW_FMT_Q8_0, NW_FMT_Q8_0, true},  {"q4_k", NW_FMT_Q4_K, NW_FMT_Q5_0, false},
    {"q5_k", NW_FMT_Q5_K, NW_FMT_Q5_1, false}, {"q6_k", NW_FMT_Q6_K, NW_FMT_Q8_0, false},
};

static const struct row *row_of(nw_format_id block)
{
    for (size_t i = 0; i < NW_COUNT(rows_of); i++) {
        if (rows_of[i].block == block) {
            return &rows_of[i];
        }
    }
    return NULL;
}

bool nw_block_parse(const char *name, nw_format_id *block, nw_panel_type *type)
{
    for (size_t i = 0; i < NW_COUNT(rows_of); i++) {
        if (strcmp(rows_of[i].name, name) == 0) {
            *block = rows_of[i].block;
            return nw_repack_type(*block, type);
        }
    }
    return false;
}

const char *nw_block_name(nw_format_id block)
{
    const struct row *row = row_of(block);
    return row != NULL ? row->name : nw_format_get(block)->name;
}

bool nw_block_encodes(nw_method m)
{
    return m == NW_METHOD_RTN || m == NW_METHOD_REFIT || m == NW_METHOD_IMATRIX;
}

bool nw_block_knows(nw_format_id block, nw_method m)
{
    const struct row *row = row_of(block);
    return row != NULL && (row->grid || nw_block_encodes(m));
}

nw_format_id nw_block_for_columns(nw_format_id block, uint32_t n_cols)
{
    const struct row *row = row_of(block);
    return row != NULL && n_cols % nw_format_get(block)->block_elems != 0 ? row->instead : block;
}

static bool is_plain(nw_method m, nw_scale_rule rule, nw_format_id block)
{
    return m == NW_METHOD_RTN && rule == NW_SCALE_ABSMAX &&
           nw_format_get(block)->block_elems < NW_PANEL_K_COLS;
}

const char *nw_block_text(nw_method m, nw_scale_rule rule)
{
    if (nw_method_needs_stats(m)) {
        return "GGUF blocks of least squared error weighted by the mean square of each input "
               "channel, scales refitted to their codes";
    }
    return m == NW_METHOD_RTN && rule == NW_SCALE_ABSMAX
               ? "GGUF blocks by the rule of its reference encoder"
               : "GGUF blocks of least squared error, scales refitted to their codes";
}

/* Values in lanes for the output error, and blocks of a row: what is in scratch, in this order. */
typedef struct {
    float *w, *value, *work; /* [n_cols][16] */
    uint8_t *blocks;         /* [16][row_bytes] */
    size_t row_bytes;
    void *repack;
} parts;

static size_t row_bytes(const nw_method_job *j)
{
    size_t n = 0;
    return nw_format_bytes(nw_format_get(j->block), j->n_cols, &n) ? n : 0;
}

static size_t tile_values(const nw_method_job *j)
{
    return (size_t)j->n_cols * NW_PANEL_ROWS;
}

/* Of the rows' blocks, so that what follows is aligned for uint16_t. */
static size_t blocks_bytes(const nw_method_job *j)
{
    return (NW_PANEL_ROWS * row_bytes(j) + 63) / 64 * 64;
}

size_t nw_block_scratch_bytes(const nw_method_job *j)
{
    return 3 * tile_values(j) * sizeof(float) + blocks_bytes(j) +
           nw_repack_scratch_bytes(j->block, j->n_cols);
}

static parts split(const nw_method_job *j, void *scratch)
{
    parts p = {.w = scratch, .row_bytes = row_bytes(j)};

    p.value = p.w + tile_values(j);
    p.work = p.value + tile_values(j);
    p.blocks = (uint8_t *)(p.work + tile_values(j));
    p.repack = p.blocks + blocks_bytes(j);
    return p;
}

/* The weights of the columns as the encoder takes them; the same for every row. */
static void encode_row(const nw_method_job *j, const float *row, uint8_t *dst)
{
    const nw_format *f = nw_format_get(j->block);
    const size_t n_blocks = j->n_cols / f->block_elems;

    if (is_plain(j->method, j->scales.rule, j->block)) {
        f->encode(row, dst, n_blocks);
    } else {
        const float *weights = nw_method_needs_stats(j->method) ? j->h->importance : NULL;
        nw_encode_search(j->block)(row, weights, dst, n_blocks);
    }
}

/* The error of the outputs under the Hessian. */
static void measure(const nw_method_job *j, const float *rows, uint32_t n_rows, const parts *p,
                    nw_output_error *out)
{
    const nw_format *f = nw_format_get(j->block);
    const nw_gptq_rows t = {.n_cols = j->n_cols, .w = p->w, .value = p->value, .work = p->work};

    memset(p->w, 0, tile_values(j) * sizeof *p->w);
    memset(p->value, 0, tile_values(j) * sizeof *p->value);
    for (uint32_t r = 0; r < n_rows; r++) {
        f->decode(p->blocks + r * p->row_bytes, p->work, j->n_cols / f->block_elems);
        for (uint32_t c = 0; c < j->n_cols; c++) {
            p->w[(size_t)c * NW_PANEL_ROWS + r] = rows[(size_t)r * j->n_cols + c];
            p->value[(size_t)c * NW_PANEL_ROWS + r] = p->work[c];
        }
    }
    nw_gptq_error(j->h, &t, n_rows, &out->err, &out->power);
}

bool nw_block_pack_panel(const nw_method_job *j, const float *rows, uint32_t n_rows, uint8_t *panel,
                         void *scratch, nw_output_error *out, uint32_t *bad_row)
{
    const parts p = split(j, scratch);
    const uint8_t *row_at[NW_PANEL_ROWS];

    for (uint32_t r = 0; r < n_rows; r++) {
        row_at[r] = p.blocks + r * p.row_bytes;
        encode_row(j, rows + (size_t)r * j->n_cols, p.blocks + r * p.row_bytes);
    }
    if (j->h != NULL && j->h->h != NULL) {
        measure(j, rows, n_rows, &p, out);
    }
    return nw_repack_panel(j->block, row_at, n_rows, j->n_cols, panel, p.repack, bad_row);
}
