/* Which tier is picked for a CPU, and what the table promises: names, order, activation kinds.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/cpu.h"
#include "kernels/act.h"
#include "table.h"

#define VNNI512 (NW_CPU_AVX2 | NW_CPU_AVX512 | NW_CPU_AVX512VNNI)

/* What this build should pick, of the tiers of the two architectures. */
static const char *expected(const char *x86, const char *arm)
{
    return nw_kernels_by_name("avx2") != NULL   ? x86
           : nw_kernels_by_name("neon") != NULL ? arm
                                                : "ref";
}

static struct pick_row {
    const char *name;
    uint32_t features;
    const char *x86, *arm;
} pick_rows[] = {
    {"nothing", 0, "ref", "ref"},
    {"haswell", NW_CPU_AVX2, "avx2", "ref"},
    {"vnni_alone_is_not_enough", NW_CPU_AVXVNNI | NW_CPU_AVX512VNNI, "ref", "ref"},
    {"skylake_sp", NW_CPU_AVX2 | NW_CPU_AVX512, "avx2", "ref"},
    {"alder_lake", NW_CPU_AVX2 | NW_CPU_AVXVNNI, "avxvnni", "ref"},
    {"cascade_lake", VNNI512, "avx512vnni", "ref"},
    {"ice_lake", VNNI512 | NW_CPU_AVX512VBMI, "avx512vnni", "ref"},
    {"cooper_lake", VNNI512 | NW_CPU_AVX512BF16, "avx512vnni", "ref"},
    {"zen4", VNNI512 | NW_CPU_AVX512VBMI | NW_CPU_AVX512BF16, "avx512", "ref"},
    {"zen5", VNNI512 | NW_CPU_AVX512VBMI | NW_CPU_AVX512BF16 | NW_CPU_AVXVNNI, "avx512", "ref"},
    {"sapphire_rapids",
     VNNI512 | NW_CPU_AVX512VBMI | NW_CPU_AVX512BF16 | NW_CPU_AVXVNNI | NW_CPU_AMX, "amx", "ref"},
    {"tiles_alone_are_not_enough", VNNI512 | NW_CPU_AVX512VBMI | NW_CPU_AMX, "avx512vnni", "ref"},
    {"cortex_a53", NW_CPU_NEON, "ref", "neon"},
    {"neoverse_n1", NW_CPU_NEON | NW_CPU_DOTPROD, "ref", "dotprod"},
    {"neoverse_v1", NW_CPU_NEON | NW_CPU_DOTPROD | NW_CPU_I8MM, "ref", "i8mm"},
    {"unknown_bits_as_well", UINT32_MAX, "amx", "i8mm"},
};

static void pick(void **state)
{
    const struct pick_row *r = *state;
    assert_string_equal(nw_kernels_pick(r->features)->tier, expected(r->x86, r->arm));
}

/* What NW_CPU_MASK leaves of a processor that has everything. */
static struct mask_row {
    const char *name;
    const char *mask;
    const char *x86, *arm;
} mask_rows[] = {
    {"no_mask", "", "amx", "i8mm"},
    {"without_amx", "amx", "avx512", "i8mm"},
    {"without_bf16", "avx512bf16", "avx512vnni", "i8mm"},
    {"without_vbmi", "avx512vbmi", "avx512vnni", "i8mm"},
    {"without_vnni", "avx512vnni", "avxvnni", "i8mm"},
    {"without_avx512", "avx512", "avxvnni", "i8mm"},
    {"without_both_vnni", "avx512,avxvnni", "avx2", "i8mm"},
    {"without_avx2", "avx512,avx2", "ref", "i8mm"},
    {"without_i8mm", "i8mm", "amx", "dotprod"},
    {"without_dotprod", "i8mm,dotprod", "amx", "neon"},
    {"without_neon", "neon", "amx", "ref"},
    {"nothing_left", "ref", "ref", "ref"},
};

static void masked(void **state)
{
    const struct mask_row *r = *state;
    uint32_t features = UINT32_MAX;
    assert_true(nw_cpu_mask(r->mask, &features));
    assert_string_equal(nw_kernels_pick(features)->tier, expected(r->x86, r->arm));
}

static void list_ends_with_the_reference(void **state)
{
    size_t n = 0;
    const nw_kernels *const *list = nw_kernels_list(&n);

    (void)state;
    assert_true(n >= 1);
    assert_string_equal(list[n - 1]->tier, "ref");
    assert_int_equal(list[n - 1]->need, 0);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(nw_kernels_by_name(list[i]->tier), list[i]);
    }
    assert_null(nw_kernels_by_name("avx3"));
}

static struct kind_row {
    const char *name;
    const char *type;
    bool a8;
    nw_act_kind avx512; /* and AMX's, and AVX2's of types that have codes */
    nw_act_kind others;
} kind_rows[] = {
    {"f32", "f32", false, NW_ACT_F32, NW_ACT_F32},
    {"f32_has_no_a8", "f32", true, NW_ACT_F32, NW_ACT_F32},
    {"bf16", "bf16", false, NW_ACT_BF16, NW_ACT_F32},
    {"bf16_has_no_a8", "bf16", true, NW_ACT_BF16, NW_ACT_F32},
    {"int8", "int8", false, NW_ACT_INT16, NW_ACT_F32},
    {"int8_a8", "int8", true, NW_ACT_INT8, NW_ACT_INT8},
    {"int4", "int4-g64", false, NW_ACT_INT16, NW_ACT_F32},
    {"int4_zp_a8", "int4-g32-zp", true, NW_ACT_INT8, NW_ACT_INT8},
    {"nvfp4", "nvfp4", false, NW_ACT_INT16, NW_ACT_F32},
    {"mxfp4_a8", "mxfp4", true, NW_ACT_INT8, NW_ACT_INT8},
    {"bf16_12", "bf16-12", true, NW_ACT_BF16, NW_ACT_F32},
    {"fp8_has_no_a8", "fp8-e4m3", true, NW_ACT_BF16, NW_ACT_F32},
};

static void act_kinds(void **state)
{
    const struct kind_row *r = *state;
    nw_panel_type type = {0};
    size_t n = 0;
    const nw_kernels *const *list = nw_kernels_list(&n);

    assert_true(nw_panel_parse(r->type, &type));
    for (size_t i = 0; i < n; i++) {
        const char *tier = list[i]->tier;
        const bool avx2 = strcmp(tier, "avx2") == 0 || strcmp(tier, "avxvnni") == 0;
        const bool avx512 =
            strcmp(tier, "amx") == 0 || strcmp(tier, "avx512") == 0 || (avx2 && nw_has_a8(type));
        assert_int_equal(list[i]->act_kind(type, r->a8), avx512 ? r->avx512 : r->others);
    }
}

/* Sizes by hand: values padded to 128 columns, an odd number of lines a row. bf16 and int8 have 4 bytes
 * for each 16 columns, int8 and int16 as many again for each 32, 64 and 128 (to a line); int8 has 64
 * bytes of head, int16 4 for each 128 columns. */
static struct size_row {
    const char *name;
    nw_act_kind kind;
    uint32_t n_cols;
    size_t want;
} size_rows[] = {
    {"f32_1", NW_ACT_F32, 1, 9 * 64},          {"bf16_1", NW_ACT_BF16, 1, 5 * 64},
    {"bf16_576", NW_ACT_BF16, 576, 23 * 64},   {"int8_1", NW_ACT_INT8, 1, 5 * 64},
    {"int8_576", NW_ACT_INT8, 576, 17 * 64},   {"int8_4096", NW_ACT_INT8, 4096, 95 * 64},
    {"int16_576", NW_ACT_INT16, 576, 27 * 64}, {"int16_4096", NW_ACT_INT16, 4096, 161 * 64},
};

static void sizes(void **state)
{
    const struct size_row *r = *state;
    assert_int_equal(nw_act_stride(r->kind, r->n_cols), r->want);
    assert_int_equal(nw_act_bytes(r->kind, 3, r->n_cols), 3 * r->want);
}

static void sizes_overflow_to_zero(void **state)
{
    (void)state;
    assert_int_equal(nw_act_bytes(NW_ACT_F32, 1, UINT32_MAX), 0);
}

int main(void)
{
    const struct CMUnitTest single[] = {
        cmocka_unit_test(list_ends_with_the_reference),
        cmocka_unit_test(sizes_overflow_to_zero),
    };
    return NW_RUN_TABLE("pick", pick_rows, pick) + NW_RUN_TABLE("masked", mask_rows, masked) +
           NW_RUN_TABLE("act_kinds", kind_rows, act_kinds) +
           NW_RUN_TABLE("sizes", size_rows, sizes) +
           cmocka_run_group_tests_name("single", single, NULL, NULL);
}
