/* INT8 weights with INT8 activations on a model with planted outlier channels: what scales of a tensor lose
 * there, and what SmoothQuant, columns kept wide and static scales keep.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/inputs.h"
#include "base/signal.h"
#include "kernels/act.h"
#include "planted_fixture.h"

/* Mean KL of the last artifact made from the yaml, against the planted model. */
static double kl_of(const char *yaml)
{
    scored s = {0};
    nw_error err = {0};

    must(quantize(yaml, "q", &err), &err);
    score("planted", 1, N_IDS, &s);
    s.compare = true;
    score("q", 1, N_IDS, &s);
    free(s.keep);
    return s.sum_kl / N_IDS;
}

static void outlier_channels_want_more_than_a_scale_a_tensor(void **state)
{
    (void)state;
    const double tensor = kl_of("activations: a8\nscale: tensor\n" TARGETS);
    const double smooth = kl_of("activations: a8\ntransform: [smoothquant]\n" TARGETS);
    const double wide = kl_of("activations: a8\noutliers: 20\n" TARGETS);
    const double both = kl_of("activations: a8\noutliers: 20\nactivation_scale: static\n" TARGETS);
    const double fixed = kl_of("activations: a8\ntransform: [smoothquant]\n"
                               "activation_scale: static\n" TARGETS);

    if (!(smooth <= tensor / 20) || !(wide <= tensor / 20) || !(both <= tensor / 20) ||
        !(fixed <= tensor / 20)) {
        fail_msg("KL of a scale a tensor %g, SmoothQuant %g (static %g), wide columns %g (static "
                 "%g)",
                 tensor, smooth, fixed, wide, both);
    }
}

/* The columns of planted channels are small, and share their scale with others: kept wide they cost
 * nothing, whatever the activations are. */
static void wide_columns_help_weights_alone(void **state)
{
    static const char *const layouts[] = {"int8", "int8-g32", "int4-g32"};

    (void)state;
    for (size_t i = 0; i < NW_COUNT(layouts); i++) {
        char plain[256];
        char wide[320];
        (void)snprintf(plain, sizeof plain, "targets: [{match: '.*_proj', weights: %s}]\n",
                       layouts[i]);
        (void)snprintf(wide, sizeof wide, "outliers: 20\n%s", plain);
        const double without = kl_of(plain);
        const double with = kl_of(wide);
        if (!(with < without)) {
            fail_msg("%s: KL %g with wide columns, %g without", layouts[i], with, without);
        }
    }
}

/* With every column wide, INT8 has nothing left: the model is that of BF16 weights. */
static void all_columns_wide_are_bf16(void **state)
{
    nw_logits_probe *probe = NULL;
    nw_error err = {0};
    double max_kl = 0;
    double mean_kl = 0;

    (void)state;
    must(quantize("targets: [{match: '.*_proj', weights: bf16}]\n", "bf16", &err), &err);
    must(quantize("activations: a8\noutliers: 1.0e-9\n" TARGETS, "all", &err), &err);
    must(nw_logits_probe_open(in_dir("bf16"), false, 1, &probe, &err), &err);
    must(nw_logits_probe_compare(probe, in_dir("all"), &max_kl, &mean_kl, &err), &err);
    nw_logits_probe_close(probe);
    assert_true(max_kl < 1e-7);
}

/* Bits do not depend on threads or on how the tokens are cut. */
static void wide_columns_keep_the_bits(void **state)
{
    scored a = {0};
    scored b = {0};
    nw_error err = {0};

    (void)state;
    must(quantize("activations: a8\noutliers: 20\n" TARGETS, "q", &err), &err);
    score("q", 1, N_IDS, &a);
    score("q", 2, 7, &b);
    assert_memory_equal(a.keep, b.keep, (size_t)N_IDS * a.n_vocab * sizeof *a.keep);
    free(a.keep);
    free(b.keep);
}

static void planted_columns_are_the_wide_ones(void **state)
{
    nw_artifact *a = NULL;
    nw_error err = {0};

    (void)state;
    must(quantize("activations: a8\noutliers: 20\nactivation_scale: static\n" TARGETS, "q", &err),
         &err);
    must(nw_artifact_open(in_dir("q"), &a, &err), &err);
    const nw_artifact_input *in = nw_artifact_get_input(a, NW_ROLE_GATE, 1);
    assert_non_null(in);
    assert_int_equal(in->n_wide, 2);
    assert_int_equal(in->wide[0], 5);
    assert_int_equal(in->wide[1], 40);
    assert_true(in->fixed.scale > 0 && in->fixed.scale < 20.0F / 127);
    assert_int_equal(nw_artifact_get_wide(a, NW_ROLE_UP, 1)->n_cols, 2);
    assert_null(nw_artifact_get_wide(a, NW_ROLE_O, 1));
    nw_artifact_close(a);
}

/* ---- files that are not what the manifest says ---- */

static void damage(const char *artifact, const char *tensor, float value)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", in_dir(artifact), NW_INPUTS_FILE);
    put(path, tensor, 1, value);
}

static struct damage_row {
    const char *name, *tensor;
    float value;
    const char *says;
} damage_rows[] = {
    {"column_beyond_the_input", "layers.1.gate.wide", 64, "out of range"},
    {"columns_out_of_order", "layers.1.gate.wide", 41, "out of order"},
    {"column_that_is_no_integer", "layers.1.gate.wide", 4.5F, "out of range"},
    {"scale_of_nothing", "layers.0.q.scale", 0, "not above 0"},
    {"scale_whose_inverse_is_infinite", "layers.0.q.scale", 0x1p-128F, "below 2^-126"},
    {"scale_that_is_no_number", "layers.0.q.scale", NAN, "not above 0"},
};

static void damaged_inputs_are_refused(void **state)
{
    const struct damage_row *r = *state;
    nw_artifact *a = NULL;
    nw_error err = {0};

    must(quantize("activations: a8\noutliers: 20\nactivation_scale: static\n" TARGETS, "q", &err),
         &err);
    damage("q", r->tensor, r->value);
    assert_int_equal(nw_artifact_open(in_dir("q"), &a, &err), NW_E_FORMAT);
    if (strstr(err.message, r->says) == NULL || strstr(err.message, NW_INPUTS_FILE) == NULL) {
        fail_msg("'%s' is not in: %s", r->says, err.message);
    }
    assert_null(a);
}

static void another_number_is_found_by_the_hash(void **state)
{
    nw_error err = {0};

    (void)state;
    must(quantize("activations: a8\nactivation_scale: static\n" TARGETS, "q", &err), &err);
    must(nw_artifact_verify(in_dir("q"), NULL, NULL, NULL, &err), &err);
    damage("q", "layers.0.q.scale", 0.125F);
    assert_int_equal(nw_artifact_verify(in_dir("q"), NULL, NULL, NULL, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, NW_INPUTS_FILE));
}

static void no_other_format_says_it(void **state)
{
    nw_export_source *s = NULL;
    nw_error err = {0};

    (void)state;
    must(quantize("activations: a8\noutliers: 20\n" TARGETS, "q", &err), &err);
    assert_int_equal(nw_export_source_open(in_dir("q"), &s, &err), NW_E_UNSUPPORTED);
    assert_int_equal(nw_artifact_verify(in_dir("q"), in_dir("planted"), NULL, NULL, &err),
                     NW_E_UNSUPPORTED);
}

static void stopping_ends_a_verification(void **state)
{
    nw_error err = {0};

    (void)state;
    must(quantize("activations: a8\nactivation_scale: static\n" TARGETS, "q", &err), &err);
    nw_stop_request(); /* for good: the last test */
    assert_int_equal(nw_artifact_verify(in_dir("q"), NULL, NULL, NULL, &err), NW_E_CANCELLED);
}

#define LEFT_OUT "and 1 like it: not quantized, but others that read its input are"

static struct refused_row {
    const char *name, *yaml, *says;
} refused_rows[] = {
    {"outliers_of_fp8", "activations: fp8\noutliers: 6\n" TARGETS, "must be a16 or a8"},
    {"outliers_of_rotated", "activations: a8\noutliers: 6\ntransform: [rotate]\n" TARGETS,
     "not of rotated"},
    {"static_of_a16", "activation_scale: static\n" TARGETS, "could be static"},
    {"static_of_groups", "activations: fp8-g128\nactivation_scale: static\n" TARGETS,
     "could be static"},
    {"nvfp4_beside_int8", "activations: nvfp4\n" TARGETS, "beside nvfp4 weights"},
    {"dynamic_nvfp4", "activations: nvfp4\nactivation_scale: dynamic\n" NVFP4_TARGETS,
     "need static ones"},
    {"v_wide_beside_nvfp4", "activations: nvfp4\nignore: ['.*v_proj']\n" NVFP4_TARGETS, LEFT_OUT},
    {"up_wide_beside_nvfp4", "activations: nvfp4\nignore: ['.*up_proj']\n" NVFP4_TARGETS, LEFT_OUT},
    {"v_wide_beside_fp8", "activations: fp8\nignore: ['.*v_proj']\n" FP8_TARGETS, LEFT_OUT},
    {"v_wide_beside_fp8_g128", "activations: fp8-g128\nignore: ['.*v_proj']\n" FP8_TARGETS,
     LEFT_OUT},
    {"up_wide_beside_a8_ct", "activations: a8-ct\nignore: ['.*up_proj']\n" TARGETS, LEFT_OUT},
    {"no_threshold", "activations: a8\noutliers: 0\n" TARGETS, "no number above 0"},
    {"unknown_scale", "activations: a8\nactivation_scale: fixed\n" TARGETS, "dynamic or static"},
};

static void input_plan_that_cannot_be_is_refused(void **state)
{
    const struct refused_row *r = *state;
    nw_error err = {0};

    assert_true(quantize(r->yaml, "refused", &err) != NW_OK);
    if (strstr(err.message, r->says) == NULL) {
        fail_msg("'%s' is not in: %s", r->says, err.message);
    }
}

/* ---- one scale for all tokens ---- */

static void fixed_scale_packs_and_holds(void **state)
{
    enum { N = 40 };
    const size_t stride = nw_act_stride(NW_ACT_INT8, N);
    float x[2 * N];
    nw_act_head head;

    (void)state;
    for (size_t i = 0; i < NW_COUNT(x); i++) {
        x[i] = (float)((int)(i * 31 % 255) - 127) * (i < N ? 0.5F : 1.0F);
    }
    uint8_t *plain = calloc(2, stride);
    uint8_t *fixed = calloc(2, stride);
    assert_true(plain != NULL && fixed != NULL);
    nw_act_pack_plain(NW_ACT_INT8, x, N, 0, 2, N, plain);
    memcpy(&head, plain + stride, sizeof head);
    nw_act_pack_fixed(head.scale, x, N, 0, 2, N, fixed);
    assert_memory_equal(plain + stride, fixed + stride, stride); /* its own scale: the same row */
    const int8_t *codes = (const int8_t *)fixed + nw_act_codes_at(NW_ACT_INT8, N);
    for (size_t i = 0; i < N; i++) { /* the other token under a scale that is not its own */
        assert_int_equal(codes[i], (int)nearbyintf(x[i] * (1 / head.scale)));
    }
    nw_act_pack_fixed(head.scale / 4, x, N, 1, 2, N, fixed);
    codes = (const int8_t *)fixed + stride + nw_act_codes_at(NW_ACT_INT8, N);
    for (size_t i = 0; i < N; i++) {
        const float held = fmaxf(-127, fminf(127, x[N + i] / (head.scale / 4)));
        assert_int_equal(codes[i], (int)nearbyintf(held));
    }
    x[N + 3] = INFINITY;
    nw_act_pack_fixed(head.scale, x, N, 1, 2, N, fixed);
    memcpy(&head, fixed + stride, sizeof head);
    assert_true(isnan(head.scale));
    free(plain);
    free(fixed);
}

/* ---- other formats ---- */

static void decoded_values_are_the_model(void **state)
{
    nw_error err = {0};

    (void)state;
    must(quantize(TARGETS, "q", &err), &err);
    assert_int_equal(export_as("hf", "q", "decoded"), 0);
    assert_false(nw_artifact_is_native(in_dir("decoded")));
    assert_true(apart("q", "decoded") < 1e-6);
}

/* Wide matrices of 128 columns and more in blocks; those of 64 stay as they are. */
static void blocks_are_made_and_carried(void **state)
{
    nw_artifact *a = NULL;
    nw_error err = {0};

    (void)state;
    nw_model_config c = nw_tiny_wide();
    c.d_ff = 128;
    nw_tiny_write(&c, 3, in_dir("columns128"));
    assert_true(export_as("fp8-block", "columns128", "blocks") > 0);
    assert_int_equal(export_as("compressed-tensors", "blocks", "again"), 0);
    assert_true(apart("blocks", "again") == 0);
    must(nw_artifact_open(in_dir("again"), &a, &err), &err);
    assert_int_equal(nw_artifact_get_facts(a)->act, NW_ACT_RULE_FP8_G128);
    assert_true(nw_artifact_get_matrix(a, NW_ROLE_DOWN, 1)->coded);
    assert_false(nw_artifact_get_matrix(a, NW_ROLE_Q, 1)->coded);
    nw_artifact_close(a);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(outlier_channels_want_more_than_a_scale_a_tensor),
        cmocka_unit_test(wide_columns_help_weights_alone),
        cmocka_unit_test(all_columns_wide_are_bf16),
        cmocka_unit_test(wide_columns_keep_the_bits),
        cmocka_unit_test(planted_columns_are_the_wide_ones),
        cmocka_unit_test(another_number_is_found_by_the_hash),
        cmocka_unit_test(no_other_format_says_it),
        cmocka_unit_test(fixed_scale_packs_and_holds),
        cmocka_unit_test(decoded_values_are_the_model),
        cmocka_unit_test(blocks_are_made_and_carried),
    };
    static const struct CMUnitTest last[] = {cmocka_unit_test(stopping_ends_a_verification)};
    void *none = NULL;
    int failed = setup(&none);

    failed += cmocka_run_group_tests_name("w8a8", tests, NULL, NULL);
    failed += NW_RUN_TABLE("damaged_inputs", damage_rows, damaged_inputs_are_refused);
    failed += NW_RUN_TABLE("refused_inputs", refused_rows, input_plan_that_cannot_be_is_refused);
    failed += cmocka_run_group_tests_name("stopped", last, NULL, NULL);
    return failed + teardown(&none);
}
