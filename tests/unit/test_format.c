/* The registry's rows against each other, and every decoder against golden blocks: our bytes with the
 * values gguf-py gives for them (tests/golden/blocks/NAME.bin: 4 blocks, then their float32 values,
 * little endian). Block 0 is plain, 1 has every code at its largest and negative scales, 2 has a
 * scale of zero, 3 has subnormal scales (of MXFP4: 2^128; block 2 of NVFP4 has the bytes that GGUF reads
 * in its own way).
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "formats/format.h"
#include "formats/half.h"
#include "table.h"

#define N_BLOCKS 4

static void rows_are_found_by_every_name(void **state)
{
    (void)state;
    for (int i = 0; i < NW_FMT_COUNT; i++) {
        const nw_format *f = nw_format_get((nw_format_id)i);
        assert_int_equal(f->id, i);
        assert_ptr_equal(nw_format_by_name(f->name), f);
        if (f->ggml_type >= 0) {
            assert_ptr_equal(nw_format_by_ggml(f->ggml_type), f);
        }
        if (f->st_dtype != NULL) {
            assert_ptr_equal(nw_format_by_st_dtype(f->st_dtype), f);
        }
    }
    assert_null(nw_format_by_name("Q9_9"));
    assert_null(nw_format_by_ggml(-1));
    assert_null(nw_format_by_ggml(4)); /* removed */
    assert_null(nw_format_by_ggml(43));
    assert_null(nw_format_by_st_dtype("float32"));
}

static void sizes_are_whole_blocks_and_never_overflow(void **state)
{
    size_t n = 7;

    (void)state;
    assert_true(nw_format_bytes(nw_format_get(NW_FMT_Q4_K), 512, &n));
    assert_int_equal(n, 288);
    assert_false(nw_format_bytes(nw_format_get(NW_FMT_Q4_K), 500, &n));
    assert_false(nw_format_bytes(nw_format_get(NW_FMT_F64), UINT64_MAX / 4, &n));
    assert_int_equal(n, 288);
    assert_true(nw_format_bytes(nw_format_get(NW_FMT_F32), 0, &n));
    assert_int_equal(n, 0);
}

/* d = 1 everywhere, so that values are the codes: by the layouts of block.h, by hand. */
static void codes_stand_where_the_layout_says(void **state)
{
    uint8_t q4[18] = {0x00, 0x3C, [2] = 0x21, [17] = 0xF0};
    uint8_t q5[22] = {0x00, 0x3C, 0x01, 0x00, 0x00, 0x80, [6] = 0x21, [21] = 0xF0};
    uint8_t q8[34] = {0x00, 0x3C, 0x80, 0x7F, [33] = 0xFF};
    float x[32];

    (void)state;
    nw_format_get(NW_FMT_Q4_0)->decode(q4, x, 1);
    assert_true(x[0] == 1 - 8 && x[16] == 2 - 8 && x[15] == 0 - 8 && x[31] == 15 - 8);
    nw_format_get(NW_FMT_Q5_0)->decode(q5, x, 1);
    assert_true(x[0] == 17 - 16 && x[16] == 2 - 16 && x[15] == 0 - 16 && x[31] == 31 - 16);
    nw_format_get(NW_FMT_Q8_0)->decode(q8, x, 1);
    assert_true(x[0] == -128 && x[1] == 127 && x[31] == -1);
}

static struct row {
    const char *name;
} golden[] = {{"F16"},  {"BF16"}, {"Q4_0"}, {"Q4_1"},   {"Q5_0"},  {"Q5_1"}, {"Q8_0"},
              {"Q4_K"}, {"Q5_K"}, {"Q6_K"}, {"IQ4_NL"}, {"MXFP4"}, {"NVFP4"}};

static void golden_blocks_decode_bit_for_bit(void **state)
{
    const struct row *r = *state;
    const nw_format *f = nw_format_by_name(r->name);
    const size_t n = (size_t)N_BLOCKS * f->block_elems;
    char path[512];
    nw_file file = {0};
    nw_error err = {0};
    float got[N_BLOCKS * 256];
    float want[N_BLOCKS * 256];

    (void)snprintf(path, sizeof path, "%s/tests/golden/blocks/%s.bin", NW_SOURCE_DIR, r->name);
    assert_int_equal(nw_file_map(path, &file, &err), NW_OK);
    assert_int_equal(file.size, (size_t)N_BLOCKS * f->block_bytes + 4 * n);
    f->decode(file.data, got, N_BLOCKS);
    nw_format_get(NW_FMT_F32)->decode(file.data + (size_t)N_BLOCKS * f->block_bytes, want, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(nw_f32_bits(got[i]), nw_f32_bits(want[i]));
    }
    if (f->block_elems == 1) {
        uint8_t back[N_BLOCKS * 4];
        f->encode(got, back, N_BLOCKS);
        assert_memory_equal(back, file.data, (size_t)N_BLOCKS * f->block_bytes);
    }
    nw_file_unmap(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found_by_every_name),
        cmocka_unit_test(sizes_are_whole_blocks_and_never_overflow),
        cmocka_unit_test(codes_stand_where_the_layout_says),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed + NW_RUN_TABLE("golden blocks", golden, golden_blocks_decode_bit_for_bit);
}
