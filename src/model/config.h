/* What a decoder needs to know about a model beside its weights, whatever file it came from: an HF
 * config.json, GGUF keys, or the seven integers of a llama2.c file. All values are checked ranges;
 * products of dims fit 31 bits, so that code downstream multiplies them without fear.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_CONFIG_H
#define NW_MODEL_CONFIG_H

#include <jansson.h>

#include "base/status.h"

typedef enum {
    NW_ARCH_LLAMA,
    NW_ARCH_GEMMA3,
    NW_ARCH_QWEN2,
    NW_ARCH_QWEN3,
    NW_ARCH_MISTRAL,
    NW_ARCH_COUNT
} nw_arch_id;

typedef enum { NW_ROPE_SCALE_NONE, NW_ROPE_SCALE_LINEAR, NW_ROPE_SCALE_LLAMA3 } nw_rope_scale_kind;

typedef struct {
    nw_rope_scale_kind kind;
    float factor;                            /* linear, llama3 */
    float low_freq_factor, high_freq_factor; /* llama3 */
    uint32_t original_n_ctx;                 /* llama3 */
} nw_rope_scaling;

#define NW_MAX_EOS 8

typedef struct nw_model_config {
    nw_arch_id arch;
    uint32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, n_ctx;
    float norm_eps;
    float rope_base;              /* of global layers */
    float rope_base_local;        /* of sliding-window layers; = rope_base without them */
    nw_rope_scaling rope_scaling; /* of global layers only, unless one_rope */
    uint32_t sliding_window;      /* tokens a local layer sees, itself included; 0: none */
    uint32_t global_every;        /* layer i is global when (i + 1) % global_every == 0; 0: all are;
                              n_layers + 1: none is */
    uint32_t global_first;        /* and so are the layers before this one */
    float attn_scale;  /* multiplies q.k: 1/sqrt(d_head) or 1/sqrt(query_pre_attn_scalar) */
    float embed_scale; /* multiplies embeddings: 1, or sqrt(d_model) in f32 for gemma */
    float logit_softcap, attn_softcap; /* 0: none; y = c * tanh(x / c) */
    bool tied;                         /* the head is the embedding */
    bool qkv_bias;                     /* added to q, k and v before anything else */
    bool qk_norm;                      /* RMS norm of each q and k head before RoPE */
    bool post_norms;    /* norms after attention and after the FFN, before the residual add */
    bool one_rope;      /* local layers rotate as global ones do: one base, one scaling */
    bool norm_plus_one; /* gain is 1 + stored weight */
    bool act_gelu;      /* gelu(tanh form) in place of silu */
    int32_t bos, pad;   /* -1: none */
    int32_t eos[NW_MAX_EOS];
    uint32_t n_eos;
} nw_model_config;

/* Reads config.json (or hf_config.json, where config.json is absent or is none of HF's) and
 * generation_config.json, where there is one, of an HF folder. */
NW_MUST_USE nw_status nw_config_load(const char *dir, nw_model_config *out, nw_error *err);
/* One parsed config.json; `name` stands in messages. */
NW_MUST_USE nw_status nw_config_from_json(const char *name, const json_t *root,
                                          nw_model_config *out, nw_error *err);
/* The config.json that nw_config_from_json reads back to the same values and that transformers
 * accepts; the caller owns it; NULL without memory. torch_dtype: "bfloat16", "float32". */
json_t *nw_config_to_json(const nw_model_config *c, const char *torch_dtype);

/* True where `layer` attends to all positions. */
static inline bool nw_config_layer_is_global(const nw_model_config *c, uint32_t layer)
{
    return c->global_every == 0 || layer < c->global_first || (layer + 1) % c->global_every == 0;
}

/* Ranges and relations (n_heads % n_kv_heads, even d_head, products); `name` is the file. */
NW_MUST_USE nw_status nw_config_check(const nw_model_config *c, const char *name, nw_error *err);

#endif
