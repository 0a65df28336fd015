/* Panel types: names both ways, and sizes worked out by hand.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/panel.h"
#include "table.h"

static struct size_row {
    const char *name;
    uint32_t n_cols;
    uint32_t want_cols;
    size_t want_bytes;
    unsigned bits;
} size_rows[] = {
    /* 16 rows x columns x bytes */
    {"f32", 3, 3, 192, 32},
    {"bf16", 3, 4, 128, 16},
    {"int8", 5, 8, 64 + 128, 8},
    /* one group: 32 of scales + 32 x 8, made a multiple of 64 */
    {"int4-g32", 1, 32, 320, 4},
    {"int4-g32", 64, 64, 576, 4},
    {"int4-g64", 576, 576, 9 * (32 + 512) + 32, 4},
    {"int4-g128", 576, 640, 5 * (32 + 1024) + 32, 4},
    /* 48 + 256 = 304 */
    {"int4-g32-zp", 32, 32, 320, 4},
    {"int4-g64-zp", 64, 64, 576, 4},
    {"int4-g128-zp", 128, 128, 1088, 4},
    /* two times 32 of scales and minima */
    {"int4-g32-min", 33, 64, 640, 4},
    {"int4-g64-min", 64, 64, 576, 4},
    {"int4-g128-min", 128, 128, 1088, 4},
    {"int4-g16", 32, 32, 2 * (32 + 128), 4},
    {"int4-g16-zp", 17, 32, 2 * (48 + 128) + 32, 4},
    {"int4-g16-min", 16, 16, 192, 4},
    /* a wider span has the bytes of its groups */
    {"int4-g256", 257, 384, 3 * (32 + 1024) + 32, 4},
    {"int4-g256-zp", 128, 128, 1088, 4},
    {"int4-row", 128, 128, 1088, 4},
    {"int4-row-g64", 576, 576, 9 * (32 + 512) + 32, 4},
    {"int4-row-g32-zp", 32, 32, 320, 4},
    {"int4-tensor", 128, 128, 1088, 4},
    {"int4-tensor-g32", 96, 96, 3 * 288 + 32, 4},
    {"int4-tensor-g64-zp", 64, 64, 576, 4},
    {"int8-g16-zp", 16, 16, 320, 8},
    {"int8-g32-zp", 33, 64, 2 * (48 + 512) + 32, 8},
    {"int8-g64-zp", 64, 64, 1088, 8},
    {"int8-g128-zp", 128, 128, 2112, 8},
    {"int8-g256", 256, 256, 2 * 2080 + 0, 8},
    {"int8-g256-zp", 256, 256, 2 * 2096 + 32, 8},
    {"int8-row-zp", 100, 128, 2112, 8},
    {"int8-row-g64-zp", 64, 64, 1088, 8},
    {"int8-tensor-g32-zp", 32, 32, 576, 8},
    {"int8-g16", 32, 32, 2 * (32 + 256) + 0, 8},
    {"int8-g32", 1, 32, 576, 8},
    {"int8-g64", 64, 64, 1088, 8},
    {"int8-g128", 128, 128, 2112, 8},
    {"int8-g16-min", 17, 32, 2 * (64 + 256), 8},
    {"int8-g32-min", 32, 32, 576, 8},
    {"int8-g64-min", 64, 64, 1088, 8},
    {"int8-g128-min", 128, 128, 2112, 8},
    /* per 256 columns: d and dmin, 16 scales a group and, but for Q6_K, as many minima, the codes */
    {"int4-g32-k", 512, 512, 2 * (64 + 8 * 32 + 2048), 4},
    {"int8-g32-k", 256, 256, 64 + 8 * 32 + 4096, 8},
    {"int8-g16-k", 256, 256, 64 + 16 * 16 + 4096, 8},
    {"fp8-e4m3", 5, 8, 64 + 128, 8},
    {"fp8-e5m2", 4, 4, 64 + 64, 8},
    /* a head of 64; 32 of scales and 4 x 64 per 32 columns */
    {"nvfp4", 16, 32, 384, 4},
    {"nvfp4", 64, 64, 64 + 2 * 288, 4},
    {"mxfp4", 32, 32, 320, 4},
    {"mxfp4", 128, 128, 4 * 272, 4},
    /* a head of 64, 96 per quad, 8 per escape and one more */
    {"bf16-12", 8, 8, 64 + 192 + 64, 12},
    {"bf16-12-e7", 8, 8, 64 + 192 + 64, 12},
    {"bf16-12-e8", 5, 8, 64 + 192 + 128, 12},
    {"bf16-12-e65535", 4, 4, 64 + 96 + 65536 * 8 + 32, 12},
    /* as what they are transcoded to */
    {"bf16-packed", 8, 8, 64 + 192 + 64, 12},
    {"bf16-packed-e8", 5, 8, 64 + 192 + 128, 12},
    {"bf16-packed-wide", 3, 4, 128, 16},
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
    assert_int_equal(nw_panel_code_bits(type), r->bits);
    assert_false(nw_panel_bytes(type, UINT32_MAX, &n));
}

static struct name_row {
    const char *name;
} bad_names[] = {{"int4"},           {"int4-g48"},      {"int4-g32-zpx"},
                 {"INT8"},           {"bf16 "},         {""},
                 {"int4-g8"},        {"int8-zp"},       {"int8-min"},
                 {"int8-row"},       {"int4-row-g128"}, {"int4-row-min"},
                 {"nvfp4-g16"},      {"bf16-12-e"},     {"bf16-12-e0"},
                 {"bf16-12-e07"},    {"bf16-12-e+7"},   {"bf16-12-e65536"},
                 {"bf16-12-e7 "},    {"bf16-12-e-1"},   {"bf16-12-e7x"},
                 {"bf16-packed-e0"}, {"bf16-packed-"},  {"bf16-12-e99999999999999999999"}};

static void refused(void **state)
{
    const struct name_row *r = *state;
    nw_panel_type type = {.kind = NW_PANEL_INT8, .group = 7};
    assert_false(nw_panel_parse(r->name, &type));
    assert_int_equal(type.group, 7);
}

static void two_levels_want_whole_blocks(void **state)
{
    nw_panel_type type = {0};
    size_t n = 7;

    (void)state;
    assert_true(nw_panel_parse("int8-g32-k", &type));
    assert_false(nw_panel_bytes(type, 255, &n));
    assert_false(nw_panel_bytes(type, 288, &n));
    assert_int_equal(n, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_levels_want_whole_blocks)};

    return cmocka_run_group_tests(tests, NULL, NULL) + NW_RUN_TABLE("sizes", size_rows, sizes) +
           NW_RUN_TABLE("refused", bad_names, refused);
}
