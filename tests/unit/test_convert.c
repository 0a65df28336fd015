/* Checkpoint to Hugging Face folder: values kept where the type holds them, loss named where not,
 * shards, and the off-grid rescaling, which must keep the function and leave the grid.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "quant/convert.h"
#include "quant/logits_probe.h"
#include "quant/quantize.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

/* A value on a grid of 16 points of its group of 32, as formats with a minimum keep them: both ends
 * in use, the step different from group to group, zero at code 5. */
static float on_grid(nw_role role, size_t i, float v)
{
    const float step = 0.03125F * (float)(1 + i / 32 % 3);
    const float code = i % 32 == 0 ? 0 : i % 32 == 1 ? 15 : rintf(v * 20 + 8);

    if (nw_role_is_vector(role) || role == NW_ROLE_EMBED) {
        return v;
    }
    return (fminf(fmaxf(code, 0), 15) - 5) * step;
}

static int setup(void **state)
{
    nw_tiny t = nw_tiny_llama();

    (void)state;
    dir = nw_tmpdir_make();
    nw_tiny_write(&t, in_dir("tied"));
    t.config.tied = false;
    nw_tiny_write(&t, in_dir("untied"));
    t.dtype = NW_FMT_BF16;
    nw_tiny_write(&t, in_dir("bf16"));
    t = nw_tiny_gemma();
    nw_tiny_write(&t, in_dir("gemma"));
    t = nw_tiny_qwen();
    nw_tiny_write(&t, in_dir("qwen"));
    t = nw_tiny_llama();
    t.shape = on_grid;
    nw_tiny_write(&t, in_dir("grid"));
    return 0;
}

static nw_convert_options options(const char *source, const char *out, nw_format_id dtype)
{
    return (nw_convert_options){.source = in_dir(source),
                                .out = in_dir(out),
                                .dtype = dtype,
                                .no_tokenizer = true,
                                .n_threads = 2};
}

/* Every value of every tensor, bit for bit. */
static void assert_same_values(const char *a, const char *b)
{
    nw_checkpoint *ca = NULL;
    nw_checkpoint *cb = NULL;
    nw_error err = {0};

    must(nw_checkpoint_open(in_dir(a), &ca, &err), &err);
    must(nw_checkpoint_open(in_dir(b), &cb, &err), &err);
    assert_int_equal(nw_checkpoint_n_tensors(ca), nw_checkpoint_n_tensors(cb));
    for (size_t i = 0; i < nw_checkpoint_n_tensors(ca); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(ca, i);
        const nw_ckpt_tensor *u = nw_checkpoint_find(cb, t->role, t->layer);
        const size_t n = (size_t)t->n_rows * t->n_cols;
        assert_non_null(u);
        float *x = malloc(n * sizeof *x);
        float *y = malloc(n * sizeof *y);
        assert_true(x != NULL && y != NULL);
        must(nw_checkpoint_read_f32(ca, t, 0, t->n_rows, x, &err), &err);
        must(nw_checkpoint_read_f32(cb, u, 0, t->n_rows, y, &err), &err);
        assert_memory_equal(x, y, n * sizeof *x);
        free(x);
        free(y);
    }
    nw_checkpoint_close(ca);
    nw_checkpoint_close(cb);
}

static void equal_types_lose_nothing(void **state)
{
    nw_convert_options o = options("untied", "same-f32", NW_FMT_F32);
    nw_convert_report r = {0};
    nw_error err = {0};

    (void)state;
    must(nw_convert(&o, &r, &err), &err);
    assert_int_equal(r.n_exact, r.n_tensors);
    assert_null(r.worst_name);
    assert_true(!(r.max_abs_err > 0));
    assert_string_equal(r.note, "");
    nw_convert_report_release(&r);
    assert_same_values("untied", "same-f32");
    o = options("bf16", "same-bf16", NW_FMT_BF16);
    must(nw_convert(&o, &r, &err), &err);
    assert_int_equal(r.n_exact, r.n_tensors);
    nw_convert_report_release(&r);
    assert_same_values("bf16", "same-bf16");
}

static void rounding_is_reported_with_the_worst_tensor(void **state)
{
    const nw_convert_options o = options("untied", "rounded", NW_FMT_BF16);
    nw_convert_report r = {0};
    nw_error err = {0};

    (void)state;
    must(nw_convert(&o, &r, &err), &err);
    assert_int_equal(r.n_exact, 0);
    assert_non_null(r.worst_name);
    /* BF16 keeps 8 bits: relative errors up to 2^-9, rms about 2^-9 / sqrt 3 in the worst binade */
    assert_true(r.worst_sqnr_db > 50 && r.worst_sqnr_db < 62);
    assert_true(r.max_abs_err > 0 && r.max_abs_err < 2.0 / 256);
    nw_convert_report_release(&r);
}

static void shards_are_read_back(void **state)
{
    nw_convert_options o = options("gemma", "shards", NW_FMT_F32);
    nw_convert_report r = {0};
    nw_error err = {0};

    (void)state;
    o.shard_bytes = 30000;
    must(nw_convert(&o, &r, &err), &err);
    assert_true(r.n_shards > 3);
    nw_convert_report_release(&r);
    char path[512];
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", in_dir("shards"));
    assert_true(nw_file_exists(path));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_dir("shards"));
    assert_false(nw_file_exists(path));
    assert_same_values("gemma", "shards");
}

static void same_bytes_for_any_thread_count(void **state)
{
    nw_convert_options o = options("tied", "one", NW_FMT_BF16);
    nw_convert_report r = {0};
    nw_error err = {0};
    nw_digest a;
    nw_digest b;
    char path[512];

    (void)state;
    o.off_grid = o.no_check = true;
    o.seed = 5;
    o.n_threads = 1;
    must(nw_convert(&o, &r, &err), &err);
    nw_convert_report_release(&r);
    o.out = in_dir("three");
    o.n_threads = 3;
    must(nw_convert(&o, &r, &err), &err);
    nw_convert_report_release(&r);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_dir("one"));
    must(nw_digest_file(path, &a, &err), &err);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_dir("three"));
    must(nw_digest_file(path, &b, &err), &err);
    assert_string_equal(a.hex, b.hex);
}

/* Share of values that differ between a tensor of two folders. */
static double changed(const char *a, const char *b, nw_role role, int32_t layer)
{
    nw_checkpoint *ca = NULL;
    nw_checkpoint *cb = NULL;
    nw_error err = {0};
    size_t n_diff = 0;

    must(nw_checkpoint_open(in_dir(a), &ca, &err), &err);
    must(nw_checkpoint_open(in_dir(b), &cb, &err), &err);
    const nw_ckpt_tensor *t = nw_checkpoint_find(ca, role, layer);
    const nw_ckpt_tensor *u = nw_checkpoint_find(cb, role, layer);
    const size_t n = (size_t)t->n_rows * t->n_cols;
    float *x = calloc(n, sizeof *x);
    float *y = calloc(n, sizeof *y);
    assert_true(x != NULL && y != NULL);
    must(nw_checkpoint_read_f32(ca, t, 0, t->n_rows, x, &err), &err);
    must(nw_checkpoint_read_f32(cb, u, 0, t->n_rows, y, &err), &err);
    for (size_t i = 0; i < n; i++) {
        n_diff += x[i] < y[i] || x[i] > y[i];
    }
    free(x);
    free(y);
    nw_checkpoint_close(ca);
    nw_checkpoint_close(cb);
    return (double)n_diff / (double)n;
}

static struct function_row {
    const char *name, *source;
} function_rows[] = {{"llama_tied", "tied"},
                     {"llama_untied", "untied"},
                     {"gemma3", "gemma"},
                     {"qwen2", "qwen"},
                     {"llama_bf16", "bf16"}};

static void off_grid_keeps_the_function(void **state)
{
    const struct function_row *row = *state;
    char out[64];
    nw_convert_report r = {0};
    nw_error err = {0};

    (void)snprintf(out, sizeof out, "off-%s", row->source);
    nw_convert_options o = options(row->source, out, NW_FMT_F32);
    o.off_grid = true;
    o.seed = 42;
    must(nw_convert(&o, &r, &err), &err);
    (void)printf("%s: KL %.3g nats over %zu positions\n", row->name, r.max_kl_f32, r.n_positions);
    assert_true(r.logits_checked && r.n_positions == 32);
    assert_true(r.max_kl_f32 < 1e-6 && r.max_kl_out < 1e-6);
    nw_convert_report_release(&r);
    static const nw_role rescaled[] = {NW_ROLE_ATTN_NORM, NW_ROLE_Q,    NW_ROLE_K,
                                       NW_ROLE_V,         NW_ROLE_O,    NW_ROLE_GATE,
                                       NW_ROLE_UP,        NW_ROLE_DOWN, NW_ROLE_FFN_NORM};
    for (size_t i = 0; i < NW_COUNT(rescaled); i++) {
        assert_true(changed(row->source, out, rescaled[i], 1) > 0.9);
    }
    assert_true(!(changed(row->source, out, NW_ROLE_EMBED, -1) > 0));
    assert_false(nw_file_exists(in_dir("off-tied-f32")));
}

/* The check must be able to fail: another model is not the same function. */
static void probe_tells_models_apart(void **state)
{
    nw_tiny t = nw_tiny_llama();
    nw_logits_probe *p = NULL;
    nw_error err = {0};
    double max_kl = 0;
    double mean_kl = 0;

    (void)state;
    t.seed = 2;
    nw_tiny_write(&t, in_dir("other"));
    must(nw_logits_probe_open(in_dir("tied"), false, 1, &p, &err), &err);
    must(nw_logits_probe_compare(p, in_dir("tied"), &max_kl, &mean_kl, &err), &err);
    assert_true(!(max_kl > 0)); /* a model and itself: exactly 0 */
    must(nw_logits_probe_compare(p, in_dir("other"), &max_kl, &mean_kl, &err), &err);
    assert_true(max_kl > 1e-3 && mean_kl > 1e-3 && mean_kl <= max_kl);
    nw_logits_probe_close(p);
}

static void kl_of_known_logits(void **state)
{
    /* p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2): KL = 1/2 ln 2 - 1/4 ln 2 = ln(2) / 4 */
    const float p[] = {0.6931472F, 0, 0};
    const float q[] = {10, 10, 10.6931472F};

    (void)state;
    assert_true(fabs(nw_logits_kl(p, q, 3) - 0.17328679513998632) < 1e-6);
    assert_true(!(nw_logits_kl(p, p, 3) > 0));
}

static double lowest_sqnr(const char *model, const char *recipe, const char *out, size_t *n_exact)
{
    const nw_quantize_options o = {
        .source = in_dir(model), .recipe = recipe, .out = in_dir(out), .no_tokenizer = true};
    nw_manifest m = {0};
    nw_error err = {0};
    double lowest = HUGE_VAL;

    must(nw_quantize(&o, &m, &err), &err);
    *n_exact = 0;
    for (size_t i = 0; i < m.n_tensors; i++) {
        if (m.tensors[i].targeted) {
            lowest = fmin(lowest, m.tensors[i].sqnr_db);
            *n_exact += isinf(m.tensors[i].sqnr_db) ? 1 : 0;
        }
    }
    nw_manifest_release(&m);
    return lowest;
}

static void off_grid_leaves_the_grid(void **state)
{
    nw_convert_options o = options("grid", "grid-off", NW_FMT_F32);
    nw_convert_report r = {0};
    nw_error err = {0};
    size_t n_exact = 0;

    (void)state;
    /* on its grid, 4 bits with a zero point rebuild every matrix: a false "lossless" */
    assert_true(isinf(lowest_sqnr("grid", "int4-g32-zp", "grid-q", &n_exact)));
    assert_int_equal(n_exact, 14);
    o.off_grid = true;
    o.seed = 1;
    must(nw_convert(&o, &r, &err), &err);
    nw_convert_report_release(&r);
    const double lowest = lowest_sqnr("grid-off", "int4-g32-zp", "grid-off-q", &n_exact);
    (void)printf("off the grid: lowest SQNR %.2f dB\n", lowest);
    assert_int_equal(n_exact, 0);
    assert_true(lowest > 15 && lowest < 30);
}

static void note_is_carried_into_the_manifest(void **state)
{
    static const char note[] = "{\"note\": \"BF16 made from published 4-bit weights\"}";
    nw_tiny t = nw_tiny_llama();
    nw_error err = {0};
    nw_manifest m = {0};
    char path[512];

    (void)state;
    nw_tiny_write(&t, in_dir("noted"));
    (void)snprintf(path, sizeof path, "%s/narrow.json", in_dir("noted"));
    must(nw_file_write(path, note, sizeof note - 1, &err), &err);
    const nw_quantize_options o = {.source = in_dir("noted"),
                                   .recipe = "int8-w8a8",
                                   .out = in_dir("noted-q"),
                                   .no_tokenizer = true};
    must(nw_quantize(&o, &m, &err), &err);
    assert_string_equal(m.note, "BF16 made from published 4-bit weights");
    nw_manifest_release(&m);
}

static void missing_tokenizer_is_an_error_that_says_what_to_do(void **state)
{
    nw_convert_options o = options("tied", "no-tok", NW_FMT_BF16);
    nw_convert_report r = {0};
    nw_error err = {0};

    (void)state;
    o.no_tokenizer = false;
    assert_true(nw_convert(&o, &r, &err) != NW_OK);
    assert_non_null(strstr(err.message, "--no-tokenizer"));
    assert_false(nw_file_exists(in_dir("no-tok")));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_types_lose_nothing),
        cmocka_unit_test(rounding_is_reported_with_the_worst_tensor),
        cmocka_unit_test(shards_are_read_back),
        cmocka_unit_test(same_bytes_for_any_thread_count),
        cmocka_unit_test(probe_tells_models_apart),
        cmocka_unit_test(kl_of_known_logits),
        cmocka_unit_test(off_grid_leaves_the_grid),
        cmocka_unit_test(note_is_carried_into_the_manifest),
        cmocka_unit_test(missing_tokenizer_is_an_error_that_says_what_to_do),
    };
    int failed = setup(NULL);

    failed += cmocka_run_group_tests_name("convert", tests, NULL, NULL);
    failed +=
        NW_RUN_TABLE("off_grid_keeps_the_function", function_rows, off_grid_keeps_the_function);
    return failed + teardown(NULL);
}
