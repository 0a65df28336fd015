/* Blocks into panels: each format fills the same plain rows of codes and scales, block by block, and
 * one of the panel packers takes them (see repack.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/repack.h"

#include <assert.h>
#include <string.h>

#include "formats/block_parts.h"

/* 16 rows in the plain form of the packers, [16][...]; which parts are used depends on the format. */
typedef struct {
    uint8_t *codes;             /* [n_cols] */
    uint16_t *scale, *min;      /* fp16 bits, [blocks] */
    uint8_t *small, *small_min; /* E4M3, E8M0 or six-bit scales [scales of a row] */
    size_t ld, ld_block, ld_small;
} plain;

/* One block of row r into `p`: codes from column c on, scales at block b. False: not exact. */
typedef bool (*take_fn)(const uint8_t *src, const plain *p, size_t r, size_t b);

static uint8_t *codes_at(const plain *p, size_t r, size_t b, size_t elems)
{
    return p->codes + r * p->ld + b * elems;
}

static bool finite_half(uint16_t h)
{
    return (h & 0x7C00U) != 0x7C00U;
}

static bool take_half(const uint8_t *src, uint16_t *to)
{
    *to = nw_le16(src);
    return finite_half(*to);
}

static bool take_scale(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    return take_half(src, &p->scale[r * p->ld_block + b]);
}

static bool take_min(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    return take_half(src, &p->min[r * p->ld_block + b]);
}

static bool take_q4_0(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    nw_nibbles(src + 2, codes_at(p, r, b, NW_BLOCK));
    return take_scale(src, p, r, b);
}

static bool take_q4_1(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    nw_nibbles(src + 4, codes_at(p, r, b, NW_BLOCK));
    return take_scale(src, p, r, b) && take_min(src + 2, p, r, b);
}

static bool take_q5_0(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    uint8_t *q = codes_at(p, r, b, NW_BLOCK);

    nw_codes5(src + 2, q);
    for (int j = 0; j < NW_BLOCK; j++) {
        q[j] = (uint8_t)(q[j] - 16);
    }
    return take_scale(src, p, r, b);
}

static bool take_q5_1(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    nw_codes5(src + 4, codes_at(p, r, b, NW_BLOCK));
    return take_scale(src, p, r, b) && take_min(src + 2, p, r, b);
}

static bool take_q8_0(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    memcpy(codes_at(p, r, b, NW_BLOCK), src + 2, NW_BLOCK);
    return take_scale(src, p, r, b);
}

static bool take_iq4_nl(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    uint8_t *q = codes_at(p, r, b, NW_BLOCK);

    nw_nibbles(src + 2, q);
    for (int j = 0; j < NW_BLOCK; j++) {
        q[j] = (uint8_t)nw_iq4_nl_levels[q[j]];
    }
    return take_scale(src, p, r, b);
}

static bool take_k45(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    for (int s = 0; s < NW_SUPER / NW_BLOCK; s++) {
        const size_t at = r * p->ld_small + b * (NW_SUPER / NW_BLOCK) + (size_t)s;
        nw_k_scale(src + 4, s, &p->small[at], &p->small_min[at]);
    }
    return take_scale(src, p, r, b) && take_min(src + 2, p, r, b);
}

static bool take_q4_k(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    nw_k45_codes(NULL, src + 16, codes_at(p, r, b, NW_SUPER));
    return take_k45(src, p, r, b);
}

static bool take_q5_k(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    nw_k45_codes(src + 16, src + 48, codes_at(p, r, b, NW_SUPER));
    return take_k45(src, p, r, b);
}

static bool take_q6_k(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    nw_k6_codes(src, src + 128, (int8_t *)codes_at(p, r, b, NW_SUPER));
    memcpy(p->small + r * p->ld_small + b * 16, src + 192, 16);
    return take_scale(src + 208, p, r, b);
}

/* GGUF has no negative zero: its code is taken as that of zero. */
static void no_minus_zero(uint8_t *q, int n)
{
    for (int j = 0; j < n; j++) {
        q[j] = q[j] == 8 ? 0 : q[j];
    }
}

static bool take_mxfp4(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    uint8_t *q = codes_at(p, r, b, NW_BLOCK);

    nw_nibbles(src + 1, q);
    no_minus_zero(q, NW_BLOCK);
    p->small[r * p->ld_small + b] = src[0];
    return src[0] <= 252; /* 6 * 2^(252 - 127) is the largest that is finite */
}

static bool take_nvfp4(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    bool exact = true;

    for (size_t s = 0; s < 4; s++) {
        uint8_t *q = codes_at(p, r, b, NW_NVFP4_BLOCK) + s * NW_NVFP4_GROUP;
        for (size_t j = 0; j < 8; j++) {
            q[j] = src[4 + 8 * s + j] & 15U;
            q[j + 8] = src[4 + 8 * s + j] >> 4;
        }
        no_minus_zero(q, NW_NVFP4_GROUP);
        p->small[r * p->ld_small + b * 4 + s] = src[s] == 0x7F ? 0 : src[s] & 0x7FU;
        exact = exact && src[s] != 0xFF;
    }
    return exact;
}

/* Rows of single values are taken whole, p->ld of them. */
static bool take_e4m3(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    unsigned n_bad = 0;

    for (size_t c = 0; c < p->ld; c++) {
        n_bad += (src[c] & 0x7FU) == 0x7FU;
    }
    memcpy(codes_at(p, r, b, 1), src, p->ld);
    return n_bad == 0;
}

static bool take_e5m2(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    unsigned n_bad = 0;

    for (size_t c = 0; c < p->ld; c++) {
        n_bad += (src[c] & 0x7CU) == 0x7CU;
    }
    memcpy(codes_at(p, r, b, 1), src, p->ld);
    return n_bad == 0;
}

static bool take_bf16(const uint8_t *src, const plain *p, size_t r, size_t b)
{
    uint16_t *row = &p->scale[r * p->ld_block + b];
    unsigned n_bad = 0;

    for (size_t c = 0; c < p->ld; c++) {
        row[c] = nw_le16(src + 2 * c);
        n_bad += (row[c] & 0x7F80U) == 0x7F80U;
    }
    return n_bad == 0;
}

static const struct row {
    nw_format_id format;
    nw_panel_type type;
    take_fn take;
    uint32_t n_small; /* small scales of a block */
} rows_of[] = {
    {NW_FMT_BF16, {.kind = NW_PANEL_BF16}, take_bf16, 0},
    {NW_FMT_Q4_0, {.kind = NW_PANEL_INT4, .group = 32}, take_q4_0, 0},
    {NW_FMT_Q4_1, {.kind = NW_PANEL_INT4, .group = 32, .min = true}, take_q4_1, 0},
    {NW_FMT_Q5_0, {.kind = NW_PANEL_INT8, .group = 32}, take_q5_0, 0},
    {NW_FMT_Q5_1, {.kind = NW_PANEL_INT8, .group = 32, .min = true}, take_q5_1, 0},
    {NW_FMT_Q8_0, {.kind = NW_PANEL_INT8, .group = 32}, take_q8_0, 0},
    {NW_FMT_IQ4_NL, {.kind = NW_PANEL_INT8, .group = 32}, take_iq4_nl, 0},
    {NW_FMT_Q4_K,
     {.kind = NW_PANEL_INT4, .group = 32, .min = true, .two_level = true},
     take_q4_k,
     8},
    {NW_FMT_Q5_K,
     {.kind = NW_PANEL_INT8, .group = 32, .min = true, .two_level = true},
     take_q5_k,
     8},
    {NW_FMT_Q6_K, {.kind = NW_PANEL_INT8, .group = 16, .two_level = true}, take_q6_k, 16},
    {NW_FMT_MXFP4, {.kind = NW_PANEL_MXFP4, .group = 32}, take_mxfp4, 1},
    {NW_FMT_NVFP4, {.kind = NW_PANEL_NVFP4, .group = 16}, take_nvfp4, 4},
    {NW_FMT_F8_E4M3, {.kind = NW_PANEL_FP8_E4M3}, take_e4m3, 0},
    {NW_FMT_F8_E5M2, {.kind = NW_PANEL_FP8_E5M2}, take_e5m2, 0},
};

static const struct row *row_of(nw_format_id format)
{
    for (size_t i = 0; i < NW_COUNT(rows_of); i++) {
        if (rows_of[i].format == format) {
            return &rows_of[i];
        }
    }
    return NULL;
}

bool nw_repack_type(nw_format_id format, nw_panel_type *out)
{
    const struct row *row = row_of(format);

    if (row != NULL) {
        *out = row->type;
    }
    return row != NULL;
}

/* Splits scratch; scales first, for their alignment. */
static plain layout(const struct row *row, uint32_t n_cols, void *scratch)
{
    const uint32_t elems = nw_format_get(row->format)->block_elems;
    plain p = {.ld = n_cols, .ld_block = n_cols / elems};

    p.ld_small = p.ld_block * row->n_small;
    p.scale = scratch;
    p.min = p.scale + NW_PANEL_ROWS * p.ld_block;
    p.small = (uint8_t *)(p.min + NW_PANEL_ROWS * p.ld_block);
    p.small_min = p.small + NW_PANEL_ROWS * p.ld_small;
    p.codes = p.small_min + NW_PANEL_ROWS * p.ld_small;
    return p;
}

size_t nw_repack_scratch_bytes(nw_format_id format, uint32_t n_cols)
{
    const struct row *row = row_of(format);
    const size_t n_blocks = n_cols / nw_format_get(format)->block_elems;

    assert(row != NULL);
    return NW_PANEL_ROWS * (n_blocks * (2 * sizeof(uint16_t) + 2 * row->n_small) + n_cols);
}

static void pack_int(nw_panel_type t, const plain *p, uint32_t n_rows, uint32_t n_cols,
                     uint8_t *panel)
{
    if (t.two_level) {
        const nw_panel_k_rows k = {.codes = p->codes,
                                   .ld = p->ld,
                                   .d = p->scale,
                                   .dmin = t.min ? p->min : NULL,
                                   .ld_block = p->ld_block,
                                   .scales = (const int8_t *)p->small,
                                   .mins = t.min ? p->small_min : NULL,
                                   .lds = p->ld_small};
        nw_panel_pack_k(t, &k, n_rows, n_cols, panel);
    } else if (t.kind == NW_PANEL_INT8) {
        nw_panel_pack_int8_groups(t, (const int8_t *)p->codes, p->ld, p->scale,
                                  t.min ? p->min : NULL, NULL, p->ld_block, n_rows, n_cols, panel);
    } else if (t.min) {
        nw_panel_pack_int4_min(t, p->codes, p->ld, p->scale, p->min, p->ld_block, n_rows, n_cols,
                               panel);
    } else {
        nw_panel_pack_int4(t, p->codes, p->ld, p->scale, NULL, p->ld_block, n_rows, n_cols, panel);
    }
}

static void pack(nw_panel_type t, const plain *p, uint32_t n_rows, uint32_t n_cols, uint8_t *panel)
{
    static const float ones[NW_PANEL_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

    if (t.kind == NW_PANEL_BF16) {
        nw_panel_pack_bf16(p->scale, p->ld_block, n_rows, n_cols, panel);
    } else if (t.kind == NW_PANEL_NVFP4) {
        nw_panel_pack_nvfp4(p->codes, p->ld, p->small, p->ld_small, 1, n_rows, n_cols, panel);
    } else if (t.kind == NW_PANEL_MXFP4) {
        nw_panel_pack_mxfp4(p->codes, p->ld, p->small, p->ld_small, n_rows, n_cols, panel);
    } else if (t.kind == NW_PANEL_FP8_E4M3 || t.kind == NW_PANEL_FP8_E5M2) {
        nw_panel_pack_fp8(t, p->codes, p->ld, ones, n_rows, n_cols, panel);
    } else {
        pack_int(t, p, n_rows, n_cols, panel);
    }
}

bool nw_repack_panel(nw_format_id format, const uint8_t *const *rows, uint32_t n_rows,
                     uint32_t n_cols, uint8_t *panel, void *scratch, uint32_t *bad_row)
{
    const struct row *row = row_of(format);
    const nw_format *f = nw_format_get(format);

    assert(row != NULL && n_rows <= NW_PANEL_ROWS && n_cols % f->block_elems == 0);
    const plain p = layout(row, n_cols, scratch);
    for (uint32_t r = 0; r < n_rows; r++) {
        bool exact = true;
        for (size_t b = 0; b < (f->block_elems > 1 ? p.ld_block : 1); b++) {
            exact = row->take(rows[r] + b * f->block_bytes, &p, r, b) && exact;
        }
        if (!exact) {
            *bad_row = r;
            return false;
        }
    }
    pack(row->type, &p, n_rows, n_cols, panel);
    return true;
}
