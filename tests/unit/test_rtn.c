/* Round to nearest: panel bytes of tiny weights written by hand, edge groups, and the SQNR on
 * gaussian weights, whose figures are those of independent prototypes (4.2 M values, numpy).
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "formats/half.h"
#include "quant/rtn.h"
#include "table.h"

#define INT8                  \
    {                         \
        .kind = NW_PANEL_INT8 \
    }
#define INT4(g)                             \
    {                                       \
        .kind = NW_PANEL_INT4, .group = (g) \
    }
#define INT4Z(g)                                                \
    {                                                           \
        .kind = NW_PANEL_INT4, .group = (g), .zero_point = true \
    }

/* Packs n_rows <= 16 rows; the caller frees the panel. */
static uint8_t *pack_scales(nw_panel_type type, nw_scales scales, const float *rows,
                            uint32_t n_rows, uint32_t n_cols, bool *ok, uint32_t *bad_row)
{
    size_t n = 0;

    assert_true(nw_panel_bytes(type, n_cols, &n));
    uint8_t *panel = malloc(n);
    void *scratch = malloc(nw_rtn_scratch_bytes(type, n_cols) + 1);
    assert_true(panel != NULL && scratch != NULL);
    memset(panel, 0xA5, n); /* every byte must be written */
    *ok = nw_rtn_pack_panel(type, &scales, rows, n_rows, n_cols, panel, scratch, bad_row);
    free(scratch);
    return panel;
}

static uint8_t *pack(nw_panel_type type, nw_scale_rule rule, const float *rows, uint32_t n_rows,
                     uint32_t n_cols, bool *ok, uint32_t *bad_row)
{
    return pack_scales(type, (nw_scales){.rule = rule}, rows, n_rows, n_cols, ok, bad_row);
}

static void golden_int4_g32(void **state)
{
    float row[32];
    uint8_t want[32 + 4 * 64] = {0};
    bool ok = false;
    uint32_t bad = 0;

    (void)state;
    /* -4.0, -3.5 ... 3.5 twice: peak -4, scale -4 / -8 = 0.5 = 0x3800, code k mod 16 */
    for (int k = 0; k < 32; k++) {
        row[k] = (float)(k % 16 - 8) * 0.5F;
    }
    want[1] = 0x38;
    memset(want + 32, 0x88, sizeof want - 32); /* rows 1..15: code 8 is zero */
    for (int j = 0; j < 4; j++) {
        for (int t = 0; t < 4; t++) {
            const int code = 4 * j + t; /* of column 4 j + t, and of column 16 + 4 j + t */
            want[32 + j * 64 + t] = (uint8_t)(code | code << 4);
        }
    }
    uint8_t *panel = pack((nw_panel_type)INT4(32), NW_SCALE_ABSMAX, row, 1, 32, &ok, &bad);
    assert_true(ok);
    assert_memory_equal(panel, want, sizeof want);
    free(panel);
    /* the search finds no error to reduce, and keeps the first */
    panel = pack((nw_panel_type)INT4(32), NW_SCALE_SEARCH, row, 1, 32, &ok, &bad);
    assert_true(ok);
    assert_memory_equal(panel, want, sizeof want);
    free(panel);
}

static void golden_int4_g32_zero_point(void **state)
{
    float row[32];
    uint8_t want[48 + 4 * 64] = {0};
    bool ok = false;
    uint32_t bad = 0;

    (void)state;
    /* -1, -0.5 ... 6.5 twice: scale 7.5 / 15 = 0.5, zero point 2 */
    for (int k = 0; k < 32; k++) {
        row[k] = (float)(k % 16 - 2) * 0.5F;
    }
    want[1] = 0x38;
    memset(want + 32, 8, 16); /* rows that do not exist: zero point 8 as in the symmetric form */
    want[32] = 2;
    memset(want + 48, 0x88, sizeof want - 48);
    for (int j = 0; j < 4; j++) {
        for (int t = 0; t < 4; t++) {
            const int code = 4 * j + t;
            want[48 + j * 64 + t] = (uint8_t)(code | code << 4);
        }
    }
    uint8_t *panel = pack((nw_panel_type)INT4Z(32), NW_SCALE_SEARCH, row, 1, 32, &ok, &bad);
    assert_true(ok);
    assert_memory_equal(panel, want, sizeof want);
    free(panel);
}

static void golden_int8(void **state)
{
    const float rows[2][4] = {{127, -127, 1.4F, -1.6F}, {0, 0, 0, 0}};
    uint8_t want[64 + 64] = {0};
    bool ok = false;
    uint32_t bad = 0;

    (void)state;
    want[2] = 0x80; /* 1.0F = 0x3F800000 */
    want[3] = 0x3F;
    memset(want + 64, 0x80, 64);
    want[64] = 127 ^ 0x80;
    want[65] = (uint8_t)-127 ^ 0x80;
    want[66] = 1 ^ 0x80;
    want[67] = (uint8_t)-2 ^ 0x80;
    uint8_t *panel = pack((nw_panel_type)INT8, NW_SCALE_SEARCH, &rows[0][0], 2, 4, &ok, &bad);
    assert_true(ok);
    assert_memory_equal(panel, want, sizeof want);
    free(panel);
}

/* Groups that broke other quantizers. Each must decode to finite values, zeros to exact zeros. */
static struct edge_row {
    const char *name;
    nw_panel_type type;
    float fill; /* of all columns but the first */
    float first;
    bool ok;
} edge_rows[] = {
    {"int4_all_zero", INT4(32), 0, 0, true},
    {"int4_zp_all_zero", INT4Z(32), 0, 0, true},
    {"int8_all_zero", INT8, 0, 0, true},
    {"int4_negative_zero", INT4(32), -0.0F, -0.0F, true},
    {"int4_below_fp16", INT4(32), 1e-9F, -1e-9F, true},
    {"int4_fp16_subnormal_scale", INT4(32), 1e-6F, 3e-6F, true},
    {"int8_denormal", INT8, 1e-41F, 0, true},
    {"int8_largest", INT8, 3e38F, -3e38F, true},
    {"int4_zp_all_positive", INT4Z(32), 2, 3, true},
    {"int4_zp_all_negative", INT4Z(32), -2, -3, true},
    {"int4_one_outlier", INT4(64), 0.01F, 1000, true},
    {"int4_too_large_for_fp16", INT4(32), 1, 1e6F, false},
    {"int4_zp_too_large_for_fp16", INT4Z(32), 0, 2e6F, false},
};

static void edge(void **state)
{
    const struct edge_row *r = *state;
    enum { COLS = 64 };
    float rows[3][COLS] = {{0}};
    float out[COLS];
    bool ok = false;
    uint32_t bad = 99;

    for (int k = 0; k < COLS; k++) {
        rows[1][k] = k == 0 ? r->first : r->fill; /* row 1 of 3: the others are zero */
    }
    uint8_t *panel = pack(r->type, NW_SCALE_SEARCH, &rows[0][0], 3, COLS, &ok, &bad);
    assert_int_equal(ok, r->ok);
    if (!ok) {
        assert_int_equal(bad, 1);
        free(panel);
        return;
    }
    for (uint32_t row = 0; row < 3; row++) {
        nw_panel_unpack_row(r->type, panel, COLS, row, out);
        for (int k = 0; k < COLS; k++) {
            assert_true(isfinite(out[k]));
            if (!(rows[row][k] < 0 || rows[row][k] > 0)) {
                assert_true(!(out[k] < 0 || out[k] > 0));
            }
        }
    }
    free(panel);
}

/* SQNR on n_rows x n_cols gaussian values, sigma 0.02. */
static struct sqnr_row {
    const char *name;
    nw_panel_type type;
    nw_scale_rule rule;
    double least_db; /* measured by the prototypes, less 0.05 for another sample */
} sqnr_rows[] = {
    {"int8_row", INT8, NW_SCALE_SEARCH, 41.0},
    {"int4_g32_search", INT4(32), NW_SCALE_SEARCH, 21.7},
    {"int4_g64_search", INT4(64), NW_SCALE_SEARCH, 20.86},
    {"int4_g128_search", INT4(128), NW_SCALE_SEARCH, 20.2},
    {"int4_g32_absmax", INT4(32), NW_SCALE_ABSMAX, 21.26},
    {"int4_g32_zp_absmax", INT4Z(32), NW_SCALE_ABSMAX, 21.8},
    {"int4_g32_zp_search", INT4Z(32), NW_SCALE_SEARCH, 21.8},
    {"int4_g128_zp_absmax", INT4Z(128), NW_SCALE_ABSMAX, 19.9},
};

static void sqnr(void **state)
{
    const struct sqnr_row *r = *state;
    enum { ROWS = 16, COLS = 4096, PANELS = 16 }; /* 1,048,576 values */
    float *rows = malloc(sizeof(float) * ROWS * COLS);
    float out[COLS];
    double signal = 0;
    double noise = 0;
    bool ok = false;
    uint32_t bad = 0;

    assert_non_null(rows);
    for (uint64_t p = 0; p < PANELS; p++) {
        nw_rng rng = nw_rng_stream(20261130, p);
        for (size_t i = 0; i < (size_t)ROWS * COLS; i++) {
            rows[i] = (float)(0.02 * nw_rng_normal(&rng));
        }
        uint8_t *panel = pack(r->type, r->rule, rows, ROWS, COLS, &ok, &bad);
        assert_true(ok);
        for (uint32_t row = 0; row < ROWS; row++) {
            nw_panel_unpack_row(r->type, panel, COLS, row, out);
            for (size_t k = 0; k < COLS; k++) {
                const double w = (double)rows[row * COLS + k];
                const double d = w - (double)out[k];
                signal += w * w;
                noise += d * d;
            }
        }
        free(panel);
    }
    free(rows);
    const double db = 10 * log10(signal / noise);
    (void)printf("%s: %.3f dB\n", r->name, db);
    assert_true(db >= r->least_db);
}

static bool is_bf16(float x)
{
    return (nw_f32_bits(x) & 0xFFFF) == 0;
}

/* Every code is the nearest to its value under the scale that was stored, not under one in mind; with
 * BF16 scales as well, from weights of the usual size down to where FP16 has no normal numbers. */
static void nearest_under(nw_scales scales, double sigma)
{
    static const nw_panel_type types[] = {INT8, INT4(32), INT4Z(32), INT4(64)};
    enum { COLS = 128 };
    float rows[16 * COLS];
    int8_t codes[COLS];
    float stored[COLS];
    int8_t zeros[COLS];
    bool ok = false;
    uint32_t bad = 0;
    nw_rng rng = nw_rng_seed(7);

    for (size_t i = 0; i < 16 * COLS; i++) {
        rows[i] = (float)(sigma * nw_rng_normal(&rng));
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const nw_panel_type type = types[i];
        const uint32_t group = type.kind == NW_PANEL_INT8 ? COLS : type.group;
        uint8_t *panel = pack_scales(type, scales, rows, 16, COLS, &ok, &bad);
        assert_true(ok);
        for (uint32_t r = 0; r < 16; r++) {
            nw_panel_codes_row(type, panel, COLS, r, codes, stored, zeros);
            for (uint32_t k = 0; k < COLS; k++) {
                const double s = (double)stored[k / group];
                assert_true(!scales.bf16 || is_bf16(stored[k / group]));
                const int z = type.kind == NW_PANEL_INT8 ? 0 : zeros[k / group];
                const double w = (double)rows[r * COLS + k];
                const double at = w / s + z; /* where it lies on the grid of codes */
                const int lo = type.kind == NW_PANEL_INT8 ? -127 : 0;
                const int hi = type.kind == NW_PANEL_INT8 ? 127 : 15;
                const double clamped = fmin(fmax(at, lo), hi);
                /* half a step, and a part in 10^5 for the rounding of w / s in F32 */
                assert_true(fabs((double)codes[k] - clamped) <= 0.50001);
            }
        }
        free(panel);
    }
}

static void nearest_to_the_stored_scale(void **state)
{
    (void)state;
    nearest_under((nw_scales){.rule = NW_SCALE_SEARCH}, 0.02);
    nearest_under((nw_scales){.rule = NW_SCALE_SEARCH, .bf16 = true}, 0.02);
    nearest_under((nw_scales){.rule = NW_SCALE_SEARCH, .bf16 = true}, 0x1p-14);
    nearest_under((nw_scales){.rule = NW_SCALE_ABSMAX, .bf16 = true}, 4096);
}

/* What is stored with BF16 in mind is a BF16 value for every FP16 field there is. */
static void bf16_scales_are_both(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7C00; bits++) {
        const float x = nw_f16_to_f32((uint16_t)bits);
        for (int i = -1; i <= 1; i++) {
            const float s = nw_scale_store(x * (1 + (float)i * 0.001F), true);
            assert_true(isinf(s) || (is_bf16(s) && nw_f16_to_f32(nw_f16_from_f32(s)) - s == 0));
        }
    }
    assert_true(isinf(nw_scale_store(65472, true))); /* BF16's next value is 65536 */
}

/* One scale for all rows, and the largest value of the tensor is what it is made from. */
static void tensor_scale_is_of_the_tensor(void **state)
{
    static const float rows[2 * 4] = {1, -2, 0.5F, 0, 4, 1, 0, 0};
    const nw_scales scales = {.rule = NW_SCALE_TENSOR, .absmax = 12.7F};
    int8_t codes[4];
    float scale = 0;
    bool ok = false;
    uint32_t bad = 0;

    (void)state;
    uint8_t *panel = pack_scales((nw_panel_type)INT8, scales, rows, 2, 4, &ok, &bad);
    for (uint32_t r = 0; r < 2; r++) {
        nw_panel_codes_row((nw_panel_type)INT8, panel, 4, r, codes, &scale, NULL);
        assert_true(fabsf(scale - 0.1F) < 1e-7F);
        assert_int_equal(codes[0], r == 0 ? 10 : 40);
    }
    free(panel);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_scales_are_both), cmocka_unit_test(tensor_scale_is_of_the_tensor),
        cmocka_unit_test(golden_int4_g32),      cmocka_unit_test(golden_int4_g32_zero_point),
        cmocka_unit_test(golden_int8),          cmocka_unit_test(nearest_to_the_stored_scale),
    };
    int failed = cmocka_run_group_tests_name("rtn", tests, NULL, NULL);

    failed += NW_RUN_TABLE("rtn_edges", edge_rows, edge);
    failed += NW_RUN_TABLE("rtn_sqnr", sqnr_rows, sqnr);
    return failed;
}
