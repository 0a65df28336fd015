/* What scales may be and what they are shared with, in artifacts of a tiny model: NVFP4's tensor scale,
 * scales that are BF16 values.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "artifact/artifact.h"
#include "formats/half.h"
#include "quant/quantize.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

static nw_status quantize(const char *model, const char *recipe, const char *out, nw_error *err)
{
    const nw_quantize_options o = {.source = in_dir(model),
                                   .recipe = recipe,
                                   .out = in_dir(out),
                                   .no_tokenizer = true,
                                   .n_threads = 2};
    return nw_quantize(&o, NULL, err);
}

static int setup(void **state)
{
    nw_tiny t = nw_tiny_llama();

    (void)state;
    dir = nw_tmpdir_make();
    nw_tiny_write(&t, in_dir("tied"));
    return 0;
}

/* The tensor scale that every panel of a matrix holds. */
static float tensor_scale(const nw_artifact *a, nw_role role)
{
    const nw_artifact_matrix *m = nw_artifact_get_matrix(a, role, 1);
    const size_t bytes = m->n_bytes / nw_panel_count(m->n_rows);
    const float s = nw_panel_tensor_scale(m->type, m->data);

    for (uint32_t p = 1; p < nw_panel_count(m->n_rows); p++) {
        assert_true(nw_panel_tensor_scale(m->type, m->data + p * bytes) - s == 0);
    }
    return s;
}

/* D7: a runtime that fuses q, k, v (gate, up) keeps one scale for them. */
static void d7_fused_matrices_share_a_tensor_scale(void **state)
{
    nw_artifact *a = NULL;
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    float w[64 * 96];
    float most = 0;

    (void)state;
    must(quantize("tied", "nvfp4", "d7", &err), &err);
    must(nw_artifact_open(in_dir("d7"), &a, &err), &err);
    must(nw_checkpoint_open(in_dir("tied"), &c, &err), &err);
    const float q = tensor_scale(a, NW_ROLE_Q);
    assert_true(tensor_scale(a, NW_ROLE_K) - q == 0 && tensor_scale(a, NW_ROLE_V) - q == 0);
    const float gate = tensor_scale(a, NW_ROLE_GATE);
    assert_true(tensor_scale(a, NW_ROLE_UP) - gate == 0);
    assert_true(gate < q || gate > q);
    must(nw_checkpoint_read_f32(c, nw_checkpoint_find(c, NW_ROLE_DOWN, 1), 0, 64, w, &err), &err);
    for (size_t i = 0; i < NW_COUNT(w); i++) {
        most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
    }
    assert_true(tensor_scale(a, NW_ROLE_DOWN) - most / 2688 == 0);
    nw_checkpoint_close(c);
    nw_artifact_close(a);
}

/* Every scale of every INT4 matrix is a BF16 value, whatever method chose it. */
static void bf16_scales_reach_the_artifact(void **state)
{
    static const char *const layouts[] = {"int4-g32", "int4-g32-zp", "int8-g32"};
    char path[512];
    char yaml[256];

    (void)state;
    for (size_t i = 0; i < NW_COUNT(layouts); i++) {
        nw_artifact *a = NULL;
        nw_error err = {0};
        int8_t codes[96];
        float scales[3];
        int8_t zeros[3];
        const int n = snprintf(yaml, sizeof yaml,
                               "scale_dtype: bf16\nmethod: %s\n"
                               "targets: [{match: '.*_proj', weights: %s}]\n",
                               i == 0 ? "rtn" : "refit", layouts[i]);
        nw_tmpdir_put(&dir, "bf16.yaml", yaml, (size_t)n, path, sizeof path);
        must(quantize("tied", path, layouts[i], &err), &err);
        must(nw_artifact_open(in_dir(layouts[i]), &a, &err), &err);
        const nw_artifact_matrix *m = nw_artifact_get_matrix(a, NW_ROLE_DOWN, 1);
        for (uint32_t r = 0; r < m->n_rows; r++) {
            nw_panel_codes_row(m->type, m->data, m->n_cols, r, codes, scales, zeros);
            for (size_t g = 0; g < NW_COUNT(scales); g++) {
                assert_int_equal(nw_f32_bits(scales[g]) & 0xFFFF, 0);
            }
        }
        nw_artifact_close(a);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(d7_fused_matrices_share_a_tensor_scale),
        cmocka_unit_test(bf16_scales_reach_the_artifact),
    };
    return cmocka_run_group_tests_name("tensor_scale", tests, setup, teardown);
}
