/* Quantized matrices of Hugging Face folders into panels, code by code:
 *
 *   integers, 4 bits   int4-g16 .. -g256, int4-row, int4-tensor, with zero points where there are any; 2 bits
 *                      likewise, zero point 8
 *   integers, 8 bits   int8 (a scale a row or tensor), int8-g16 .. -g256; with zero points int8-row-zp too
 *   E4M3               fp8-e4m3 (a scale a row or tensor); with E8M0 scales bf16, which holds the values
 *   E2M1               nvfp4, mxfp4; NVFP4's divisor becomes a factor, rounded once to F32
 *
 * Any other wider group is several of the panel's with one scale. What no layout holds (columns out of order,
 * blocks of FP8, scales that FP16 does not have) is left to F32.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact_parts.h"
#include "formats/half.h"

#define NVFP4_MOST     2688.0F /* 6 * 448: the largest value before the tensor scale */
#define MXFP4_MAX_BYTE 252U    /* 6 * 2^(252 - 127) is the largest that is finite */

/* The widest group of a panel that never crosses one of the file. */
static uint16_t panel_group(const nw_hfq_matrix *m, uint16_t least)
{
    const uint32_t span = m->n_groups == 1 ? m->n_cols : m->scale_cols;

    for (uint16_t g = 128; g >= least; g /= 2) {
        if (span % g == 0) {
            return g;
        }
    }
    return m->n_groups == 1 ? 32 : 0; /* the last group of a row may be padded */
}

/* What shares a scale beyond the panel's groups, where the layouts have a name for it. */
static uint16_t panel_span(const nw_hfq_matrix *m, uint16_t group)
{
    if (m->n_groups == 1) {
        return m->scale_rows >= m->n_rows && m->n_rows > 1 ? NW_SPAN_TENSOR : NW_SPAN_ROW;
    }
    return m->scale_cols == 256 && group == 128 ? 256 : 0;
}

static bool int_type(const nw_hfq_matrix *m, nw_panel_type *out)
{
    const bool rows = m->bits == 8 && m->n_groups == 1 && m->zeros == NULL;

    if (m->g_idx != NULL) {
        return false;
    }
    *out = (nw_panel_type){.kind = m->bits == 8 ? NW_PANEL_INT8 : NW_PANEL_INT4,
                           .group = rows ? 0 : panel_group(m, 16),
                           .zero_point = m->bits >= 4 && m->zeros != NULL};
    out->span = rows ? 0 : panel_span(m, out->group);
    if (out->span >= NW_SPAN_TENSOR) {
        *out = nw_panel_for_columns(*out, m->n_cols);
    }
    return rows || out->group > 0;
}

bool nw_quant_panel_type(const nw_hfq_matrix *m, nw_panel_type *out)
{
    const bool power = m->scale_format == NW_FMT_U8 || m->scale_format == NW_FMT_F8_E8M0;

    if (m->layout == NW_HFQ_E2M1) {
        *out = power ? (nw_panel_type){.kind = NW_PANEL_MXFP4, .group = 32}
                     : (nw_panel_type){.kind = NW_PANEL_NVFP4, .group = 16};
        return power || (isfinite(NVFP4_MOST / m->global) && 1 / m->global > 0);
    }
    if (m->layout == NW_HFQ_E4M3) {
        *out = (nw_panel_type){.kind = power ? NW_PANEL_BF16 : NW_PANEL_FP8_E4M3};
        return power || m->n_groups == 1;
    }
    return int_type(m, out);
}

/* 16 rows in the packers' form; the parts follow one another in scratch. */
typedef struct {
    uint8_t *codes; /* [16][n_cols] */
    float *scale;   /* [16] of rows, or [n_cols] values */
    uint16_t *half; /* [16][n_groups], or [16][n_cols] of bf16 */
    uint8_t *small; /* [16][n_groups] zero points (two's complement of int8) or scale codes */
    uint32_t n_groups;
} plain;

static size_t n_floats(uint32_t n_cols)
{
    return n_cols > NW_PANEL_ROWS ? n_cols : NW_PANEL_ROWS;
}

static size_t n_halves(nw_panel_type type, uint32_t n_cols)
{
    const bool values = type.kind == NW_PANEL_BF16;
    return NW_PANEL_ROWS * (size_t)(values ? n_cols : nw_panel_groups(type, n_cols));
}

static plain layout(nw_panel_type type, uint32_t n_cols, void *scratch)
{
    plain p = {.n_groups = nw_panel_groups(type, n_cols)};

    p.scale = scratch;
    p.half = (uint16_t *)(p.scale + n_floats(n_cols));
    p.small = (uint8_t *)(p.half + n_halves(type, n_cols));
    p.codes = p.small + NW_PANEL_ROWS * (size_t)p.n_groups;
    return p;
}

size_t nw_quant_scratch_bytes(nw_panel_type type, uint32_t n_cols)
{
    return n_floats(n_cols) * sizeof(float) + n_halves(type, n_cols) * sizeof(uint16_t) +
           NW_PANEL_ROWS * ((size_t)nw_panel_groups(type, n_cols) + n_cols);
}

static bool take_half(float scale, uint16_t *out)
{
    *out = nw_f16_from_f32(scale);
    return isfinite(scale) && nw_f16_to_f32(*out) == scale;
}

/* The code of zero in a panel, of one that is `zero` from 0 on in the file. */
static int zero_in_panel(const nw_hfq_matrix *m, nw_panel_type t, int zero)
{
    if (t.kind == NW_PANEL_INT8) {
        return t.zero_point ? zero - 128 : 0;
    }
    return m->bits == 4 ? zero : 8;
}

/* Codes of columns [c0, c1) of a row, which have the zero point `zero`, as the layout wants them: int4
 * from 0, int8 in two's complement. */
static bool shift_codes(const nw_hfq_matrix *m, nw_panel_type t, int zero, uint8_t *row,
                        uint32_t c0, uint32_t c1)
{
    const int to = zero_in_panel(m, t, zero);
    bool fits = true;

    for (uint32_t c = c0; c < c1; c++) {
        const int code = row[c] - zero + to;
        fits = fits && code >= INT8_MIN && code <= INT8_MAX;
        row[c] = (uint8_t)(code & 0xFF);
    }
    return fits;
}

static bool take_int_row(const nw_hfq_matrix *m, nw_panel_type t, uint32_t row, uint32_t r,
                         const plain *p)
{
    uint8_t *codes = p->codes + (size_t)r * m->n_cols;
    const uint32_t group = t.group > 0 ? t.group : m->n_cols;
    bool exact = true;

    nw_hfq_codes(m, row, codes);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        const uint32_t c0 = g * group;
        const uint32_t c1 = m->n_cols - c0 < group ? m->n_cols : c0 + group;
        const uint32_t from = nw_hfq_group_of(m, c0);
        const size_t at = (size_t)r * p->n_groups + g;
        const uint8_t zero = nw_hfq_zero(m, row, from);
        const float scale = nw_hfq_scale(m, row, from);
        p->small[at] = (uint8_t)(zero_in_panel(m, t, zero) & 0xFF);
        p->scale[r] = scale; /* of int8 rows, which have one group */
        exact = (t.group > 0 ? take_half(scale, &p->half[at]) : (bool)isfinite(scale)) && exact;
        exact = shift_codes(m, t, zero, codes, c0, c1) && exact;
    }
    return exact;
}

static bool take_fp_row(const nw_hfq_matrix *m, nw_panel_type t, uint32_t row, uint32_t r,
                        const plain *p)
{
    uint8_t *codes = p->codes + (size_t)r * m->n_cols;
    bool exact = true;

    nw_hfq_codes(m, row, codes);
    if (t.kind == NW_PANEL_FP8_E4M3) {
        p->scale[r] = nw_hfq_scale(m, row, 0);
        for (uint32_t c = 0; c < m->n_cols; c++) {
            exact = exact && (codes[c] & 0x7FU) != 0x7FU;
        }
        return exact && isfinite(p->scale[r]);
    }
    for (uint32_t g = 0; g < m->n_groups; g++) {
        const uint8_t byte = nw_hfq_scale_byte(m, row, g);
        p->small[(size_t)r * p->n_groups + g] = byte;
        exact = exact && byte <= (t.kind == NW_PANEL_NVFP4 ? 0x7EU : MXFP4_MAX_BYTE);
    }
    return exact;
}

static bool take_bf16_row(const nw_hfq_matrix *m, uint32_t row, uint32_t r, const plain *p)
{
    uint16_t *half = p->half + (size_t)r * m->n_cols;
    bool exact = true;

    nw_hfq_row(m, row, p->codes, p->scale);
    for (uint32_t c = 0; c < m->n_cols; c++) {
        half[c] = nw_bf16_from_f32(p->scale[c]);
        exact = exact && isfinite(p->scale[c]) && nw_bf16_to_f32(half[c]) == p->scale[c];
    }
    return exact;
}

static void pack(const nw_hfq_matrix *m, nw_panel_type t, const plain *p, uint32_t n_rows,
                 uint8_t *panel)
{
    const uint32_t n = m->n_cols;

    switch (t.kind) {
    case NW_PANEL_INT4:
        nw_panel_pack_int4(t, p->codes, n, p->half, t.zero_point ? p->small : NULL, p->n_groups,
                           n_rows, n, panel);
        break;
    case NW_PANEL_FP8_E4M3:
        nw_panel_pack_fp8(t, p->codes, n, p->scale, n_rows, n, panel);
        break;
    case NW_PANEL_NVFP4:
        nw_panel_pack_nvfp4(p->codes, n, p->small, p->n_groups, 1 / m->global, n_rows, n, panel);
        break;
    case NW_PANEL_MXFP4:
        nw_panel_pack_mxfp4(p->codes, n, p->small, p->n_groups, n_rows, n, panel);
        break;
    case NW_PANEL_BF16:
        nw_panel_pack_bf16(p->half, n, n_rows, n, panel);
        break;
    case NW_PANEL_INT8:
    case NW_PANEL_F32:
    case NW_PANEL_FP8_E5M2:
    case NW_PANEL_BF16_12:
    case NW_PANEL_KINDS:
        assert(t.kind == NW_PANEL_INT8);
        if (t.group == 0) {
            nw_panel_pack_int8((const int8_t *)p->codes, n, p->scale, n_rows, n, panel);
        } else {
            nw_panel_pack_int8_groups(t, (const int8_t *)p->codes, n, p->half, NULL,
                                      t.zero_point ? (const int8_t *)p->small : NULL, p->n_groups,
                                      n_rows, n, panel);
        }
        break;
    }
}

bool nw_quant_pack_panel(const nw_hfq_matrix *m, nw_panel_type t, uint32_t row0, uint32_t n_rows,
                         uint8_t *panel, void *scratch)
{
    const plain p = layout(t, m->n_cols, scratch);
    bool exact = true;

    for (uint32_t r = 0; r < n_rows; r++) {
        if (t.kind == NW_PANEL_BF16) {
            exact = take_bf16_row(m, row0 + r, r, &p) && exact;
        } else if (t.kind == NW_PANEL_INT4 || t.kind == NW_PANEL_INT8) {
            exact = take_int_row(m, t, row0 + r, r, &p) && exact;
        } else {
            exact = take_fp_row(m, t, row0 + r, r, &p) && exact;
        }
    }
    if (exact) {
        pack(m, t, &p, n_rows, panel);
    }
    return exact;
}

bool nw_quant_holds(const nw_hfq_matrix *m, nw_panel_type t)
{
    size_t n_bytes = 0;
    uint8_t *panel = nw_panel_bytes(t, m->n_cols, &n_bytes) ? malloc(n_bytes) : NULL;
    void *scratch = malloc(nw_quant_scratch_bytes(t, m->n_cols));
    bool holds = panel != NULL && scratch != NULL;

    for (uint32_t r = 0; holds && r < m->n_rows; r += NW_PANEL_ROWS) {
        const uint32_t left = m->n_rows - r;
        holds = nw_quant_pack_panel(m, t, r, left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS, panel,
                                    scratch);
    }
    free(scratch);
    free(panel);
    return holds;
}
