/* Public reports about small number formats, each as a test: codes that do not come back, scales that
 * saturate, three rules of one name, exponents at their ends, tails of kernels, doubled values. (D7: tensor
 * scales of fused matrices, test_tensor_scale.c. D8: zero points of GPTQ, test_hf_quant.c.)
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "formats/format.h"
#include "formats/fp4.h"
#include "formats/fp8.h"
#include "kernels/kernels.h"
#include "quant/method.h"
#include "table.h"

static nw_panel_type type_of(const char *name)
{
    nw_panel_type t = {.kind = NW_PANEL_F32};
    if (!nw_panel_parse(name, &t)) {
        fail_msg("no layout '%s'", name);
    }
    return t;
}

/* D1: encode(decode(code)) is the code, for all 16 and 256 (253 without NaN and -0); ties to even. */
static void d1_every_code_comes_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        assert_int_equal(nw_e2m1_from_f32(nw_e2m1_to_f32((uint8_t)i)), i);
    }
    for (unsigned i = 0; i < 256; i++) {
        if ((i & 0x7F) != 0x7F) { /* NaN, of either sign */
            assert_int_equal(nw_e4m3_from_f32(nw_e4m3_to_f32((uint8_t)i)), i);
        }
    }
    assert_int_equal(nw_e2m1_from_f32(0.25F), 0);
    assert_int_equal(nw_e2m1_from_f32(0.25000006F), 1); /* one ulp above the tie */
    assert_int_equal(nw_e2m1_from_f32(0.24999999F), 0);
    assert_int_equal(nw_e2m1_from_f32(5.0F), 6);
    assert_int_equal(nw_e2m1_from_f32(5.0000005F), 7);
}

/* Rows of 32 values under a layout and a rule; the decoded row. */
static void through(const char *layout, nw_scale_rule rule, const float *row, float *out)
{
    const nw_method_job j = {.type = type_of(layout), .scales = {.rule = rule}, .n_cols = 32};
    uint8_t panel[8192];
    nw_output_error unused;
    uint32_t bad_row = 0;
    void *scratch = calloc(1, nw_method_scratch_bytes(&j) + 1);

    assert_non_null(scratch);
    assert_true(nw_method_pack_panel(&j, row, 1, panel, scratch, &unused, &bad_row));
    nw_panel_unpack_row(j.type, panel, 32, 0, out);
    free(scratch);
}

/* D2: 957 was made 896 by a scale that floors, then saturates. FP8 here has the row's absmax at 448: off
 * by half a step at most. MXFP4's floor rule does clip, to 6 times 2^(9 - 2); the search does not let
 * it cost more than a step. */
static void d2_the_largest_of_a_block_is_within_its_bound(void **state)
{
    float row[32] = {957};
    float out[32];

    (void)state;
    for (size_t i = 1; i < 32; i++) {
        row[i] = (float)(i * 20);
    }
    through("fp8-e4m3", NW_SCALE_ABSMAX, row, out);
    assert_true(fabsf(out[0] - 957) <= 957 * 0x1p-20F); /* 448 times the scale, a rounding of it */
    through("mxfp4", NW_SCALE_ABSMAX, row, out);
    assert_true(out[0] - 768 == 0);
    double floor_err = 0;
    double search_err = 0;
    for (size_t i = 0; i < 32; i++) {
        floor_err += pow((double)(out[i] - row[i]), 2);
    }
    through("mxfp4", NW_SCALE_SEARCH, row, out);
    for (size_t i = 0; i < 32; i++) {
        search_err += pow((double)(out[i] - row[i]), 2);
    }
    assert_true(search_err <= floor_err);
    through("nvfp4", NW_SCALE_ABSMAX, row, out);
    assert_true(fabsf(out[0] - 957) <= 957 / 16.0F);
}

/* D3: a block whose largest is 7 has 6 under the rule that floors: the rule's name stands in the
 * manifest, and the search is another one. */
static void d3_the_rule_of_a_scale_has_a_name(void **state)
{
    float row[32] = {7, 1, 0.5F};
    float out[32];

    (void)state;
    through("mxfp4", NW_SCALE_ABSMAX, row, out);
    assert_true(out[0] - 6 == 0);
    assert_non_null(strstr(nw_rtn_rule_text(type_of("mxfp4"), NW_SCALE_ABSMAX), "OCP floor"));
    assert_null(strstr(nw_rtn_rule_text(type_of("mxfp4"), NW_SCALE_SEARCH), "OCP floor"));
    assert_int_equal(nw_e8m0_floor(7), 127 + 2);
    assert_int_equal(nw_e8m0_ceil(7), 127 + 3);
    assert_int_equal(nw_e8m0_round(7), 127 + 3);
}

/* D4: byte 0 is 2^-127, no byte but 255 is anything else than its power; the smallest blocks do not become
 * infinite or nothing. */
static void d4_every_scale_byte_is_its_power(void **state)
{
    static const float tiny[] = {1e-45F, 1e-40F, 0x1p-126F, 1e-37F};

    (void)state;
    for (int b = 0; b < 255; b++) {
        uint8_t block[17] = {(uint8_t)b, 0x02}; /* element 0 has code 2: the value 1 */
        float out[32];
        nw_format_get(NW_FMT_MXFP4)->decode(block, out, 1);
        assert_true((double)out[0] - ldexp(1, b - 127) == 0);
        assert_true((double)nw_e8m0_to_f32((uint8_t)b) - ldexp(1, b - 127) == 0);
    }
    assert_true(isnan(nw_e8m0_to_f32(255)));
    for (size_t i = 0; i < NW_COUNT(tiny); i++) {
        float row[32] = {tiny[i], -tiny[i]};
        float out[32];
        through("mxfp4", NW_SCALE_SEARCH, row, out);
        /* the smallest scale is 2^-127: codes are multiples of half of it */
        assert_true(isfinite(out[0]) && fabsf(out[0] - row[0]) <= fmaxf(0x1p-128F, tiny[i] / 4));
        assert_true(out[1] + out[0] == 0);
    }
}

/* ---- D5: tails ---- */

/* Every tier that runs here against the reference, for 1 to 17 rows and 1 to 3 groups. Activations of 8
 * bits of mantissa or more: a product is off by 2^-8 of its terms at most, a wrong row by far more. */
static void sweep(const char *layout, uint32_t n_rows, uint32_t n_cols)
{
    const nw_panel_type type = type_of(layout);
    const nw_method_job j = {.type = type, .n_cols = n_cols};
    const uint32_t n_panels = nw_panel_count(n_rows);
    size_t n_kernels = 0;
    const nw_kernels *const *list = nw_kernels_list(&n_kernels);
    float w[17 * 96];
    float x[96];
    float y[17];
    static _Alignas(64) uint8_t panels[2 * 16384];
    static _Alignas(64) uint8_t act[8192];
    nw_rng rng = nw_rng_stream(n_rows, n_cols);
    size_t bytes = 0;
    void *scratch = calloc(1, nw_method_scratch_bytes(&j) + 1);

    assert_true(scratch != NULL && nw_panel_bytes(type, n_cols, &bytes) && bytes <= 16384);
    for (size_t i = 0; i < (size_t)n_rows * n_cols; i++) {
        w[i] = (float)nw_rng_normal(&rng);
    }
    for (size_t i = 0; i < n_cols; i++) {
        x[i] = (float)nw_rng_normal(&rng);
    }
    for (uint32_t p = 0; p < n_panels; p++) {
        nw_output_error unused;
        uint32_t bad_row = 0;
        const uint32_t n = n_rows - p * 16 < 16 ? n_rows - p * 16 : 16;
        assert_true(nw_method_pack_panel(&j, w + (size_t)p * 16 * n_cols, n, panels + p * bytes,
                                         scratch, &unused, &bad_row));
    }
    free(scratch);
    for (size_t k = 0; k < n_kernels; k++) {
        if ((list[k]->need & ~nw_cpu_features()) != 0) {
            continue;
        }
        const nw_weight weight = {type, panels, n_rows, n_cols};
        const nw_act_kind kind = list[k]->act_kind(type, false);
        const nw_act a = {kind, 1, n_cols, act};
        assert_true(nw_act_bytes(kind, 1, n_cols) <= sizeof act);
        list[k]->act_pack(kind, x, n_cols, 0, 1, n_cols, act);
        list[k]->linear(&weight, &a, 0, n_panels, y, n_rows);
        for (uint32_t r = 0; r < n_rows; r++) {
            float row[96];
            double want = 0;
            double terms = 0;
            nw_panel_unpack_row(type, panels, n_cols, r, row);
            for (uint32_t c = 0; c < n_cols; c++) {
                want += (double)row[c] * (double)x[c];
                terms += fabs((double)row[c] * (double)x[c]);
            }
            if (fabs((double)y[r] - want) > terms / 256) {
                fail_msg("%s %s: row %u of %u, %u columns: %g, not %g", list[k]->tier, layout, r,
                         n_rows, n_cols, (double)y[r], want);
            }
        }
    }
}

static void d5_tails_of_kernels(void **state)
{
    static const char *const layouts[] = {"int4-g32", "int4-g32-zp", "int4-g32-min", "int8",
                                          "int8-g32", "fp8-e4m3",    "nvfp4",        "mxfp4"};

    (void)state;
    for (size_t l = 0; l < NW_COUNT(layouts); l++) {
        for (uint32_t rows = 1; rows <= 17; rows++) {
            for (uint32_t groups = 1; groups <= 3; groups++) {
                sweep(layouts[l], rows, groups * 32);
            }
        }
    }
}

/* D6: ggml keeps the codes' values doubled and halves the scale; a block here means what it says. The
 * values are those of gguf-py for the same bytes. */
static void d6_a_block_is_not_off_by_two(void **state)
{
    static const uint8_t block[17] = {128,  0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE,
                                      0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF};
    /* low nibbles, then high ones; scale 2 */
    static const float want[32] = {0, 2, 4, 8,  0,  -2, -4, -8,  1, 3, 6, 12, -1, -3, -6, -12,
                                   1, 3, 6, 12, -1, -3, -6, -12, 0, 2, 4, 8,  0,  -2, -4, -8};
    float out[32];

    (void)state;
    nw_format_get(NW_FMT_MXFP4)->decode(block, out, 1);
    for (size_t i = 0; i < 32; i++) {
        if (fabsf(out[i] - want[i]) > 0) {
            fail_msg("element %zu: %g, not %g", i, (double)out[i], (double)want[i]);
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(d1_every_code_comes_back),
        cmocka_unit_test(d2_the_largest_of_a_block_is_within_its_bound),
        cmocka_unit_test(d3_the_rule_of_a_scale_has_a_name),
        cmocka_unit_test(d4_every_scale_byte_is_its_power),
        cmocka_unit_test(d5_tails_of_kernels),
        cmocka_unit_test(d6_a_block_is_not_off_by_two),
    };
    return cmocka_run_group_tests_name("reports_d", tests, NULL, NULL);
}
