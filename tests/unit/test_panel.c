/* Panels: sizes, names, bytes written by hand, and unpack(pack(x)) == x for every type at odd
 * shapes, where the padding must stand for zeros.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "formats/half.h"
#include "formats/panel.h"
#include "table.h"

static struct size_row {
    const char *name;
    uint32_t n_cols;
    uint32_t want_cols;
    size_t want_bytes;
} size_rows[] = {
    /* 16 rows x columns x bytes */
    {"f32", 3, 3, 192},
    {"bf16", 3, 4, 128},
    {"int8", 5, 8, 64 + 128},
    /* one group: 32 of scales + 32 x 8, made a multiple of 64 */
    {"int4-g32", 1, 32, 320},
    {"int4-g32", 64, 64, 576},
    {"int4-g64", 576, 576, 9 * (32 + 512) + 32},
    {"int4-g128", 576, 640, 5 * (32 + 1024) + 32},
    /* 48 + 256 = 304 */
    {"int4-g32-zp", 32, 32, 320},
    {"int4-g128-zp", 128, 128, 1088},
};

static void sizes(void **state)
{
    const struct size_row *r = *state;
    nw_panel_type type = {0};
    size_t n = 0;
    char name[32];

    assert_true(nw_panel_parse(r->name, &type));
    assert_string_equal(nw_panel_name(type, name), r->name);
    assert_int_equal(nw_panel_cols(type, r->n_cols), r->want_cols);
    assert_true(nw_panel_bytes(type, r->n_cols, &n));
    assert_int_equal(n, r->want_bytes);
    assert_true(nw_panel_tensor_bytes(type, 33, r->n_cols, &n));
    assert_int_equal(n, 3 * r->want_bytes);
}

static struct name_row {
    const char *name;
} bad_names[] = {{"int4"}, {"int4-g48"}, {"int4-g32-zpx"}, {"INT8"}, {"bf16 "}, {""}};

static void refused(void **state)
{
    const struct name_row *r = *state;
    nw_panel_type type = {NW_PANEL_INT8, 7, true};
    assert_false(nw_panel_parse(r->name, &type));
    assert_int_equal(type.group, 7);
}

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
    {"int4_g32_16x33", "int4-g32", 16, 33},
    {"int4_g64_7x100", "int4-g64", 7, 100},
    {"int4_g128_16x300", "int4-g128", 16, 300},
    {"int4_g32_zp_16x33", "int4-g32-zp", 16, 33},
    {"int4_g64_zp_2x64", "int4-g64-zp", 2, 64},
    {"int4_g128_zp_16x129", "int4-g128-zp", 16, 129},
};

#define COLS 320

typedef struct {
    float f[16][COLS];
    uint16_t h[16][COLS];
    int8_t i[16][COLS];
    uint8_t u[16][COLS];
    float scales[16];
    uint16_t halves[16][COLS / 32];
    uint8_t zeros[16][COLS / 32];
    _Alignas(64) uint8_t panel[16 * COLS * 4];
} content;

static void fill(content *c, uint64_t seed)
{
    nw_rng rng = nw_rng_seed(seed);

    for (size_t r = 0; r < 16; r++) {
        c->scales[r] = (float)nw_rng_normal(&rng);
        for (size_t k = 0; k < COLS; k++) {
            c->f[r][k] = (float)nw_rng_normal(&rng);
            c->h[r][k] = nw_bf16_from_f32(c->f[r][k]);
            c->i[r][k] = (int8_t)((int)nw_rng_below(&rng, 256) - 128);
            c->u[r][k] = (uint8_t)nw_rng_below(&rng, 16);
        }
        for (size_t g = 0; g < COLS / 32; g++) {
            c->halves[r][g] = (uint16_t)nw_rng_below(&rng, 0x7C00); /* any finite, subnormals too */
            c->zeros[r][g] = (uint8_t)nw_rng_below(&rng, 16);
        }
    }
}

static void pack(content *c, nw_panel_type type, uint32_t n_rows, uint32_t n_cols)
{
    memset(c->panel, 0xEE, sizeof c->panel);
    switch (type.kind) {
    case NW_PANEL_F32:
        nw_panel_pack_f32(c->f[0], COLS, n_rows, n_cols, c->panel);
        return;
    case NW_PANEL_BF16:
        nw_panel_pack_bf16(c->h[0], COLS, n_rows, n_cols, c->panel);
        return;
    case NW_PANEL_INT8:
        nw_panel_pack_int8(c->i[0], COLS, c->scales, n_rows, n_cols, c->panel);
        return;
    case NW_PANEL_INT4:
        nw_panel_pack_int4(type, c->u[0], COLS, c->halves[0], type.zero_point ? c->zeros[0] : NULL,
                           COLS / 32, n_rows, n_cols, c->panel);
        return;
    }
}

static float expected(const content *c, nw_panel_type type, size_t r, size_t k)
{
    switch (type.kind) {
    case NW_PANEL_F32:
        return c->f[r][k];
    case NW_PANEL_BF16:
        return nw_bf16_to_f32(c->h[r][k]);
    case NW_PANEL_INT8:
        return c->scales[r] * (float)c->i[r][k];
    case NW_PANEL_INT4:
        break;
    }
    const size_t g = k / type.group;
    const int zero = type.zero_point ? c->zeros[r][g] : 8;
    return nw_f16_to_f32(c->halves[r][g]) * (float)(c->u[r][k] - zero);
}

static void round_trip(void **state)
{
    const struct shape_row *s = *state;
    content *c = calloc(1, sizeof *c);
    nw_panel_type type = {0};
    float row[COLS];
    size_t bytes = 0;

    assert_non_null(c);
    assert_true(nw_panel_parse(s->type, &type));
    assert_true(nw_panel_bytes(type, s->n_cols, &bytes));
    fill(c, s->n_cols);
    pack(c, type, s->n_rows, s->n_cols);
    assert_int_equal(c->panel[bytes], 0xEE);
    for (uint32_t r = 0; r < 16; r++) {
        nw_panel_unpack_row(type, c->panel, s->n_cols, r, row);
        for (uint32_t k = 0; k < s->n_cols; k++) {
            const float want = r < s->n_rows ? expected(c, type, r, k) : 0;
            assert_true(row[k] == want);
        }
        /* padded columns decode to 0 as well */
        const uint32_t cols = nw_panel_cols(type, s->n_cols);
        nw_panel_unpack_span(type, c->panel, s->n_cols, r, s->n_cols, cols - s->n_cols, row);
        for (uint32_t k = 0; k < cols - s->n_cols; k++) {
            assert_true(row[k] == 0);
        }
    }
    free(c);
}

static void codes_come_back(void **state)
{
    const struct shape_row *s = *state;
    content *c = calloc(1, sizeof *c);
    nw_panel_type type = {0};
    int8_t codes[COLS];
    float scales[COLS / 32];
    uint8_t zeros[COLS / 32];

    assert_non_null(c);
    assert_true(nw_panel_parse(s->type, &type));
    fill(c, s->n_cols);
    pack(c, type, s->n_rows, s->n_cols);
    const bool four = type.kind == NW_PANEL_INT4;
    for (uint32_t r = 0; (four || type.kind == NW_PANEL_INT8) && r < s->n_rows; r++) {
        nw_panel_codes_row(type, c->panel, s->n_cols, r, codes, scales, zeros);
        for (uint32_t k = 0; k < s->n_cols; k++) {
            assert_int_equal(codes[k], four ? (int)c->u[r][k] : (int)c->i[r][k]);
        }
        for (uint32_t g = 0; four && g < nw_panel_groups(type, s->n_cols); g++) {
            assert_true(scales[g] == nw_f16_to_f32(c->halves[r][g]));
            assert_int_equal(zeros[g], type.zero_point ? c->zeros[r][g] : 8);
        }
        assert_true(four || scales[0] == c->scales[r]);
    }
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
    c->i[b->row][b->col] = -1;
    c->u[b->row][b->col] = 15;
    pack(c, type, 16, 64);
    assert_int_equal(c->panel[b->at] & b->mask, b->want);
    free(c);
}

/* The worked example of docs/formats.md, byte for byte. */
static void example_of_the_docs(void **state)
{
    const nw_panel_type type = {NW_PANEL_INT4, 32, false};
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
    const struct CMUnitTest docs[] = {cmocka_unit_test(example_of_the_docs)};

    return cmocka_run_group_tests(docs, NULL, NULL) + NW_RUN_TABLE("sizes", size_rows, sizes) +
           NW_RUN_TABLE("refused", bad_names, refused) +
           NW_RUN_TABLE("round_trip", shape_rows, round_trip) +
           NW_RUN_TABLE("codes_come_back", shape_rows, codes_come_back) +
           NW_RUN_TABLE("bytes_by_hand", byte_rows, bytes_by_hand);
}
