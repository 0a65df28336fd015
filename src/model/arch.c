/* The rows of the architecture table and the matching of tensor names. See arch.h.
 *
 * gemma3's embedding scale: Hugging Face casts sqrt(d_model) to the dtype of the weights before it
 * multiplies (25.25 instead of 25.298 for d_model 640 in bfloat16); llama.cpp, and Hugging Face in
 * float32, use the float32 value. narrow computes activations in float32 and uses the latter.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/arch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const layer_prefix[NW_NAMING_COUNT] = {"model.layers.", "blk."};

static const nw_arch_tensor llama_tensors[] = {
    {NW_ROLE_EMBED, {"model.embed_tokens.weight", "token_embd.weight"}},
    {NW_ROLE_HEAD, {"lm_head.weight", "output.weight"}},
    {NW_ROLE_OUT_NORM, {"model.norm.weight", "output_norm.weight"}},
    {NW_ROLE_ATTN_NORM, {"input_layernorm.weight", "attn_norm.weight"}},
    {NW_ROLE_Q, {"self_attn.q_proj.weight", "attn_q.weight"}},
    {NW_ROLE_K, {"self_attn.k_proj.weight", "attn_k.weight"}},
    {NW_ROLE_V, {"self_attn.v_proj.weight", "attn_v.weight"}},
    {NW_ROLE_O, {"self_attn.o_proj.weight", "attn_output.weight"}},
    {NW_ROLE_FFN_NORM, {"post_attention_layernorm.weight", "ffn_norm.weight"}},
    {NW_ROLE_GATE, {"mlp.gate_proj.weight", "ffn_gate.weight"}},
    {NW_ROLE_UP, {"mlp.up_proj.weight", "ffn_up.weight"}},
    {NW_ROLE_DOWN, {"mlp.down_proj.weight", "ffn_down.weight"}},
};

static const nw_arch_tensor gemma3_tensors[] = {
    {NW_ROLE_EMBED, {"model.embed_tokens.weight", "token_embd.weight"}},
    {NW_ROLE_HEAD, {"lm_head.weight", "output.weight"}},
    {NW_ROLE_OUT_NORM, {"model.norm.weight", "output_norm.weight"}},
    {NW_ROLE_ATTN_NORM, {"input_layernorm.weight", "attn_norm.weight"}},
    {NW_ROLE_Q, {"self_attn.q_proj.weight", "attn_q.weight"}},
    {NW_ROLE_K, {"self_attn.k_proj.weight", "attn_k.weight"}},
    {NW_ROLE_V, {"self_attn.v_proj.weight", "attn_v.weight"}},
    {NW_ROLE_O, {"self_attn.o_proj.weight", "attn_output.weight"}},
    {NW_ROLE_Q_NORM, {"self_attn.q_norm.weight", "attn_q_norm.weight"}},
    {NW_ROLE_K_NORM, {"self_attn.k_norm.weight", "attn_k_norm.weight"}},
    {NW_ROLE_POST_ATTN_NORM, {"post_attention_layernorm.weight", "post_attention_norm.weight"}},
    {NW_ROLE_FFN_NORM, {"pre_feedforward_layernorm.weight", "ffn_norm.weight"}},
    {NW_ROLE_GATE, {"mlp.gate_proj.weight", "ffn_gate.weight"}},
    {NW_ROLE_UP, {"mlp.up_proj.weight", "ffn_up.weight"}},
    {NW_ROLE_DOWN, {"mlp.down_proj.weight", "ffn_down.weight"}},
    {NW_ROLE_POST_FFN_NORM, {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}},
};

static const nw_arch_tensor qwen2_tensors[] = {
    {NW_ROLE_EMBED, {"model.embed_tokens.weight", "token_embd.weight"}},
    {NW_ROLE_HEAD, {"lm_head.weight", "output.weight"}},
    {NW_ROLE_OUT_NORM, {"model.norm.weight", "output_norm.weight"}},
    {NW_ROLE_ATTN_NORM, {"input_layernorm.weight", "attn_norm.weight"}},
    {NW_ROLE_Q, {"self_attn.q_proj.weight", "attn_q.weight"}},
    {NW_ROLE_K, {"self_attn.k_proj.weight", "attn_k.weight"}},
    {NW_ROLE_V, {"self_attn.v_proj.weight", "attn_v.weight"}},
    {NW_ROLE_O, {"self_attn.o_proj.weight", "attn_output.weight"}},
    {NW_ROLE_Q_BIAS, {"self_attn.q_proj.bias", "attn_q.bias"}},
    {NW_ROLE_K_BIAS, {"self_attn.k_proj.bias", "attn_k.bias"}},
    {NW_ROLE_V_BIAS, {"self_attn.v_proj.bias", "attn_v.bias"}},
    {NW_ROLE_FFN_NORM, {"post_attention_layernorm.weight", "ffn_norm.weight"}},
    {NW_ROLE_GATE, {"mlp.gate_proj.weight", "ffn_gate.weight"}},
    {NW_ROLE_UP, {"mlp.up_proj.weight", "ffn_up.weight"}},
    {NW_ROLE_DOWN, {"mlp.down_proj.weight", "ffn_down.weight"}},
};

static const nw_arch_tensor qwen3_tensors[] = {
    {NW_ROLE_EMBED, {"model.embed_tokens.weight", "token_embd.weight"}},
    {NW_ROLE_HEAD, {"lm_head.weight", "output.weight"}},
    {NW_ROLE_OUT_NORM, {"model.norm.weight", "output_norm.weight"}},
    {NW_ROLE_ATTN_NORM, {"input_layernorm.weight", "attn_norm.weight"}},
    {NW_ROLE_Q, {"self_attn.q_proj.weight", "attn_q.weight"}},
    {NW_ROLE_K, {"self_attn.k_proj.weight", "attn_k.weight"}},
    {NW_ROLE_V, {"self_attn.v_proj.weight", "attn_v.weight"}},
    {NW_ROLE_O, {"self_attn.o_proj.weight", "attn_output.weight"}},
    {NW_ROLE_Q_NORM, {"self_attn.q_norm.weight", "attn_q_norm.weight"}},
    {NW_ROLE_K_NORM, {"self_attn.k_norm.weight", "attn_k_norm.weight"}},
    {NW_ROLE_FFN_NORM, {"post_attention_layernorm.weight", "ffn_norm.weight"}},
    {NW_ROLE_GATE, {"mlp.gate_proj.weight", "ffn_gate.weight"}},
    {NW_ROLE_UP, {"mlp.up_proj.weight", "ffn_up.weight"}},
    {NW_ROLE_DOWN, {"mlp.down_proj.weight", "ffn_down.weight"}},
};

static const nw_arch archs[NW_ARCH_COUNT] = {
    [NW_ARCH_LLAMA] = {.id = NW_ARCH_LLAMA,
                       .name = "llama",
                       .gguf_name = "llama",
                       .model_type = "llama",
                       .hf_class = "LlamaForCausalLM",
                       .act_key = "hidden_act",
                       .act = "silu",
                       .gguf_pairs_qk = true,
                       .defaults = {.arch = NW_ARCH_LLAMA,
                                    .n_ctx = 2048,
                                    .norm_eps = 1e-6F,
                                    .rope_base = 10000.0F,
                                    .embed_scale = 1.0F},
                       .tensors = llama_tensors,
                       .n_tensors = NW_COUNT(llama_tensors)},
    /* defaults: those of transformers' Gemma3TextConfig, which the nested configs lean on */
    [NW_ARCH_GEMMA3] = {.id = NW_ARCH_GEMMA3,
                        .name = "gemma3",
                        .window = NW_WINDOW_PATTERN,
                        .gguf_name = "gemma3",
                        .model_type = "gemma3_text",
                        .nested_type = "gemma3",
                        .hf_class = "Gemma3ForCausalLM",
                        .act_key = "hidden_activation",
                        .act = "gelu_pytorch_tanh",
                        .gguf_norm_offset = -1.0F,
                        .gguf_no_ffn_scales = true,
                        .scale_embed = true,
                        .defaults = {.arch = NW_ARCH_GEMMA3,
                                     .n_heads = 8,
                                     .n_kv_heads = 4,
                                     .d_head = 256,
                                     .n_vocab = 262208,
                                     .n_ctx = 131072,
                                     .norm_eps = 1e-6F,
                                     .rope_base = 1e6F,
                                     .rope_base_local = 10000.0F,
                                     .sliding_window = 4096,
                                     .global_every = 6,
                                     .tied = true,
                                     .qk_norm = true,
                                     .post_norms = true,
                                     .norm_plus_one = true,
                                     .act_gelu = true},
                        .tensors = gemma3_tensors,
                        .n_tensors = NW_COUNT(gemma3_tensors)},
    /* defaults of the next three: those of transformers' Qwen2Config, Qwen3Config, MistralConfig */
    [NW_ARCH_QWEN2] = {.id = NW_ARCH_QWEN2,
                       .name = "qwen2",
                       .gguf_name = "qwen2",
                       .gguf_no_ffn_scales = true,
                       .model_type = "qwen2",
                       .hf_class = "Qwen2ForCausalLM",
                       .act_key = "hidden_act",
                       .act = "silu",
                       .window = NW_WINDOW_SWITCHED,
                       .defaults = {.arch = NW_ARCH_QWEN2,
                                    .n_ctx = 32768,
                                    .norm_eps = 1e-6F,
                                    .rope_base = 10000.0F,
                                    .sliding_window = 4096,
                                    .embed_scale = 1.0F,
                                    .one_rope = true,
                                    .qkv_bias = true},
                       .tensors = qwen2_tensors,
                       .n_tensors = NW_COUNT(qwen2_tensors)},
    [NW_ARCH_QWEN3] = {.id = NW_ARCH_QWEN3,
                       .name = "qwen3",
                       .gguf_name = "qwen3",
                       .model_type = "qwen3",
                       .hf_class = "Qwen3ForCausalLM",
                       .act_key = "hidden_act",
                       .act = "silu",
                       .window = NW_WINDOW_SWITCHED,
                       .defaults = {.arch = NW_ARCH_QWEN3,
                                    .d_head = 128,
                                    .n_ctx = 32768,
                                    .norm_eps = 1e-6F,
                                    .rope_base = 10000.0F,
                                    .sliding_window = 4096,
                                    .embed_scale = 1.0F,
                                    .one_rope = true,
                                    .qk_norm = true},
                       .tensors = qwen3_tensors,
                       .n_tensors = NW_COUNT(qwen3_tensors)},
    /* In GGUF a Mistral is a llama, and llama.cpp knows no window for it. */
    [NW_ARCH_MISTRAL] = {.id = NW_ARCH_MISTRAL,
                         .name = "mistral",
                         .gguf_name = "llama",
                         .model_type = "mistral",
                         .hf_class = "MistralForCausalLM",
                         .act_key = "hidden_act",
                         .act = "silu",
                         .gguf_pairs_qk = true,
                         .window = NW_WINDOW_ALL,
                         .defaults = {.arch = NW_ARCH_MISTRAL,
                                      .n_kv_heads = 8,
                                      .n_ctx = 131072,
                                      .norm_eps = 1e-6F,
                                      .rope_base = 10000.0F,
                                      .sliding_window = 4096,
                                      .embed_scale = 1.0F,
                                      .one_rope = true},
                         .tensors = llama_tensors,
                         .n_tensors = NW_COUNT(llama_tensors)},
};

const nw_arch *nw_arch_get(nw_arch_id id)
{
    assert((size_t)id < NW_COUNT(archs));
    return &archs[id];
}

const nw_arch *nw_arch_at(size_t i)
{
    return i < NW_COUNT(archs) ? &archs[i] : NULL;
}

static bool in_layer(nw_role role)
{
    return role >= NW_ROLE_ATTN_NORM;
}

const char *nw_arch_tensor_name(const nw_arch *a, nw_role role, nw_naming naming)
{
    for (size_t i = 0; i < a->n_tensors; i++) {
        if (a->tensors[i].role == role) {
            return a->tensors[i].name[naming];
        }
    }
    return NULL;
}

bool nw_arch_full_name(const nw_arch *a, nw_role role, int32_t layer, nw_naming naming, char *buf,
                       size_t n)
{
    const char *name = nw_arch_tensor_name(a, role, naming);
    int len = -1;

    if (name != NULL) {
        len = in_layer(role)
                  ? snprintf(buf, n, "%s%" PRId32 ".%s", layer_prefix[naming], layer, name)
                  : snprintf(buf, n, "%s", name);
    }
    return len >= 0 && (size_t)len < n;
}

/* A layer number as a writer prints it, up to 6 digits, and the dot after it; NULL otherwise. */
static const char *layer_number(const char *s, int32_t *layer)
{
    int32_t v = 0;
    int n = 0;

    for (; s[n] >= '0' && s[n] <= '9' && n < 7; n++) {
        v = v * 10 + (s[n] - '0');
    }
    if (n == 0 || n > 6 || s[n] != '.' || (s[0] == '0' && n > 1)) {
        return NULL;
    }
    *layer = v;
    return s + n + 1;
}

bool nw_arch_match(const nw_arch *a, nw_naming naming, const char *name, nw_role *role,
                   int32_t *layer)
{
    const char *prefix = layer_prefix[naming];
    const char *rest = name;
    int32_t number = -1;

    if (strncmp(name, prefix, strlen(prefix)) == 0) {
        rest = layer_number(name + strlen(prefix), &number);
    }
    for (size_t i = 0; rest != NULL && i < a->n_tensors; i++) {
        if (in_layer(a->tensors[i].role) == (number >= 0) &&
            strcmp(rest, a->tensors[i].name[naming]) == 0) {
            *role = a->tensors[i].role;
            *layer = number;
            return true;
        }
    }
    return false;
}

static const char *const role_names[NW_ROLE_COUNT] = {
    "embed",  "head",   "out_norm", "attn_norm",      "q",
    "k",      "v",      "o",        "q_bias",         "k_bias",
    "v_bias", "q_norm", "k_norm",   "post_attn_norm", "ffn_norm",
    "gate",   "up",     "down",     "post_ffn_norm"};

const char *nw_role_name(nw_role role)
{
    assert((size_t)role < NW_COUNT(role_names));
    return role_names[role];
}

bool nw_role_is_norm(nw_role role)
{
    return strstr(nw_role_name(role), "norm") != NULL;
}

bool nw_role_is_vector(nw_role role)
{
    return nw_role_is_norm(role) || strstr(nw_role_name(role), "bias") != NULL;
}

void nw_role_shape(const nw_model_config *c, nw_role role, uint32_t *n_rows, uint32_t *n_cols)
{
    const uint32_t q = c->n_heads * c->d_head;
    const uint32_t kv = c->n_kv_heads * c->d_head;
    const uint32_t shapes[NW_ROLE_COUNT][2] = {
        [NW_ROLE_EMBED] = {c->n_vocab, c->d_model},
        [NW_ROLE_HEAD] = {c->n_vocab, c->d_model},
        [NW_ROLE_OUT_NORM] = {1, c->d_model},
        [NW_ROLE_ATTN_NORM] = {1, c->d_model},
        [NW_ROLE_Q] = {q, c->d_model},
        [NW_ROLE_K] = {kv, c->d_model},
        [NW_ROLE_V] = {kv, c->d_model},
        [NW_ROLE_O] = {c->d_model, q},
        [NW_ROLE_Q_BIAS] = {1, q},
        [NW_ROLE_K_BIAS] = {1, kv},
        [NW_ROLE_V_BIAS] = {1, kv},
        [NW_ROLE_Q_NORM] = {1, c->d_head},
        [NW_ROLE_K_NORM] = {1, c->d_head},
        [NW_ROLE_POST_ATTN_NORM] = {1, c->d_model},
        [NW_ROLE_FFN_NORM] = {1, c->d_model},
        [NW_ROLE_GATE] = {c->d_ff, c->d_model},
        [NW_ROLE_UP] = {c->d_ff, c->d_model},
        [NW_ROLE_DOWN] = {c->d_model, c->d_ff},
        [NW_ROLE_POST_FFN_NORM] = {1, c->d_model},
    };

    *n_rows = shapes[role][0];
    *n_cols = shapes[role][1];
}

bool nw_role_hf_name(const nw_model_config *c, nw_role role, int32_t layer, char *buf, size_t n)
{
    return !(role == NW_ROLE_HEAD && c->tied) &&
           nw_arch_full_name(nw_arch_get(c->arch), role, layer, NW_NAMING_HF, buf, n);
}
