/* The table of methods and the steps of each: see method.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/method.h"

#include <math.h>
#include <string.h>

#include "quant/block_method.h"
#include "quant/gptq.h"
#include "quant/grid.h"
#include "quant/hqq.h"

/* Sweeps after which polishing changes less than the rounding of the scales; it ends by itself when
 * no code moves any more. */
#define N_SWEEPS 6

static const struct {
    const char *name;
    bool stats, factor;
    unsigned n_sweeps;
    const char *text;
} methods[NW_METHOD_COUNT] = {
    [NW_METHOD_RTN] = {"rtn", false, false, 0, ""},
    [NW_METHOD_REFIT] =
        {"refit", false, false, 0,
         "scale (and minimum) of least squared error: 10 fractions (0.6 to 1.05) of "
         "the range, each refitted in closed form to its codes"},
    [NW_METHOD_HQQ] = {"hqq", false, false, 0,
                       "scale (and zero point or minimum) of least sum of |error|^(1/2), by "
                       "half-quadratic turns from the fit of least squared error"},
    [NW_METHOD_AWQ] =
        {"awq", true, false, 0,
         "scale (and minimum) of least output error of the group over the calibration "
         "inputs: 10 fractions (0.6 to 1.05) of the range, each refitted in closed "
         "form to its codes"},
    [NW_METHOD_IMATRIX] = {"imatrix", true, false, 0,
                           "scale (and minimum) of least squared error weighted by the mean square "
                           "of each input channel: 10 fractions (0.6 to 1.05) of the range, each "
                           "refitted in closed form to its codes"},
    [NW_METHOD_GPTQ] = {"gptq", true, true, 0,
                        "GPTQ, columns by falling mean square, static groups with scales of least "
                        "weighted squared error"},
    [NW_METHOD_GPTQ_REFIT] =
        {"gptq-refit", true, true, N_SWEEPS,
         "GPTQ, columns by falling mean square, static groups; then codes by "
         "coordinate descent and scales (and minima) in closed form, under the "
         "whole Hessian"},
};

const char *nw_method_name(nw_method m)
{
    return methods[m].name;
}

bool nw_method_parse(const char *name, nw_method *out)
{
    for (int i = 0; i < NW_METHOD_COUNT; i++) {
        if (strcmp(methods[i].name, name) == 0) {
            *out = (nw_method)i;
            return true;
        }
    }
    return false;
}

bool nw_method_needs_stats(nw_method m)
{
    return methods[m].stats;
}

bool nw_method_needs_factor(nw_method m)
{
    return methods[m].factor;
}

/* One scale for the whole tensor is found before its panels are: codes alone are left to the method. */
static bool knows_scale(nw_method m, nw_panel_type type)
{
    return type.span != NW_SPAN_TENSOR || m == NW_METHOD_GPTQ;
}

static bool has_grid(nw_panel_type type)
{
    nw_grid g;
    return nw_grid_of(type, &(nw_scales){.rule = NW_SCALE_SEARCH}, 1, &g);
}

bool nw_method_knows(nw_method m, nw_panel_type type)
{
    const bool fp4 = type.kind == NW_PANEL_NVFP4 || type.kind == NW_PANEL_MXFP4;
    const bool wide = type.group == 0 || nw_panel_scale_cols(type, UINT32_MAX) > NW_GRID_FULL;
    return m == NW_METHOD_RTN || (has_grid(type) && !(m == NW_METHOD_HQQ && fp4) &&
                                  !(m == NW_METHOD_AWQ && wide) && knows_scale(m, type));
}

nw_method nw_method_for(nw_method m, nw_panel_type type)
{
    if (nw_method_knows(m, type)) {
        return m;
    }
    if (m == NW_METHOD_GPTQ_REFIT && nw_method_knows(NW_METHOD_GPTQ, type)) {
        return NW_METHOD_GPTQ;
    }
    return m == NW_METHOD_AWQ && nw_method_knows(NW_METHOD_IMATRIX, type) ? NW_METHOD_IMATRIX
                                                                          : NW_METHOD_RTN;
}

bool nw_method_writes(nw_panel_type type)
{
    if (type.packed && type.kind != NW_PANEL_BF16_12) {
        return false; /* what a packed tensor is in memory follows from its values */
    }
    return nw_rtn_writes(type) || type.kind == NW_PANEL_BF16_12 || has_grid(type);
}

/* What is done where m is asked for; the search of rtn knows whole codes alone. */
static nw_method effective(nw_method m, nw_panel_type type, unsigned code_bits)
{
    if (m == NW_METHOD_RTN && (!nw_rtn_writes(type) || (code_bits > 0 && has_grid(type)))) {
        return NW_METHOD_REFIT;
    }
    return nw_method_for(m, type);
}

#define TENSOR_TEXT                                                                             \
    "one fp16 scale (and zero point) of the tensor, of least squared error: 10 fractions (0.6 " \
    "to 1.05) of its range"
static const char tensor_text[] = TENSOR_TEXT;
static const char tensor_gptq_text[] =
    TENSOR_TEXT "; codes by GPTQ, columns by falling mean square";

const char *nw_method_text(nw_method m, nw_panel_type type, nw_scale_rule rule)
{
    const nw_method done = effective(m, type, 0);
    if (type.kind == NW_PANEL_BF16_12) {
        return ""; /* no rule: every bit is kept */
    }
    if (type.span == NW_SPAN_TENSOR) {
        return done == NW_METHOD_GPTQ ? tensor_gptq_text : tensor_text;
    }
    return done == NW_METHOD_RTN ? nw_rtn_rule_text(type, rule) : methods[done].text;
}

/* Tiles of 16 rows and the fits of a row's groups; a group has 16 columns or more. */
static size_t tile_bytes(uint32_t n_cols)
{
    return (size_t)n_cols * NW_LANES * sizeof(float);
}

static size_t fits_bytes(uint32_t n_cols)
{
    return (n_cols / 16 + 1) * sizeof(nw_grid_fit);
}

/* Whether the block's own encoder does it. */
static bool by_block(const nw_method_job *j)
{
    return j->block != NW_FMT_F32 && nw_block_encodes(j->method);
}

size_t nw_method_scratch_bytes(const nw_method_job *j)
{
    if (by_block(j)) {
        return nw_block_scratch_bytes(j);
    }
    if (effective(j->method, j->type, j->scales.code_bits) == NW_METHOD_RTN) {
        return nw_rtn_scratch_bytes(j->type, j->n_cols);
    }
    return 4 * tile_bytes(j->n_cols) + fits_bytes(j->n_cols) + nw_grid_scratch_bytes(j->n_cols);
}

/* Rows into lanes; rows past n_rows are zero. */
static void fill_tile(const float *rows, uint32_t n_rows, uint32_t n_cols, float *tile)
{
    memset(tile, 0, tile_bytes(n_cols));
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t c = 0; c < n_cols; c++) {
            tile[(size_t)c * NW_LANES + r] = rows[(size_t)r * n_cols + c];
        }
    }
}

static void round_nearest(const nw_gptq_rows *t)
{
    for (uint32_t c = 0; c < t->n_cols; c++) {
        const size_t at = (size_t)c * NW_LANES;
        nw_grid_encode(t->grid, &t->fits[c / t->grid->group], t->w + at, t->code + at,
                       t->value + at);
    }
}

/* Scale and offset of every group. */
static void fit_groups(const nw_method_job *j, const nw_gptq_rows *t)
{
    const bool weighted = methods[j->method].stats;

    if (t->grid->tensor) {
        nw_grid_tensor_fit(t->grid, &j->scales, t->w, t->n_cols, &t->fits[0]);
        return;
    }
    for (uint32_t k = 0; k < t->n_groups; k++) {
        const uint32_t c0 = k * t->grid->group;
        const uint32_t n = t->n_cols - c0 < t->grid->group ? t->n_cols - c0 : t->grid->group;
        const float *tile = t->w + (size_t)c0 * NW_LANES;
        nw_grid_metric m = {.h = weighted ? j->h->importance + c0 : NULL};
        if (j->method == NW_METHOD_AWQ && j->h->h != NULL) {
            m.full = j->h->h + (size_t)c0 * j->h->n + c0;
            m.ld = j->h->n;
        }
        nw_grid_search(t->grid, tile, &m, n, &t->fits[k]);
        if (j->method == NW_METHOD_HQQ) {
            nw_hqq_refine(t->grid, tile, n, &t->fits[k], t->work);
        }
    }
}

static void choose_codes(const nw_method_job *j, const nw_gptq_rows *t)
{
    fit_groups(j, t);
    if (methods[j->method].factor && j->h->u != NULL) {
        nw_gptq_round(j->h, t);
        if (methods[j->method].n_sweeps > 0) {
            nw_gptq_polish(j->h, t, methods[j->method].n_sweeps);
        }
    } else {
        round_nearest(t);
    }
}

/* The largest |w| of the rows at hand, where nobody said that of the tensor. */
static nw_scales with_absmax(const nw_method_job *j, const float *rows, uint32_t n_rows)
{
    nw_scales s = j->scales;

    for (size_t i = 0; j->scales.absmax <= 0 && i < (size_t)n_rows * j->n_cols; i++) {
        s.absmax = fabsf(rows[i]) > s.absmax ? fabsf(rows[i]) : s.absmax;
    }
    return s;
}

bool nw_method_pack_panel(const nw_method_job *j, const float *rows, uint32_t n_rows,
                          uint8_t *panel, void *scratch, nw_output_error *out, uint32_t *bad_row)
{
    const uint32_t n_cols = j->n_cols;
    nw_grid grid;
    uint8_t *p = scratch;

    *out = (nw_output_error){0};
    if (by_block(j)) {
        return nw_block_pack_panel(j, rows, n_rows, panel, scratch, out, bad_row);
    }
    const bool nearest = effective(j->method, j->type, j->scales.code_bits) == NW_METHOD_RTN;
    const nw_scales scales = nearest ? j->scales : with_absmax(j, rows, n_rows);
    if (nearest || !nw_grid_of(j->type, &scales, n_cols, &grid)) {
        return nw_rtn_pack_panel(j->type, &j->scales, rows, n_rows, n_cols, panel, scratch,
                                 bad_row);
    }
    float *tiles[4];
    for (int i = 0; i < 4; i++) {
        tiles[i] = (float *)(void *)p;
        p += tile_bytes(n_cols);
    }
    const nw_gptq_rows t = {.grid = &grid,
                            .n_cols = n_cols,
                            .n_groups = (n_cols + grid.group - 1) / grid.group,
                            .w = tiles[0],
                            .code = tiles[1],
                            .value = tiles[2],
                            .work = tiles[3],
                            .fits = (nw_grid_fit *)(void *)p};
    fill_tile(rows, n_rows, n_cols, tiles[0]);
    choose_codes(j, &t);
    if (j->h != NULL && j->h->h != NULL) {
        nw_gptq_error(j->h, &t, n_rows, &out->err, &out->power);
    }
    return nw_grid_pack(j->type, &grid, t.code, t.fits, n_rows, n_cols, panel,
                        p + fits_bytes(n_cols), bad_row);
}
