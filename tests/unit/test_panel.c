/* Panels: bytes written by hand, and unpack(pack(x)) == x for every type at odd
 * shapes, where the padding must stand for zeros.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "formats/bf16_12.h"
#include "formats/fp4.h"
#include "formats/fp8.h"
#include "formats/panel.h"
#include "table.h"

/* Tails of 1 to 17 rows and odd columns. */
static struct shape_row {
    const char *name;
    const char *type;
    uint32_t n_rows, n_cols;
} shape_rows[] = {
    {"f32_16x7", "f32", 16, 7},
    {"f32_3x1", "f32", 3, 1},
    {"bf16_16x9", "bf16", 16, 9},
    {"bf16_1x2", "bf16", 1, 2},
    {"int8_16x13", "int8", 16, 13},
    {"int8_5x130", "int8", 5, 130},
    {"int8_g16_16x33", "int8-g16", 16, 33},
    {"int8_g32_4x31", "int8-g32", 4, 31},
    {"int8_g64_16x100", "int8-g64", 16, 100},
    {"int8_g128_2x300", "int8-g128", 2, 300},
    {"int8_g16_zp_16x33", "int8-g16-zp", 16, 33},
    {"int8_g32_zp_3x64", "int8-g32-zp", 3, 64},
    {"int8_g64_zp_16x65", "int8-g64-zp", 16, 65},
    {"int8_g128_zp_7x300", "int8-g128-zp", 7, 300},
    {"int8_g16_min_15x47", "int8-g16-min", 15, 47},
    {"int8_g32_min_16x65", "int8-g32-min", 16, 65},
    {"int8_g64_min_1x1", "int8-g64-min", 1, 1},
    {"int8_g128_min_9x257", "int8-g128-min", 9, 257},
    {"int4_g16_16x33", "int4-g16", 16, 33},
    {"int4_g16_zp_5x50", "int4-g16-zp", 5, 50},
    {"int4_g16_min_16x17", "int4-g16-min", 16, 17},
    {"int4_g256_16x300", "int4-g256", 16, 300},
    {"int4_row_g32_zp_9x96", "int4-row-g32-zp", 9, 96},
    {"int8_tensor_zp_16x130", "int8-tensor-zp", 16, 130},
    {"int4_g32_16x33", "int4-g32", 16, 33},
    {"int4_g64_7x100", "int4-g64", 7, 100},
    {"int4_g128_16x300", "int4-g128", 16, 300},
    {"int4_g32_zp_16x33", "int4-g32-zp", 16, 33},
    {"int4_g64_zp_2x64", "int4-g64-zp", 2, 64},
    {"int4_g128_zp_16x129", "int4-g128-zp", 16, 129},
    {"int4_g32_min_16x33", "int4-g32-min", 16, 33},
    {"int4_g64_min_3x100", "int4-g64-min", 3, 100},
    {"int4_g128_min_16x300", "int4-g128-min", 16, 300},
    {"int4_g32_k_16x512", "int4-g32-k", 16, 512},
    {"int8_g32_k_5x256", "int8-g32-k", 5, 256},
    {"int8_g16_k_13x512", "int8-g16-k", 13, 512},
    {"fp8_e4m3_16x13", "fp8-e4m3", 16, 13},
    {"fp8_e5m2_3x64", "fp8-e5m2", 3, 64},
    {"nvfp4_16x64", "nvfp4", 16, 64},
    {"nvfp4_11x49", "nvfp4", 11, 49},
    {"nvfp4_1x15", "nvfp4", 1, 15},
    {"mxfp4_16x64", "mxfp4", 16, 64},
    {"mxfp4_6x33", "mxfp4", 6, 33},
    {"bf16_12_16x9", "bf16-12-e65535", 16, 9},
    {"bf16_12_7x64", "bf16-12-e65535", 7, 64},
};

#define COLS   512
#define GROUPS (COLS / 16)

typedef struct {
    float f[16][COLS];
    uint16_t h[16][COLS];
    uint8_t u[16][COLS]; /* codes of 8 bits, as they are or their low four */
    float scales[16];
    uint16_t halves[16][GROUPS], mins[16][GROUPS];
    uint8_t zeros[16][GROUPS], ue4m3[16][GROUPS], e8m0[16][GROUPS];
    int8_t k_scales[16][GROUPS], zeros8[16][GROUPS];
    uint8_t k_mins[16][GROUPS];
    uint8_t exponents[16];
    _Alignas(64) uint8_t panel[16 * COLS * 4 + 65536 * 8];
} content;

static void fill(content *c, uint64_t seed)
{
    nw_rng rng = nw_rng_seed(seed);

    for (size_t r = 0; r < 16; r++) {
        c->scales[r] = (float)nw_rng_normal(&rng);
        c->exponents[r] = (uint8_t)(120 + r);
        for (size_t k = 0; k < COLS; k++) {
            c->f[r][k] = (float)nw_rng_normal(&rng);
            /* any finite bfloat16, most of them escapes of the 12-bit form */
            c->h[r][k] = (uint16_t)(nw_rng_below(&rng, 0x7F80) | nw_rng_below(&rng, 2) << 15);
            c->u[r][k] = (uint8_t)nw_rng_below(&rng, 256);
        }
        for (size_t g = 0; g < GROUPS; g++) {
            c->halves[r][g] = (uint16_t)nw_rng_below(&rng, 0x7C00); /* any finite, subnormals too */
            c->mins[r][g] = (uint16_t)(nw_rng_below(&rng, 0x7C00) | 0x8000U);
            c->zeros[r][g] = (uint8_t)nw_rng_below(&rng, 16);
            c->zeros8[r][g] = (int8_t)((int)nw_rng_below(&rng, 256) - 128);
            c->ue4m3[r][g] = (uint8_t)nw_rng_below(&rng, 0x7F);
            c->e8m0[r][g] = (uint8_t)nw_rng_below(&rng, 253); /* 6 * 2^125 is finite */
            c->k_scales[r][g] = (int8_t)((int)nw_rng_below(&rng, 256) - 128);
            c->k_mins[r][g] = (uint8_t)nw_rng_below(&rng, 64);
        }
    }
}

#define TENSOR_SCALE 0.37F

/* No two-level layout and no bf16-12. */
static void pack_groups(content *c, nw_panel_type t, uint32_t n_rows, uint32_t n_cols)
{
    const uint16_t *mins = t.min ? c->mins[0] : NULL;

    if (t.kind == NW_PANEL_INT8) {
        nw_panel_pack_int8_groups(t, (int8_t *)c->u[0], COLS, c->halves[0], mins,
                                  t.zero_point ? c->zeros8[0] : NULL, GROUPS, n_rows, n_cols,
                                  c->panel);
    } else if (t.min) {
        nw_panel_pack_int4_min(t, c->u[0], COLS, c->halves[0], mins, GROUPS, n_rows, n_cols,
                               c->panel);
    } else {
        nw_panel_pack_int4(t, c->u[0], COLS, c->halves[0], t.zero_point ? c->zeros[0] : NULL,
                           GROUPS, n_rows, n_cols, c->panel);
    }
}

static void pack_k(content *c, nw_panel_type t, uint32_t n_rows, uint32_t n_cols)
{
    const nw_panel_k_rows k = {.codes = c->u[0],
                               .ld = COLS,
                               .d = c->halves[0],
                               .dmin = t.min ? c->mins[0] : NULL,
                               .ld_block = GROUPS,
                               .scales = c->k_scales[0],
                               .mins = t.min ? c->k_mins[0] : NULL,
                               .lds = GROUPS};
    nw_panel_pack_k(t, &k, n_rows, n_cols, c->panel);
}

static void pack(content *c, nw_panel_type t, uint32_t n_rows, uint32_t n_cols)
{
    memset(c->panel, 0xEE, sizeof c->panel);
    if (t.kind == NW_PANEL_F32) {
        nw_panel_pack_f32(c->f[0], COLS, n_rows, n_cols, c->panel);
    } else if (t.kind == NW_PANEL_BF16) {
        nw_panel_pack_bf16(c->h[0], COLS, n_rows, n_cols, c->panel);
    } else if (t.kind == NW_PANEL_BF16_12) {
        assert_true(
            nw_panel_pack_bf16_12(t, c->exponents, c->h[0], COLS, n_rows, n_cols, c->panel));
    } else if (t.kind == NW_PANEL_FP8_E4M3 || t.kind == NW_PANEL_FP8_E5M2) {
        nw_panel_pack_fp8(t, c->u[0], COLS, c->scales, n_rows, n_cols, c->panel);
    } else if (t.kind == NW_PANEL_NVFP4) {
        nw_panel_pack_nvfp4(c->u[0], COLS, c->ue4m3[0], GROUPS, TENSOR_SCALE, n_rows, n_cols,
                            c->panel);
    } else if (t.kind == NW_PANEL_MXFP4) {
        nw_panel_pack_mxfp4(c->u[0], COLS, c->e8m0[0], GROUPS, n_rows, n_cols, c->panel);
    } else if (t.two_level) {
        pack_k(c, t, n_rows, n_cols);
    } else if (t.group > 0) {
        pack_groups(c, t, n_rows, n_cols);
    } else {
        nw_panel_pack_int8((int8_t *)c->u[0], COLS, c->scales, n_rows, n_cols, c->panel);
    }
}

static float half(uint16_t h)
{
    return nw_f16_to_f32(h);
}

/* What a row stores for its group g, from the content: by the formulas of panel.h. */
static float scale_of(const content *c, nw_panel_type t, size_t r, size_t g)
{
    if (t.two_level) {
        return half(c->halves[r][g * t.group / 256]) * (float)c->k_scales[r][g];
    }
    if (t.kind == NW_PANEL_NVFP4) {
        return nw_e4m3_to_f32(c->ue4m3[r][g]);
    }
    if (t.kind == NW_PANEL_MXFP4) {
        return nw_e8m0_to_f32(c->e8m0[r][g]);
    }
    return t.group == 0 ? c->scales[r] : half(c->halves[r][g]);
}

static float min_of(const content *c, nw_panel_type t, size_t r, size_t g)
{
    if (t.two_level && t.min) {
        return -(half(c->mins[r][g * t.group / 256]) * (float)c->k_mins[r][g]);
    }
    return t.min ? half(c->mins[r][g]) : 0;
}

static int zero_of(const content *c, nw_panel_type t, size_t r, size_t g)
{
    if (t.kind == NW_PANEL_INT8 || t.min) {
        return t.zero_point ? c->zeros8[r][g] : 0;
    }
    return t.zero_point ? c->zeros[r][g] : 8;
}

static int8_t code_of(const content *c, nw_panel_type t, size_t r, size_t k)
{
    return (int8_t)(nw_panel_code_bits(t) == 4 ? c->u[r][k] & 15 : c->u[r][k]);
}

/* Of the layouts with codes. */
static float coded(const content *c, nw_panel_type t, size_t r, size_t k)
{
    const size_t g = t.group > 0 ? k / t.group : 0;
    const int8_t code = code_of(c, t, r, k);
    const float scale = scale_of(c, t, r, g);

    if (t.kind == NW_PANEL_FP8_E4M3) {
        return scale * nw_e4m3_to_f32((uint8_t)code);
    }
    if (t.kind == NW_PANEL_FP8_E5M2) {
        return scale * nw_e5m2_to_f32((uint8_t)code);
    }
    if (t.kind == NW_PANEL_NVFP4) {
        return TENSOR_SCALE * (nw_e2m1_to_f32((uint8_t)code) * scale);
    }
    if (t.kind == NW_PANEL_MXFP4) {
        return nw_e2m1_to_f32((uint8_t)code) * scale;
    }
    return scale * (float)(code - zero_of(c, t, r, g)) + min_of(c, t, r, g);
}

static float expected(const content *c, nw_panel_type t, size_t r, size_t k)
{
    if (t.kind == NW_PANEL_F32) {
        return c->f[r][k];
    }
    if (t.kind == NW_PANEL_BF16 || t.kind == NW_PANEL_BF16_12) {
        return nw_bf16_to_f32(c->h[r][k]);
    }
    return coded(c, t, r, k);
}

static bool same(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* What padding decodes to in row r: 0, or the minimum of a group that begins inside the matrix. */
static float padding(const content *c, nw_panel_type t, const struct shape_row *s, size_t r,
                     size_t k)
{
    return t.min && r < s->n_rows ? min_of(c, t, r, k / t.group) : 0;
}

static void check_panel(const struct shape_row *s, uint64_t seed)
{
    content *c = calloc(1, sizeof *c);
    nw_panel_type type = {0};
    float row[COLS];
    float span[COLS];
    size_t bytes = 0;

    assert_non_null(c);
    assert_true(nw_panel_parse(s->type, &type));
    assert_true(nw_panel_bytes(type, s->n_cols, &bytes));
    fill(c, seed);
    pack(c, type, s->n_rows, s->n_cols);
    assert_int_equal(c->panel[bytes], 0xEE);
    for (uint32_t r = 0; r < 16; r++) {
        const uint32_t cols = nw_panel_cols(type, s->n_cols);
        const uint32_t from = s->n_cols / 3;
        nw_panel_unpack_row(type, c->panel, s->n_cols, r, row);
        for (uint32_t k = 0; k < s->n_cols; k++) {
            assert_true(same(row[k], r < s->n_rows ? expected(c, type, r, k) : 0));
        }
        nw_panel_unpack_span(type, c->panel, s->n_cols, r, from, s->n_cols - from, span);
        assert_memory_equal(span, row + from, (s->n_cols - from) * sizeof *row);
        nw_panel_unpack_span(type, c->panel, s->n_cols, r, s->n_cols, cols - s->n_cols, row);
        for (uint32_t k = s->n_cols; k < cols; k++) {
            assert_true(row[k - s->n_cols] == padding(c, type, s, r, k));
        }
    }
    free(c);
}

static void round_trip(void **state)
{
    const struct shape_row *s = *state;
    check_panel(s, s->n_cols);
}

/* Of every layout, shapes drawn at random. */
static void round_trip_of_random_shapes(void **state)
{
    const struct shape_row *s = *state;
    nw_rng rng = nw_rng_seed(s->n_cols * 17 + s->n_rows);
    nw_panel_type type = {0};

    assert_true(nw_panel_parse(s->type, &type));
    for (uint64_t i = 0; i < 8; i++) {
        struct shape_row drawn = *s;
        drawn.n_rows = 1 + (uint32_t)nw_rng_below(&rng, 16);
        drawn.n_cols = type.two_level ? 256 + 256 * (uint32_t)nw_rng_below(&rng, 2)
                                      : 1 + (uint32_t)nw_rng_below(&rng, COLS - 128);
        check_panel(&drawn, 100 + i);
    }
}

/* Rows 16 and on are in the panels that follow. */
static void rows_of_later_panels(void **state)
{
    const struct shape_row *s = *state;
    content *c = calloc(1, sizeof *c);
    nw_panel_type type = {0};
    size_t bytes = 0;
    float row[COLS];
    float last[COLS];

    assert_non_null(c);
    assert_true(nw_panel_parse(s->type, &type));
    assert_true(nw_panel_bytes(type, s->n_cols, &bytes));
    uint8_t *tensor = aligned_alloc(64, 2 * bytes); /* ASan guards its end */
    assert_non_null(tensor);
    fill(c, 5);
    pack(c, type, 16, s->n_cols);
    memcpy(tensor, c->panel, bytes);
    nw_panel_unpack_row(type, tensor, s->n_cols, 15, last);
    fill(c, 6);
    pack(c, type, 1, s->n_cols);
    memcpy(tensor + bytes, c->panel, bytes);
    nw_panel_unpack_row(type, tensor, s->n_cols, 15, row);
    assert_memory_equal(row, last, s->n_cols * sizeof *row);
    nw_panel_unpack_row(type, tensor, s->n_cols, 16, row);
    for (uint32_t k = 0; k < s->n_cols; k++) {
        assert_true(same(row[k], expected(c, type, 0, k)));
    }
    free(tensor);
    free(c);
}

static void codes_come_back(void **state)
{
    const struct shape_row *s = *state;
    content *c = calloc(1, sizeof *c);
    nw_panel_type type = {0};
    int8_t codes[COLS];
    float scales[GROUPS];
    float mins[GROUPS];
    int8_t zeros[GROUPS];

    assert_non_null(c);
    assert_true(nw_panel_parse(s->type, &type));
    fill(c, s->n_cols);
    pack(c, type, s->n_rows, s->n_cols);
    const bool has_codes = nw_panel_code_bits(type) <= 8;
    const bool zeros_differ = type.kind == NW_PANEL_INT4 || type.kind == NW_PANEL_INT8;
    for (uint32_t r = 0; has_codes && r < s->n_rows; r++) {
        nw_panel_codes_row(type, c->panel, s->n_cols, r, codes, scales, zeros);
        nw_panel_mins_row(type, c->panel, s->n_cols, r, mins);
        for (uint32_t k = 0; k < s->n_cols; k++) {
            assert_int_equal(codes[k], code_of(c, type, r, k));
        }
        for (uint32_t g = 0; g * type.group < s->n_cols && g < nw_panel_groups(type, s->n_cols);
             g++) {
            assert_true(scales[g] == scale_of(c, type, r, g));
            assert_true(mins[g] == min_of(c, type, r, g));
            assert_int_equal(zeros[g], zeros_differ ? zero_of(c, type, r, g) : 8);
        }
    }
    assert_true(nw_panel_tensor_scale(type, c->panel) ==
                (type.kind == NW_PANEL_NVFP4 ? TENSOR_SCALE : 1));
    if (type.kind == NW_PANEL_NVFP4) {
        float was = 0;
        float now = 0;
        nw_panel_set_tensor_scale(type, c->panel, 1);
        nw_panel_unpack_span(type, c->panel, s->n_cols, 0, 3, 1, &was);
        nw_panel_set_tensor_scale(type, c->panel, -0.5F);
        nw_panel_unpack_span(type, c->panel, s->n_cols, 0, 3, 1, &now);
        assert_true(now == -0.5F * was);
    }
    free(c);
}

/* A block of 256 columns of each -k layout: where panel.h puts d, dmin, scales, minima and codes. */
static void two_levels_of_scales_stand_before_the_codes(void **state)
{
    static const uint8_t minus_1[2] = {0xFF, 0xFF};
    content *c = calloc(1, sizeof *c);
    nw_panel_type type = {0};

    (void)state;
    assert_non_null(c);
    c->halves[3][0] = 0xFFFF;
    c->mins[4][0] = 0xFFFF;
    c->k_scales[5][2] = -1;
    c->k_mins[6][7] = 63;
    c->u[7][2 * 32 + 5] = 255;
    assert_true(nw_panel_parse("int4-g32-k", &type));
    pack(c, type, 16, 256);
    assert_memory_equal(c->panel + 3 * 2, minus_1, 2);
    assert_memory_equal(c->panel + 32 + 4 * 2, minus_1, 2);
    assert_int_equal(c->panel[64 + 2 * 16 + 5], 0xFF);
    assert_int_equal(c->panel[64 + 128 + 7 * 16 + 6], 63);
    assert_int_equal(c->panel[64 + 256 + 2 * 256 + 64 + 7 * 4 + 1], 0x0F);
    assert_true(nw_panel_parse("int8-g16-k", &type));
    pack(c, type, 16, 256);
    assert_memory_equal(c->panel + 3 * 2, minus_1, 2);
    assert_int_equal(c->panel[32 + 4 * 2], 0);
    assert_int_equal(c->panel[64 + 2 * 16 + 5], 0xFF);
    assert_int_equal(c->panel[64 + 256 + 4 * 256 + 64 + 7 * 4 + 1], 0x7F);
    free(c);
}

/* The bytes of panel.h's diagram, placed by hand. */
static struct byte_row {
    const char *name;
    const char *type;
    uint32_t row, col;
    size_t at;
    uint8_t mask, want;
} byte_rows[] = {
    {"int8_code_minus_1", "int8", 2, 5, 64 + 64 + 2 * 4 + 1, 0xFF, 0x7F},
    {"int8_group_code_minus_1", "int8-g32", 2, 37, 544 + 32 + 64 + 2 * 4 + 1, 0xFF, 0x7F},
    {"int8_min_codes_follow_minima", "int8-g32-min", 1, 4, 64 + 64 + 4, 0xFF, 0x7F},
    {"int8_zp_zero_is_turned", "int8-g32-zp", 3, 0, 32 + 3, 0xFF, 0x80},
    {"int8_zp_codes_follow_zeros", "int8-g32-zp", 1, 4, 48 + 64 + 4, 0xFF, 0x7F},
    {"int4_g16_high_nibble", "int4-g16", 2, 13, 32 + 64 + 2 * 4 + 1, 0xF0, 0xF0},
    {"int4_g16_zp_second_group", "int4-g16-zp", 0, 16, 176 + 48, 0x0F, 0x0F},
    {"fp8_lane_split", "fp8-e4m3", 6, 7, 64 + 64 + 16 + 8 + 2 * 2 + 1, 0xFF, 0xFF},
    {"fp8_lane_split_t2", "fp8-e5m2", 15, 2, 64 + 48 + 8 + 6, 0xFF, 0xFF},
    {"nvfp4_block_a_low", "nvfp4", 3, 6, 64 + 32 + 64 + 3 * 4 + 2, 0x0F, 0x0F},
    {"nvfp4_block_b_high", "nvfp4", 3, 22, 64 + 32 + 64 + 3 * 4 + 2, 0xF0, 0xF0},
    {"nvfp4_second_unit", "nvfp4", 0, 32, 64 + 288 + 32, 0x0F, 0x0F},
    {"mxfp4_quad_4_high", "mxfp4", 5, 17, 16 + 5 * 4 + 1, 0xF0, 0xF0},
    {"mxfp4_second_block", "mxfp4", 0, 32, 272 + 16, 0x0F, 0x0F},
    {"int4_min_codes_follow_minima", "int4-g64-min", 15, 63, 64 + 7 * 64 + 63, 0xF0, 0xF0},
    {"int4_low_nibble", "int4-g32", 3, 6, 32 + 64 + 3 * 4 + 2, 0x0F, 0x0F},
    {"int4_high_nibble", "int4-g32", 3, 22, 32 + 64 + 3 * 4 + 2, 0xF0, 0xF0},
    {"int4_second_group", "int4-g32", 0, 32, 288 + 32, 0x0F, 0x0F},
    {"int4_zp_codes_follow_zeros", "int4-g64-zp", 15, 63, 48 + 7 * 64 + 63, 0xF0, 0xF0},
};

static void bytes_by_hand(void **state)
{
    const struct byte_row *b = *state;
    content *c = calloc(1, sizeof *c);
    nw_panel_type type = {0};

    assert_non_null(c);
    assert_true(nw_panel_parse(b->type, &type));
    c->u[b->row][b->col] = 255;
    pack(c, type, 16, 64);
    assert_int_equal(c->panel[b->at] & b->mask, b->want);
    free(c);
}

/* The worked example of docs/formats.md, byte for byte. */
static void example_of_the_docs(void **state)
{
    const nw_panel_type type = {.kind = NW_PANEL_INT4, .group = 32};
    static const uint8_t head[] = {0x00, 0x38, 0x00, 0x34, 0x00, 0x00};
    static const uint8_t quads[] = {0x09, 0x1A, 0x2B, 0x3C, 0x88, 0x87, 0x86, 0x85, 0x88, 0x88};
    static const uint8_t scales_1[] = {0x00, 0x3C, 0x00, 0x3C, 0x00, 0x00};
    static const uint8_t quads_1[] = {0x8F, 0x88, 0x88, 0x88};
    static const float row_1[] = {0, -0.25F, -0.5F, -0.75F, 0};
    const uint16_t scales[2][2] = {{0x3800, 0x3C00}, {0x3400, 0x3C00}}; /* 0.5 1, 0.25 1 */
    uint8_t codes[2][64];
    uint8_t panel[576];
    float out[64];

    (void)state;
    memset(codes, 8, sizeof codes);
    for (uint8_t k = 0; k < 4; k++) {
        codes[0][k] = (uint8_t)(9 + k);
        codes[0][16 + k] = k;
        codes[1][k] = (uint8_t)(8 - k);
    }
    codes[0][32] = 15;
    nw_panel_pack_int4(type, codes[0], 64, scales[0], NULL, 2, 2, 64, panel);
    assert_memory_equal(panel, head, sizeof head);
    assert_memory_equal(panel + 32, quads, sizeof quads);
    assert_memory_equal(panel + 288, scales_1, sizeof scales_1);
    assert_memory_equal(panel + 320, quads_1, sizeof quads_1);
    nw_panel_unpack_row(type, panel, 64, 0, out);
    assert_true(out[3] == 2 && out[16] == -4 && out[19] == -2.5F && out[32] == 7);
    nw_panel_unpack_row(type, panel, 64, 1, out);
    for (int k = 0; k < 5; k++) {
        assert_true(out[k] == row_1[k]);
    }
}

int main(void)
{
    const struct CMUnitTest docs[] = {
        cmocka_unit_test(example_of_the_docs),
        cmocka_unit_test(two_levels_of_scales_stand_before_the_codes),
    };

    return cmocka_run_group_tests(docs, NULL, NULL) +
           NW_RUN_TABLE("round_trip", shape_rows, round_trip) +
           NW_RUN_TABLE("random shapes", shape_rows, round_trip_of_random_shapes) +
           NW_RUN_TABLE("later panels", shape_rows, rows_of_later_panels) +
           NW_RUN_TABLE("codes_come_back", shape_rows, codes_come_back) +
           NW_RUN_TABLE("bytes_by_hand", byte_rows, bytes_by_hand);
}
