/* Tiny models for tests, written through narrow's own safetensors writer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"

#define MAX_TENSORS 256

nw_model_config nw_tiny_llama(void)
{
    return (nw_model_config){
        .arch = NW_ARCH_LLAMA,
        .n_layers = 2,
        .d_model = 40,
        .n_heads = 4,
        .n_kv_heads = 2,
        .d_head = 10,
        .d_ff = 56,
        .n_vocab = NW_TINY_VOCAB,
        .n_ctx = 256,
        .norm_eps = 1e-5F,
        .rope_base = 10000,
        .rope_base_local = 10000,
        .attn_scale = 0.31622776601683794F, /* 1 / sqrt(10) */
        .embed_scale = 1,
        .bos = NW_TINY_BOS,
        .pad = -1,
        .eos = {NW_TINY_EOS},
        .n_eos = 1,
    };
}

nw_model_config nw_tiny_wide(void)
{
    nw_model_config c = nw_tiny_llama();
    c.d_model = 64;
    c.d_head = 16;
    c.d_ff = 96;
    c.attn_scale = 0.25F; /* 1 / sqrt(16) */
    return c;
}

nw_model_config nw_tiny_gemma3(void)
{
    return (nw_model_config){
        .arch = NW_ARCH_GEMMA3,
        .n_layers = 4,
        .d_model = 36,
        .n_heads = 3,
        .n_kv_heads = 1,
        .d_head = 16,
        .d_ff = 44,
        .n_vocab = NW_TINY_VOCAB,
        .n_ctx = 256,
        .norm_eps = 1e-6F,
        .rope_base = 1000000,
        .rope_base_local = 10000,
        .sliding_window = 20,
        .global_every = 3,
        .attn_scale = 0.25F, /* 1 / sqrt(16) */
        .embed_scale = 6,    /* sqrt(36) */
        .tied = true,
        .qk_norm = true,
        .post_norms = true,
        .norm_plus_one = true,
        .act_gelu = true,
        .bos = NW_TINY_BOS,
        .pad = -1,
        .eos = {NW_TINY_EOS},
        .n_eos = 1,
    };
}

nw_model_config nw_tiny_qwen2(void)
{
    nw_model_config c = nw_tiny_llama();
    c.arch = NW_ARCH_QWEN2;
    c.qkv_bias = c.one_rope = c.tied = true;
    return c;
}

nw_model_config nw_tiny_qwen3(void)
{
    nw_model_config c = nw_tiny_llama();
    c.arch = NW_ARCH_QWEN3;
    c.d_head = 20;
    c.attn_scale = 0.22360679774997896F; /* 1 / sqrt(20) */
    c.sliding_window = 20;
    c.global_every = c.n_layers + 1;
    c.global_first = 1;
    c.qk_norm = c.one_rope = true;
    return c;
}

nw_model_config nw_tiny_mistral(void)
{
    nw_model_config c = nw_tiny_llama();
    c.arch = NW_ARCH_MISTRAL;
    c.sliding_window = 20;
    c.global_every = c.n_layers + 1;
    c.one_rope = true;
    return c;
}

static void die(const char *what, const nw_error *err)
{
    (void)fprintf(stderr, "tiny model: %s: %s\n", what, err->message);
    exit(1);
}

static void write_text(const char *dir, const char *name, json_t *value)
{
    nw_error err = {0};
    char *path = nw_path_join(dir, name);
    char *text = json_dumps(value, JSON_INDENT(1));

    if (path == NULL || text == NULL || nw_file_write(path, text, strlen(text), &err) != NW_OK) {
        die(name, &err);
    }
    free(text);
    free(path);
    json_decref(value);
}

/* ---- weights ---- */

typedef struct {
    char names[MAX_TENSORS][96];
    nw_role roles[MAX_TENSORS];
    nw_st_decl decls[MAX_TENSORS];
    size_t n;
} tensor_list;

static void add_tensor(tensor_list *l, const nw_model_config *c, nw_role role, int32_t layer)
{
    uint32_t rows = 0;
    uint32_t cols = 0;

    if (l->n == MAX_TENSORS || !nw_role_hf_name(c, role, layer, l->names[l->n], 96)) {
        return;
    }
    nw_role_shape(c, role, &rows, &cols);
    const bool vector = nw_role_is_vector(role);
    l->roles[l->n] = role;
    l->decls[l->n] = (nw_st_decl){
        .name = l->names[l->n],
        .format = NW_FMT_F32,
        .n_dims = vector ? 1 : 2,
        .dims = {vector ? cols : rows, vector ? 0 : cols},
    };
    l->n++;
}

static void list_tensors(tensor_list *l, const nw_model_config *c)
{
    for (int role = 0; role < NW_ROLE_ATTN_NORM; role++) {
        add_tensor(l, c, (nw_role)role, -1);
    }
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        for (int role = NW_ROLE_ATTN_NORM; role < NW_ROLE_COUNT; role++) {
            add_tensor(l, c, (nw_role)role, (int32_t)layer);
        }
    }
}

static void write_tensor(nw_st_writer *w, const tensor_list *l, size_t i, bool plus_one,
                         uint64_t seed)
{
    const nw_st_decl *d = &l->decls[i];
    const bool vector = d->n_dims == 1;
    const size_t n = (size_t)d->dims[0] * (vector ? 1 : (size_t)d->dims[1]);
    const double scale = vector ? 0.2 : 1 / sqrt((double)d->dims[1]);
    nw_rng rng = nw_rng_stream(seed, i);
    float *x = calloc(n, sizeof *x);
    nw_error err = {0};

    for (size_t k = 0; x != NULL && k < n; k++) {
        const double base = vector && !plus_one ? 1 : 0;
        x[k] = (float)(base + scale * nw_rng_normal(&rng));
    }
    if (x == NULL || nw_st_writer_write(w, d->name, x, n * sizeof *x, &err) != NW_OK) {
        die(d->name, &err);
    }
    free(x);
}

static void write_weights(const nw_model_config *c, uint64_t seed, const char *dir)
{
    tensor_list *l = calloc(1, sizeof *l);
    char *path = nw_path_join(dir, "model.safetensors");
    nw_st_writer *w = NULL;
    nw_error err = {0};

    if (l == NULL || path == NULL) {
        die("weights", &err);
        return;
    }
    list_tensors(l, c);
    if (nw_st_writer_open(path, l->decls, l->n, NULL, 64, &w, &err) != NW_OK) {
        die(path, &err);
    }
    for (size_t i = 0; i < l->n; i++) {
        write_tensor(w, l, i, c->norm_plus_one, seed);
    }
    if (nw_st_writer_commit(w, &err) != NW_OK) {
        die(path, &err);
    }
    nw_st_writer_close(w);
    free(path);
    free(l);
}

/* ---- tokenizer ---- */

/* The printable stand-in of a byte in byte-level vocabularies (GPT-2): itself where it is a visible
 * Latin-1 character, otherwise the next free code point from 256 on. */
static void byte_text(unsigned byte, char out[3])
{
    unsigned cp = byte;
    unsigned next = 256;

    for (unsigned b = 0; b <= byte; b++) {
        const bool visible = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        cp = visible ? b : next++;
    }
    if (cp < 128) {
        out[0] = (char)cp;
        out[1] = 0;
    } else {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        out[2] = 0;
    }
}

static void write_tokenizer(const char *dir)
{
    static const char *const control[] = {"<s>", "</s>", "<|user|>", "<|end|>"};
    json_t *vocab = json_object();
    json_t *added = json_array();

    for (unsigned b = 0; b < 256; b++) {
        char text[3];
        byte_text(b, text);
        (void)json_object_set_new(vocab, text, json_integer(b));
    }
    for (unsigned i = 0; i < NW_COUNT(control); i++) {
        (void)json_object_set_new(vocab, control[i], json_integer(256 + i));
        (void)json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                                     256 + (int)i, "content", control[i],
                                                     "single_word", 0, "lstrip", 0, "rstrip", 0,
                                                     "normalized", 0, "special", 1));
    }
    write_text(dir, "tokenizer.json",
               json_pack("{s:s, s:n, s:n, s:o, s:n, s:{s:s, s:b, s:b, s:b}, s:n, "
                         "s:{s:s, s:b, s:b, s:b}, "
                         "s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:o, s:[]}}",
                         "version", "1.0", "truncation", "padding", "added_tokens", added,
                         "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0,
                         "trim_offsets", 1, "use_regex", 1, "post_processor", "decoder", "type",
                         "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1,
                         "model", "type", "BPE", "dropout", "unk_token",
                         "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                         "byte_fallback", 0, "vocab", vocab, "merges"));
    write_text(dir, "tokenizer_config.json",
               json_pack("{s:s, s:s, s:s, s:b, s:s}", "tokenizer_class", "PreTrainedTokenizerFast",
                         "bos_token", "<s>", "eos_token", "</s>", "add_bos_token", 0,
                         "chat_template",
                         "{{ bos_token }}{% for message in messages %}<|user|>{{ "
                         "message['content'] }}<|end|>{% endfor %}"));
}

void nw_tiny_write(const nw_model_config *c, uint64_t seed, const char *dir)
{
    nw_error err = {0};
    json_t *config = nw_config_to_json(c, "float32");

    if (nw_file_mkdirs(dir, &err) != NW_OK || config == NULL) {
        die(dir, &err);
    }
    write_text(dir, "config.json", config);
    write_weights(c, seed, dir);
    write_tokenizer(dir);
}
