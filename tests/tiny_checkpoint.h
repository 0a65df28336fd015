/* A seeded checkpoint of two small layers in a folder as Hugging Face lays it out, for tests: no
 * download, no tokenizer. Every dim can be set, so that tails and mistakes can be made.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_TINY_CHECKPOINT_H
#define NW_TESTS_TINY_CHECKPOINT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "formats/half.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/safetensors.h"

typedef struct {
    nw_model_config config;
    nw_format_id dtype; /* NW_FMT_F32 or NW_FMT_BF16 */
    uint64_t seed;
    /* applied to each value before it is written: t's role, index of the value in the tensor */
    float (*shape)(nw_role role, size_t i, float value);
} nw_tiny;

/* llama, d_model 64, 4 heads of 16 over 2 key-value heads, d_ff 96, 80 tokens, tied. */
static inline nw_tiny nw_tiny_llama(void)
{
    return (nw_tiny){.config = {.arch = NW_ARCH_LLAMA,
                                .n_layers = 2,
                                .d_model = 64,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .d_head = 16,
                                .d_ff = 96,
                                .n_vocab = 80,
                                .n_ctx = 128,
                                .norm_eps = 1e-5F,
                                .rope_base = 10000,
                                .rope_base_local = 10000,
                                .attn_scale = 0.25F,
                                .embed_scale = 1,
                                .tied = true,
                                .bos = 1,
                                .pad = -1,
                                .eos = {2},
                                .n_eos = 1},
                     .dtype = NW_FMT_F32,
                     .seed = 1};
}

/* gemma3: norms of gain 1 + w, norms after the blocks, q and k norms, local layers, gelu. */
static inline nw_tiny nw_tiny_gemma(void)
{
    nw_tiny t = nw_tiny_llama();

    t.config.arch = NW_ARCH_GEMMA3;
    t.config.norm_eps = 1e-6F;
    t.config.rope_base = 1e6F;
    t.config.sliding_window = 16;
    t.config.global_every = 2;
    t.config.embed_scale = 8; /* sqrt(d_model) */
    t.config.qk_norm = t.config.post_norms = t.config.norm_plus_one = t.config.act_gelu = true;
    return t;
}

/* qwen2: biases on q, k and v. */
static inline nw_tiny nw_tiny_qwen(void)
{
    nw_tiny t = nw_tiny_llama();

    t.config.arch = NW_ARCH_QWEN2;
    t.config.qkv_bias = t.config.one_rope = true;
    return t;
}

static inline float nw_tiny_value(const nw_tiny *t, nw_role role, nw_rng *rng, size_t i)
{
    const double x = nw_rng_normal(rng);
    float v = (float)(x * 0.15);

    if (nw_role_is_vector(role)) {
        v = (float)(x * 0.1 + (t->config.norm_plus_one ? 0 : 1));
    }
    return t->shape != NULL ? t->shape(role, i, v) : v;
}

static inline nw_status nw_tiny_tensor(const nw_tiny *t, nw_st_writer *w, const char *name,
                                       nw_role role, uint64_t key, nw_error *err)
{
    uint32_t n_rows = 0;
    uint32_t n_cols = 0;
    nw_rng rng = nw_rng_stream(t->seed, key);
    nw_status st = NW_OK;

    nw_role_shape(&t->config, role, &n_rows, &n_cols);
    for (size_t i = 0; st == NW_OK && i < (size_t)n_rows * n_cols; i++) {
        const float v = nw_tiny_value(t, role, &rng, i);
        const uint16_t h = nw_bf16_from_f32(v);
        st = t->dtype == NW_FMT_BF16 ? nw_st_writer_write(w, name, &h, sizeof h, err)
                                     : nw_st_writer_write(w, name, &v, sizeof v, err);
    }
    return st;
}

/* All places a model may have: decls is NULL to write, *w to write to; returns the count. */
static inline size_t nw_tiny_walk(const nw_tiny *t, nw_st_decl *decls, char (*names)[96],
                                  nw_st_writer *w, nw_status *st, nw_error *err)
{
    size_t n = 0;

    for (int32_t l = -1; l < (int32_t)t->config.n_layers; l++) {
        for (int r = 0; r < NW_ROLE_COUNT; r++) {
            const nw_role role = (nw_role)r;
            uint32_t rows = 0;
            uint32_t cols = 0;
            if ((r < NW_ROLE_ATTN_NORM) != (l < 0) ||
                !nw_role_hf_name(&t->config, role, l, names[n], sizeof names[n])) {
                continue;
            }
            nw_role_shape(&t->config, role, &rows, &cols);
            if (decls != NULL) {
                const bool vec = nw_role_is_vector(role);
                decls[n] = (nw_st_decl){.name = names[n],
                                        .format = t->dtype,
                                        .n_dims = vec ? 1 : 2,
                                        .dims = {vec ? cols : rows, cols}};
            } else if (*st == NW_OK) {
                *st = nw_tiny_tensor(t, w, names[n], role, (uint64_t)((l + 1) * NW_ROLE_COUNT + r),
                                     err);
            }
            n++;
        }
    }
    return n;
}

/* Writes folder (which is made) and ends the program where that fails. */
static inline void nw_tiny_write(const nw_tiny *t, const char *folder)
{
    static char names[512][96];
    static nw_st_decl decls[512];
    char path[512];
    nw_error err = {0};
    nw_st_writer *w = NULL;
    nw_status st = nw_file_mkdirs(folder, &err);
    json_t *config =
        nw_config_to_json(&t->config, t->dtype == NW_FMT_BF16 ? "bfloat16" : "float32");
    char *text = json_dumps(config, JSON_INDENT(1));

    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    if (st == NW_OK) {
        st = nw_file_write(path, text, strlen(text), &err);
    }
    const size_t n = nw_tiny_walk(t, decls, names, NULL, &st, &err);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (st == NW_OK) {
        st = nw_st_writer_open(path, decls, n, NULL, 8, &w, &err);
    }
    if (st == NW_OK) {
        (void)nw_tiny_walk(t, NULL, names, w, &st, &err);
    }
    if (st == NW_OK) {
        st = nw_st_writer_commit(w, &err);
    }
    nw_st_writer_close(w);
    json_decref(config);
    free(text);
    if (st != NW_OK) {
        (void)fprintf(stderr, "tiny checkpoint: %s\n", err.message);
        exit(1);
    }
}

#endif
