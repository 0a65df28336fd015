/* The config of a GGUF file: its keys, strictly typed, and what has to be read off its tensors (rows
 * of the embedding; the frequency factors that stand for Llama-3 RoPE scaling).
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/half.h"
#include "model/arch.h"
#include "model/gguf_shard.h"
#include "model/gguf_writer.h"
#include "model/sources.h"

#define KEY_BYTES 96

/* Llama-3 models share these; the factor is read off the tensor. */
#define LLAMA3_LOW   1.0F
#define LLAMA3_HIGH  4.0F
#define LLAMA3_N_CTX 8192U

typedef struct {
    const nw_gguf *g;
    const char *prefix; /* "llama" */
    char key[KEY_BYTES];
} keys;

/* "llama" + "." + key */
static const char *full(keys *k, const char *key)
{
    (void)snprintf(k->key, sizeof k->key, "%s.%s", k->prefix, key);
    return k->key;
}

static nw_status read_dims(keys *k, nw_model_config *c, nw_error *err)
{
    const struct {
        const char *key;
        uint32_t *out;
    } dims[] = {
        {"block_count", &c->n_layers},         {"context_length", &c->n_ctx},
        {"embedding_length", &c->d_model},     {"feed_forward_length", &c->d_ff},
        {"attention.head_count", &c->n_heads},
    };
    nw_status st = NW_OK;

    for (size_t i = 0; i < NW_COUNT(dims) && st == NW_OK; i++) {
        st = nw_gguf_u32(k->g, full(k, dims[i].key), dims[i].out, err);
    }
    c->n_kv_heads = c->n_heads;
    if (st == NW_OK) {
        st = nw_gguf_opt_u32(k->g, full(k, "attention.head_count_kv"), &c->n_kv_heads, err);
    }
    return st;
}

/* Key and value heads have one size, and all of it is rotated. */
static nw_status read_head_dim(keys *k, nw_model_config *c, nw_error *err)
{
    static const char *const same[] = {"attention.value_length", "rope.dimension_count"};
    nw_status st = NW_OK;

    c->d_head = c->n_heads > 0 ? c->d_model / c->n_heads : 0;
    st = nw_gguf_opt_u32(k->g, full(k, "attention.key_length"), &c->d_head, err);
    for (size_t i = 0; i < NW_COUNT(same) && st == NW_OK; i++) {
        uint32_t d = c->d_head;
        st = nw_gguf_opt_u32(k->g, full(k, same[i]), &d, err);
        if (st == NW_OK && d != c->d_head) {
            st = nw_fail(err, NW_E_UNSUPPORTED,
                         "%s: key '%s' is %" PRIu32 ", only the head size %" PRIu32 " is supported",
                         nw_gguf_path(k->g, 0), k->key, d, c->d_head);
        }
    }
    return st;
}

static nw_status read_scaling(keys *k, nw_rope_scaling *s, nw_error *err)
{
    const char *type = "none";
    size_t n = strlen(type);
    float factor = 0;
    nw_status st = nw_gguf_opt_str(k->g, full(k, "rope.scaling.type"), &type, &n, err);

    if (st == NW_OK) {
        st = nw_gguf_opt_f32(k->g, full(k, "rope.scale_linear"), &factor, err);
    }
    if (st == NW_OK) {
        st = nw_gguf_opt_f32(k->g, full(k, "rope.scaling.factor"), &factor, err);
    }
    if (st != NW_OK) {
        return st;
    }
    const bool linear = n == 6 && memcmp(type, "linear", n) == 0;
    if (!linear && !(n == 4 && memcmp(type, "none", n) == 0)) {
        char shown[48];
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: RoPE scaling '%s', expected none or linear",
                       nw_gguf_path(k->g, 0), nw_name_show(type, n, shown, sizeof shown));
    }
    if (linear && !(factor > 0 && factor < 1e6F)) {
        return nw_fail(err, NW_E_RANGE, "%s: linear RoPE scaling by %g", nw_gguf_path(k->g, 0),
                       (double)factor);
    }
    if (linear) {
        *s = (nw_rope_scaling){.kind = NW_ROPE_SCALE_LINEAR, .factor = factor};
    }
    return NW_OK;
}

/* What frequency i of d_head/2 is divided by under Llama-3 scaling (the rule of the published model
 * code): long waves by the whole factor, short ones not at all, those between by a blend. */
static double llama3_divisor(const nw_rope_scaling *s, const nw_model_config *c, uint32_t i)
{
    const double freq = pow((double)c->rope_base, -2.0 * i / c->d_head);
    const double waves = s->original_n_ctx * freq / (2 * 3.14159265358979323846);
    const double low = (double)s->low_freq_factor;
    const double high = (double)s->high_freq_factor;
    double blend = (waves - low) / (high - low);

    blend = blend < 0 ? 0 : blend > 1 ? 1 : blend;
    return 1 / ((1 - blend) / (double)s->factor + blend);
}

float nw_gguf_rope_freq(const nw_model_config *c, uint32_t i)
{
    return (float)llama3_divisor(&c->rope_scaling, c, i);
}

/* rope_freqs.weight holds the divisors; accepted when they are those of Llama-3 scaling. */
static nw_status read_rope_freqs(const nw_gguf *g, nw_model_config *c, nw_error *err)
{
    const nw_gguf_tensor *t = nw_gguf_tensor_find(g, "rope_freqs.weight");

    if (t == NULL) {
        return NW_OK;
    }
    if (t->format != NW_FMT_F32 || t->n_elems != c->d_head / 2 || t->n_elems == 0) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: tensor 'rope_freqs.weight' has %" PRIu64
                       " values of %s, expected %" PRIu32 " of F32",
                       nw_gguf_path(g, t->file), t->n_elems, nw_format_get(t->format)->name,
                       c->d_head / 2);
    }
    nw_rope_scaling s = {.kind = NW_ROPE_SCALE_LLAMA3,
                         .low_freq_factor = LLAMA3_LOW,
                         .high_freq_factor = LLAMA3_HIGH,
                         .original_n_ctx = LLAMA3_N_CTX};
    s.factor = nw_f32_from_bits(nw_gguf_le32(t->data + 4 * (t->n_elems - 1)));
    bool plain = true;
    bool same = s.factor >= 1 && s.factor < 1e6F;
    for (uint32_t i = 0; i < c->d_head / 2; i++) {
        const double found = (double)nw_f32_from_bits(nw_gguf_le32(t->data + 4 * (size_t)i));
        plain = plain && found == 1;
        same = same && fabs(found - llama3_divisor(&s, c, i)) <= 1e-3 * found;
    }
    if (!plain && !same) {
        return nw_fail(
            err, NW_E_UNSUPPORTED,
            "%s: tensor 'rope_freqs.weight': factors that are not those of Llama-3 scaling",
            nw_gguf_path(g, t->file));
    }
    if (!plain) {
        c->rope_scaling = s;
    }
    return NW_OK;
}

static nw_status read_rope(keys *k, const nw_arch *a, nw_model_config *c, nw_error *err)
{
    nw_status st = nw_gguf_opt_f32(k->g, full(k, "rope.freq_base"), &c->rope_base, err);

    if (st == NW_OK) {
        st = nw_gguf_opt_f32(k->g, full(k, "rope.freq_base_swa"), &c->rope_base_local, err);
    }
    if (st == NW_OK) {
        st = read_scaling(k, &c->rope_scaling, err);
    }
    if (st == NW_OK && a->gguf_pairs_qk) {
        st = read_rope_freqs(k->g, c, err);
    }
    c->rope_base_local = c->rope_base_local > 0 ? c->rope_base_local : c->rope_base;
    return st;
}

static nw_status read_rest(keys *k, const nw_arch *a, nw_model_config *c, nw_error *err)
{
    uint32_t experts = 0;
    nw_status st =
        nw_gguf_f32(k->g, full(k, "attention.layer_norm_rms_epsilon"), &c->norm_eps, err);

    if (st == NW_OK && c->global_every > 0) {
        st = nw_gguf_u32(k->g, full(k, "attention.sliding_window"), &c->sliding_window, err);
    }
    if (st == NW_OK) {
        st = nw_gguf_opt_f32(k->g, full(k, "final_logit_softcapping"), &c->logit_softcap, err);
    }
    if (st == NW_OK) {
        st = nw_gguf_opt_f32(k->g, full(k, "attn_logit_softcapping"), &c->attn_softcap, err);
    }
    if (st == NW_OK) {
        st = nw_gguf_opt_u32(k->g, full(k, "expert_count"), &experts, err);
    }
    if (st == NW_OK && experts > 0) {
        st = nw_fail(err, NW_E_UNSUPPORTED, "%s: a mixture of %" PRIu32 " experts",
                     nw_gguf_path(k->g, 0), experts);
    }
    if (c->global_every == 0) {
        c->sliding_window = 0;
    }
    c->attn_scale = c->d_head > 0 ? 1.0F / sqrtf((float)c->d_head) : 0;
    if (a->scale_embed) {
        c->embed_scale = sqrtf((float)c->d_model);
    }
    return st;
}

/* The vocabulary is the rows of the embedding; a token list of another length is an error. */
static nw_status read_vocab(const nw_gguf *g, nw_model_config *c, nw_error *err)
{
    const nw_gguf_tensor *t = nw_gguf_tensor_find(g, "token_embd.weight");
    const nw_gguf_kv *tokens = nw_gguf_find(g, "tokenizer.ggml.tokens");

    if (t == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor 'token_embd.weight' is missing",
                       nw_gguf_path(g, 0));
    }
    if (t->n_dims != 2 || t->ne[1] > UINT32_MAX) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor 'token_embd.weight' is no matrix",
                       nw_gguf_path(g, t->file));
    }
    if (tokens != NULL && tokens->type == NW_GGUF_ARR && tokens->n != t->ne[1]) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: key 'tokenizer.ggml.tokens' has %" PRIu64
                       " entries, tensor 'token_embd.weight' %" PRIu64 " rows",
                       nw_gguf_path(g, 0), tokens->n, t->ne[1]);
    }
    c->n_vocab = (uint32_t)t->ne[1];
    c->tied = nw_gguf_tensor_find(g, "output.weight") == NULL;
    return NW_OK;
}

static nw_status read_token(const nw_gguf *g, const char *key, const nw_model_config *c,
                            int32_t *out, nw_error *err)
{
    uint32_t id = UINT32_MAX;
    const nw_status st = nw_gguf_opt_u32(g, key, &id, err);

    if (st == NW_OK && id < c->n_vocab) {
        *out = (int32_t)id;
    }
    return st;
}

static nw_status read_tokens(const nw_gguf *g, nw_model_config *c, nw_error *err)
{
    static const char *const eos[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
    nw_status st = read_token(g, "tokenizer.ggml.bos_token_id", c, &c->bos, err);

    if (st == NW_OK) {
        st = read_token(g, "tokenizer.ggml.padding_token_id", c, &c->pad, err);
    }
    for (size_t i = 0; i < NW_COUNT(eos) && st == NW_OK; i++) {
        int32_t id = -1;
        st = read_token(g, eos[i], c, &id, err);
        bool known = id < 0;
        for (uint32_t k = 0; k < c->n_eos; k++) {
            known = known || c->eos[k] == id;
        }
        if (!known) {
            c->eos[c->n_eos++] = id;
        }
    }
    return st;
}

static nw_status pick_arch(const nw_gguf *g, const nw_arch **out, nw_error *err)
{
    const char *name = NULL;
    size_t n = 0;
    const nw_arch *a = NULL;
    const nw_status st = nw_gguf_str(g, "general.architecture", &name, &n, err);

    for (size_t i = 0; st == NW_OK && (a = nw_arch_at(i)) != NULL; i++) {
        if (strlen(a->gguf_name) == n && memcmp(a->gguf_name, name, n) == 0) {
            *out = a;
            return NW_OK;
        }
    }
    char shown[48];
    char known[128] = "";
    for (size_t i = 0; nw_arch_at(i) != NULL; i++) {
        const char *known_name = nw_arch_at(i)->gguf_name;
        const size_t len = strlen(known);
        if (strstr(known, known_name) == NULL) {
            (void)snprintf(known + len, sizeof known - len, "%s%s", i > 0 ? ", " : "", known_name);
        }
    }
    return st != NW_OK
               ? st
               : nw_fail(err, NW_E_UNSUPPORTED, "%s: architecture '%s', expected one of %s",
                         nw_gguf_path(g, 0), nw_name_show(name, n, shown, sizeof shown), known);
}

nw_status nw_config_from_gguf(const nw_gguf *g, nw_model_config *out, nw_error *err)
{
    const nw_arch *a = NULL;
    nw_status st = pick_arch(g, &a, err);

    if (st != NW_OK) {
        return st;
    }
    keys k = {.g = g, .prefix = a->gguf_name};
    nw_model_config c = a->defaults;
    c.bos = c.pad = -1;
    st = read_dims(&k, &c, err);
    if (st == NW_OK) {
        st = read_head_dim(&k, &c, err);
    }
    if (st == NW_OK) {
        st = read_rope(&k, a, &c, err);
    }
    if (st == NW_OK) {
        st = read_rest(&k, a, &c, err);
    }
    if (st == NW_OK) {
        st = read_vocab(g, &c, err);
    }
    if (st == NW_OK) {
        st = read_tokens(g, &c, err);
    }
    if (st == NW_OK) {
        st = nw_config_check(&c, nw_gguf_path(g, 0), err);
    }
    if (st == NW_OK) {
        *out = c;
    }
    return st;
}
