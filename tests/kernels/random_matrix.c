/* One packer a layout, fed with random codes and scales; see random_matrix.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "random_matrix.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/bf16_12.h"
#include "formats/half.h"

static void *array(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (p == NULL) {
        perror("calloc");
        abort();
    }
    return p;
}

static uint32_t rows_of(const nw_random_matrix *m, uint32_t p)
{
    const uint32_t left = m->n_rows - p * NW_PANEL_ROWS;
    return left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS;
}

static nw_rng rng_of(const nw_random_matrix *m, uint32_t p)
{
    return nw_rng_seed(m->seed * 1000003U + p);
}

static float unit_of(nw_content c)
{
    return c == NW_TINY ? 0x1p-135F : 0.02F;
}

/* ---- values ---- */

static float *values(const nw_random_matrix *m, uint32_t p)
{
    const size_t n = (size_t)rows_of(m, p) * m->n_cols;
    float *w = array(n, sizeof *w);
    nw_rng rng = rng_of(m, p);

    for (size_t i = 0; i < n; i++) {
        w[i] = unit_of(m->content) * (float)nw_rng_normal(&rng);
        if (m->content == NW_WILD && nw_rng_below(&rng, 400) == 0) {
            w[i] = ldexpf(w[i], 10 + (int)nw_rng_below(&rng, 60));
        }
    }
    return w;
}

static uint16_t *halves(const nw_random_matrix *m, uint32_t p)
{
    const size_t n = (size_t)rows_of(m, p) * m->n_cols;
    uint16_t *h = array(n, sizeof *h);
    float *w = values(m, p);

    for (size_t i = 0; i < n; i++) {
        h[i] = nw_bf16_from_f32(w[i]);
    }
    free(w);
    return h;
}

static void find_escapes(nw_random_matrix *m)
{
    nw_exponent_counts counts = {0};
    uint32_t most = 0;

    for (uint32_t p = 0; p < nw_panel_count(m->n_rows); p++) {
        uint16_t *h = halves(m, p);
        nw_exponent_count(&counts, h, (size_t)rows_of(m, p) * m->n_cols);
        free(h);
    }
    nw_bf16_12_table(&counts, m->exponents);
    for (uint32_t p = 0; p < nw_panel_count(m->n_rows); p++) {
        uint16_t *h = halves(m, p);
        const uint32_t n = nw_bf16_12_count(m->exponents, h, m->n_cols, rows_of(m, p), m->n_cols);
        most = n > most ? n : most;
        free(h);
    }
    /* tests want more escapes than the packer of a real tensor accepts, and none as well */
    const uint32_t lines = most / 8 * 8 + 7;
    m->type.escapes = (uint16_t)(most == 0 ? 0 : most <= NW_BF16_12_FEW ? NW_BF16_12_FEW : lines);
}

nw_random_matrix nw_random_matrix_of(nw_panel_type type, nw_content content, uint32_t n_rows,
                                     uint32_t n_cols, uint64_t seed)
{
    nw_random_matrix m = {
        .type = type, .content = content, .n_rows = n_rows, .n_cols = n_cols, .seed = seed};

    if (type.kind == NW_PANEL_BF16_12) {
        find_escapes(&m);
    }
    return m;
}

/* ---- codes and scales ---- */

/* A code of `bits` bits, or one of the two given. */
static uint8_t code(nw_content c, unsigned bits, unsigned low, unsigned high, nw_rng *rng)
{
    const unsigned any = (unsigned)nw_rng_below(rng, 1U << bits);
    return (uint8_t)(c != NW_CORNERS ? any : any & 1 ? high : low);
}

static uint8_t *codes_of(const nw_random_matrix *m, uint32_t p, unsigned bits, unsigned low,
                         unsigned high, nw_rng *rng)
{
    const size_t n = (size_t)rows_of(m, p) * m->n_cols;
    uint8_t *codes = array(n, 1);

    for (size_t i = 0; i < n; i++) {
        codes[i] = m->content == NW_FULL ? (uint8_t)(i / m->n_cols % 2 ? low : high)
                                         : code(m->content, bits, low, high, rng);
    }
    return codes;
}

/* fp16 bits: subnormal below 0x400, around 0.01 from 0x2000 on. */
static uint16_t *fp16_of(size_t n, nw_content c, unsigned sign, nw_rng *rng)
{
    uint16_t *h = array(n, sizeof *h);

    for (size_t i = 0; i < n; i++) {
        const unsigned any = (unsigned)nw_rng_below(rng, 0x3FF);
        h[i] = (uint16_t)(sign | (c == NW_TINY ? any + 1 : 0x2000 + any));
    }
    return h;
}

static uint8_t *bytes_of(size_t n, unsigned least, unsigned most, nw_rng *rng)
{
    uint8_t *b = array(n, 1);

    for (size_t i = 0; i < n; i++) {
        b[i] = (uint8_t)(least + nw_rng_below(rng, most - least + 1));
    }
    return b;
}

static void pack_int8(const nw_random_matrix *m, uint32_t p, nw_rng *rng, uint8_t *panel)
{
    const uint32_t n = rows_of(m, p);
    const uint32_t groups = nw_panel_groups(m->type, m->n_cols);
    int8_t *codes = (int8_t *)codes_of(m, p, 8, 0x80, 0x7F, rng);
    float scales[NW_PANEL_ROWS];

    if (m->type.group == 0) {
        for (uint32_t r = 0; r < n; r++) {
            scales[r] = unit_of(m->content) * (1 + (float)nw_rng_unit(rng));
        }
        nw_panel_pack_int8(codes, m->n_cols, scales, n, m->n_cols, panel);
    } else {
        uint16_t *s = fp16_of((size_t)n * groups, m->content, 0, rng);
        uint16_t *mins = fp16_of((size_t)n * groups, m->content, 0x8000, rng);
        int8_t *zeros = (int8_t *)bytes_of((size_t)n * groups, 0, 255, rng);
        nw_panel_pack_int8_groups(m->type, codes, m->n_cols, s, m->type.min ? mins : NULL,
                                  m->type.zero_point ? zeros : NULL, groups, n, m->n_cols, panel);
        free(s);
        free(mins);
        free(zeros);
    }
    free(codes);
}

static void pack_int4(const nw_random_matrix *m, uint32_t p, nw_rng *rng, uint8_t *panel)
{
    const uint32_t n = rows_of(m, p);
    const uint32_t groups = nw_panel_groups(m->type, m->n_cols);
    uint8_t *codes = codes_of(m, p, 4, 0, 15, rng);
    uint16_t *s = fp16_of((size_t)n * groups, m->content, 0, rng);
    uint16_t *mins = fp16_of((size_t)n * groups, m->content, 0x8000, rng);
    uint8_t *zeros = bytes_of((size_t)n * groups, 0, 15, rng);

    if (m->type.min) {
        nw_panel_pack_int4_min(m->type, codes, m->n_cols, s, mins, groups, n, m->n_cols, panel);
    } else {
        nw_panel_pack_int4(m->type, codes, m->n_cols, s, m->type.zero_point ? zeros : NULL, groups,
                           n, m->n_cols, panel);
    }
    free(codes);
    free(s);
    free(mins);
    free(zeros);
}

static void pack_k(const nw_random_matrix *m, uint32_t p, nw_rng *rng, uint8_t *panel)
{
    const uint32_t n = rows_of(m, p);
    const uint32_t groups = m->n_cols / m->type.group;
    const uint32_t blocks = m->n_cols / NW_PANEL_K_COLS;
    const bool int4 = m->type.kind == NW_PANEL_INT4;
    const bool mins = int4 || m->type.group == 32;
    uint8_t *codes = int4 ? codes_of(m, p, 4, 0, 15, rng) : codes_of(m, p, 5, 0, 31, rng);
    uint16_t *d = fp16_of((size_t)n * blocks, m->content, 0, rng);
    uint16_t *dmin = fp16_of((size_t)n * blocks, m->content, 0, rng);
    uint8_t *scales = bytes_of((size_t)n * groups, 0, mins ? 63 : 255, rng);
    uint8_t *m6 = bytes_of((size_t)n * groups, 0, 63, rng);
    const nw_panel_k_rows rows = {.codes = codes,
                                  .ld = m->n_cols,
                                  .d = d,
                                  .dmin = mins ? dmin : NULL,
                                  .ld_block = blocks,
                                  .scales = (const int8_t *)scales,
                                  .mins = mins ? m6 : NULL,
                                  .lds = groups};

    nw_panel_pack_k(m->type, &rows, n, m->n_cols, panel);
    free(codes);
    free(d);
    free(dmin);
    free(scales);
    free(m6);
}

/* Finite codes: E4M3 up to 0x7E, E5M2 up to 0x7B, either sign. */
static void pack_fp8(const nw_random_matrix *m, uint32_t p, nw_rng *rng, uint8_t *panel)
{
    const uint32_t n = rows_of(m, p);
    const unsigned top = m->type.kind == NW_PANEL_FP8_E4M3 ? 0x7E : 0x7B;
    uint8_t *codes = codes_of(m, p, 8, top, 0x80 | top, rng);
    float scales[NW_PANEL_ROWS];

    for (size_t i = 0; i < (size_t)n * m->n_cols; i++) {
        if ((codes[i] & 0x7FU) > top) {
            codes[i] &= 0x87U; /* subnormal */
        }
    }
    for (uint32_t r = 0; r < n; r++) {
        scales[r] = unit_of(m->content) * (1 + (float)nw_rng_unit(rng));
    }
    nw_panel_pack_fp8(m->type, codes, m->n_cols, scales, n, m->n_cols, panel);
    free(codes);
}

static void pack_fp4(const nw_random_matrix *m, uint32_t p, nw_rng *rng, uint8_t *panel)
{
    const uint32_t n = rows_of(m, p);
    const uint32_t block = m->type.kind == NW_PANEL_NVFP4 ? 16 : 32;
    const size_t blocks = (m->n_cols + block - 1) / block;
    const unsigned middle = block == 16 ? 0x40 : 120;
    const unsigned spread = m->content == NW_CORNERS && block == 16 ? 0x3E : 8;
    uint8_t *codes = codes_of(m, p, 4, 7, 15, rng);
    uint8_t *scales = m->content == NW_TINY ? bytes_of(n * blocks, 0, 7, rng)
                                            : bytes_of(n * blocks, middle, middle + spread, rng);

    if (block == 16) {
        nw_panel_pack_nvfp4(codes, m->n_cols, scales, blocks, unit_of(m->content), n, m->n_cols,
                            panel);
    } else {
        nw_panel_pack_mxfp4(codes, m->n_cols, scales, blocks, n, m->n_cols, panel);
    }
    free(codes);
    free(scales);
}

static void pack_bf16_12(const nw_random_matrix *m, uint32_t p, uint8_t *panel)
{
    uint16_t *h = halves(m, p);
    const bool fits =
        nw_panel_pack_bf16_12(m->type, m->exponents, h, m->n_cols, rows_of(m, p), m->n_cols, panel);
    assert(fits);
    (void)fits;
    free(h);
}

static void pack_plain(const nw_random_matrix *m, uint32_t p, uint8_t *panel)
{
    if (m->type.kind == NW_PANEL_F32) {
        float *w = values(m, p);
        nw_panel_pack_f32(w, m->n_cols, rows_of(m, p), m->n_cols, panel);
        free(w);
    } else {
        uint16_t *h = halves(m, p);
        nw_panel_pack_bf16(h, m->n_cols, rows_of(m, p), m->n_cols, panel);
        free(h);
    }
}

void nw_random_panel(const nw_random_matrix *m, uint32_t p, uint8_t *panel)
{
    nw_rng rng = rng_of(m, p);

    if (m->type.two_level) {
        pack_k(m, p, &rng, panel);
        return;
    }
    switch (m->type.kind) {
    case NW_PANEL_INT8:
        pack_int8(m, p, &rng, panel);
        return;
    case NW_PANEL_INT4:
        pack_int4(m, p, &rng, panel);
        return;
    case NW_PANEL_FP8_E4M3:
    case NW_PANEL_FP8_E5M2:
        pack_fp8(m, p, &rng, panel);
        return;
    case NW_PANEL_NVFP4:
    case NW_PANEL_MXFP4:
        pack_fp4(m, p, &rng, panel);
        return;
    case NW_PANEL_BF16_12:
        pack_bf16_12(m, p, panel);
        return;
    case NW_PANEL_F32:
    case NW_PANEL_BF16:
    case NW_PANEL_KINDS:
        break;
    }
    pack_plain(m, p, panel);
}
