/* The 12-bit form of bfloat16: bytes placed by hand, every bit pattern through it and back, the table
 * of exponents, the list of escapes and its room.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/rng.h"
#include "formats/bf16_12.h"
#include "formats/half.h"
#include "table.h"

#define COLS 256

static void bytes_stand_where_the_header_says(void **state)
{
    static const uint8_t exponents[16] = {127, 126};
    const nw_panel_type type = {.kind = NW_PANEL_BF16_12, .escapes = 7};
    uint16_t w[2][8] = {{0x3F80, 0xBF40, 0, 0xBFC1}, {[6] = 0x3F80, [7] = 0x4000}};
    _Alignas(64) uint8_t panel[64 + 2 * 96 + 64];
    const uint8_t *quad = panel + 64;
    uint32_t n = 0;

    (void)state;
    assert_true(nw_panel_pack_bf16_12(type, exponents, w[0], 8, 2, 8, panel));
    /* 1.0, -0.75 (exponent 126, mantissa 0x40), 0, -1.5078125: t = 0, 1, 2, 3 of row 0 */
    assert_int_equal(quad[0], 0x00);
    assert_int_equal(quad[1], 0xC0);
    assert_int_equal(quad[32], 0x00);
    assert_int_equal(quad[33], 0xC1);
    assert_int_equal(quad[64], 0xF0); /* low: 127 is code 0; high: zero is code 15 */
    assert_int_equal(quad[65], 0x01); /* low: 126 is code 1; high: 127 */
    /* row 1, columns 6 and 7: the second quad, t = 2, 3; 2.0 has no code */
    assert_int_equal(quad[96 + 64 + 2], 0x0F);
    assert_int_equal(quad[96 + 64 + 3], 0xFF);
    const nw_bf16_escape *e = nw_bf16_12_escapes(type, panel, 8, &n);
    assert_int_equal(n, 1);
    assert_int_equal(e[0].col, 7);
    assert_int_equal(e[0].row, 1);
    assert_int_equal(e[0].bits, 0x4000);
    assert_int_equal(e[1].col, NW_BF16_12_END);
    assert_int_equal(e[7].col, NW_BF16_12_END);
}

/* With room for four escapes the list is in the head, and the panel ends with its quads. */
static void few_escapes_lie_in_the_head(void **state)
{
    static const uint8_t exponents[16] = {127};
    const nw_panel_type type = {.kind = NW_PANEL_BF16_12, .escapes = NW_BF16_12_FEW};
    uint16_t w[8] = {0x4000, 0x3F80, 0x4100, 0x3F80, 0, 0xC000, 0x3F81, 0x4180};
    _Alignas(64) uint8_t panel[64 + 2 * 96];
    float row[8];
    size_t bytes = 0;
    uint32_t n = 0;

    (void)state;
    assert_true(nw_panel_bytes(type, 8, &bytes));
    assert_int_equal(bytes, sizeof panel);
    memset(panel, 0xA5, sizeof panel);
    assert_true(nw_panel_pack_bf16_12(type, exponents, w, 8, 1, 8, panel));
    const nw_bf16_escape *e = nw_bf16_12_escapes(type, panel, 8, &n);
    assert_ptr_equal(e, panel + 24);
    assert_int_equal(n, 4);
    assert_int_equal(e[3].col, 7);
    assert_int_equal(e[3].bits, 0x4180);
    assert_int_equal(e[4].col, NW_BF16_12_END);
    nw_panel_unpack_row(type, panel, 8, 0, row);
    for (int c = 0; c < 8; c++) {
        assert_int_equal(nw_f32_bits(row[c]), (uint32_t)w[c] << 16);
    }
    w[4] = 0x4080; /* the fifth */
    assert_false(nw_panel_pack_bf16_12(type, exponents, w, 8, 1, 8, panel));
}

/* All 65,536 patterns, NaN payloads among them, in panels of 16 rows. */
static void every_bit_pattern_comes_back(void **state)
{
    const nw_panel_type type = {.kind = NW_PANEL_BF16_12, .escapes = 16 * COLS};
    static const uint8_t exponents[16] = {100, 127, 126, 0, 255, 1, 254};
    static uint16_t w[16][COLS];
    size_t bytes = 0;
    float row[COLS];

    (void)state;
    assert_true(nw_panel_bytes(type, COLS, &bytes));
    uint8_t *panel = aligned_alloc(64, bytes);
    assert_non_null(panel);
    for (uint32_t base = 0; base < 0x10000; base += 16 * COLS) {
        for (uint32_t i = 0; i < 16 * COLS; i++) {
            w[i % 16][i / 16] = (uint16_t)(base + i);
        }
        assert_true(nw_panel_pack_bf16_12(type, exponents, w[0], COLS, 16, COLS, panel));
        for (uint32_t r = 0; r < 16; r++) {
            nw_panel_unpack_row(type, panel, COLS, r, row);
            for (uint32_t c = 0; c < COLS; c++) {
                assert_int_equal(nw_f32_bits(row[c]), (uint32_t)w[r][c] << 16);
            }
        }
    }
    free(panel);
}

static void the_table_holds_the_most_frequent_exponents(void **state)
{
    nw_exponent_counts counts = {{0}};
    uint8_t table[16];
    const uint16_t zeros[3] = {0, 0x8000, 0x0001};

    (void)state;
    nw_bf16_12_table(&counts, table);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(table[i], 0);
    }
    nw_exponent_count(&counts, zeros, 3);
    for (uint32_t e = 100; e < 120; e++) {
        counts.n[e] = e == 110 ? 50 : 10; /* ties: the smaller ones stay */
    }
    nw_bf16_12_table(&counts, table);
    assert_int_equal(table[0], 110);
    for (uint32_t i = 1; i < 15; i++) {
        assert_int_equal(table[i], i <= 10 ? 99 + i : 100 + i);
    }
    assert_int_equal(table[15], 0);
}

static void a_panel_without_room_is_refused(void **state)
{
    static const uint8_t exponents[16] = {127};
    const nw_panel_type none = {.kind = NW_PANEL_BF16_12};
    const nw_panel_type one = {.kind = NW_PANEL_BF16_12, .escapes = 1};
    uint16_t w[4] = {0x3F80, 0x4000, 0x0001, 0x8000};
    _Alignas(64) uint8_t panel[64 + 96 + 32 + 64];

    (void)state;
    assert_int_equal(nw_bf16_12_count(exponents, w, 4, 1, 4), 1);
    assert_false(nw_panel_pack_bf16_12(none, exponents, w, 4, 1, 4, panel));
    assert_true(nw_panel_pack_bf16_12(one, exponents, w, 4, 1, 4, panel));
    w[1] = 0x3F81; /* subnormal numbers and zeros need no room */
    assert_int_equal(nw_bf16_12_count(exponents, w, 4, 1, 4), 0);
    assert_true(nw_panel_pack_bf16_12(none, exponents, w, 4, 1, 4, panel));
}

static void room_fills_whole_lines_and_has_a_limit(void **state)
{
    nw_panel_type type = {.group = 99};

    (void)state;
    assert_true(nw_bf16_12_type(0, 64, &type));
    assert_int_equal(type.escapes, NW_BF16_12_FEW);
    assert_true(nw_bf16_12_type(4, 64, &type));
    assert_int_equal(type.escapes, NW_BF16_12_FEW);
    assert_true(nw_bf16_12_type(5, 64, &type));
    assert_int_equal(type.escapes, 7);
    assert_true(nw_bf16_12_type(8, 64, &type)); /* 16 * 64 / 128 */
    assert_int_equal(type.escapes, 15);
    type.group = 99;
    assert_false(nw_bf16_12_type(9, 64, &type));
    assert_false(nw_bf16_12_type(1, 7, &type));
    assert_false(nw_bf16_12_type(65536, UINT32_MAX / 2, &type));
    assert_int_equal(type.group, 99);
}

/* A head and a list from a hostile file: only what lies in the panel is read, and stray columns and
 * rows change nothing. */
static void a_hostile_list_is_harmless(void **state)
{
    static const uint8_t exponents[16] = {127};
    const nw_panel_type type = {.kind = NW_PANEL_BF16_12, .escapes = 7};
    uint16_t w[4] = {0x3F80, 0x3F80, 0x3F80, 0x3F80};
    const size_t bytes = 64 + 96 + 64 + 32;
    uint8_t *panel = aligned_alloc(64, bytes); /* ASan guards its end */
    const uint32_t huge = UINT32_MAX;
    float row[4];
    uint32_t n = 0;

    (void)state;
    assert_non_null(panel);
    assert_true(nw_panel_pack_bf16_12(type, exponents, w, 4, 1, 4, panel));
    memset(panel + 64 + 96, 0xFF, 64);
    memcpy(panel + 16, &huge, sizeof huge);
    (void)nw_bf16_12_escapes(type, panel, 4, &n);
    assert_int_equal(n, 7);
    nw_panel_unpack_row(type, panel, 4, 0, row);
    for (int c = 0; c < 4; c++) {
        assert_true(row[c] == 1);
    }
    free(panel);
}

/* Gaussian weights: the share of escapes that docs/formats.md names. */
static void gaussian_weights_need_few_escapes(void **state)
{
    enum { N = 1 << 20 };
    uint16_t *w = malloc(N * sizeof *w);
    nw_exponent_counts counts = {{0}};
    nw_rng rng = nw_rng_seed(1);
    uint8_t table[16];

    (void)state;
    assert_non_null(w);
    for (size_t i = 0; i < N; i++) {
        w[i] = nw_bf16_from_f32((float)(0.02 * nw_rng_normal(&rng)));
    }
    nw_exponent_count(&counts, w, N);
    nw_bf16_12_table(&counts, table);
    /* |x| < sigma 2^-13 has probability 2^-13 sqrt(2 / pi) = 1e-4: the table reaches from the
     * largest values some 15 powers of two down */
    assert_in_range(nw_bf16_12_count(table, w, COLS, N / COLS, COLS), 1, N / 2500);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_stand_where_the_header_says),
        cmocka_unit_test(few_escapes_lie_in_the_head),
        cmocka_unit_test(every_bit_pattern_comes_back),
        cmocka_unit_test(the_table_holds_the_most_frequent_exponents),
        cmocka_unit_test(a_panel_without_room_is_refused),
        cmocka_unit_test(room_fills_whole_lines_and_has_a_limit),
        cmocka_unit_test(a_hostile_list_is_harmless),
        cmocka_unit_test(gaussian_weights_need_few_escapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
