/* The checkpoint view: one model in three kinds of files gives one set of values; what is missing,
 * misshapen, superfluous or unknown is said by name. Shared models are opened where they are there.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "gguf_bytes.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"
#include "shared.h"
#include "table.h"
#include "tmpdir.h"

#define MAX_VALUES 128 /* of the largest tensor of the tiny model */

static nw_tmpdir dir;

static char *in_dir(const char *name)
{
    char *path = nw_path_join(dir.path, name);
    assert_non_null(path);
    return path;
}

static void put(const char *name, const void *bytes, size_t n)
{
    nw_error err = {0};
    char *path = in_dir(name);
    assert_int_equal(nw_file_write(path, bytes, n, &err), NW_OK);
    free(path);
}

static nw_status open_in(const char *name, nw_checkpoint **c, nw_error *err)
{
    char *path = in_dir(name);
    const nw_status st = nw_checkpoint_open(path, c, err);
    free(path);
    return st;
}

static nw_status open_tiny(const gb_tiny *o, nw_checkpoint **c, nw_error *err)
{
    nw_buf b;

    nw_buf_init(&b, 1 << 16);
    gb_tiny_llama(&b, o);
    put("tiny.gguf", b.data, b.len);
    nw_buf_release(&b);
    return open_in("tiny.gguf", c, err);
}

static void values(const nw_checkpoint *c, nw_role role, int32_t layer, float out[MAX_VALUES])
{
    nw_error err = {0};
    const nw_ckpt_tensor *t = nw_checkpoint_find(c, role, layer);
    assert_non_null(t);
    assert_true(t->n_rows * t->n_cols <= MAX_VALUES);
    assert_int_equal(nw_checkpoint_read_f32(c, t, 0, t->n_rows, out, &err), NW_OK);
}

static void gguf_gives_config_names_and_values(void **state)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    float x[MAX_VALUES];

    (void)state;
    assert_int_equal(open_tiny(&(gb_tiny){0}, &c, &err), NW_OK);
    const nw_model_config *m = nw_checkpoint_config(c);
    assert_true(m->n_layers == 1 && m->d_model == 8 && m->n_heads == 2 && m->n_kv_heads == 1);
    assert_true(m->d_head == 4 && m->d_ff == 16 && m->n_vocab == 5 && m->n_ctx == 32 && m->tied);
    assert_int_equal(nw_checkpoint_n_tensors(c), GB_TINY_TENSORS);
    assert_string_equal(nw_checkpoint_at(c, 0)->name, "model.embed_tokens.weight");
    assert_string_equal(nw_checkpoint_at(c, 1)->name, "model.layers.0.input_layernorm.weight");
    assert_string_equal(nw_checkpoint_at(c, 10)->name, "model.norm.weight");
    const nw_ckpt_tensor *q = nw_checkpoint_find(c, NW_ROLE_Q, 0);
    assert_string_equal(q->name, "model.layers.0.self_attn.q_proj.weight");
    assert_string_equal(q->source, "blk.0.attn_q.weight");
    assert_null(nw_checkpoint_find(c, NW_ROLE_HEAD, -1));
    assert_null(nw_checkpoint_find(c, NW_ROLE_Q, 1));
    assert_null(nw_checkpoint_find(c, NW_ROLE_Q_NORM, 0));
    values(c, NW_ROLE_DOWN, 0, x);
    assert_true(x[0] == 10 && x[17] == 10 + 17.0F / 1024);
    assert_int_equal(nw_checkpoint_read_f32(c, q, 7, 2, x, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "rows 7 to 9 of 8"));
    nw_checkpoint_close(c);
}

/* Heads of 4 rows: the file keeps the pairs (0, 2), (1, 3) of Hugging Face side by side, so that its
 * rows 0 1 2 3 are Hugging Face's rows 0 2 1 3. Value i of the tensor with number 3 is 3 + i / 1024. */
static void gguf_llama_rows_of_q_and_k_are_put_back(void **state)
{
    static const int file_row[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    float x[MAX_VALUES];
    uint8_t raw[8 * 8 * 4];

    (void)state;
    assert_int_equal(open_tiny(&(gb_tiny){0}, &c, &err), NW_OK);
    const nw_ckpt_tensor *q = nw_checkpoint_find(c, NW_ROLE_Q, 0);
    values(c, NW_ROLE_Q, 0, x);
    assert_int_equal(nw_checkpoint_read_raw(c, q, 0, 8, raw, &err), NW_OK);
    assert_memory_equal(raw, x, sizeof raw);
    for (int row = 0; row < 8; row++) {
        assert_true(x[8 * row] == 3 + (float)(8 * file_row[row]) / 1024);
        assert_memory_equal(nw_checkpoint_row(q, (uint32_t)row), &x[8 * row], 32);
    }
    values(c, NW_ROLE_K, 0, x);
    assert_true(x[8] == 4 + 16.0F / 1024 && x[16] == 4 + 8.0F / 1024);
    values(c, NW_ROLE_V, 0, x); /* not rotated, not permuted */
    assert_true(x[8] == 5 + 8.0F / 1024);
    nw_checkpoint_close(c);
}

static const char tiny_config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":16,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"vocab_size\":5,"
    "\"tie_word_embeddings\":true,\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5}";

/* All tensors of `c` as an HF folder, in the names and shapes the view gives. */
static void write_hf(const nw_checkpoint *c)
{
    nw_st_decl decl[GB_TINY_TENSORS];
    nw_st_writer *w = NULL;
    nw_error err = {0};
    float x[MAX_VALUES];
    char *path = in_dir("model.safetensors");

    for (size_t i = 0; i < GB_TINY_TENSORS; i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        const bool vector = nw_role_is_vector(t->role);
        decl[i] = (nw_st_decl){t->name, NW_FMT_F32, vector ? 1 : 2, {t->n_rows, t->n_cols}};
        decl[i].dims[0] = vector ? t->n_cols : t->n_rows;
    }
    assert_int_equal(nw_st_writer_open(path, decl, GB_TINY_TENSORS, NULL, 8, &w, &err), NW_OK);
    for (size_t i = 0; i < GB_TINY_TENSORS; i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        values(c, t->role, t->layer, x);
        assert_int_equal(nw_st_writer_write(w, t->name, x, (size_t)t->n_rows * t->n_cols * 4, &err),
                         NW_OK);
    }
    assert_int_equal(nw_st_writer_commit(w, &err), NW_OK);
    nw_st_writer_close(w);
    free(path);
}

/* The same model as a llama2.c file: GGUF (arch llama) has its row order for q and k already. */
static void write_llama2c(const nw_checkpoint *c)
{
    static const nw_role order[] = {
        NW_ROLE_EMBED,    NW_ROLE_ATTN_NORM, NW_ROLE_Q,    NW_ROLE_K,  NW_ROLE_V,       NW_ROLE_O,
        NW_ROLE_FFN_NORM, NW_ROLE_GATE,      NW_ROLE_DOWN, NW_ROLE_UP, NW_ROLE_OUT_NORM};
    const uint32_t head[7] = {8, 16, 1, 2, 1, 5, 32};
    nw_buf b;

    nw_buf_init(&b, 1 << 16);
    for (size_t i = 0; i < NW_COUNT(head); i++) {
        gb_u32(&b, head[i]);
    }
    for (size_t i = 0; i < NW_COUNT(order); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_find(c, order[i], 0);
        (void)nw_buf_add(&b, t->data, t->row_bytes * t->n_rows);
    }
    gb_zeros(&b, (size_t)32 * 4 * 4); /* two tables [n_ctx][d_head / 2] */
    put("tiny.bin", b.data, b.len);
    nw_buf_release(&b);
}

static void three_kinds_of_files_give_one_model(void **state)
{
    static const char *const names[] = {"", "tiny.bin"};
    nw_checkpoint *gguf = NULL;
    nw_error err = {0};
    nw_digest digest = {0};

    (void)state;
    assert_int_equal(open_tiny(&(gb_tiny){0}, &gguf, &err), NW_OK);
    write_hf(gguf);
    write_llama2c(gguf);
    put("config.json", tiny_config, sizeof tiny_config - 1);
    for (size_t k = 0; k < NW_COUNT(names); k++) {
        nw_checkpoint *other = NULL;
        if (open_in(names[k], &other, &err) != NW_OK) {
            fail_msg("%s", err.message);
        }
        assert_int_equal(nw_checkpoint_kind(other), k == 0 ? NW_CKPT_HF : NW_CKPT_LLAMA2C);
        assert_int_equal(nw_checkpoint_n_tensors(other), GB_TINY_TENSORS);
        for (size_t i = 0; i < GB_TINY_TENSORS; i++) {
            const nw_ckpt_tensor *t = nw_checkpoint_at(gguf, i);
            float a[MAX_VALUES];
            float b[MAX_VALUES];
            values(gguf, t->role, t->layer, a);
            values(other, t->role, t->layer, b);
            assert_string_equal(nw_checkpoint_at(other, i)->name, t->name);
            assert_memory_equal(a, b, (size_t)t->n_rows * t->n_cols * 4);
        }
        assert_int_equal(nw_checkpoint_digest(other, &digest, &err), NW_OK);
        assert_int_equal(strlen(digest.hex), 64);
        nw_checkpoint_close(other);
    }
    nw_checkpoint_close(gguf);
}

static struct row {
    const char *name;
    gb_tiny tiny;
    nw_status code;
    const char *says;
} rows[] = {
    {"missing_tensor",
     {.drop = "blk.0.attn_k.weight"},
     NW_E_FORMAT,
     "tiny.gguf: 1 tensor is missing: blk.0.attn_k.weight"},
    {"more_layers_announced",
     {.key = "llama.block_count", .value = 2},
     NW_E_FORMAT,
     "9 tensors are missing: blk.1.attn_norm.weight, blk.1.attn_q.weight, blk.1.attn_k.weight, "
     "blk.1.attn_v.weight, blk.1.attn_output.weight, ..."},
    {"missing_embedding",
     {.drop = "token_embd.weight"},
     NW_E_FORMAT,
     "tensor 'token_embd.weight' is missing"},
    {"shape_of_a_matrix",
     {.q_rows = 12},
     NW_E_FORMAT,
     "tensor 'blk.0.attn_q.weight' has shape [12, 8], the config asks for [8, 8]"},
    {"config_of_another_size",
     {.key = "llama.feed_forward_length", .value = 17},
     NW_E_FORMAT,
     "tensor 'blk.0.ffn_gate.weight' has shape [16, 8], the config asks for [17, 8]"},
    {"bias_is_not_dropped_in_silence",
     {.extra = "blk.0.attn_q.bias"},
     NW_E_UNSUPPORTED,
     "tensor 'blk.0.attn_q.bias' has no place in architecture llama"},
    {"a_scale_of_eight_numbers",
     {.extra = "blk.0.attn_q.scale"},
     NW_E_FORMAT,
     "tensor 'blk.0.attn_q.scale' is not one finite F32 number"},
    {"a_scale_of_nothing",
     {.extra = "blk.0.attn_x.scale", .extra_cols = 1},
     NW_E_UNSUPPORTED,
     "tensor 'blk.0.attn_x.scale' has no place in architecture llama"},
    {"heads_of_zero",
     {.key = "llama.attention.head_count", .value = 0},
     NW_E_RANGE,
     "n_heads is 0"},
    {"layers_of_2_32",
     {.key = "llama.block_count", .value = UINT32_MAX},
     NW_E_RANGE,
     "n_layers is 4294967295, must be 1 to 1024"},
};

static void unsound_checkpoint_is_refused(void **state)
{
    const struct row *r = *state;
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    const nw_status st = open_tiny(&r->tiny, &c, &err);

    if (st != r->code || strstr(err.message, r->says) == NULL) {
        print_message("%d: %s\n", (int)st, err.message);
    }
    assert_int_equal(st, r->code);
    assert_non_null(strstr(err.message, r->says));
    assert_null(c);
}

/* Layers past block_count (multi-token prediction heads are kept there) are left out, not fatal. */
static void tensors_past_the_last_layer_are_left_out(void **state)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};

    (void)state;
    assert_int_equal(open_tiny(&(gb_tiny){.extra_layer = true}, &c, &err), NW_OK);
    assert_int_equal(nw_checkpoint_n_ignored(c), 1);
    assert_int_equal(nw_checkpoint_n_tensors(c), GB_TINY_TENSORS);
    nw_checkpoint_close(c);
}

/* GGUF's NVFP4 keeps a scale for a whole tensor beside it, and one of its activations. */
static void a_scale_beside_a_tensor_multiplies_it(void **state)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    float v[MAX_VALUES];
    uint8_t raw[64];

    (void)state;
    assert_int_equal(
        open_tiny(&(gb_tiny){.extra = "blk.0.attn_v.scale", .extra_cols = 1}, &c, &err), NW_OK);
    const nw_ckpt_tensor *t = nw_checkpoint_find(c, NW_ROLE_V, 0);
    assert_true(t->scale == 11); /* the twelfth tensor's first value */
    assert_true(nw_checkpoint_find(c, NW_ROLE_K, 0)->scale == 1);
    values(c, NW_ROLE_V, 0, v);
    assert_true(v[3] == 11 * (5 + 3.0F / 1024));
    assert_int_equal(nw_checkpoint_read_raw(c, t, 0, 1, raw, &err), NW_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "are 11 times the stored ones"));
    assert_int_equal(nw_checkpoint_n_ignored(c), 0);
    nw_checkpoint_close(c);
    c = NULL;
    assert_int_equal(
        open_tiny(&(gb_tiny){.extra = "blk.0.attn_v.input_scale", .extra_cols = 1}, &c, &err),
        NW_OK);
    assert_int_equal(nw_checkpoint_n_ignored(c), 1);
    nw_checkpoint_close(c);
}

/* A head of its own is found, and the model is then not tied. */
static void output_weight_unties_the_head(void **state)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};

    (void)state;
    assert_int_equal(open_tiny(&(gb_tiny){.extra = "output.weight"}, &c, &err), NW_E_FORMAT);
    assert_non_null(
        strstr(err.message, "'output.weight' has shape [8], the config asks for [5, 8]"));
    assert_null(c);
}

static void not_a_checkpoint(void **state)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};

    (void)state;
    put("text.bin", "It was a bright cold day in April", 33);
    assert_int_equal(open_in("text.bin", &c, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "no llama2.c file"));
    put("short.bin", "x", 1);
    assert_int_equal(open_in("short.bin", &c, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "too short for a checkpoint"));
    put("zero.bin", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 28);
    assert_int_equal(open_in("zero.bin", &c, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "neither GGUF nor safetensors, and no llama2.c file"));
    assert_int_equal(open_in("absent.gguf", &c, &err), NW_E_IO);
}

/* Facts of the shared models, from the note beside them. */
static struct shared {
    const char *name, *path;
    nw_ckpt_kind kind;
    uint32_t n_layers, d_model, n_heads, n_kv_heads, d_ff, n_vocab;
    bool tied;
    uint64_t n_values;
} shared[] = {
    {"tiny1m", "data/models/tiny1m", NW_CKPT_HF, 4, 128, 2, 2, 352, 512, false, 935040},
    {"stories260K", "data/models/stories260K/stories260K.bin", NW_CKPT_LLAMA2C, 5, 64, 8, 4, 172,
     512, true, 260032},
    {"babyllama", "data/models/babyllama-tok105/model5000.bin", NW_CKPT_LLAMA2C, 5, 128, 8, 4, 352,
     105, true, 936448},
};

static void shared_model_opens(void **state)
{
    const struct shared *r = *state;
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    char path[512];
    uint64_t n = 0;

    if (!nw_shared_path(r->path, path, sizeof path)) {
        skip();
    }
    if (nw_checkpoint_open(path, &c, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    const nw_model_config *m = nw_checkpoint_config(c);
    assert_int_equal(nw_checkpoint_kind(c), r->kind);
    assert_true(m->n_layers == r->n_layers && m->d_model == r->d_model && m->tied == r->tied);
    assert_true(m->n_heads == r->n_heads && m->n_kv_heads == r->n_kv_heads);
    assert_true(m->d_ff == r->d_ff && m->n_vocab == r->n_vocab);
    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        n += (uint64_t)t->n_rows * t->n_cols;
    }
    assert_int_equal(n, r->n_values);
    nw_checkpoint_close(c);
}

static void layers_without_embedding_are_reported(void **state)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    char path[512];

    (void)state;
    if (!nw_shared_path("data/models/stories15M-blocks", path, sizeof path)) {
        skip();
    }
    assert_int_equal(nw_checkpoint_open(path, &c, &err), NW_E_FORMAT);
    assert_non_null(
        strstr(err.message, "2 tensors are missing: model.embed_tokens.weight, lm_head.weight"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_gives_config_names_and_values),
        cmocka_unit_test(gguf_llama_rows_of_q_and_k_are_put_back),
        cmocka_unit_test(a_scale_beside_a_tensor_multiplies_it),
        cmocka_unit_test(three_kinds_of_files_give_one_model),
        cmocka_unit_test(tensors_past_the_last_layer_are_left_out),
        cmocka_unit_test(output_weight_unties_the_head),
        cmocka_unit_test(not_a_checkpoint),
        cmocka_unit_test(layers_without_embedding_are_reported),
    };

    dir = nw_tmpdir_make();
    int failed = NW_RUN_TABLE("refused", rows, unsound_checkpoint_is_refused);
    failed += NW_RUN_TABLE("shared", shared, shared_model_opens);
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    nw_tmpdir_remove(&dir);
    return failed;
}
