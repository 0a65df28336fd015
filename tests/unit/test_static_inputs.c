/* Scales of activations that calibration fixes: carried into compressed-tensors and back, with their zero
 * points; there and finite for whatever an input holds; and told where an input has none.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <float.h>
#include <unistd.h>

#include "artifact/inputs.h"
#include "planted_fixture.h"

/* What is told on stderr while the yaml is made an artifact. */
static char *told(const char *yaml)
{
    char path[512];
    char *text = NULL;
    size_t n = 0;
    nw_error err = {0};
    const int kept = dup(STDERR_FILENO);
    const int fd =
        open(nw_tmpdir_file(&dir, "told", path, sizeof path), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0 && kept >= 0);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    const nw_status st = quantize(yaml, "q", &err);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    (void)close(kept);
    (void)close(fd);
    must(st, &err);
    must(nw_file_read(path, 1 << 16, &text, &n, &err), &err);
    return text;
}

static struct told_row {
    const char *name, *yaml;
    unsigned n_none, n_all; /* inputs of a layer */
    bool head;              /* that of the head has codes */
} told_rows[] = {
    {"all", "activations: a8\nactivation_scale: static\n" TARGETS, 0, 4, false},
    {"one_reader_wide",
     "activations: a8\nactivation_scale: static\nignore: ['.*up_proj']\n" TARGETS, 1, 4, false},
    {"groups",
     "activations: a8\nactivation_scale: static\ntargets: [{match: '.*_proj', weights: "
     "int4-g32}]\n",
     4, 4, false},
    {"head",
     "activations: fp8\nactivation_scale: static\ntargets: [{match: '.*_proj|lm_head', "
     "weights: fp8-e4m3}]\n",
     0, 4, true},
    {"by_token", "activations: a8\ntargets: [{match: '.*_proj', weights: int4-g32}]\n", 0, 4,
     false},
};

/* An input that keeps a scale a token, though the recipe asks for one. */
static void inputs_without_a_static_scale_are_told(void **state)
{
    const struct told_row *r = *state;
    const unsigned n_layers = nw_tiny_wide().n_layers;
    const unsigned head = r->head ? 1 : 0;
    char want[64];
    char *text = told(r->yaml);

    (void)snprintf(want, sizeof want, "%u of %u inputs got none", r->n_none * n_layers + head,
                   r->n_all * n_layers + head);
    if ((strstr(text, want) != NULL) != (r->n_none + head > 0) ||
        (strstr(text, "activation_scale") != NULL) != (r->n_none + head > 0)) {
        fail_msg("'%s': %s", want, text);
    }
    free(text);
}

static struct faint_row {
    const char *name;
    float gain, divisor;
} faint_rows[] = {{"zeros", 0, 1}, {"subnormal", 1e-42F, FLT_MAX}};

/* NVFP4's divisor is there, and is a number, whatever calibration saw of the input. */
static void nvfp4_has_a_divisor_for_faint_inputs(void **state)
{
    const struct faint_row *r = *state;
    const nw_model_config c = nw_tiny_wide();
    char path[512];
    char stats[64];
    nw_artifact *a = NULL;
    nw_error err = {0};
    scored s = {0};

    nw_tiny_write(&c, 3, in_dir(r->name));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_dir(r->name));
    (void)snprintf(stats, sizeof stats, "%s-stats", r->name);
    put(path, "model.layers.1.input_layernorm.weight", c.d_model, r->gain);
    calibrate(r->name, stats);
    must(quantize_from(r->name, stats, "activations: nvfp4\n" NVFP4_TARGETS, "q", &err), &err);
    must(nw_artifact_open(in_dir("q"), &a, &err), &err);
    const nw_artifact_input *in = nw_artifact_get_input(a, NW_ROLE_Q, 1);
    assert_non_null(in);
    assert_true(in->fixed.scale == r->divisor);
    nw_artifact_close(a);
    score_on("ref", "q", 1, N_IDS, &s);
    for (size_t i = 0; i < (size_t)N_IDS * s.n_vocab; i++) {
        assert_true(isfinite(s.keep[i]));
    }
    free(s.keep);
}

/* ---- other formats ---- */

static struct static_row {
    const char *name, *yaml, *dynamic; /* NULL: there is no such rule */
    nw_act_rule act;
} static_rows[] = {
    {"int8", "activations: a8\nactivation_scale: static\n" TARGETS, "activations: a8\n" TARGETS,
     NW_ACT_RULE_A8},
    {"fp8",
     "activations: fp8\nactivation_scale: static\ntargets: [{match: '.*_proj', weights: "
     "fp8-e4m3}]\n",
     "activations: fp8\ntargets: [{match: '.*_proj', weights: fp8-e4m3}]\n", NW_ACT_RULE_FP8},
    {"nvfp4", "activations: nvfp4\nscale: tensor\ntargets: [{match: '.*_proj', weights: nvfp4}]\n",
     NULL, NW_ACT_RULE_NVFP4},
};

/* Fixed scales go into compressed-tensors, from there into an artifact, and the model stays. */
static void fixed_scales_are_carried(void **state)
{
    const struct static_row *r = *state;
    nw_artifact *a = NULL;
    nw_artifact *b = NULL;
    nw_error err = {0};

    must(quantize(r->yaml, "q", &err), &err);
    /* NVFP4's divisor is the reciprocal of the panel's factor: a rounding apart */
    const bool exact = r->act != NW_ACT_RULE_NVFP4;
    const size_t n_there = export_as("compressed-tensors", "q", "ct");
    const size_t n_back = export_as("native", "ct", "again");
    assert_true(!exact || (n_there == 0 && n_back == 0));
    must(nw_artifact_open(in_dir("q"), &a, &err), &err);
    must(nw_artifact_open(in_dir("again"), &b, &err), &err);
    assert_int_equal(nw_artifact_get_facts(b)->act, r->act);
    const nw_artifact_input *x = nw_artifact_get_input(a, NW_ROLE_DOWN, 1);
    const nw_artifact_input *y = nw_artifact_get_input(b, NW_ROLE_DOWN, 1);
    assert_non_null(x);
    assert_non_null(y);
    assert_true(x->fixed.scale > 0 && x->fixed.scale == y->fixed.scale);
    nw_artifact_close(a);
    nw_artifact_close(b);
    assert_true(apart("q", "ct") < 1e-9);
    assert_true(apart("q", "again") < 1e-9);
    if (r->dynamic != NULL) {
        must(quantize(r->dynamic, "dynamic", &err), &err);
        assert_true(apart("q", "dynamic") > 1e-8);
    }
}

/* Gives the artifact's fixed inputs zero points, the first one of exactly 0. */
static void set_zero_points(const char *artifact)
{
    nw_artifact *a = NULL;
    nw_manifest m = {0};
    nw_error err = {0};
    char path[512];

    must(nw_artifact_open(in_dir(artifact), &a, &err), &err);
    const uint32_t n_layers = nw_artifact_config(a)->n_layers;
    nw_act_fixed *fixed = calloc((size_t)n_layers * NW_ROLE_COUNT, sizeof *fixed);
    assert_non_null(fixed);
    for (uint32_t l = 0; l < n_layers; l++) {
        for (unsigned r = 0; r < NW_ROLE_COUNT; r++) {
            const nw_artifact_input *in = nw_artifact_get_input(a, (nw_role)r, (int32_t)l);
            if (in != NULL) {
                fixed[l * NW_ROLE_COUNT + r] = (nw_act_fixed){
                    .scale = in->fixed.scale, .zero = l == 0 && r == NW_ROLE_Q ? 0 : -5};
            }
        }
    }
    nw_artifact_close(a);
    (void)snprintf(path, sizeof path, "%s/manifest.json", in_dir(artifact));
    must(nw_manifest_load(path, &m, &err), &err);
    must(nw_inputs_write_fixed(in_dir(artifact), fixed, n_layers, &m.inputs, &m.inputs_bytes, &err),
         &err);
    must(nw_manifest_seal(&m, &err), &err);
    char *text = nw_manifest_text(&m);
    assert_non_null(text);
    must(nw_file_write(path, text, strlen(text), &err), &err);
    free(text);
    free(fixed);
    nw_manifest_release(&m);
}

/* A zero point of 0 is one: an input that has it is no other kind than the rest. */
static void zero_points_of_zero_are_carried(void **state)
{
    nw_artifact *a = NULL;
    nw_error err = {0};

    (void)state;
    must(quantize("activations: a8-ct\nactivation_scale: static\n" TARGETS, "q", &err), &err);
    set_zero_points("q");
    assert_int_equal(export_as("compressed-tensors", "q", "ct"), 0);
    assert_int_equal(export_as("native", "ct", "again"), 0);
    must(nw_artifact_open(in_dir("again"), &a, &err), &err);
    assert_int_equal(nw_artifact_get_facts(a)->act, NW_ACT_RULE_A8_CT);
    assert_true(nw_artifact_get_input(a, NW_ROLE_Q, 0)->fixed.scale > 0);
    assert_int_equal(nw_artifact_get_input(a, NW_ROLE_Q, 0)->fixed.zero, 0);
    assert_int_equal(nw_artifact_get_input(a, NW_ROLE_DOWN, 1)->fixed.zero, -5);
    nw_artifact_close(a);
    assert_true(apart("q", "ct") < 1e-9);
    assert_true(apart("q", "again") < 1e-9);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_points_of_zero_are_carried),
    };
    void *none = NULL;
    int failed = setup(&none);

    failed += cmocka_run_group_tests_name("static_inputs", tests, NULL, NULL);
    failed += NW_RUN_TABLE("told_inputs", told_rows, inputs_without_a_static_scale_are_told);
    failed += NW_RUN_TABLE("faint_inputs", faint_rows, nvfp4_has_a_divisor_for_faint_inputs);
    failed += NW_RUN_TABLE("fixed_scales", static_rows, fixed_scales_are_carried);
    return failed + teardown(&none);
}
