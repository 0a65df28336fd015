/* GGUF files that narrow writes: the container byte for byte, what it refuses, and whole models: values
 * as in the source when the file is opened again, keys and conventions of the architectures, blocks
 * that come back byte for byte through a native artifact, fallbacks that are told or refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/export.h"
#include "base/file.h"
#include "model/gguf_writer.h"
#include "model/hf_quant.h"
#include "quant/quantize_as.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

static int setup(void **state)
{
    nw_tiny t = nw_tiny_llama();

    (void)state;
    dir = nw_tmpdir_make();
    nw_tiny_write(&t, in_dir("llama"));
    t.config.tied = false;
    t.config.rope_scaling = (nw_rope_scaling){.kind = NW_ROPE_SCALE_LLAMA3,
                                              .factor = 8,
                                              .low_freq_factor = 1,
                                              .high_freq_factor = 4,
                                              .original_n_ctx = 8192};
    nw_tiny_write(&t, in_dir("llama3"));
    t = nw_tiny_gemma();
    nw_tiny_write(&t, in_dir("gemma2"));
    t.config.n_layers = t.config.global_every = 6;
    nw_tiny_write(&t, in_dir("gemma"));
    t.config.d_model = t.config.d_ff = 256;
    t.config.d_head = 64;
    t.config.attn_scale = 0.125F;
    nw_tiny_write(&t, in_dir("gemma-wide"));
    t = nw_tiny_qwen();
    nw_tiny_write(&t, in_dir("qwen2"));
    t = nw_tiny_llama();
    t.config.arch = NW_ARCH_QWEN3;
    t.config.qk_norm = t.config.one_rope = true;
    nw_tiny_write(&t, in_dir("qwen3"));
    t = nw_tiny_llama();
    t.config.d_model = t.config.d_ff = 256;
    t.config.d_head = 64;
    t.config.attn_scale = 0.125F;
    nw_tiny_write(&t, in_dir("wide")); /* columns that K-quants and NVFP4 take */
    return 0;
}

/* ---- the container ---- */
static nw_status write_small(const char *path, bool key_twice, bool tensor_twice, size_t n_missing,
                             nw_error *err)
{
    static const float values[3] = {1, -2, 0.5F};
    static const uint8_t block[18] = {0x00, 0x3C, 0x98};
    const nw_gguf_decl decls[] = {
        {.name = "b", .format = NW_FMT_F32, .n_dims = 1, .ne = {3}},
        {.name = tensor_twice ? "b" : "a", .format = NW_FMT_Q4_0, .n_dims = 2, .ne = {32, 1}}};
    static const int32_t types[2] = {1, -3};
    nw_gguf_writer *w = NULL;
    nw_status st = nw_gguf_writer_open(path, &w, err);

    if (st != NW_OK) {
        return st;
    }
    nw_gguf_put_str(w, "s", "xy", 2);
    nw_gguf_put_u32(w, key_twice ? "s" : "u", 0x01020304);
    nw_gguf_put_f32(w, "f", 1);
    nw_gguf_put_bool(w, "t", true);
    nw_gguf_put_words(w, "w", NW_GGUF_I32, types, 2);
    nw_gguf_put_strings(w, "l", 2);
    nw_gguf_put_item(w, "", 0);
    nw_gguf_put_item(w, "z", 1);
    st = nw_gguf_writer_declare(w, decls, 2, err);
    st = st == NW_OK ? nw_gguf_writer_write(w, values, sizeof values, err) : st;
    st = st == NW_OK ? nw_gguf_writer_write(w, block, sizeof block - n_missing, err) : st;
    st = st == NW_OK ? nw_gguf_writer_commit(w, err) : st;
    nw_gguf_writer_close(w);
    return st;
}

/* What stands in the file, written down from the specification. */
static const uint8_t small_file[] = {
    'G', 'G', 'U', 'F', 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0,
    /* s = "xy" */
    1, 0, 0, 0, 0, 0, 0, 0, 's', 8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 'x', 'y',
    /* u = 0x01020304, f = 1, t = true */
    1, 0, 0, 0, 0, 0, 0, 0, 'u', 4, 0, 0, 0, 4, 3, 2, 1,       /**/
    1, 0, 0, 0, 0, 0, 0, 0, 'f', 6, 0, 0, 0, 0, 0, 0x80, 0x3F, /**/
    1, 0, 0, 0, 0, 0, 0, 0, 't', 7, 0, 0, 0, 1,
    /* w = [1, -3] */
    1, 0, 0, 0, 0, 0, 0, 0, 'w', 9, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0xFD,
    0xFF, 0xFF, 0xFF,
    /* l = ["", "z"] */
    1, 0, 0, 0, 0, 0, 0, 0, 'l', 9, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, /**/
    0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'z',
    /* tensor b: F32 [3] at 0; tensor a: Q4_0 [1, 32] at 32 */
    1, 0, 0, 0, 0, 0, 0, 0, 'b', 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, /**/
    1, 0, 0, 0, 0, 0, 0, 0, 'a', 2, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0,
    0, 0, 32, 0, 0, 0, 0, 0, 0, 0};

static void bytes_are_those_of_the_specification(void **state)
{
    const size_t head = (sizeof small_file + 31) / 32 * 32;
    char *data = NULL;
    size_t n = 0;
    nw_error err = {0};

    (void)state;
    must(write_small(in_dir("small.gguf"), false, false, 0, &err), &err);
    must(nw_file_read(in_dir("small.gguf"), 1 << 20, &data, &n, &err), &err);
    assert_int_equal(n, head + 64); /* each tensor in 32 bytes, the last one padded as well */
    assert_memory_equal(data, small_file, sizeof small_file);
    assert_memory_equal(data + head, "\0\0\x80\x3F\0\0\0\xC0\0\0\0\x3F\0\0\0\0", 16);
    assert_memory_equal(data + head + 32, "\0\x3C\x98\0", 4);
    for (size_t i = sizeof small_file; i < head; i++) {
        assert_int_equal(data[i], 0);
    }
    free(data);
}

static void faults_leave_nothing(void **state)
{
    const int before = nw_tmpdir_count(&dir);
    nw_error err = {0};

    (void)state;
    assert_int_equal(write_small(in_dir("bad.gguf"), true, false, 0, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "key 's' twice"));
    assert_int_equal(write_small(in_dir("bad.gguf"), false, true, 0, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "tensor 'b' twice"));
    assert_int_equal(write_small(in_dir("bad.gguf"), false, false, 1, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "1 of 2 tensors"));
    assert_int_equal(nw_tmpdir_count(&dir), before);
}

/* ---- whole models ---- */
static nw_export_report export(const char *source, const char *out, const char *format,
                               bool no_fallback)
{
    nw_export_options o = {.source = in_dir(source),
                           .out = in_dir(out),
                           .replace = true,
                           .no_tokenizer = true,
                           .no_fallback = no_fallback,
                           .n_threads = 2};
    nw_export_report r = {0};
    nw_error err = {0};

    must(nw_export_format_find(format, "hf", &o.format, &err), &err);
    must(nw_export(&o, &r, &err), &err);
    return r;
}

static void release(nw_export_report r)
{
    nw_export_report_release(&r);
}

/* Every value, in Hugging Face's order and convention; norms of gemma3 to a rounding of 1 + w. */
static void assert_same_model(const char *a, const char *b)
{
    nw_checkpoint *ca = NULL;
    nw_checkpoint *cb = NULL;
    nw_error err = {0};

    must(nw_checkpoint_open(in_dir(a), &ca, &err), &err);
    must(nw_checkpoint_open(in_dir(b), &cb, &err), &err);
    assert_int_equal(nw_checkpoint_n_tensors(ca), nw_checkpoint_n_tensors(cb));
    assert_int_equal(nw_checkpoint_config(ca)->n_ctx, nw_checkpoint_config(cb)->n_ctx);
    assert_int_equal(nw_checkpoint_config(ca)->sliding_window,
                     nw_checkpoint_config(cb)->sliding_window);
    assert_true(
        !(fabsf(nw_checkpoint_config(ca)->rope_base - nw_checkpoint_config(cb)->rope_base) > 0));
    assert_int_equal(nw_checkpoint_config(ca)->rope_scaling.kind,
                     nw_checkpoint_config(cb)->rope_scaling.kind);
    for (size_t i = 0; i < nw_checkpoint_n_tensors(ca); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(ca, i);
        const nw_ckpt_tensor *u = nw_checkpoint_find(cb, t->role, t->layer);
        const size_t n = (size_t)t->n_rows * t->n_cols;
        float *x = calloc(n, sizeof *x);
        float *y = calloc(n, sizeof *y);
        assert_true(x != NULL && y != NULL && u != NULL);
        must(nw_checkpoint_read_f32(ca, t, 0, t->n_rows, x, &err), &err);
        must(nw_checkpoint_read_f32(cb, u, 0, t->n_rows, y, &err), &err);
        for (size_t k = 0; k < n; k++) {
            const float slack = u->offset < 0 || u->offset > 0 ? 1e-6F : 0;
            assert_true(fabsf(x[k] - y[k]) <= slack);
        }
        free(x);
        free(y);
    }
    nw_checkpoint_close(ca);
    nw_checkpoint_close(cb);
}

static struct model_row {
    const char *name;
    const char *arch;
} model_rows[] = {{"llama", "llama"},
                  {"llama3", "llama"},
                  {"gemma", "gemma3"},
                  {"qwen2", "qwen2"},
                  {"qwen3", "qwen3"}};

static void a_model_is_read_back_as_it_was(void **state)
{
    const struct model_row *row = *state;
    nw_gguf *g = NULL;
    nw_error err = {0};
    const char *arch = NULL;
    size_t n = 0;
    nw_export_report r = export(row->name, "out", "gguf", true);

    assert_int_equal(r.loss.n_exact, r.loss.n_tensors);
    assert_int_equal(r.loss.n_fallbacks, 0);
    assert_same_model(row->name, "out/model.gguf");
    must(nw_gguf_open(in_dir("out/model.gguf"), &g, &err), &err);
    must(nw_gguf_str(g, "general.architecture", &arch, &n, &err), &err);
    assert_int_equal(n, strlen(row->arch));
    assert_memory_equal(arch, row->arch, n);
    /* what Hugging Face stores as gain - 1 stands as gain */
    const nw_gguf_tensor *norm = nw_gguf_tensor_find(g, "blk.0.attn_norm.weight");
    assert_int_equal(norm->format, NW_FMT_F32);
    assert_int_equal(nw_gguf_tensor_find(g, "rope_freqs.weight") != NULL,
                     strcmp(row->name, "llama3") == 0);
    nw_gguf_close(g);
    release(r);
}

/* The control: rows of q left as Hugging Face has them are another model. */
static void rows_of_q_are_in_the_order_of_pairs(void **state)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    float want[64];

    (void)state;
    release(export("llama", "out", "gguf", true));
    must(nw_checkpoint_open(in_dir("out/model.gguf"), &c, &err), &err);
    const nw_ckpt_tensor *q = nw_checkpoint_find(c, NW_ROLE_Q, 0);
    assert_int_equal(q->pair_half, 8);
    /* second row of the file: HF's row 8, the partner of row 0 in a head of 16 */
    must(nw_checkpoint_read_f32(c, q, 8, 1, want, &err), &err);
    assert_memory_equal(q->data + q->row_bytes, want, q->row_bytes);
    must(nw_checkpoint_read_f32(c, q, 1, 1, want, &err), &err);
    assert_memory_not_equal(q->data + q->row_bytes, want, q->row_bytes);
    nw_checkpoint_close(c);
}

/* ---- quantized ---- */
static struct recipe_row {
    const char *recipe;
    const char *down; /* type of down, 256 columns */
} recipe_rows[] = {
    {"bf16", "BF16"},        {"int4-g32", "Q4_0"}, {"int4-g128", "Q4_0"}, {"int4-g64-min", "Q4_1"},
    {"int4-g64-zp", "Q5_0"}, {"int8-g32", "Q8_0"}, {"mxfp4", "MXFP4"},    {"nvfp4", "NVFP4"},
    {"q4_0", "Q4_0"},        {"q4_1", "Q4_1"},     {"q5_0", "Q5_0"},      {"q5_1", "Q5_1"},
    {"q8_0", "Q8_0"},        {"q4_k", "Q4_K"},     {"q5_k", "Q5_K"},      {"q6_k", "Q6_K"},
};

static nw_export_report quantize(const char *source, const char *recipe, const char *out,
                                 nw_error *err)
{
    const nw_quantize_options o = {.source = in_dir(source),
                                   .recipe = recipe,
                                   .out = in_dir(out),
                                   .replace = true,
                                   .no_tokenizer = true,
                                   .no_fallback = true,
                                   .n_threads = 2};
    const nw_export_format *format = NULL;
    nw_manifest m = {0};
    nw_export_report r = {0};

    must(nw_export_format_find("gguf", "native", &format, err), err);
    if (nw_quantize_as(&o, format, &m, &r, err) == NW_OK) {
        nw_manifest_release(&m);
    }
    return r;
}

/* g_idx of every matrix in the file: column c in group c mod the groups, as GPTQ's act-order leaves them. */
static void reorder_columns(const char *path)
{
    nw_error err = {0};
    char *data = NULL;
    size_t n = 0;
    const char *name = NULL;
    json_t *t = NULL;
    unsigned n_found = 0;

    must(nw_file_read(path, 1 << 24, &data, &n, &err), &err);
    uint64_t n_header = 0;
    memcpy(&n_header, data, sizeof n_header);
    json_t *header = json_loadb(data + 8, n_header, 0, NULL);
    assert_non_null(header);
    json_object_foreach(header, name, t)
    {
        const size_t len = strlen(name);
        if (len > 6 && strcmp(name + len - 6, ".g_idx") == 0) {
            const json_t *at = json_object_get(t, "data_offsets");
            const size_t begin = (size_t)json_integer_value(json_array_get(at, 0));
            const size_t end = (size_t)json_integer_value(json_array_get(at, 1));
            const int32_t n_cols = (int32_t)((end - begin) / 4);
            for (int32_t c = 0; c < n_cols; c++) {
                const int32_t group = c % (n_cols / 32);
                memcpy(data + 8 + n_header + begin + 4 * (size_t)c, &group, 4);
            }
            n_found++;
        }
    }
    json_decref(header);
    assert_true(n_found > 0);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(data);
}

/* Codes that no panel holds are written as the values they stand for. */
static void columns_out_of_order_become_values(void **state)
{
    const nw_quantize_options o = {.source = in_dir("wide"),
                                   .recipe = "int4-g32",
                                   .out = in_dir("gptq"),
                                   .replace = true,
                                   .no_tokenizer = true,
                                   .n_threads = 2};
    const nw_export_format *format = NULL;
    nw_manifest m = {0};
    nw_export_report r = {0};
    nw_error err = {0};
    nw_checkpoint *c = NULL;
    nw_gguf *g = NULL;

    (void)state;
    must(nw_export_format_find("gptq", "native", &format, &err), &err);
    must(nw_quantize_as(&o, format, &m, &r, &err), &err);
    nw_manifest_release(&m);
    release(r);
    reorder_columns(in_dir("gptq/model.safetensors"));
    must(nw_checkpoint_open(in_dir("gptq"), &c, &err), &err);
    assert_non_null(nw_checkpoint_find(c, NW_ROLE_Q, 0)->quant->g_idx);
    nw_checkpoint_close(c);
    release(export("gptq", "out", "gguf", false));
    assert_same_model("gptq", "out/model.gguf");
    must(nw_gguf_open(in_dir("out/model.gguf"), &g, &err), &err);
    assert_int_equal(nw_gguf_tensor_find(g, "blk.0.attn_q.weight")->format, NW_FMT_F32);
    nw_gguf_close(g);
}

/* The tensors of two files, byte for byte. */
static void assert_same_tensors(const char *a, const char *b)
{
    nw_gguf *ga = NULL;
    nw_gguf *gb = NULL;
    nw_error err = {0};

    must(nw_gguf_open(in_dir(a), &ga, &err), &err);
    must(nw_gguf_open(in_dir(b), &gb, &err), &err);
    assert_int_equal(nw_gguf_n_tensors(ga), nw_gguf_n_tensors(gb));
    for (size_t i = 0; i < nw_gguf_n_tensors(ga); i++) {
        const nw_gguf_tensor *t = nw_gguf_tensor_at(ga, i);
        const nw_gguf_tensor *u = nw_gguf_tensor_find(gb, t->name);
        assert_non_null(u);
        assert_int_equal(t->format, u->format);
        assert_int_equal(t->n_bytes, u->n_bytes);
        assert_memory_equal(t->data, u->data, t->n_bytes);
    }
    nw_gguf_close(ga);
    nw_gguf_close(gb);
}

/* The keys of two files, byte for byte, in the same order. */
static void assert_same_keys(const char *a, const char *b)
{
    nw_gguf *ga = NULL;
    nw_gguf *gb = NULL;
    nw_error err = {0};

    must(nw_gguf_open(in_dir(a), &ga, &err), &err);
    must(nw_gguf_open(in_dir(b), &gb, &err), &err);
    assert_int_equal(nw_gguf_n_kv(ga), nw_gguf_n_kv(gb));
    for (size_t i = 0; i < nw_gguf_n_kv(ga); i++) {
        const nw_gguf_kv *x = nw_gguf_kv_at(ga, i);
        const nw_gguf_kv *y = nw_gguf_kv_at(gb, i);
        assert_string_equal(x->key, y->key);
        assert_int_equal(x->type, y->type);
        assert_int_equal(x->n_bytes, y->n_bytes);
        assert_memory_equal(x->data, y->data, x->n_bytes);
    }
    nw_gguf_close(ga);
    nw_gguf_close(gb);
}

/* The file with keys that say nothing of the model's function. */
static void add_keys(const char *from, const char *to)
{
    nw_gguf *g = NULL;
    nw_gguf_writer *w = NULL;
    nw_gguf_decl decls[64];
    nw_error err = {0};

    must(nw_gguf_open(in_dir(from), &g, &err), &err);
    must(nw_gguf_writer_open(in_dir(to), &w, &err), &err);
    for (size_t i = 0; i < nw_gguf_n_kv(g); i++) {
        nw_gguf_put_copy(w, nw_gguf_kv_at(g, i));
    }
    nw_gguf_put_str(w, "general.license", "mit", 3);
    nw_gguf_put_str(w, "quantize.imatrix.file", "x", 1);
    const size_t n = nw_gguf_n_tensors(g);
    assert_true(n <= NW_COUNT(decls));
    for (size_t i = 0; i < n; i++) {
        const nw_gguf_tensor *t = nw_gguf_tensor_at(g, i);
        decls[i] = (nw_gguf_decl){
            .name = t->name, .format = t->format, .n_dims = t->n_dims, .ne = {t->ne[0], t->ne[1]}};
    }
    must(nw_gguf_writer_declare(w, decls, n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        const nw_gguf_tensor *t = nw_gguf_tensor_at(g, i);
        must(nw_gguf_writer_write(w, t->data, t->n_bytes, &err), &err);
    }
    must(nw_gguf_writer_commit(w, &err), &err);
    nw_gguf_writer_close(w);
    nw_gguf_close(g);
}

/* What a file says beside its tensors stays with an artifact of its codes; one of other codes keeps what does
 * not speak of them. */
static void keys_stay_through_an_artifact(void **state)
{
    nw_error err = {0};
    nw_gguf *g = NULL;

    (void)state;
    release(quantize("wide", "q4_0", "q", &err));
    assert_string_equal(err.message, "");
    add_keys("q/model.gguf", "keys.gguf");
    release(export("keys.gguf", "native", "native", true));
    release(export("native", "back", "gguf", true));
    assert_same_keys("keys.gguf", "back/model.gguf");
    assert_same_tensors("keys.gguf", "back/model.gguf");
    must(nw_artifact_verify(in_dir("native"), NULL, NULL, NULL, &err), &err);

    const nw_quantize_options o = {.source = in_dir("keys.gguf"),
                                   .recipe = "int8-g32",
                                   .out = in_dir("native"),
                                   .replace = true,
                                   .no_tokenizer = true,
                                   .n_threads = 1};
    must(nw_quantize(&o, NULL, &err), &err);
    release(export("native", "back", "gguf", true));
    must(nw_gguf_open(in_dir("back/model.gguf"), &g, &err), &err);
    assert_non_null(nw_gguf_find(g, "general.license"));
    assert_null(nw_gguf_find(g, "quantize.imatrix.file"));
    uint32_t type = 0;
    must(nw_gguf_u32(g, "general.file_type", &type, &err), &err);
    assert_int_equal(type, 7); /* Q8_0 */
    nw_gguf_close(g);
}

static void codes_are_carried_exactly(void **state)
{
    const struct recipe_row *row = *state;
    nw_error err = {0};
    nw_gguf *g = NULL;
    nw_export_report r = quantize("wide", row->recipe, "q", &err);

    assert_string_equal(err.message, "");
    assert_int_equal(r.loss.n_exact, r.loss.n_tensors);
    must(nw_gguf_open(in_dir("q/model.gguf"), &g, &err), &err);
    const nw_gguf_tensor *down = nw_gguf_tensor_find(g, "blk.1.ffn_down.weight");
    assert_string_equal(nw_format_get(down->format)->name, row->down);
    nw_gguf_close(g);
    release(r);
    /* GGUF, native, GGUF; and GGUF, GGUF: the very same file */
    release(export("q/model.gguf", "native", "native", true));
    release(export("native", "back", "gguf", true));
    assert_same_tensors("q/model.gguf", "back/model.gguf");
    assert_same_keys("q/model.gguf", "back/model.gguf");
    release(export("q/model.gguf", "back", "gguf", true));
    assert_same_tensors("q/model.gguf", "back/model.gguf");
}

/* llama.cpp multiplies by NVFP4's tensor scale in the attention of gemma3 and not in its feed-forward. */
static void scales_that_readers_leave_out_are_not_written(void **state)
{
    nw_error err = {0};
    nw_gguf *g = NULL;

    (void)state;
    release(quantize("gemma-wide", "nvfp4", "fell", &err));
    assert_int_equal(err.code, NW_E_UNSUPPORTED);
    assert_non_null(
        strstr(err.message, "gate_proj.weight': llama.cpp leaves out the tensor scale"));
    const nw_quantize_options o = {.source = in_dir("gemma-wide"),
                                   .recipe = "nvfp4",
                                   .out = in_dir("fell"),
                                   .replace = true,
                                   .no_tokenizer = true,
                                   .n_threads = 1};
    must(nw_quantize(&o, NULL, &err), &err);
    nw_export_report r = export("fell", "back", "gguf", false);
    assert_int_equal(r.loss.n_fallbacks, 6 * 3);
    release(r);
    must(nw_gguf_open(in_dir("back/model.gguf"), &g, &err), &err);
    assert_int_equal(nw_gguf_tensor_find(g, "blk.0.attn_q.weight")->format, NW_FMT_NVFP4);
    assert_non_null(nw_gguf_tensor_find(g, "blk.0.attn_q.scale"));
    assert_int_equal(nw_gguf_tensor_find(g, "blk.0.ffn_down.weight")->format, NW_FMT_BF16);
    assert_null(nw_gguf_tensor_find(g, "blk.0.ffn_down.scale"));
    nw_gguf_close(g);
}

static void a_fallback_is_told_or_refused(void **state)
{
    nw_error err = {0};
    nw_manifest m = {0};
    nw_export_report r = {0};
    const nw_quantize_options o = {.source = in_dir("llama"),
                                   .recipe = "q4_k",
                                   .out = in_dir("fell"),
                                   .replace = true,
                                   .no_tokenizer = true,
                                   .n_threads = 1};

    (void)state;
    release(quantize("llama", "q4_k", "fell", &err)); /* 64 and 96 columns, --no-fallback */
    assert_int_equal(err.code, NW_E_FORMAT);
    assert_non_null(strstr(err.message, "64 columns are no multiple of 256, as q4_k asks"));
    must(nw_quantize(&o, &m, &err), &err);
    assert_int_equal(json_array_size(json_object_get(m.recipe, "substituted")), 14);
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(m.recipe, "substituted"), 0), "used")),
                        "q5_0");
    nw_manifest_release(&m);
    r = export("fell", "fell-gguf", "gguf", true);
    assert_int_equal(r.loss.n_exact, r.loss.n_tensors);
    release(r);
    release(quantize("wide", "fp8-e4m3", "fell-gguf", &err));
    assert_int_equal(err.code, NW_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "GGUF has no FP8"));
}

static void what_gguf_cannot_say_is_refused(void **state)
{
    nw_export_options o = {.source = in_dir("gemma2"), .out = in_dir("no"), .no_tokenizer = true};
    nw_export_report r = {0};
    nw_error err = {0};

    (void)state;
    must(nw_export_format_find("gguf", "hf", &o.format, &err), &err);
    assert_int_equal(nw_export(&o, &r, &err), NW_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "every 2th layer is global"));
    assert_false(nw_file_exists(in_dir("no")));
}

/* An int8 scale of a row is F32, Q8_0's is binary16: the one loss that is not a fallback. */
static void the_scale_of_a_row_is_rounded(void **state)
{
    nw_error err = {0};
    nw_export_report r = quantize("wide", "int8-w8a16", "q", &err);

    (void)state;
    assert_string_equal(err.message, "");
    assert_int_equal(r.loss.n_tensors - r.loss.n_exact, 14);
    assert_true(r.loss.worst_sqnr_db > 70); /* 2^-12 at most, the codes themselves are kept */
    assert_int_equal(r.loss.n_fallbacks, 0);
    release(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_specification),
        cmocka_unit_test(faults_leave_nothing),
        cmocka_unit_test(rows_of_q_are_in_the_order_of_pairs),
        cmocka_unit_test(columns_out_of_order_become_values),
        cmocka_unit_test(keys_stay_through_an_artifact),
        cmocka_unit_test(a_fallback_is_told_or_refused),
        cmocka_unit_test(scales_that_readers_leave_out_are_not_written),
        cmocka_unit_test(what_gguf_cannot_say_is_refused),
        cmocka_unit_test(the_scale_of_a_row_is_rounded)};

    (void)setup(NULL);
    int failed = cmocka_run_group_tests_name("gguf write", tests, NULL, NULL);
    failed += NW_RUN_TABLE("gguf models", model_rows, a_model_is_read_back_as_it_was);
    failed += NW_RUN_TABLE("gguf recipes", recipe_rows, codes_are_carried_exactly);
    (void)teardown(NULL);
    return failed;
}
