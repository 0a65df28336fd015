/* The keys of an architecture in GGUF: the inverse of config_gguf.c, with exactly the types that
 * llama.cpp insists on.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "model/gguf_writer.h"

#define KEY_BYTES 96

/* llama.cpp has gemma3's pattern of global layers built in. */
#define GEMMA3_GLOBAL_EVERY 6

typedef struct {
    nw_gguf_writer *w;
    const char *prefix; /* "llama" */
    char key[KEY_BYTES];
} keys;

static const char *full(keys *k, const char *key)
{
    (void)snprintf(k->key, sizeof k->key, "%s.%s", k->prefix, key);
    return k->key;
}

static void put_u32(keys *k, const char *key, uint32_t v)
{
    nw_gguf_put_u32(k->w, full(k, key), v);
}

static void put_f32(keys *k, const char *key, float v)
{
    nw_gguf_put_f32(k->w, full(k, key), v);
}

/* What a GGUF file cannot say, and its reader would take otherwise. */
static nw_status check(const nw_model_config *c, const nw_arch *a, nw_error *err)
{
    const float scale = 1.0F / sqrtf((float)c->d_head);

    if (fabsf(c->attn_scale - scale) > 1e-6F * scale) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "attention is scaled by %g; GGUF has no key for it, and its readers take %g",
                       (double)c->attn_scale, (double)scale);
    }
    if (c->global_every > 0 && c->arch != NW_ARCH_GEMMA3 && c->sliding_window < c->n_ctx) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "a sliding window of %" PRIu32 " tokens in a context of %" PRIu32
                       "; readers of GGUF know none for %s",
                       c->sliding_window, c->n_ctx, a->gguf_name);
    }
    if (c->arch == NW_ARCH_GEMMA3 && c->global_every != GEMMA3_GLOBAL_EVERY) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "every %" PRIu32 "th layer is global; readers of GGUF take every %dth of %s",
                       c->global_every, GEMMA3_GLOBAL_EVERY, a->gguf_name);
    }
    if (c->rope_scaling.kind == NW_ROPE_SCALE_LLAMA3 && !a->gguf_pairs_qk) {
        return nw_fail(err, NW_E_UNSUPPORTED, "Llama-3 RoPE scaling in architecture %s",
                       a->gguf_name);
    }
    return NW_OK;
}

static void put_dims(keys *k, const nw_model_config *c)
{
    put_u32(k, "vocab_size", c->n_vocab);
    put_u32(k, "context_length", c->n_ctx);
    put_u32(k, "embedding_length", c->d_model);
    put_u32(k, "block_count", c->n_layers);
    put_u32(k, "feed_forward_length", c->d_ff);
    put_u32(k, "attention.head_count", c->n_heads);
    put_u32(k, "attention.head_count_kv", c->n_kv_heads);
    put_u32(k, "attention.key_length", c->d_head);
    put_u32(k, "attention.value_length", c->d_head);
    put_u32(k, "rope.dimension_count", c->d_head);
}

nw_status nw_gguf_put_config(nw_gguf_writer *w, const nw_model_config *c, nw_error *err)
{
    const nw_arch *a = nw_arch_get(c->arch);
    keys k = {.w = w, .prefix = a->gguf_name};
    const nw_status st = check(c, a, err);

    if (st != NW_OK) {
        return st;
    }
    nw_gguf_put_str(w, "general.architecture", a->gguf_name, strlen(a->gguf_name));
    nw_gguf_put_str(w, "general.type", "model", strlen("model"));
    put_dims(&k, c);
    put_f32(&k, "attention.layer_norm_rms_epsilon", c->norm_eps);
    put_f32(&k, "rope.freq_base", c->rope_base);
    if (c->rope_scaling.kind == NW_ROPE_SCALE_LINEAR) {
        nw_gguf_put_str(w, full(&k, "rope.scaling.type"), "linear", strlen("linear"));
        put_f32(&k, "rope.scaling.factor", c->rope_scaling.factor);
    }
    if (c->arch == NW_ARCH_GEMMA3) {
        put_u32(&k, "attention.sliding_window", c->sliding_window);
        put_f32(&k, "rope.freq_base_swa", c->rope_base_local);
    }
    if (c->logit_softcap > 0) {
        put_f32(&k, "final_logit_softcapping", c->logit_softcap);
    }
    if (c->attn_softcap > 0) {
        put_f32(&k, "attn_logit_softcapping", c->attn_softcap);
    }
    return NW_OK;
}
