/* Blocks into panels: for every format with a layout, random and edge blocks give, row by row, the
 * values that the block decoder gives, bit for bit; rows may come in any order; what cannot be kept
 * exactly is refused with its row.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/rng.h"
#include "formats/half.h"
#include "formats/repack.h"
#include "table.h"

#define COLS 512
#define ROWS 16

static struct row {
    const char *name;
    const char *panel;
    uint32_t scale_at[4], n_scales; /* where a block keeps fp16 scales */
} rows[] = {
    {"BF16", "bf16", {0}, 0},
    {"Q4_0", "int4-g32", {0}, 1},
    {"Q4_1", "int4-g32-min", {0, 2}, 2},
    {"Q5_0", "int8-g32", {0}, 1},
    {"Q5_1", "int8-g32-min", {0, 2}, 2},
    {"Q8_0", "int8-g32", {0}, 1},
    {"IQ4_NL", "int8-g32", {0}, 1},
    {"Q4_K", "int4-g32-k", {0, 2}, 2},
    {"Q5_K", "int8-g32-k", {0, 2}, 2},
    {"Q6_K", "int8-g16-k", {208}, 1},
    {"MXFP4", "mxfp4", {0}, 0},
    {"NVFP4", "nvfp4", {0}, 0},
    {"F8_E4M3", "fp8-e4m3", {0}, 0},
    {"F8_E5M2", "fp8-e5m2", {0}, 0},
};

typedef struct {
    const nw_format *f;
    nw_panel_type type;
    uint8_t blocks[ROWS][COLS * 2];
    const uint8_t *order[ROWS];
    uint8_t *panel, *scratch;
    size_t panel_bytes;
    float want[COLS], got[COLS];
} job;

static job *job_new(const struct row *r)
{
    job *j = calloc(1, sizeof *j);

    assert_non_null(j);
    j->f = nw_format_by_name(r->name);
    assert_non_null(j->f);
    assert_true(nw_repack_type(j->f->id, &j->type));
    assert_true(nw_panel_bytes(j->type, COLS, &j->panel_bytes));
    j->panel = aligned_alloc(64, j->panel_bytes + 64);
    j->scratch = malloc(nw_repack_scratch_bytes(j->f->id, COLS)); /* ASan guards its end */
    assert_non_null(j->panel);
    assert_non_null(j->scratch);
    memset(j->panel + j->panel_bytes, 0xEE, 64);
    for (size_t i = 0; i < ROWS; i++) {
        j->order[i] = j->blocks[i];
    }
    return j;
}

static void job_free(job *j)
{
    assert_int_equal(j->panel[j->panel_bytes], 0xEE);
    free(j->panel);
    free(j->scratch);
    free(j);
}

/* Any byte but the exponents of infinities, and but the codes that stand for no number. */
static void make_finite(const struct row *r, uint8_t *block)
{
    for (uint32_t s = 0; s < r->n_scales; s++) {
        uint8_t *high = &block[r->scale_at[s] + 1];
        *high = (uint8_t)((*high & 0x7CU) == 0x7CU ? *high ^ 0x40U : *high);
    }
    if (strcmp(r->name, "BF16") == 0 || strcmp(r->name, "F8_E5M2") == 0) {
        block[strlen(r->name) == 4] &= 0xBFU;
    } else if (strcmp(r->name, "F8_E4M3") == 0 && (*block & 0x7FU) == 0x7FU) {
        *block ^= 1U;
    } else if (strcmp(r->name, "MXFP4") == 0 && *block > 252) {
        *block = (uint8_t)(*block - 4); /* 253 to 255 would overflow */
    }
    for (size_t s = 0; strcmp(r->name, "NVFP4") == 0 && s < 4; s++) {
        block[s] = block[s] == 0xFF ? 0x7F : block[s];
    }
}

static void fill(job *j, const struct row *r, uint64_t seed)
{
    const size_t n_blocks = COLS / j->f->block_elems;
    nw_rng rng = nw_rng_seed(seed);

    for (size_t i = 0; i < ROWS; i++) {
        for (size_t b = 0; b < n_blocks; b++) {
            uint8_t *block = j->blocks[i] + b * j->f->block_bytes;
            for (size_t k = 0; k < j->f->block_bytes; k++) {
                block[k] = (uint8_t)nw_rng_below(&rng, 256);
            }
            if (b % 2 == 1) { /* edge blocks: all zeros or all ones */
                memset(block, i % 2 == 0 ? 0 : 0xFF, j->f->block_bytes);
            }
            make_finite(r, block);
        }
    }
}

static void compare(job *j, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        j->f->decode(j->order[i], j->want, COLS / j->f->block_elems);
        nw_panel_unpack_row(j->type, j->panel, COLS, i, j->got);
        for (size_t c = 0; c < COLS; c++) {
            assert_int_equal(nw_f32_bits(j->got[c]), nw_f32_bits(j->want[c]));
        }
    }
}

static void a_panel_holds_the_values_of_the_blocks(void **state)
{
    const struct row *r = *state;
    job *j = job_new(r);
    char name[32];
    uint32_t bad = 99;

    assert_string_equal(nw_panel_name(j->type, name), r->panel);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const uint32_t n_rows = seed <= 16 ? (uint32_t)seed : ROWS;
        fill(j, r, seed);
        for (size_t i = 0; i < ROWS; i++) { /* rows of the file in another order */
            j->order[i] = j->blocks[(i * 5 + seed) % ROWS];
        }
        assert_true(nw_repack_panel(j->f->id, j->order, n_rows, COLS, j->panel, j->scratch, &bad));
        compare(j, n_rows);
    }
    assert_int_equal(bad, 99);
    job_free(j);
}

/* One byte of row 3 that stands for no finite value. */
static struct bad_row {
    const char *name;
    size_t at;
    uint8_t byte;
} bad_rows[] = {
    {"BF16", 1, 0xFF},    {"Q4_0", 19, 0x7C},   {"Q4_1", 1, 0xFC},    {"Q4_1", 3, 0x7E},
    {"Q5_0", 1, 0x7C},    {"Q5_1", 3, 0x7C},    {"Q8_0", 1, 0x7C},    {"IQ4_NL", 1, 0x7C},
    {"Q4_K", 1, 0x7C},    {"Q4_K", 3, 0x7C},    {"Q5_K", 3, 0xFE},    {"Q6_K", 209, 0x7C},
    {"MXFP4", 0, 253},    {"MXFP4", 17, 255},   {"NVFP4", 2, 0xFF},   {"F8_E4M3", 5, 0x7F},
    {"F8_E4M3", 6, 0xFF}, {"F8_E5M2", 7, 0x7C}, {"F8_E5M2", 8, 0xFF},
};

static void a_row_that_cannot_be_kept_is_named(void **state)
{
    const struct bad_row *bad_row = *state;
    uint32_t bad = 99;
    size_t i = 0;

    while (strcmp(rows[i].name, bad_row->name) != 0) {
        i++;
    }
    job *j = job_new(&rows[i]);
    fill(j, &rows[i], 1);
    j->blocks[3][bad_row->at] = bad_row->byte;
    if (strcmp(bad_row->name, "BF16") == 0) {
        j->blocks[3][0] = 0x80;
    }
    assert_false(nw_repack_panel(j->f->id, j->order, ROWS, COLS, j->panel, j->scratch, &bad));
    assert_int_equal(bad, 3);
    assert_true(nw_repack_panel(j->f->id, j->order, 3, COLS, j->panel, j->scratch, &bad));
    job_free(j);
}

static void formats_without_a_layout_are_not_repacked(void **state)
{
    nw_panel_type type = {.group = 99};

    (void)state;
    assert_false(nw_repack_type(NW_FMT_F16, &type));
    assert_false(nw_repack_type(NW_FMT_Q2_K, &type));
    assert_false(nw_repack_type(NW_FMT_I8, &type));
    assert_int_equal(type.group, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(formats_without_a_layout_are_not_repacked)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    failed += NW_RUN_TABLE("values", rows, a_panel_holds_the_values_of_the_blocks);
    failed += NW_RUN_TABLE("refused", bad_rows, a_row_that_cannot_be_kept_is_named);
    return failed;
}
