/* Public reports about quantizing mixtures of experts, layers beyond the count, and data that never
 * reaches a layer, each as a test. (C1, C2, C5, C6, C8, C10: test_quantize.c; E1 to E4: test_gptq.c;
 * E4, E6, E7: test_calibrate.c.)
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "artifact/artifact.h"
#include "quant/quantize.h"
#include "quant/stats_folder.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

static nw_status quantize(const char *recipe, const char *calibration, const char *out,
                          nw_manifest *m, nw_error *err)
{
    const nw_quantize_options o = {.source = in_dir("model"),
                                   .recipe = recipe,
                                   .out = in_dir(out),
                                   .replace = true,
                                   .no_tokenizer = true,
                                   .calibration = calibration,
                                   .n_threads = 1};
    return nw_quantize(&o, m, err);
}

static void write_model(void)
{
    const nw_tiny t = nw_tiny_llama();

    nw_tiny_write(&t, in_dir("model"));
}

/* Replaces a text of one of the model's files by another of its length, everywhere. */
static void replace(const char *file, const char *from, const char *to)
{
    char path[512];
    char *bytes = NULL;
    size_t n = 0;
    size_t n_found = 0;
    nw_error err = {0};

    (void)snprintf(path, sizeof path, "%s/%s", in_dir("model"), file);
    must(nw_file_read(path, 1 << 24, &bytes, &n, &err), &err);
    assert_int_equal(strlen(from), strlen(to));
    for (size_t i = 0; i + strlen(from) <= n; i++) {
        if (memcmp(bytes + i, from, strlen(from)) == 0) {
            memcpy(bytes + i, to, strlen(to));
            n_found++;
        }
    }
    assert_true(n_found > 0);
    must(nw_file_write(path, bytes, n, &err), &err);
    free(bytes);
}

/* C3, C7: experts are not read. A config that says so is refused by its name, and expert tensors under a
 * dense config by theirs: nothing is ever quantized by halves. */
static void c3_mixture_of_experts_is_refused_by_name(void **state)
{
    nw_error err = {0};

    (void)state;
    write_model();
    replace("config.json", "\"llama\"", "\"mixtr\"");
    replace("config.json", "LlamaForCausalLM", "MixtrForCausalLM");
    assert_true(quantize("int4-g32", NULL, "c3", NULL, &err) != NW_OK);
    if (strstr(err.message, "mixtr") == NULL && strstr(err.message, "Mixtr") == NULL) {
        fail_msg("'mixtr' is not in: %s", err.message);
    }
    assert_false(nw_file_exists(in_dir("c3")));
}

static void c7_fused_experts_in_place_of_a_matrix_are_refused(void **state)
{
    nw_error err = {0};

    (void)state;
    write_model();
    replace("model.safetensors", "model.layers.0.mlp.gate_proj.weight",
            "model.layers.0.mlp.experts.gate_up_");
    assert_true(quantize("int4-g32", NULL, "c7", NULL, &err) != NW_OK);
    if (strstr(err.message, "mlp.experts.gate_up_") == NULL) {
        fail_msg("the experts are not in: %s", err.message);
    }
    assert_false(nw_file_exists(in_dir("c7")));
}

/* C4: a layer beyond the config's count (a head that predicts further ahead) is left out and counted, and
 * the layers that there are get what the recipe says. */
static void c4_layer_beyond_the_count_is_left_out(void **state)
{
    nw_checkpoint *c = NULL;
    nw_manifest m = {0};
    nw_error err = {0};

    (void)state;
    write_model();
    replace("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    must(nw_checkpoint_open(in_dir("model"), &c, &err), &err);
    assert_int_equal(nw_checkpoint_n_ignored(c), 9);
    nw_checkpoint_close(c);
    must(quantize("int4-g32", NULL, "c4", &m, &err), &err);
    size_t n_targeted = 0;
    for (size_t i = 0; i < m.n_tensors; i++) {
        assert_true(m.tensors[i].layer < 1);
        n_targeted += m.tensors[i].targeted;
    }
    assert_int_equal(n_targeted, 7);
    nw_manifest_release(&m);
}

/* ---- statistics of data that does not reach everything ---- */

/* Statistics of all inputs; layer `dark` saw zeros alone, and `missing` is not written. */
static void write_stats(const nw_model_config *config, int32_t dark, int32_t missing)
{
    json_t *manifest = json_pack("{s:s, s:i, s:{s:s}, s:{s:s}, s:i, s:i}", "format",
                                 "narrow-calibration", "version", 1, "model", "name", "m", "data",
                                 "name", "d", "n_samples", 1, "n_tokens", 8);
    nw_error err = {0};

    assert_non_null(manifest);
    must(nw_file_mkdirs(in_dir("stats"), &err), &err);
    for (int32_t layer = -1; layer < (int32_t)config->n_layers; layer++) {
        nw_input_stats stats[NW_INPUT_COUNT] = {{0}};
        nw_stats_entry entries[NW_INPUT_COUNT];
        size_t n = 0;
        for (int i = 0; i < NW_INPUT_COUNT; i++) {
            if ((i == NW_INPUT_HEAD) != (layer < 0)) {
                continue;
            }
            const uint32_t cols = nw_input_cols(config, (nw_input)i);
            float *x = calloc(8, cols * sizeof *x);
            assert_non_null(x);
            for (size_t k = 0; layer != dark && k < (size_t)8 * cols; k++) {
                x[k] = (float)(k * 37 % 11) - 5;
            }
            must(nw_input_stats_init(&stats[i], cols, &err), &err);
            must(nw_input_stats_add(&stats[i], NULL, x, 8, &err), &err);
            nw_input_stats_finish(&stats[i]);
            entries[n++] = (nw_stats_entry){.input = (nw_input)i, .stats = &stats[i]};
            free(x);
        }
        if (layer != missing) {
            must(nw_stats_write(in_dir("stats"), layer, entries, n, manifest, &err), &err);
        }
        for (int i = 0; i < NW_INPUT_COUNT; i++) {
            nw_input_stats_release(&stats[i]);
        }
    }
    must(nw_stats_seal(in_dir("stats"), manifest, &err), &err);
    json_decref(manifest);
}

static const char *gptq_recipe(void)
{
    static const char yaml[] = "method: gptq\ntargets: [{match: '.*_proj', weights: int4-g32}]\n";
    static char path[512];

    nw_tmpdir_put(&dir, "gptq.yaml", yaml, sizeof yaml - 1, path, sizeof path);
    return path;
}

/* C9: a targeted layer that calibration has nothing of is no layer with scales from nowhere. */
static void c9_layer_without_statistics_is_an_error(void **state)
{
    const nw_tiny t = nw_tiny_llama();
    nw_error err = {0};

    (void)state;
    write_model();
    write_stats(&t.config, -2, 1);
    assert_true(quantize(gptq_recipe(), in_dir("stats"), "c9", NULL, &err) != NW_OK);
    assert_non_null(strstr(err.message, "4 are missing"));
    assert_false(nw_file_exists(in_dir("c9")));
}

/* E5: what the data never excites gets neutral weights and says so; everything else keeps its own. */
static void e5_inputs_that_are_never_used_weigh_alike(void **state)
{
    const nw_tiny t = nw_tiny_llama();
    nw_manifest m = {0};
    nw_error err = {0};

    (void)state;
    write_model();
    write_stats(&t.config, 1, -2);
    must(quantize(gptq_recipe(), in_dir("stats"), "e5", &m, &err), &err);
    const json_t *rows = json_object_get(m.recipe, "matrices");
    size_t n_dark = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        const json_int_t n_dead = json_integer_value(json_object_get(row, "n_dead"));
        const bool dark = strstr(name, "layers.1.") != NULL;
        assert_int_equal(n_dead > 0, dark);
        n_dark += dark;
    }
    assert_int_equal(n_dark, 7);
    for (size_t i = 0; i < m.n_tensors; i++) { /* as good as without any data */
        assert_true(!m.tensors[i].targeted || m.tensors[i].sqnr_db > 15);
    }
    nw_manifest_release(&m);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(c3_mixture_of_experts_is_refused_by_name),
        cmocka_unit_test(c7_fused_experts_in_place_of_a_matrix_are_refused),
        cmocka_unit_test(c4_layer_beyond_the_count_is_left_out),
        cmocka_unit_test(c9_layer_without_statistics_is_an_error),
        cmocka_unit_test(e5_inputs_that_are_never_used_weigh_alike),
    };
    int failed = 0;

    dir = nw_tmpdir_make();
    failed = cmocka_run_group_tests_name("reports_c", tests, NULL, NULL);
    nw_tmpdir_remove(&dir);
    return failed;
}
