/* Checkpoint to artifact on tiny models: what is written, what is refused, what is left behind, and
 * that a damaged file is found by the name of its tensor. C1..C10: rows of public reports on
 * quantizers (shapes, recipes, tied embeddings, unchecked output, unseeded order).
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "artifact/artifact.h"
#include "base/file.h"
#include "quant/quantize.h"
#include "quant/recipe.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

static nw_status quantize(const char *model, const char *recipe, const char *out, unsigned threads,
                          nw_manifest *m, nw_error *err)
{
    const nw_quantize_options o = {.source = in_dir(model),
                                   .recipe = recipe,
                                   .out = in_dir(out),
                                   .no_tokenizer = true,
                                   .n_threads = threads};
    return nw_quantize(&o, m, err);
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
    t = nw_tiny_llama();
    t.config.d_ff = 320; /* no multiple of 128 */
    nw_tiny_write(&t, in_dir("ff320"));
    return 0;
}

static void c1_group_that_does_not_divide_is_refused_at_once(void **state)
{
    nw_error err = {0};

    (void)state;
    assert_int_equal(quantize("ff320", "int4-g128", "c1", 1, NULL, &err), NW_E_FORMAT);
    /* d_model 64 as well: both kinds of mistake in one message, with columns and group */
    assert_non_null(strstr(err.message, "mlp.down_proj"));
    assert_non_null(strstr(err.message, "320 columns are no multiple of group 128"));
    assert_non_null(strstr(err.message, "self_attn.q_proj"));
    assert_non_null(strstr(err.message, "64 columns are no multiple of group 128"));
    assert_non_null(strstr(err.message, "(fits: 16 32 64)"));
    assert_false(nw_file_exists(in_dir("c1")));
}

static void c2_nothing_is_substituted_and_bits_are_counted_from_bytes(void **state)
{
    nw_manifest m = {0};
    nw_error err = {0};
    uint64_t bytes = 0;
    uint64_t n = 0;

    (void)state;
    must(quantize("tied", "int4-g32", "c2", 2, &m, &err), &err);
    for (size_t i = 0; i < m.n_tensors; i++) {
        const nw_manifest_tensor *t = &m.tensors[i];
        const bool linear = t->role >= NW_ROLE_Q && !t->is_vector;
        assert_int_equal(t->targeted, linear);
        assert_int_equal(t->type.kind == NW_PANEL_INT4, linear);
        if (linear) {
            /* 32 codes of 4 bits and an FP16 scale are 4.5 bits; three groups of 16 rows are 864
             * bytes, padded to 896 */
            const double want = t->n_cols == 64 ? 4.5 : 896.0 * 8 / (16 * 96);
            const double bits = 8 * (double)t->n_bytes / (t->n_rows * (double)t->n_cols);
            assert_true(fabs(bits - want) < 1e-12);
            bytes += t->n_bytes;
            n += (uint64_t)t->n_rows * t->n_cols;
        }
    }
    assert_true(m.nominal_bits > 3.999 && m.nominal_bits < 4.001);
    assert_true(fabs(m.target_bits - 8 * (double)bytes / (double)n) < 1e-12);
    assert_true(m.effective_bits > m.target_bits);
    nw_manifest_release(&m);
}

static void c5_tied_embedding_is_written_once_and_shared(void **state)
{
    nw_artifact *a = NULL;
    nw_safetensors *st = NULL;
    nw_error err = {0};
    float row[64];

    (void)state;
    must(quantize("tied", "int4-g32", "c5", 1, NULL, &err), &err);
    must(nw_st_open(in_dir("c5"), &st, &err), &err);
    assert_non_null(nw_st_find(st, "model.embed_tokens.weight"));
    assert_null(nw_st_find(st, "lm_head.weight"));
    nw_st_close(st);
    must(nw_artifact_open(in_dir("c5"), &a, &err), &err);
    assert_ptr_equal(nw_artifact_get_matrix(a, NW_ROLE_HEAD, -1),
                     nw_artifact_get_matrix(a, NW_ROLE_EMBED, -1));
    assert_int_equal(nw_artifact_get_matrix(a, NW_ROLE_EMBED, -1)->type.kind, NW_PANEL_BF16);
    assert_int_equal(nw_artifact_get_matrix(a, NW_ROLE_DOWN, 1)->type.kind, NW_PANEL_INT4);
    assert_null(nw_artifact_get_matrix(a, NW_ROLE_DOWN, 2));
    nw_artifact_embed_row(a, 79, row);
    assert_true(nw_artifact_get_facts(a)->native);
    nw_artifact_close(a);
}

/* Flips one bit of a tensor's first code byte and expects verify to name the tensor. */
static void damage(const char *artifact, const char *tensor, size_t n_bytes, bool zero)
{
    nw_safetensors *st = NULL;
    nw_error err = {0};
    char path[512];

    must(nw_st_open(in_dir(artifact), &st, &err), &err);
    const nw_st_tensor *t = nw_st_find(st, tensor);
    assert_non_null(t);
    const nw_st_tensor *first = nw_st_find(st, "model.embed_tokens.weight");
    assert_non_null(first);
    /* data begins at a multiple of 4 KiB: the header is all that lies before the first tensor */
    const uint64_t at = (uint64_t)(t->data - first->data);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_dir(artifact));
    FILE *fp = fopen(path, "r+b");
    assert_non_null(fp);
    uint8_t len[8];
    assert_int_equal(fread(len, 1, 8, fp), 8);
    const long data0 = 8 + (long)(len[0] | len[1] << 8 | len[2] << 16);
    assert_int_equal(data0 % 4096, 0);
    nw_st_close(st);
    assert_int_equal(fseek(fp, data0 + (long)at + 64, SEEK_SET), 0);
    for (size_t i = 0; i < n_bytes; i++) {
        (void)fputc(zero ? 0 : 0x5A, fp);
    }
    assert_int_equal(fclose(fp), 0);
}

static size_t n_faults;

static void count_fault(void *ctx, const nw_manifest_tensor *t, const char *problem)
{
    (void)ctx;
    (void)t;
    n_faults += problem != NULL;
}

static void c6_damaged_tensor_is_named(void **state)
{
    nw_error err = {0};

    (void)state;
    must(quantize("untied", "int8-w8a8", "c6", 1, NULL, &err), &err);
    must(nw_artifact_verify(in_dir("c6"), in_dir("untied"), count_fault, NULL, &err), &err);
    damage("c6", "model.layers.1.mlp.up_proj.weight", 1, false);
    n_faults = 0;
    assert_int_equal(nw_artifact_verify(in_dir("c6"), NULL, count_fault, NULL, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "model.layers.1.mlp.up_proj.weight"));
    assert_int_equal(n_faults, 1);
    damage("c6", "lm_head.weight", 256, true);
    n_faults = 0;
    assert_int_equal(nw_artifact_verify(in_dir("c6"), NULL, count_fault, NULL, &err), NW_E_FORMAT);
    assert_int_equal(n_faults, 2);
}

static void c6_wrong_source_is_noticed(void **state)
{
    nw_error err = {0};

    (void)state;
    must(quantize("untied", "int4-g32", "c6s", 1, NULL, &err), &err);
    /* same shapes, other values */
    assert_int_equal(nw_artifact_verify(in_dir("c6s"), in_dir("bf16"), NULL, NULL, &err),
                     NW_E_FORMAT);
    assert_non_null(strstr(err.message, "against the source"));
}

static void edited_manifest_is_refused(void **state)
{
    nw_error err = {0};
    char *text = NULL;
    size_t n = 0;
    nw_artifact *a = NULL;

    (void)state;
    must(quantize("tied", "int8-w8a8", "edited", 1, NULL, &err), &err);
    char path[512];
    (void)snprintf(path, sizeof path, "%s/manifest.json", in_dir("edited"));
    must(nw_file_read(path, 1 << 20, &text, &n, &err), &err);
    char *at = strstr(text, "\"a8\"");
    assert_non_null(at);
    memcpy(at, "\"ax\"", 4);
    must(nw_file_write(path, text, n, &err), &err);
    free(text);
    assert_int_equal(nw_artifact_open(in_dir("edited"), &a, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "edited"));
    assert_null(a);
}

static void c8_pattern_that_matches_only_a_container_is_a_mistake(void **state)
{
    static const char yaml[] = "targets:\n"
                               "  - {match: 'model\\.layers\\.0\\.mlp', weights: int8}\n"
                               "  - {match: '.*_proj', weights: int8}\n"
                               "ignore: ['.*\\.self_attn', 'model.layers.7.*']\n";
    nw_error err = {0};
    char path[512];

    (void)state;
    nw_tmpdir_put(&dir, "c8.yaml", yaml, sizeof yaml - 1, path, sizeof path);
    assert_int_equal(quantize("tied", path, "c8", 1, NULL, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "3 mistakes"));
    assert_non_null(strstr(err.message, "target pattern 'model\\.layers\\.0\\.mlp' matches no"));
    assert_non_null(strstr(err.message, "ignore pattern '.*\\.self_attn' matches no"));
    assert_false(nw_file_exists(in_dir("c8")));
}

/* Seven codes of INT4 and not fifteen, said in the manifest; a layout that has none to leave out is a mistake. */
static void fewer_codes_are_written_and_said(void **state)
{
    static const char yaml[] = "code_bits: 3\n"
                               "targets:\n"
                               "  - {match: '.*_proj', weights: %s}\n";
    static const struct {
        const char *weights, *out, *mistake;
    } rows[] = {{"int4-g32", "few4", NULL},
                {"int8", "few8", NULL},
                {"bf16", "few", "code_bits 3, and bf16 has no codes of more bits"},
                {"q4_0", "few", "code_bits 3, and q4_0 has no codes of more bits"}};
    char path[512];
    char text[256];

    (void)state;
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        nw_manifest m = {0};
        nw_error err = {0};
        (void)snprintf(text, sizeof text, yaml, rows[i].weights);
        nw_tmpdir_put(&dir, "few.yaml", text, strlen(text), path, sizeof path);
        const nw_status st = quantize("tied", path, rows[i].out, 1, &m, &err);
        if (rows[i].mistake != NULL) {
            assert_int_equal(st, NW_E_FORMAT);
            assert_non_null(strstr(err.message, rows[i].mistake));
            continue;
        }
        must(st, &err);
        assert_int_equal(json_integer_value(json_object_get(m.recipe, "code_bits")), 3);
        for (size_t k = 0; k < m.n_tensors; k++) { /* between what 2 and 4 bits keep */
            const nw_manifest_tensor *t = &m.tensors[k];
            assert_true(!t->targeted || (t->sqnr_db > 9 && t->sqnr_db < 18));
        }
        nw_manifest_release(&m);
    }
}

static void recipe_file_is_resolved_first_match_wins(void **state)
{
    static const char yaml[] = "activations: a8\n"
                               "scale: absmax\n"
                               "keep: f32\n"
                               "targets:\n"
                               "  - {match: '.*\\.down_proj', weights: int4-g32-zp}\n"
                               "  - {match: '.*_proj', weights: int8}\n"
                               "ignore: ['model\\.layers\\.0\\..*']\n";
    nw_manifest m = {0};
    nw_error err = {0};
    char path[512];

    (void)state;
    nw_tmpdir_put(&dir, "mixed.yaml", yaml, sizeof yaml - 1, path, sizeof path);
    must(quantize("tied", path, "mixed", 1, &m, &err), &err);
    assert_string_equal(m.recipe_name, "mixed");
    assert_int_equal(m.act, NW_ACT_RULE_A8);
    for (size_t i = 0; i < m.n_tensors; i++) {
        const nw_manifest_tensor *t = &m.tensors[i];
        nw_panel_kind want = NW_PANEL_F32;
        if (t->layer == 1 && !t->is_vector) {
            want = t->role == NW_ROLE_DOWN ? NW_PANEL_INT4 : NW_PANEL_INT8;
        }
        assert_int_equal(t->type.kind, want);
        if (want == NW_PANEL_F32) {
            assert_true(isinf(t->sqnr_db));
        }
    }
    nw_manifest_release(&m);
}

/* Each is a recipe file with the mistakes it must be refused for. */
static struct bad_recipe {
    const char *name, *yaml, *first, *second;
} bad_recipes[] = {
    {"unknown_key_and_type", "target: 1\ntargets:\n  - {match: a, weights: int5}\n",
     "bad.yaml:1:", "unknown weights 'int5'"},
    {"broken_pattern", "targets:\n  - {match: '(', weights: int8}\n", "bad.yaml:2:", "parenthesis"},
    {"no_targets", "keep: bf16\n", "'targets' is missing", "bad.yaml"},
    {"wrong_words", "keep: bf17\nscale: best\ntargets:\n  - {match: a, weights: int8}\n",
     "'bf17', must be bf16 or f32", "'best', must be search or absmax or tensor"},
    {"scale_dtype_and_key",
     "scale_dtype: f32\nscales: x\ntargets:\n  - {match: a, weights: int8}\n",
     "'f32', must be fp16 or bf16", "unknown key 'scales'"},
    {"target_of_three", "targets:\n  - {match: a, weights: int8, x: 1}\n", "and nothing else",
     "bad.yaml:2:"},
    {"code_bits_of_one", "code_bits: 1\ntargets:\n  - {match: a, weights: int8}\n",
     "bad.yaml:1:", "no whole number from 2 to 7"},
    {"a_list", "- 1\n", "mapping", "bad.yaml"},
};

static void bad_recipe(void **state)
{
    const struct bad_recipe *r = *state;
    const nw_tmpdir d = nw_tmpdir_make();
    nw_recipe *recipe = NULL;
    nw_error err = {0};
    char path[512];

    nw_tmpdir_put(&d, "bad.yaml", r->yaml, strlen(r->yaml), path, sizeof path);
    assert_int_equal(nw_recipe_open(path, &recipe, &err), NW_E_FORMAT);
    assert_null(recipe);
    if (strstr(err.message, r->first) == NULL || strstr(err.message, r->second) == NULL) {
        fail_msg("'%s' and '%s' are not both in: %s", r->first, r->second, err.message);
    }
    nw_tmpdir_remove(&d);
}

static void unknown_recipe_lists_the_known(void **state)
{
    nw_recipe *recipe = NULL;
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_recipe_open("int3", &recipe, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "int8-w8a8"));
}

static void c10_same_bytes_for_any_thread_count(void **state)
{
    static const char *const recipes[] = {"bf16",        "int8-w8a8",    "int4-g32",
                                          "int4-g32-zp", "int4-g32-min", "int8-g32",
                                          "fp8-e4m3",    "nvfp4",        "mxfp4"};
    nw_error err = {0};

    (void)state;
    for (size_t i = 0; i < NW_COUNT(recipes); i++) {
        char one[32];
        char three[32];
        (void)snprintf(one, sizeof one, "t1-%zu", i);
        (void)snprintf(three, sizeof three, "t3-%zu", i);
        must(quantize("gemma", recipes[i], one, 1, NULL, &err), &err);
        must(quantize("gemma", recipes[i], three, 3, NULL, &err), &err);
        assert_same_file(one, three, "model.safetensors");
        assert_same_file(one, three, "manifest.json");
        assert_same_file(one, three, "config.json");
        must(nw_artifact_verify(in_dir(one), in_dir("gemma"), NULL, NULL, &err), &err);
    }
}

static void bf16_source_under_bf16_recipe_is_exact(void **state)
{
    nw_manifest m = {0};
    nw_error err = {0};

    (void)state;
    must(quantize("bf16", "bf16", "exact", 2, &m, &err), &err);
    for (size_t i = 0; i < m.n_tensors; i++) {
        assert_true(isinf(m.tensors[i].sqnr_db));
        assert_true(m.tensors[i].nonzero_share > 0.99);
    }
    assert_true(m.target_bits > 15.99 && m.target_bits < 16.01);
    nw_manifest_release(&m);
}

/* A native artifact and the checkpoint packed at load hand the engine the same values. */
static void checkpoint_and_artifact_agree(void **state)
{
    nw_artifact *a = NULL;
    nw_artifact *b = NULL;
    nw_error err = {0};
    float x[96];
    float y[96];

    (void)state;
    must(quantize("bf16", "bf16", "packed", 1, NULL, &err), &err);
    must(nw_artifact_open(in_dir("packed"), &a, &err), &err);
    must(nw_artifact_open(in_dir("bf16"), &b, &err), &err);
    for (int role = 0; role < NW_ROLE_COUNT; role++) {
        const int32_t layer = role < NW_ROLE_ATTN_NORM ? -1 : 1;
        const nw_artifact_matrix *m = nw_artifact_get_matrix(a, (nw_role)role, layer);
        const nw_artifact_matrix *n = nw_artifact_get_matrix(b, (nw_role)role, layer);
        assert_int_equal(m == NULL, n == NULL);
        if (m == NULL) {
            continue;
        }
        assert_int_equal((uintptr_t)m->data % 64, 0);
        assert_int_equal((uintptr_t)n->data % 64, 0);
        assert_int_equal(m->n_bytes, n->n_bytes);
        assert_memory_equal(m->data, n->data, m->n_bytes);
        nw_panel_unpack_row(m->type, m->data, m->n_cols, m->n_rows - 1, x);
        nw_panel_unpack_row(n->type, n->data, n->n_cols, n->n_rows - 1, y);
        assert_memory_equal(x, y, m->n_cols * sizeof *x);
    }
    nw_artifact_close(a);
    nw_artifact_close(b);
}

static void gemma_gains_come_with_their_one(void **state)
{
    nw_artifact *a = NULL;
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    float stored[64];
    uint32_t n = 0;

    (void)state;
    must(quantize("gemma", "int4-g32", "gains", 1, NULL, &err), &err);
    must(nw_artifact_open(in_dir("gains"), &a, &err), &err);
    must(nw_checkpoint_open(in_dir("gemma"), &c, &err), &err);
    const nw_ckpt_tensor *t = nw_checkpoint_find(c, NW_ROLE_POST_FFN_NORM, 1);
    must(nw_checkpoint_read_f32(c, t, 0, 1, stored, &err), &err);
    const float *gain = nw_artifact_get_vector(a, NW_ROLE_POST_FFN_NORM, 1, &n);
    assert_int_equal(n, 64);
    for (uint32_t i = 0; i < n; i++) {
        const float want = stored[i] + 1;
        assert_memory_equal(&gain[i], &want, sizeof want);
    }
    nw_checkpoint_close(c);
    nw_artifact_close(a);
}

static float nan_in_up(nw_role role, size_t i, float v)
{
    return role == NW_ROLE_UP && i == 64 * 5 + 3 ? NAN : v;
}

static void non_finite_weight_is_named_and_leaves_nothing(void **state)
{
    nw_tiny t = nw_tiny_llama();
    nw_artifact *a = NULL;
    nw_error err = {0};

    (void)state;
    t.shape = nan_in_up;
    nw_tiny_write(&t, in_dir("nan"));
    const int before = nw_tmpdir_count(&dir);
    assert_int_equal(quantize("nan", "int4-g32", "nan-out", 2, NULL, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "model.layers.0.mlp.up_proj.weight"));
    assert_non_null(strstr(err.message, "row 5, column 3"));
    assert_int_equal(nw_tmpdir_count(&dir), before);
    assert_int_equal(nw_artifact_open(in_dir("nan"), &a, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "mlp.up_proj.weight"));
}

static float faint_gate(nw_role role, size_t i, float v)
{
    (void)i;
    return role == NW_ROLE_GATE ? v * 1e-8F : v;
}

static void c6_matrix_that_would_become_zeros_is_refused(void **state)
{
    nw_tiny t = nw_tiny_llama();
    nw_error err = {0};

    (void)state;
    t.shape = faint_gate;
    nw_tiny_write(&t, in_dir("faint"));
    assert_int_equal(quantize("faint", "int4-g32", "zeros", 1, NULL, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "model.layers.0.mlp.gate_proj.weight"));
    assert_non_null(strstr(err.message, "as zeros"));
    assert_false(nw_file_exists(in_dir("zeros")));
    err = (nw_error){0};
    must(quantize("faint", "int8-w8a8", "not-zeros", 1, NULL, &err), &err); /* F32 scales hold it */
}

static void full_disk_leaves_nothing(void **state)
{
    struct rlimit old;
    nw_error err = {0};
    const int before = nw_tmpdir_count(&dir);

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 100; limit < 100000; limit *= 5) {
        const struct rlimit small = {.rlim_cur = limit, .rlim_max = old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        err = (nw_error){0};
        const nw_status st = quantize("untied", "int8-w8a8", "full", 1, NULL, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(st, NW_E_IO);
        assert_int_equal(nw_tmpdir_count(&dir), before);
    }
}

static void existing_result_is_kept_unless_replaced(void **state)
{
    nw_error err = {0};
    nw_quantize_options o = {.source = in_dir("tied"),
                             .recipe = "int4-g32",
                             .out = in_dir("kept"),
                             .no_tokenizer = true};
    nw_artifact *a = NULL;

    (void)state;
    must(nw_quantize(&o, NULL, &err), &err);
    o.recipe = "int8-w8a8";
    assert_int_equal(nw_quantize(&o, NULL, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "--force"));
    o.replace = true;
    must(nw_quantize(&o, NULL, &err), &err);
    must(nw_artifact_open(in_dir("kept"), &a, &err), &err);
    assert_string_equal(nw_artifact_recipe(a), "int8-w8a8");
    nw_artifact_close(a);
    o.out = dir.path; /* a folder that is no result of ours */
    assert_int_equal(nw_quantize(&o, NULL, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "is not replaced"));
}

static void source_is_never_replaced_by_its_result(void **state)
{
    nw_error err = {0};
    char file[512];
    nw_quantize_options o = {.source = in_dir("untied"),
                             .recipe = "int4-g32",
                             .out = in_dir("untied"),
                             .replace = true,
                             .no_tokenizer = true};

    (void)state;
    assert_int_equal(nw_quantize(&o, NULL, &err), NW_E_USAGE);
    assert_non_null(strstr(err.message, "would take the place of its source"));
    (void)snprintf(file, sizeof file, "%s/model.safetensors", in_dir("untied"));
    o.source = file;
    assert_int_equal(nw_quantize(&o, NULL, &err), NW_E_USAGE);
}

static void artifact_is_no_source(void **state)
{
    nw_error err = {0};

    (void)state;
    must(quantize("tied", "int8-w8a8", "once", 1, NULL, &err), &err);
    assert_int_equal(quantize("once", "int4-g32", "twice", 1, NULL, &err), NW_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "name the checkpoint it was made from"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(c1_group_that_does_not_divide_is_refused_at_once),
        cmocka_unit_test(c2_nothing_is_substituted_and_bits_are_counted_from_bytes),
        cmocka_unit_test(c5_tied_embedding_is_written_once_and_shared),
        cmocka_unit_test(c6_damaged_tensor_is_named),
        cmocka_unit_test(c6_wrong_source_is_noticed),
        cmocka_unit_test(edited_manifest_is_refused),
        cmocka_unit_test(c8_pattern_that_matches_only_a_container_is_a_mistake),
        cmocka_unit_test(fewer_codes_are_written_and_said),
        cmocka_unit_test(recipe_file_is_resolved_first_match_wins),
        cmocka_unit_test(unknown_recipe_lists_the_known),
        cmocka_unit_test(c10_same_bytes_for_any_thread_count),
        cmocka_unit_test(bf16_source_under_bf16_recipe_is_exact),
        cmocka_unit_test(checkpoint_and_artifact_agree),
        cmocka_unit_test(gemma_gains_come_with_their_one),
        cmocka_unit_test(non_finite_weight_is_named_and_leaves_nothing),
        cmocka_unit_test(c6_matrix_that_would_become_zeros_is_refused),
        cmocka_unit_test(full_disk_leaves_nothing),
        cmocka_unit_test(existing_result_is_kept_unless_replaced),
        cmocka_unit_test(source_is_never_replaced_by_its_result),
        cmocka_unit_test(artifact_is_no_source),
    };
    const int failed = cmocka_run_group_tests_name("quantize", tests, setup, teardown);

    return failed + NW_RUN_TABLE("bad_recipes", bad_recipes, bad_recipe);
}
