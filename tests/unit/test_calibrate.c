/* Calibration from model and text to a folder of statistics, and what quantize makes of it: bytes
 * that do not depend on threads, folders that were changed, folders of other models.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "artifact/artifact.h"
#include "base/file.h"
#include "engine/engine.h"
#include "quant/calibrate.h"
#include "quant/quantize.h"
#include "quant/stats_folder.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_model.h"

static void calibrate(const char *model, const char *out, unsigned n_threads)
{
    nw_error err = {0};
    const nw_calibrate_options o = {
        .model = in_dir(model),
        .out = in_dir(out),
        .sample = {.text = in_dir("text.txt"), .n_samples = 6, .seed = 1, .n_ctx = 64},
        .n_threads = n_threads};
    must(nw_calibrate(&o, NULL, &err), &err);
}

static int setup(void **state)
{
    const nw_model_config wide = nw_tiny_wide();
    const nw_model_config llama = nw_tiny_llama();
    const nw_model_config gemma = nw_tiny_gemma3();
    char text[4096];
    char path[300];

    (void)state;
    dir = nw_tmpdir_make();
    nw_tiny_write(&wide, 1, in_dir("wide"));
    nw_tiny_write(&llama, 1, in_dir("llama"));
    nw_tiny_write(&gemma, 1, in_dir("gemma"));
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)(' ' + (int)(i * i / 3 % 95));
    }
    nw_tmpdir_put(&dir, "text.txt", text, sizeof text, path, sizeof path);
    calibrate("wide", "stats", 1);
    return 0;
}

static void c10_statistics_do_not_depend_on_threads(void **state)
{
    (void)state;
    calibrate("wide", "stats3", 3);
    assert_same_file("stats", "stats3", "manifest.json");
    assert_same_file("stats", "stats3", "layer-00001.safetensors");
    assert_same_file("stats", "stats3", "head.safetensors");
}

/* The layers one by one are the whole pass: the last residual, normed, times the head gives the
 * logits of the engine's own score, up to the order of F32 sums. */
typedef struct {
    const nw_artifact *artifact;
    const float *x; /* [n][d_model] after the last layer, normed */
    uint32_t d_model, n_vocab;
    double worst;
} score_check;

static bool compare_logits(void *ctx, size_t pos, const float *logits)
{
    score_check *c = ctx;
    const nw_artifact_matrix *head = nw_artifact_get_matrix(c->artifact, NW_ROLE_HEAD, -1);
    float row[64];

    for (uint32_t v = 0; v < c->n_vocab; v += 7) {
        double sum = 0;
        nw_panel_unpack_row(head->type, head->data, head->n_cols, v, row);
        for (uint32_t i = 0; i < c->d_model; i++) {
            sum += (double)row[i] * (double)c->x[pos * c->d_model + i];
        }
        c->worst = fmax(c->worst, fabs(sum - (double)logits[v]));
    }
    return true;
}

static void layers_one_by_one_are_the_whole_pass(void **state)
{
    static const char *const models[] = {"wide", "gemma"};
    enum { N = 50 };

    (void)state;
    for (size_t m = 0; m < NW_COUNT(models); m++) {
        nw_engine_options o = nw_engine_options_default();
        nw_engine *e = NULL;
        nw_error err = {0};
        int32_t ids[N];
        static float x[N * 64];
        o.max_seqs = 1;
        o.n_threads = 2;
        must(nw_engine_open(in_dir(models[m]), &o, &e, &err), &err);
        const nw_model_config *c = nw_engine_config(e);
        const nw_artifact *a = nw_engine_artifact(e);
        const float *gain = nw_artifact_get_vector(a, NW_ROLE_OUT_NORM, -1, NULL);
        for (int i = 0; i < N; i++) {
            ids[i] = i * 31 % NW_TINY_VOCAB;
            nw_artifact_embed_row(a, (uint32_t)ids[i], x + (size_t)i * c->d_model);
            for (uint32_t k = 0; k < c->d_model; k++) {
                x[(size_t)i * c->d_model + k] *= c->embed_scale;
            }
        }
        for (uint32_t l = 0; l < c->n_layers; l++) {
            must(nw_engine_layer(e, l, ids, N, x, NULL, NULL, &err), &err);
        }
        for (int i = 0; i < N; i++) {
            float *row = x + (size_t)i * c->d_model;
            double sq = 0;
            for (uint32_t k = 0; k < c->d_model; k++) {
                sq += (double)row[k] * (double)row[k];
            }
            for (uint32_t k = 0; k < c->d_model; k++) {
                row[k] = (float)((double)row[k] / sqrt(sq / c->d_model + (double)c->norm_eps) *
                                 (double)gain[k]);
            }
        }
        score_check check = {a, x, c->d_model, c->n_vocab, 0};
        must(nw_engine_score(e, ids, N, 0, compare_logits, &check, &err), &err);
        assert_true(check.worst < 1e-3);
        assert_int_equal(nw_engine_layer(e, c->n_layers, ids, N, x, NULL, NULL, &err), NW_E_RANGE);
        nw_engine_close(e);
    }
}

static nw_status quantize(const char *model, const char *recipe, const char *method,
                          const char *stats, const char *out, unsigned n_threads, nw_manifest *m,
                          nw_error *err)
{
    const nw_quantize_options o = {.source = in_dir(model),
                                   .recipe = recipe,
                                   .method = method,
                                   .calibration = stats != NULL ? in_dir(stats) : NULL,
                                   .out = in_dir(out),
                                   .replace = true,
                                   .n_threads = n_threads};
    return nw_quantize(&o, m, err);
}

static struct method_row {
    const char *name;
} methods[] = {{"refit"}, {"imatrix"}, {"gptq"}, {"gptq-refit"}};

static void c10_artifacts_do_not_depend_on_threads(void **state)
{
    const struct method_row *r = *state;
    nw_error err = {0};
    nw_manifest m = {0};

    must(quantize("wide", "int4-g32-zp", r->name, "stats", "q1", 1, &m, &err), &err);
    must(quantize("wide", "int4-g32-zp", r->name, "stats", "q3", 3, NULL, &err), &err);
    assert_same_file("q1", "q3", "model.safetensors");
    assert_same_file("q1", "q3", "manifest.json");
    must(nw_artifact_verify(in_dir("q1"), in_dir("wide"), NULL, NULL, &err), &err);
    /* every matrix tells which method made it */
    const json_t *rows = json_object_get(m.recipe, "matrices");
    assert_int_equal(json_array_size(rows), 14);
    for (size_t i = 0; i < 14; i++) {
        assert_string_equal(json_string_value(json_object_get(json_array_get(rows, i), "method")),
                            r->name);
    }
    nw_manifest_release(&m);
}

/* Mean output error over all matrices, in dB. */
static double mean_db(const nw_manifest *m)
{
    const json_t *rows = json_object_get(m->recipe, "matrices");
    double sum = 0;

    for (size_t i = 0; i < json_array_size(rows); i++) {
        sum += json_real_value(json_object_get(json_array_get(rows, i), "output_sqnr_db"));
    }
    return sum / (double)json_array_size(rows);
}

static void each_method_lowers_the_output_error(void **state)
{
    double before = 0;

    (void)state;
    for (size_t i = 1; i < NW_COUNT(methods); i++) {
        nw_error err = {0};
        nw_manifest m = {0};
        must(quantize("wide", "int4-g32", methods[i].name, "stats", "q", 2, &m, &err), &err);
        assert_true(mean_db(&m) > before);
        before = mean_db(&m);
        nw_manifest_release(&m);
    }
}

static void a_method_without_its_statistics_is_a_mistake(void **state)
{
    nw_error err = {0};

    (void)state;
    assert_int_equal(quantize("wide", "int4-g32", "gptq", NULL, "none", 1, NULL, &err),
                     NW_E_FORMAT);
    assert_non_null(strstr(err.message, "method gptq needs calibration statistics"));
    assert_false(nw_file_exists(in_dir("none")));
}

/* E6: statistics of a model of other widths, with the counts, before any work. */
static void e6_statistics_of_another_model_are_refused(void **state)
{
    nw_error err = {0};

    (void)state;
    calibrate("llama", "other", 1);
    assert_int_equal(quantize("wide", "int4-g32", "gptq", "other", "none", 1, NULL, &err),
                     NW_E_FORMAT);
    assert_non_null(strstr(err.message, "of its 9 inputs 0 match, 0 are missing, 9 have another"));
    assert_false(nw_file_exists(in_dir("none")));
}

/* Replaces one byte of a file of the folder. */
static void damage(const char *folder, const char *file, size_t at)
{
    char path[512];
    char *bytes = NULL;
    size_t n = 0;
    nw_error err = {0};

    (void)snprintf(path, sizeof path, "%s/%s/%s", dir.path, folder, file);
    must(nw_file_read(path, 1 << 24, &bytes, &n, &err), &err);
    bytes[at < n ? at : n - 1] ^= 0x55;
    must(nw_file_write(path, bytes, n, &err), &err);
    free(bytes);
}

/* E4: what was changed after calibration is not used. */
static void e4_a_folder_that_was_changed_is_refused(void **state)
{
    nw_error err = {0};
    nw_stats *s = NULL;

    (void)state;
    calibrate("wide", "hurt", 1);
    damage("hurt", "layer-00001.safetensors", 5000);
    assert_int_equal(quantize("wide", "int4-g32", "gptq", "hurt", "none", 1, NULL, &err),
                     NW_E_FORMAT);
    assert_non_null(strstr(err.message, "layer-00001.safetensors: sha256"));
    assert_false(nw_file_exists(in_dir("none")));
    damage("hurt", "manifest.json", 40);
    assert_int_not_equal(nw_stats_open(in_dir("hurt"), &s, &err), NW_OK);
    assert_null(s);
}

/* E7: a sample's statistics do not depend on its neighbours: two samples apart and together. */
static void e7_samples_do_not_touch_each_other(void **state)
{
    nw_error err = {0};
    nw_stats *s = NULL;
    nw_input_stats in = {0};
    const json_t *inputs = NULL;

    (void)state;
    must(nw_stats_open(in_dir("stats"), &s, &err), &err);
    inputs = json_object_get(nw_stats_manifest(s), "inputs");
    assert_int_equal(json_array_size(inputs), 9);
    for (size_t i = 0; i < 9; i++) {
        /* 6 windows of 64 tokens, and no padding among them */
        assert_int_equal(json_integer_value(json_object_get(json_array_get(inputs, i), "n_tokens")),
                         6 * 64);
    }
    must(nw_stats_load(s, 0, NW_INPUT_ATTN, &in, &err), &err);
    assert_int_equal(in.n_cols, 64);
    assert_int_equal(in.n_tokens, 6 * 64);
    for (uint32_t c = 0; c < 64; c++) {
        assert_true(in.mean_abs[c] > 0 && in.mean_abs[c] <= in.absmax[c]);
        for (uint32_t d = 0; d < c; d++) {
            assert_true(fabsf(in.moments[c * 64 + d] - in.moments[d * 64 + c]) <= 0);
        }
    }
    nw_input_stats_release(&in);
    nw_stats_close(s);
}

static void an_existing_folder_is_kept(void **state)
{
    nw_error err = {0};
    const nw_calibrate_options o = {
        .model = in_dir("wide"),
        .out = in_dir("stats"),
        .sample = {.text = in_dir("text.txt"), .n_samples = 1, .seed = 1, .n_ctx = 8}};

    (void)state;
    assert_int_equal(nw_calibrate(&o, NULL, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "--force"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c10_statistics_do_not_depend_on_threads),
        cmocka_unit_test(layers_one_by_one_are_the_whole_pass),
        cmocka_unit_test(each_method_lowers_the_output_error),
        cmocka_unit_test(a_method_without_its_statistics_is_a_mistake),
        cmocka_unit_test(e6_statistics_of_another_model_are_refused),
        cmocka_unit_test(e4_a_folder_that_was_changed_is_refused),
        cmocka_unit_test(e7_samples_do_not_touch_each_other),
        cmocka_unit_test(an_existing_folder_is_kept),
    };
    (void)setup(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += NW_RUN_TABLE("methods", methods, c10_artifacts_do_not_depend_on_threads);
    (void)teardown(NULL);
    return failed;
}
