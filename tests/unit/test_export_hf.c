/* Artifacts written as compressed-tensors, AWQ and GPTQ, and opened again: the same panels byte for byte
 * where the format holds them, the loss named where not, and what cannot be written refused by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "artifact/artifact.h"
#include "artifact/export.h"
#include "artifact/export_parts.h"
#include "artifact/folder.h"
#include "artifact/native_write.h"
#include "base/file.h"
#include "base/json.h"
#include "model/hf_quant.h"
#include "quant/quantize.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

/* Of a matrix: more above 0 than below, so that the zero point of all of it is not the middle. */
static float skew(nw_role role, size_t i, float value)
{
    (void)i;
    return nw_role_is_norm(role) || value > 0 ? value : value / 4;
}

static int setup(void **state)
{
    nw_tiny t = nw_tiny_llama();

    (void)state;
    dir = nw_tmpdir_make();
    t.dtype = NW_FMT_BF16;
    nw_tiny_write(&t, in_dir("tied"));
    t.config.tied = false;
    nw_tiny_write(&t, in_dir("untied"));
    t.shape = skew;
    nw_tiny_write(&t, in_dir("skewed"));
    return 0;
}

/* The model quantized by these lines of a recipe into the folder "native". */
static void quantize(const char *model, const char *head, const char *targets)
{
    char text[1024];
    char path[512];
    nw_error err = {0};

    (void)snprintf(text, sizeof text, "%s\ntargets:\n%s\n", head, targets);
    const nw_quantize_options o = {
        .source = in_dir(model),
        .recipe = nw_tmpdir_put(&dir, "recipe.yaml", text, strlen(text), path, sizeof path),
        .out = in_dir("native"),
        .replace = true,
        .no_tokenizer = true,
        .n_threads = 2};
    must(nw_quantize(&o, NULL, &err), &err);
}

static nw_status export_as(const char *format, const char *source, uint64_t shard_bytes,
                           bool no_fallback, nw_export_report *r, nw_error *err)
{
    const nw_export_format *f = NULL;

    must(nw_export_format_find(format, "hf", &f, err), err);
    const nw_export_options o = {.source = in_dir(source),
                                 .out = in_dir("out"),
                                 .format = f,
                                 .replace = true,
                                 .no_tokenizer = true,
                                 .no_fallback = no_fallback,
                                 .n_threads = 2,
                                 .shard_bytes = shard_bytes};
    return nw_export(&o, r, err);
}

/* Every matrix of codes has the same layout and bytes in the two. */
static void assert_same_panels(const char *a, const char *b)
{
    nw_artifact *x = NULL;
    nw_artifact *y = NULL;
    nw_error err = {0};

    must(nw_artifact_open(in_dir(a), &x, &err), &err);
    must(nw_artifact_open(in_dir(b), &y, &err), &err);
    for (int32_t l = -1; l < (int32_t)nw_artifact_config(x)->n_layers; l++) {
        for (int role = 0; role < NW_ROLE_COUNT; role++) {
            const nw_artifact_matrix *m = nw_artifact_get_matrix(x, (nw_role)role, l);
            const nw_artifact_matrix *n = nw_artifact_get_matrix(y, (nw_role)role, l);
            char names[2][32];
            assert_int_equal(m != NULL, n != NULL);
            if (m != NULL && n != NULL && nw_panel_code_bits(m->type) <= 8) {
                assert_string_equal(nw_panel_name(m->type, names[0]),
                                    nw_panel_name(n->type, names[1]));
                assert_int_equal(m->n_bytes, n->n_bytes);
                assert_memory_equal(m->data, n->data, m->n_bytes);
            }
        }
    }
    assert_int_equal(nw_artifact_get_facts(x)->act, nw_artifact_get_facts(y)->act);
    nw_artifact_close(x);
    nw_artifact_close(y);
}

#define BF16_SCALES "scale_dtype: bf16"
#define LINEARS     "  - {match: '.*_proj', weights: "

/* key: a path of the written config.json, and the text of what stands there. */
static struct row {
    const char *name, *format, *head, *targets, *type; /* of q_proj as the reader names it */
    const char *key, *value;
} rows[] = {
    {"w4a16", "compressed-tensors", BF16_SCALES, LINEARS "int4-g32}", "ct-int4-g32", "format",
     "pack-quantized"},
    {"w4a16_asym", "compressed-tensors", BF16_SCALES, LINEARS "int4-g32-zp}", "ct-int4-g32-zp",
     "format", "pack-quantized"},
    {"w4a16_g16", "compressed-tensors", BF16_SCALES, LINEARS "int4-g16}", "ct-int4-g16", "format",
     "pack-quantized"},
    {"w4a16_g16_asym", "compressed-tensors", BF16_SCALES, LINEARS "int4-g16-zp}", "ct-int4-g16-zp",
     "format", "pack-quantized"},
    {"w4a16_channel", "compressed-tensors", BF16_SCALES, LINEARS "int4-row}", "ct-int4", "format",
     "pack-quantized"},
    {"w4a16_channel_asym", "compressed-tensors", BF16_SCALES, LINEARS "int4-row-zp}", "ct-int4-zp",
     "format", "pack-quantized"},
    {"w4a16_tensor", "compressed-tensors", BF16_SCALES, LINEARS "int4-tensor}", "ct-int4-tensor",
     "format", "pack-quantized"},
    {"w4a16_tensor_asym", "compressed-tensors", BF16_SCALES, LINEARS "int4-tensor-zp}",
     "ct-int4-tensor-zp", "format", "pack-quantized"},
    {"w8a16_asym", "compressed-tensors", BF16_SCALES, LINEARS "int8-g32-zp}", "ct-int8-g32-zp",
     "format", "pack-quantized"},
    {"w8a16_channel_asym", "compressed-tensors", BF16_SCALES, LINEARS "int8-row-zp}", "ct-int8-zp",
     "format", "pack-quantized"},
    {"w8a16_tensor_asym", "compressed-tensors", BF16_SCALES, LINEARS "int8-tensor-zp}",
     "ct-int8-tensor-zp", "format", "pack-quantized"},
    {"awq_rows", "awq", "scale: search", LINEARS "int4-row-zp}", "awq-int4-zp", "version", "gemm"},
    {"gptq_rows", "gptq", "scale: search", LINEARS "int4-row}", "gptq-int4", "checkpoint_format",
     "gptq"},
    {"awq_g16", "awq", "scale: search", LINEARS "int4-g16-zp}", "awq-int4-g16-zp", "version",
     "gemm"},
    {"w8a16_groups", "compressed-tensors", BF16_SCALES, LINEARS "int8-g32}", "ct-int8-g32",
     "format", "pack-quantized"},
    {"w8a16", "compressed-tensors", BF16_SCALES, LINEARS "int8}", "ct-int8", "format",
     "pack-quantized"},
    {"w8a8", "compressed-tensors", "activations: a8", LINEARS "int8}", "ct-int8", "format",
     "int-quantized"},
    {"fp8_dynamic", "compressed-tensors", "activations: fp8", LINEARS "fp8-e4m3}", "ct-fp8",
     "format", "float-quantized"},
    {"nvfp4", "compressed-tensors", "scale: search", LINEARS "nvfp4}", "ct-nvfp4", "format",
     "nvfp4-pack-quantized"},
    {"mxfp4", "compressed-tensors", "scale: search", LINEARS "mxfp4}", "ct-mxfp4", "format",
     "mxfp4-pack-quantized"},
    {"mixed", "compressed-tensors", BF16_SCALES,
     "  - {match: '.*self_attn.*', weights: int8}\n" LINEARS "int4-g32}", "ct-int8", "format",
     "pack-quantized"},
    {"head_too", "compressed-tensors", BF16_SCALES,
     LINEARS "int4-g32}\n  - {match: lm_head, weights: int8-g32}", "ct-int4-g32", "format",
     "pack-quantized"},
    {"awq", "awq", "scale: search", LINEARS "int4-g32-zp}", "awq-int4-g32-zp", "version", "gemm"},
    {"awq_symmetric", "awq", "scale: search", LINEARS "int4-g32}", "awq-int4-g32", "version",
     "gemm"},
    {"gptq", "gptq", "scale: search", LINEARS "int4-g32}", "gptq-int4-g32", "checkpoint_format",
     "gptq"},
    {"gptq_8_bits", "gptq", "scale: search", LINEARS "int8-g32}", "gptq-int8-g32",
     "checkpoint_format", "gptq"},
};

static void check_folder(const struct row *r)
{
    char path[512];
    char name[32];
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    json_t *config = NULL;

    must(nw_json_load(nw_tmpdir_file(&dir, "out/config.json", path, sizeof path), 1 << 20, &config,
                      &err),
         &err);
    const json_t *q = json_object_get(config, "quantization_config");
    assert_string_equal(json_string_value(json_object_get(q, r->key)), r->value);
    json_decref(config);
    must(nw_checkpoint_open(in_dir("out"), &c, &err), &err);
    assert_string_equal(nw_ckpt_format_name(nw_checkpoint_find(c, NW_ROLE_Q, 0), name), r->type);
    nw_checkpoint_close(c);
}

static void comes_back_as_it_was(void **state)
{
    const struct row *r = *state;
    nw_export_report report = {0};
    nw_error err = {0};

    quantize(strstr(r->name, "asym") != NULL ? "skewed" : "untied", r->head, r->targets);
    must(export_as(r->format, "native", 0, true, &report, &err), &err);
    assert_int_equal(report.loss.n_exact, report.loss.n_tensors);
    check_folder(r);
    if (strcmp(r->name, "w8a16_groups") != 0 && strcmp(r->name, "head_too") != 0) {
        assert_same_panels("native", "out");
    }
    nw_export_report_release(&report);
}

/* Groups of 256 by every format that has them: one scale in the file, two groups in the panels. */
static void groups_of_256_come_back(void **state)
{
    static const char *const formats[][3] = {
        {"compressed-tensors", "int4-g256-zp", "ct-int4-g256-zp"},
        {"compressed-tensors", "int8-g256", "ct-int8-g256"},
        {"awq", "int4-g256-zp", "awq-int4-g256-zp"},
        {"gptq", "int8-g256", "gptq-int8-g256"},
    };
    nw_tiny t = nw_tiny_llama();

    (void)state;
    t.dtype = NW_FMT_BF16;
    t.config.d_ff = 512;
    t.config.d_model = 512;
    t.config.n_heads = 8;
    t.config.n_kv_heads = 2;
    t.config.d_head = 64;
    nw_tiny_write(&t, in_dir("broad"));
    for (size_t i = 0; i < NW_COUNT(formats); i++) {
        nw_export_report r = {0};
        nw_error err = {0};
        nw_checkpoint *c = NULL;
        char targets[128];
        char name[32];
        (void)snprintf(targets, sizeof targets, LINEARS "%s}", formats[i][1]);
        quantize("broad", BF16_SCALES, targets);
        must(export_as(formats[i][0], "native", 0, true, &r, &err), &err);
        /* AWQ's and GPTQ's embedding is F16, which has not all small BF16 numbers */
        assert_true(r.loss.n_exact + (i < 2 ? 0 : 1) >= r.loss.n_tensors);
        nw_export_report_release(&r);
        must(nw_checkpoint_open(in_dir("out"), &c, &err), &err);
        const nw_ckpt_tensor *down = nw_checkpoint_find(c, NW_ROLE_DOWN, 1);
        assert_string_equal(nw_ckpt_format_name(down, name), formats[i][2]);
        nw_checkpoint_close(c);
        assert_same_panels("native", "out");
    }
}

/* A panel whose groups differ where its name says that they have one scale: nothing is written. */
static void groups_that_differ_are_refused(void **state)
{
    nw_export_source *source = NULL;
    nw_error err = {0};

    (void)state;
    quantize("tied", BF16_SCALES, LINEARS "int4-row}");
    must(nw_export_source_open(in_dir("native"), &source, &err), &err);
    nw_export_tensor t = *nw_export_find(source, NW_ROLE_DOWN, 0);
    assert_true(t.n_cols > t.type.group);
    uint8_t *panel = malloc((size_t)t.n_rows * t.n_cols);
    size_t n_bytes = 0;
    assert_true(panel != NULL && nw_panel_bytes(t.type, t.n_cols, &n_bytes));
    memcpy(panel, t.data, n_bytes);
    panel[32U + t.type.group * 8U] ^= 1; /* the scale of row 0 in its second group */
    t.data = panel;
    t.n_rows = 16;
    bool fit = false;
    assert_int_equal(nw_export_scales_fit(&t, NW_FMT_BF16, &fit, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "groups in row 0 whose scales differ"));
    free(panel);
    nw_export_source_close(source);
}

/* The second writing, from the first's own codes, in shards: the same panels again. */
static void shards_are_read_back(void **state)
{
    nw_export_report r = {0};
    nw_error err = {0};
    char path[512];

    (void)state;
    quantize("tied", BF16_SCALES, LINEARS "int4-g32-zp}");
    must(export_as("compressed-tensors", "native", 20000, true, &r, &err), &err);
    nw_export_report_release(&r);
    assert_true(nw_file_exists(
        nw_tmpdir_file(&dir, "out/model.safetensors.index.json", path, sizeof path)));
    assert_same_panels("native", "out");
}

/* Scales of FP16 that BF16 has not: rounded, and said so. */
static void rounded_scales_are_reported(void **state)
{
    nw_export_report r = {0};
    nw_error err = {0};

    (void)state;
    quantize("untied", "scale: search", LINEARS "int4-g32}");
    must(export_as("compressed-tensors", "native", 0, false, &r, &err), &err);
    assert_true(r.loss.n_exact < r.loss.n_tensors);
    assert_true(r.loss.n_fallbacks > 0 && r.loss.max_abs_err > 0);
    assert_non_null(strstr(r.loss.first_fallback, "no BF16 numbers"));
    nw_export_report_release(&r);
}

static struct refusal {
    const char *name, *format, *head, *targets, *message;
} refusals[] = {
    {"rounded_to_bf16", "compressed-tensors", "scale: search", LINEARS "int4-g32}",
     "no BF16 numbers and were rounded to them"},
    {"rounded_to_f16", "gptq", "scale: search", LINEARS "int8}", "no F16 numbers"},
    {"v_stays_wide", "compressed-tensors", BF16_SCALES,
     "  - {match: '.*[qk]_proj', weights: int4-g32}", "must have the same scheme"},
    {"gate_wider_than_up", "awq", BF16_SCALES, "  - {match: '.*gate_proj', weights: int4-g32-zp}",
     "must have the same scheme"},
    {"minima", "compressed-tensors", "scale: search", LINEARS "int4-g32-min}", "no minima"},
    {"gptq_zero_points", "gptq", "scale: search", LINEARS "int4-g32-zp}",
     "GPTQ v1 has no zero points"},
    {"gptq_two_widths", "gptq", "scale: search",
     "  - {match: '.*self_attn.*', weights: int8-g32}\n" LINEARS "int4-g32}",
     "one width and group"},
    {"gptq_bytes_with_zero_points", "gptq", "scale: search", LINEARS "int8-g32-zp}",
     "GPTQ v1 has no zero points"},
    {"awq_bytes", "awq", "scale: search", LINEARS "int8-row-zp}", "AWQ has INT4"},
    {"awq_floats", "awq", "scale: search", LINEARS "nvfp4}", "AWQ has INT4"},
    {"compressed_tensors_of_wide", "compressed-tensors", "scale: search", LINEARS "bf16}",
     "no matrix has codes"},
    {"awq_of_wide", "awq", "scale: search", LINEARS "bf16}", "no matrix has codes"},
    {"embedding", "compressed-tensors", BF16_SCALES,
     LINEARS "int4-g32}\n  - {match: '.*embed_tokens', weights: int8}", "keep embeddings wide"},
};

static void is_refused(void **state)
{
    const struct refusal *r = *state;
    nw_export_report report = {0};
    nw_error err = {0};

    quantize("untied", r->head, r->targets);
    assert_int_equal(export_as(r->format, "native", 0, true, &report, &err), NW_E_UNSUPPORTED);
    if (strstr(err.message, r->message) == NULL) {
        fail_msg("%s", err.message);
    }
}

static float faint(nw_role role, size_t i, float value)
{
    (void)i;
    return nw_role_is_norm(role) ? value : value * 1e-10F;
}

/* Row scales are F32: absmax / 127 of weights of 1e-10 is 0 in F16, which would make zeros of them. */
static void scales_that_f16_has_not_are_refused(void **state)
{
    nw_tiny t = nw_tiny_llama();
    nw_export_report report = {0};
    nw_error err = {0};

    (void)state;
    t.dtype = NW_FMT_BF16;
    t.config.tied = false;
    t.shape = faint;
    nw_tiny_write(&t, in_dir("faint"));
    quantize("faint", "scale: search", LINEARS "int8}");
    assert_int_equal(export_as("gptq", "native", 0, false, &report, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "is too small for"));
}

/* A native artifact is built inside the folder that its export holds: nobody else gets its lock between
 * the end of the one and the name of the other. */
static void a_native_export_never_lets_go_of_its_folder(void **state)
{
    nw_export_source *source = NULL;
    nw_folder folder = {0};
    nw_loss loss = {0};
    nw_error err = {0};
    uint64_t n_bytes = 0;

    (void)state;
    must(nw_export_source_open(in_dir("untied"), &source, &err), &err);
    must(nw_folder_open(&folder, in_dir("held"), false, &err), &err);
    const nw_export_job job = {.source = source,
                               .dir = folder.tmp,
                               .no_tokenizer = true,
                               .loss = &loss,
                               .n_bytes = &n_bytes};
    must(nw_native_export(&job, &err), &err);
    const int fd = open(folder.tmp, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_not_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(close(fd), 0);
    must(nw_folder_commit(&folder, &err), &err);
    must(nw_artifact_verify(in_dir("held"), NULL, NULL, NULL, &err), &err);
    nw_folder_close(&folder);
    nw_loss_release(&loss);
    nw_export_source_close(source);
}

/* The folder "out" with every tensor's name begun by `wrap`, and, with a stray part, a scale of the
 * embedding, which has no codes. */
static void rename_tensors(const char *wrap, bool stray)
{
    char path[512];
    char *data = NULL;
    size_t n = 0;
    uint64_t n_header = 0;
    const char *name = NULL;
    json_t *t = NULL;
    json_t *renamed = json_object();
    nw_error err = {0};

    (void)nw_tmpdir_file(&dir, "out/model.safetensors", path, sizeof path);
    must(nw_file_read(path, 1 << 24, &data, &n, &err), &err);
    memcpy(&n_header, data, sizeof n_header);
    json_t *header = json_loadb(data + 8, n_header, 0, NULL);
    const size_t n_data = n - 8 - n_header;
    json_object_foreach(header, name, t)
    {
        char text[256];
        (void)snprintf(text, sizeof text, "%s%s", name[0] == '_' ? "" : wrap, name);
        assert_int_equal(json_object_set(renamed, text, t), 0);
    }
    if (stray) {
        char text[256];
        (void)snprintf(text, sizeof text, "%smodel.embed_tokens.weight_scale", wrap);
        (void)json_object_set_new(renamed, text,
                                  json_pack("{s:s, s:[i], s:[I, I]}", "dtype", "BF16", "shape", 1,
                                            "data_offsets", (json_int_t)n_data,
                                            (json_int_t)n_data + 2));
    }
    char *text = json_dumps(renamed, JSON_COMPACT);
    const uint64_t n_text = strlen(text);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(&n_text, 1, 8, f), 8);
    assert_int_equal(fwrite(text, 1, n_text, f), n_text);
    assert_int_equal(fwrite(data + 8 + n_header, 1, n_data, f), n_data);
    assert_int_equal(fwrite("\0", 1, stray ? 2U : 0U, f), stray ? 2 : 0);
    assert_int_equal(fclose(f), 0);
    free(text);
    free(data);
    json_decref(header);
    json_decref(renamed);
}

/* A part that belongs to no quantized matrix is refused, under the names of multimodal files too. */
static struct wrap_row {
    const char *name, *wrap;
    bool stray;
} wrap_rows[] = {{"plain", "", false},
                 {"plain_with_a_stray_part", "", true},
                 {"wrapped", "language_model.", false},
                 {"wrapped_with_a_stray_part", "language_model.", true}};

static void stray_parts_are_refused(void **state)
{
    const struct wrap_row *w = *state;
    nw_export_report r = {0};
    nw_checkpoint *c = NULL;
    nw_error err = {0};

    quantize("untied", BF16_SCALES, LINEARS "int4-g32}");
    must(export_as("compressed-tensors", "native", 0, true, &r, &err), &err);
    nw_export_report_release(&r);
    rename_tensors(w->wrap, w->stray);
    const nw_status st = nw_checkpoint_open(in_dir("out"), &c, &err);
    if (!w->stray) {
        must(st, &err);
    } else {
        assert_int_equal(st, NW_E_FORMAT);
        if (strstr(err.message, "model.embed_tokens.weight_scale' belongs to no quantized") ==
            NULL) {
            fail_msg("%s", err.message);
        }
    }
    nw_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_native_export_never_lets_go_of_its_folder),
        cmocka_unit_test(scales_that_f16_has_not_are_refused),
        cmocka_unit_test(shards_are_read_back),
        cmocka_unit_test(groups_of_256_come_back),
        cmocka_unit_test(groups_that_differ_are_refused),
        cmocka_unit_test(rounded_scales_are_reported),
    };
    int failed = setup(NULL);

    failed += cmocka_run_group_tests(tests, NULL, NULL);
    failed += NW_RUN_TABLE("comes_back", rows, comes_back_as_it_was);
    failed += NW_RUN_TABLE("refused", refusals, is_refused);
    failed += NW_RUN_TABLE("stray", wrap_rows, stray_parts_are_refused);
    return failed + teardown(NULL);
}
