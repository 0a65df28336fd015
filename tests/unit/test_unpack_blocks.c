/* Panels into blocks: what formats/repack.h put into a panel comes back byte for byte, for every block
 * type; layouts of our own become a block type that decodes to the very values of the panel; and each
 * range of codes gets the narrowest type that holds it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "formats/half.h"
#include "formats/repack.h"
#include "formats/unpack_blocks.h"
#include "table.h"

#define COLS 512
#define ROWS 13 /* three rows of the panel are padding */

/* ---- blocks, panels, blocks ---- */
static struct blocks_row {
    const char *name;
    uint32_t scale_at[2], n_scales; /* where a block keeps fp16 scales */
} block_rows[] = {
    {"BF16", {0}, 0},    {"Q4_0", {0}, 1},   {"Q4_1", {0, 2}, 2}, {"Q5_0", {0}, 1},
    {"Q5_1", {0, 2}, 2}, {"Q8_0", {0}, 1},   {"IQ4_NL", {0}, 1},  {"Q4_K", {0, 2}, 2},
    {"Q5_K", {0, 2}, 2}, {"Q6_K", {208}, 1}, {"MXFP4", {0}, 0},   {"NVFP4", {0}, 0},
};

static uint8_t blocks[ROWS][COLS * 4], back[COLS * 4];

/* Any byte but what stands for no number, or for a zero with a sign. */
static void make_plain(const struct blocks_row *r, const nw_format *f, uint8_t *block)
{
    for (uint32_t s = 0; s < r->n_scales; s++) {
        uint8_t *high = &block[r->scale_at[s] + 1];
        *high = (uint8_t)((*high & 0x7CU) == 0x7CU ? *high ^ 0x40U : *high);
    }
    if (f->id == NW_FMT_MXFP4) {
        block[0] = (uint8_t)(block[0] % 250);
    }
    for (int s = 0; f->id == NW_FMT_NVFP4 && s < 4; s++) {
        block[s] = (uint8_t)(block[s] % 0x7F);
    }
    for (uint32_t i = f->id == NW_FMT_NVFP4 ? 4 : 1;
         (f->id == NW_FMT_NVFP4 || f->id == NW_FMT_MXFP4) && i < f->block_bytes; i++) {
        block[i] = (uint8_t)((block[i] & 15U) == 8 ? block[i] ^ 1U : block[i]);
        block[i] = (uint8_t)(block[i] >> 4 == 8 ? block[i] ^ 16U : block[i]);
    }
    if (f->id == NW_FMT_BF16) {
        block[1] = (uint8_t)((block[1] & 0x7FU) == 0x7FU ? block[1] ^ 0x40U : block[1]);
    }
}

static void fill_blocks(const struct blocks_row *r, const nw_format *f)
{
    nw_rng rng = nw_rng_seed(7);

    for (size_t i = 0; i < ROWS; i++) {
        for (size_t b = 0; b < COLS / f->block_elems; b++) {
            uint8_t *block = blocks[i] + b * f->block_bytes;
            for (size_t k = 0; k < f->block_bytes; k++) {
                block[k] = (uint8_t)nw_rng_below(&rng, 256);
            }
            make_plain(r, f, block);
        }
    }
}

/* The type that the codes of all rows ask for. */
static nw_format_id asked(nw_panel_type type, const uint8_t *panel)
{
    nw_code_set set = {.wider = false};
    nw_format_id format = NW_FMT_COUNT;
    int8_t codes[COLS];

    for (uint32_t r = 0; r < ROWS && nw_unpack_needs_codes(type); r++) {
        nw_code_set row = {.wider = false};
        nw_code_set_add_row(&row, type, panel, COLS, r, codes);
        nw_code_set_join(&set, &row);
    }
    assert_true(nw_unpack_format(type, COLS, &set, &format));
    return format;
}

static void blocks_come_back(void **state)
{
    const struct blocks_row *row = *state;
    const nw_format *f = nw_format_by_name(row->name);
    const uint8_t *at[ROWS];
    nw_panel_type type = {.kind = NW_PANEL_F32};
    size_t panel_bytes = 0;
    size_t row_bytes = 0;
    uint32_t bad = 0;
    int8_t codes[COLS];

    fill_blocks(row, f);
    assert_true(nw_repack_type(f->id, &type) && nw_panel_bytes(type, COLS, &panel_bytes));
    assert_true(nw_format_bytes(f, COLS, &row_bytes));
    uint8_t *panel = aligned_alloc(64, panel_bytes);
    void *scratch = malloc(nw_repack_scratch_bytes(f->id, COLS));
    assert_true(panel != NULL && scratch != NULL);
    for (uint32_t r = 0; r < ROWS; r++) {
        at[r] = blocks[r];
    }
    assert_true(nw_repack_panel(f->id, at, ROWS, COLS, panel, scratch, &bad));
    assert_int_equal(asked(type, panel), f->id);
    for (uint32_t r = 0; r < ROWS; r++) {
        memset(back, 0xEE, sizeof back);
        nw_unpack_row(type, panel, COLS, r, f->id, codes, back);
        assert_memory_equal(back, blocks[r], row_bytes);
        assert_int_equal(back[row_bytes], 0xEE);
    }
    free(panel);
    free(scratch);
}

/* ---- layouts of our own ---- */
static struct own_row {
    const char *panel;
    int lo, hi; /* codes used, as stored */
    const char *block;
} own_rows[] = {
    {"int4-g32", 0, 15, "Q4_0"},        {"int4-g64", 0, 15, "Q4_0"},
    {"int4-g128", 0, 15, "Q4_0"},       {"int4-g32-min", 0, 15, "Q4_1"},
    {"int4-g128-min", 0, 15, "Q4_1"},   {"int4-g32-zp", 0, 15, "Q5_0"},
    {"int4-g128-zp", 0, 15, "Q5_0"},    {"int8-g32", -128, 127, "Q8_0"},
    {"int8-g64", -16, 15, "Q5_0"},      {"int8-g32", -8, 7, "Q4_0"},
    {"int8-g32-min", 0, 31, "Q5_1"},    {"int8-g32-min", 0, 15, "Q4_1"},
    {"int8-g32-zp", -100, 100, "Q8_0"}, {"int8-g64-zp", -128, 127, NULL},
    {"int8-g32-zp", 0, 15, "Q5_0"},     {"int4-g16", 0, 15, NULL},
    {"int4-g256-zp", 0, 15, "Q5_0"},    {"int4-row-g32", 0, 15, "Q4_0"},
    {"int8-g32-min", 0, 32, NULL},      {"int8-g32-min", -1, 3, NULL},
};

typedef struct {
    uint8_t codes[ROWS][COLS], zeros[ROWS][COLS / 32];
    uint16_t scales[ROWS][COLS / 32], mins[ROWS][COLS / 32];
} plain;

static plain source;

static void fill_plain(const struct own_row *row)
{
    nw_rng rng = nw_rng_seed(11);
    const uint32_t span = (uint32_t)(row->hi - row->lo + 1);

    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < COLS; c++) {
            const int edge = c % 64 == 0 ? row->lo : row->hi;
            source.codes[r][c] =
                (uint8_t)(c % 32 == 0 ? edge : row->lo + (int)nw_rng_below(&rng, span));
        }
        for (size_t g = 0; g < COLS / 32; g++) {
            source.zeros[r][g] = (uint8_t)nw_rng_below(&rng, 16);
            source.scales[r][g] = (uint16_t)(0x2000U + nw_rng_below(&rng, 0x1000));
            source.mins[r][g] = (uint16_t)(0xA000U + nw_rng_below(&rng, 0x1000));
        }
    }
}

static void pack_plain(nw_panel_type t, uint8_t *panel)
{
    const size_t lds = COLS / 32;

    if (t.kind == NW_PANEL_INT8) {
        nw_panel_pack_int8_groups(t, (const int8_t *)source.codes[0], COLS, source.scales[0],
                                  t.min ? source.mins[0] : NULL,
                                  t.zero_point ? (const int8_t *)source.zeros[0] : NULL, lds, ROWS,
                                  COLS, panel);
    } else if (t.min) {
        nw_panel_pack_int4_min(t, source.codes[0], COLS, source.scales[0], source.mins[0], lds,
                               ROWS, COLS, panel);
    } else {
        nw_panel_pack_int4(t, source.codes[0], COLS, source.scales[0],
                           t.zero_point ? source.zeros[0] : NULL, lds, ROWS, COLS, panel);
    }
}

static void values_are_kept(void **state)
{
    const struct own_row *row = *state;
    nw_panel_type type = {.kind = NW_PANEL_F32};
    nw_code_set set = {.wider = false};
    nw_format_id found = NW_FMT_COUNT;
    size_t panel_bytes = 0;
    int8_t codes[COLS];
    float want[COLS];
    float got[COLS];

    assert_true(nw_panel_parse(row->panel, &type) && nw_panel_bytes(type, COLS, &panel_bytes));
    uint8_t *panel = aligned_alloc(64, panel_bytes);
    assert_non_null(panel);
    fill_plain(row);
    pack_plain(type, panel);
    for (uint32_t r = 0; r < ROWS; r++) {
        nw_code_set_add_row(&set, type, panel, COLS, r, codes);
    }
    const bool holds = nw_unpack_format(type, COLS, &set, &found);
    assert_int_equal(holds, row->block != NULL);
    for (uint32_t r = 0; holds && r < ROWS; r++) {
        const nw_format *f = nw_format_get(found);
        assert_string_equal(f->name, row->block);
        nw_unpack_row(type, panel, COLS, r, found, codes, back);
        f->decode(back, got, COLS / f->block_elems);
        nw_panel_unpack_row(type, panel, COLS, r, want);
        assert_memory_equal(got, want, sizeof want);
    }
    free(panel);
}

static void what_no_block_holds_is_told(void **state)
{
    const nw_code_set none = {.wider = false};
    nw_panel_type t = {.kind = NW_PANEL_INT4, .group = 32};
    nw_format_id f = NW_FMT_COUNT;

    (void)state;
    assert_true(nw_unpack_format(t, 96, &none, &f));
    assert_false(nw_unpack_format(t, 80, &none, &f)); /* no whole blocks */
    t.kind = NW_PANEL_FP8_E4M3;
    t.group = 0;
    assert_false(nw_unpack_format(t, 96, &none, &f));
    t.kind = NW_PANEL_NVFP4;
    t.group = 16;
    assert_false(nw_unpack_format(t, 96, &none, &f)); /* GGUF's blocks have 64 */
    assert_true(nw_unpack_format(t, 128, &none, &f));
    assert_int_equal(f, NW_FMT_NVFP4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_no_block_holds_is_told)};

    return NW_RUN_TABLE("unpack blocks", block_rows, blocks_come_back) +
           NW_RUN_TABLE("unpack layouts", own_rows, values_are_kept) +
           cmocka_run_group_tests_name("unpack limits", tests, NULL, NULL);
}
