/* Transforms keep the model's function: rotations by logits in F32, statistics by the power of what
 * their readers give, searched scales by the loss they claim. E3: dead channels and groups of zeros.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "artifact/artifact.h"
#include "base/pool.h"
#include "correlated_stats.h"
#include "quant/channel_scales.h"
#include "quant/logits_probe.h"
#include "quant/orthogonal.h"
#include "quant/quantize.h"
#include "quant/transform.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

/* Widths that no power of two divides: 72 = 9 x 8, heads of 18 = 9 x 2, 120 = 15 x 8. */
static nw_tiny odd_llama(void)
{
    nw_tiny t = nw_tiny_llama();

    t.config.d_model = 72;
    t.config.d_head = 18;
    t.config.d_ff = 120;
    t.config.tied = false;
    return t;
}

static int setup(void **state)
{
    nw_tiny t = nw_tiny_llama();

    (void)state;
    dir = nw_tmpdir_make();
    nw_tiny_write(&t, in_dir("tied"));
    t = odd_llama();
    nw_tiny_write(&t, in_dir("odd"));
    t = nw_tiny_gemma();
    nw_tiny_write(&t, in_dir("gemma"));
    return 0;
}

static nw_status quantize(const char *model, const char *yaml, const char *out, nw_error *err)
{
    static char path[512];
    const nw_quantize_options o = {.source = in_dir(model),
                                   .recipe = path,
                                   .out = in_dir(out),
                                   .replace = true,
                                   .no_tokenizer = true,
                                   .n_threads = 2};

    nw_tmpdir_put(&dir, "recipe.yaml", yaml, strlen(yaml), path, sizeof path);
    return nw_quantize(&o, NULL, err);
}

/* ---- rotations ---- */

static void orthogonal_matrices_are(void **state)
{
    static const uint32_t widths[] = {1, 7, 12, 64, 72, 576};

    (void)state;
    for (size_t i = 0; i < NW_COUNT(widths); i++) {
        const uint32_t n = widths[i];
        nw_orthogonal q = {0};
        nw_error err = {0};
        double *x = calloc((size_t)n * n, sizeof *x);
        double *work = calloc((size_t)n * n, sizeof *work);
        assert_true(x != NULL && work != NULL);
        must(nw_orthogonal_new(n, 3, i, &q, &err), &err);
        for (uint32_t k = 0; k < n; k++) {
            x[(size_t)k * n + k] = 1;
        }
        nw_orthogonal_turn(&q, n, x, work); /* Q^T, row by row */
        for (uint32_t a = 0; a < n; a++) {
            for (uint32_t b = a; b < n; b++) {
                double sum = 0;
                for (uint32_t k = 0; k < n; k++) {
                    sum += x[(size_t)a * n + k] * x[(size_t)b * n + k];
                }
                assert_true(fabs(sum - (a == b)) < 1e-12);
            }
        }
        nw_orthogonal_release(&q);
        free(x);
        free(work);
    }
}

static struct rotation_row {
    const char *name, *model, *transforms;
} rotation_rows[] = {
    {"residual_of_a_tied_model", "tied", "rotate"},
    {"residual_of_odd_widths", "odd", "rotate"},
    {"heads", "odd", "rotate-heads"},
    {"down_at_run_time", "odd", "rotate-down"},
    {"all_of_a_tied_model", "tied", "rotate, rotate-heads, rotate-down"},
    {"all_of_odd_widths", "odd", "rotate, rotate-heads, rotate-down"},
    {"heads_and_down_of_gemma", "gemma", "rotate-heads, rotate-down"},
};

/* The rotated weights in F32, run by the reference tier, against the source. */
static void rotation_keeps_the_function(void **state)
{
    const struct rotation_row *r = *state;
    nw_logits_probe *probe = NULL;
    nw_error err = {0};
    char yaml[256];
    double max_kl = 0;
    double mean_kl = 0;

    (void)snprintf(yaml, sizeof yaml,
                   "transform: [%s]\nkeep: f32\ntargets: [{match: '.*_proj', weights: f32}]\n",
                   r->transforms);
    must(quantize(r->model, yaml, "rotated", &err), &err);
    must(nw_logits_probe_open(in_dir(r->model), false, 1, &probe, &err), &err);
    must(nw_logits_probe_compare(probe, in_dir("rotated"), &max_kl, &mean_kl, &err), &err);
    nw_logits_probe_close(probe);
    if (!(max_kl < 1e-6)) {
        fail_msg("largest KL %g, mean %g", max_kl, mean_kl);
    }
}

/* A rotation that did nothing would keep the function as well. */
static void rotation_changes_the_weights(void **state)
{
    nw_artifact *a = NULL;
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    float was[72];
    float is[72];

    (void)state;
    must(quantize("odd",
                  "transform: [rotate]\nkeep: f32\ntargets: [{match: '.*_proj', weights: f32}]\n",
                  "rotated", &err),
         &err);
    must(nw_artifact_open(in_dir("rotated"), &a, &err), &err);
    must(nw_checkpoint_open(in_dir("odd"), &c, &err), &err);
    must(nw_checkpoint_read_f32(c, nw_checkpoint_find(c, NW_ROLE_EMBED, -1), 3, 1, was, &err),
         &err);
    nw_artifact_embed_row(a, 3, is);
    double along = 0;
    double power = 0;
    for (size_t i = 0; i < 72; i++) {
        along += (double)was[i] * (double)is[i];
        power += (double)was[i] * (double)was[i];
    }
    assert_true(fabs(along) < 0.6 * power);
    nw_checkpoint_close(c);
    nw_artifact_close(a);
}

/* ---- statistics ---- */

static double some_large(uint32_t c)
{
    return c % 13 == 5 ? 30 : 1;
}

static nw_input_stats make_stats(uint32_t n, int dead)
{
    return correlated_stats(n, n, 400, 0.7, some_large, dead);
}

/* E |W x|^2 from the second moments. */
static double output_power(const nw_checkpoint *c, nw_role role, int32_t layer,
                           const nw_input_stats *s)
{
    const nw_ckpt_tensor *t = nw_checkpoint_find(c, role, layer);
    const size_t n = t->n_cols;
    float *w = calloc(t->n_rows, n * sizeof *w);
    nw_error err = {0};
    double sum = 0;

    assert_non_null(w);
    must(nw_checkpoint_read_f32(c, t, 0, t->n_rows, w, &err), &err);
    for (size_t r = 0; r < t->n_rows; r++) {
        for (size_t i = 0; i < n; i++) {
            double g = 0;
            for (size_t k = 0; k < n; k++) {
                g += (double)s->moments[i * n + k] * (double)w[r * n + k];
            }
            sum += g * (double)w[r * n + i];
        }
    }
    free(w);
    return sum;
}

/* Rotations and factors change weights and statistics together: what comes out has the same power. */
static void statistics_go_with_the_weights(void **state)
{
    static const struct {
        nw_role role;
        nw_input input;
        int32_t layer;
    } rows[] = {{NW_ROLE_Q, NW_INPUT_ATTN, 0},    {NW_ROLE_K, NW_INPUT_ATTN, 1},
                {NW_ROLE_O, NW_INPUT_O, 1},       {NW_ROLE_GATE, NW_INPUT_FFN, 0},
                {NW_ROLE_DOWN, NW_INPUT_DOWN, 0}, {NW_ROLE_HEAD, NW_INPUT_HEAD, -1}};
    nw_checkpoint *c = NULL;
    nw_rotation *rotation = NULL;
    nw_transform *t = NULL;
    nw_error err = {0};
    double before[NW_COUNT(rows)];

    (void)state;
    must(nw_checkpoint_open(in_dir("odd"), &c, &err), &err);
    const nw_model_config *config = nw_checkpoint_config(c);
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        nw_input_stats s = make_stats(nw_input_cols(config, rows[i].input), -1);
        before[i] = output_power(c, rows[i].role, rows[i].layer, &s);
        nw_input_stats_release(&s);
    }
    must(nw_rotation_new(c, NW_ROTATE_RESIDUAL | NW_ROTATE_HEADS | NW_ROTATE_DOWN, 5, &rotation,
                         &err),
         &err);
    must(nw_transform_new(config, rotation, &t, &err), &err);
    nw_checkpoint_set_edit(c, (nw_ckpt_edit){nw_transform_edit, t});
    for (int place = 0; place < NW_PLACE_COUNT; place++) {
        double *f = nw_transform_factors(t, 1, (nw_place)place);
        for (uint32_t i = 0; i < nw_place_width(config, (nw_place)place); i++) {
            f[i] = 0.5 + (double)(i % 7);
        }
    }
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        nw_input_stats s = make_stats(nw_input_cols(config, rows[i].input), -1);
        must(nw_transform_stats(t, rows[i].layer, rows[i].input, &s, &err), &err);
        const double after = output_power(c, rows[i].role, rows[i].layer, &s);
        nw_input_stats_release(&s);
        if (rows[i].role == NW_ROLE_K || fabs(after / before[i] - 1) < 1e-4) {
            assert_true(fabs(after / before[i] - 1) < 1e-4);
        } else {
            fail_msg("row %zu: power %g, was %g", i, after, before[i]);
        }
    }
    nw_checkpoint_close(c);
    nw_transform_free(t);
}

/* ---- searched scales ---- */

static nw_search_result search(nw_search_rule rule, const char *layout, nw_role role,
                               nw_place place, const nw_input_stats *s, double *scales)
{
    nw_checkpoint *c = NULL;
    nw_pool *pool = NULL;
    nw_error err = {0};
    nw_search_result found = {0};
    nw_recipe_choice choice = {.targeted = true};

    must(nw_checkpoint_open(in_dir("tied"), &c, &err), &err);
    must(nw_pool_open(2, &pool, &err), &err);
    choice.tensor = nw_checkpoint_find(c, role, 1);
    assert_true(nw_panel_parse(layout, &choice.type));
    const nw_search_place p = {
        .ckpt = c, .readers = {&choice}, .n_readers = 1, .stats = s, .place = place, .rule = rule};
    must(nw_search_channel_scales(&p, pool, scales, &found, &err), &err);
    nw_pool_close(pool);
    nw_checkpoint_close(c);
    return found;
}

static struct search_row {
    const char *name, *layout;
    nw_search_rule rule;
    nw_role role;
    nw_place place;
    uint32_t n_cols, width;
    double at_most; /* of the loss without scales */
} search_rows[] = {
    {"awq_int4_gate", "int4-g32", NW_SEARCH_AWQ, NW_ROLE_GATE, NW_PLACE_FFN, 64, 64, 0.9},
    {"awq_nvfp4_down", "nvfp4", NW_SEARCH_AWQ, NW_ROLE_DOWN, NW_PLACE_UP, 96, 96, 0.95},
    {"awq_o_by_kv_head", "int4-g32-zp", NW_SEARCH_AWQ, NW_ROLE_O, NW_PLACE_V, 64, 32, 0.97},
    {"smooth_int8_q", "int8", NW_SEARCH_SMOOTH, NW_ROLE_Q, NW_PLACE_ATTN, 64, 64, 0.25},
};

/* Large input channels are worth scales: the loss falls, and the scales are larger there. */
static void large_channels_are_scaled(void **state)
{
    const struct search_row *r = *state;
    nw_input_stats s = make_stats(r->n_cols, -1);
    double scales[96];
    const nw_search_result found = search(r->rule, r->layout, r->role, r->place, &s, scales);

    if (!(found.after < r->at_most * found.before) || !(found.exponent > 0)) {
        fail_msg("loss %g of %g, exponent %g", found.after, found.before, found.exponent);
    }
    for (uint32_t i = 0; i < r->width; i++) {
        assert_true(isfinite(scales[i]) && scales[i] > 0);
    }
    assert_true(scales[5] > scales[6]); /* channel 5 is one of the large */
    nw_input_stats_release(&s);
}

/* E3: a channel that is always 0 keeps scale 1; inputs that are all 0 keep everything. */
static void e3_dead_channels_keep_their_scale(void **state)
{
    double scales[64];
    nw_input_stats s = make_stats(64, 9);
    nw_error err = {0};

    (void)state;
    (void)search(NW_SEARCH_AWQ, "int4-g32", NW_ROLE_GATE, NW_PLACE_FFN, &s, scales);
    assert_true(fabs(scales[9] - 1) < 1e-12);
    (void)search(NW_SEARCH_SMOOTH, "int8", NW_ROLE_GATE, NW_PLACE_FFN, &s, scales);
    assert_true(fabs(scales[9] - 1) < 1e-12);
    nw_input_stats_release(&s);
    must(nw_input_stats_init(&s, 64, &err), &err);
    s.n_tokens = 1;
    for (int rule = 0; rule < 2; rule++) {
        const nw_search_result found =
            search((nw_search_rule)rule, "int4-g32", NW_ROLE_GATE, NW_PLACE_FFN, &s, scales);
        assert_true(isfinite(found.after));
        for (size_t i = 0; i < 64; i++) {
            assert_true(fabs(scales[i] - 1) < 1e-12);
        }
    }
    nw_input_stats_release(&s);
}

/* ---- recipes ---- */

static struct refused_row {
    const char *name, *model, *yaml, *says;
} refused_rows[] = {
    {"rotated_gemma", "gemma", "transform: [rotate]", "can then not be rotated"},
    {"smooth_rotated", "odd", "transform: [smoothquant, rotate]\ncalibration: x", "not with a rot"},
    {"smooth_awq", "odd", "transform: [smoothquant, awq]\ncalibration: x", "not with awq"},
    {"awq_alone", "odd", "transform: [awq]", "narrow calibrate"},
    {"awq_method_alone", "odd", "method: awq", "method awq needs calibration"},
    {"unknown", "odd", "transform: [spin]", "unknown transform 'spin'"},
    {"no_list", "odd", "transform: rotate", "not a list"},
};

static void transform_that_cannot_be_is_refused(void **state)
{
    const struct refused_row *r = *state;
    nw_error err = {0};
    char yaml[256];

    (void)snprintf(yaml, sizeof yaml, "%s\ntargets: [{match: '.*down_proj', weights: int8}]\n",
                   r->yaml);
    assert_true(quantize(r->model, yaml, "refused", &err) != NW_OK);
    if (strstr(err.message, r->says) == NULL) {
        fail_msg("'%s' is not in: %s", r->says, err.message);
    }
    assert_false(nw_file_exists(in_dir("refused")));
}

/* 120 columns: int4-g32 ends them in a shorter group, blocks of a GGUF type are never shorter. */
static void no_block_is_shorter_than_its_type(void **state)
{
    const char *head = "last_group: short\ntargets: [{match: '.*down_proj', weights: ";
    nw_error err = {0};
    char yaml[256];

    (void)state;
    (void)snprintf(yaml, sizeof yaml, "%s%s}]\n", head, "int4-g32");
    must(quantize("odd", yaml, "short", &err), &err);
    (void)snprintf(yaml, sizeof yaml, "%s%s}]\n", head, "q4_0");
    assert_int_not_equal(quantize("odd", yaml, "block", &err), NW_OK);
    assert_non_null(strstr(err.message, "120 columns are no multiple of group 32"));
    assert_false(nw_file_exists(in_dir("block")));
}

static void transformed_weights_are_not_held_to_the_source(void **state)
{
    nw_error err = {0};

    (void)state;
    must(quantize("odd",
                  "transform: [rotate-heads]\ntargets: [{match: '.*_proj', weights: int8}]\n",
                  "turned", &err),
         &err);
    must(nw_artifact_verify(in_dir("turned"), NULL, NULL, NULL, &err), &err);
    assert_int_equal(nw_artifact_verify(in_dir("turned"), in_dir("odd"), NULL, NULL, &err),
                     NW_E_UNSUPPORTED);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(orthogonal_matrices_are),
        cmocka_unit_test(rotation_changes_the_weights),
        cmocka_unit_test(statistics_go_with_the_weights),
        cmocka_unit_test(e3_dead_channels_keep_their_scale),
        cmocka_unit_test(no_block_is_shorter_than_its_type),
        cmocka_unit_test(transformed_weights_are_not_held_to_the_source),
    };
    void *none = NULL;
    int failed = setup(&none);

    failed += cmocka_run_group_tests_name("transform", tests, NULL, NULL);
    failed += NW_RUN_TABLE("rotations", rotation_rows, rotation_keeps_the_function);
    failed += NW_RUN_TABLE("channel_scales", search_rows, large_channels_are_scaled);
    failed += NW_RUN_TABLE("refused_transforms", refused_rows, transform_that_cannot_be_is_refused);
    return failed + teardown(&none);
}
