/* config.json and generation_config.json of Hugging Face folders, both ways, and the checks every
 * config has to pass. Keys of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters).
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/arch.h"

#define MAX_CONFIG_BYTES ((size_t)4 << 20)
#define MAX_LAYERS       1024U
#define MAX_HEADS        1024U
#define MAX_D_HEAD       4096U
#define MAX_D_MODEL      (1U << 17)
#define MAX_D_FF         (1U << 20)
#define MAX_VOCAB        (1U << 22)
#define MAX_CTX          (1U << 24)

/* One object of a config file under its name. */
typedef struct {
    const json_t *o;
    const char *name;
} view;

static nw_status opt_f32(view v, const char *key, double lo, double hi, float *out, nw_error *err)
{
    double x = (double)*out;
    const nw_status st = nw_json_opt_double(v.o, v.name, key, lo, hi, &x, err);

    if (st == NW_OK) {
        *out = (float)x;
    }
    return st;
}

/* Required unless *out came with a default other than 0. */
static nw_status dim(view v, const char *key, uint32_t hi, uint32_t *out, nw_error *err)
{
    return *out != 0 ? nw_json_opt_u32(v.o, v.name, key, 1, hi, out, err)
                     : nw_json_u32(v.o, v.name, key, 1, hi, out, err);
}

static nw_status read_dims(view v, nw_model_config *c, nw_error *err)
{
    const struct {
        const char *key;
        uint32_t hi;
        uint32_t *out;
    } dims[] = {
        {"num_hidden_layers", MAX_LAYERS, &c->n_layers},
        {"hidden_size", MAX_D_MODEL, &c->d_model},
        {"intermediate_size", MAX_D_FF, &c->d_ff},
        {"num_attention_heads", MAX_HEADS, &c->n_heads},
        {"vocab_size", MAX_VOCAB, &c->n_vocab},
        {"max_position_embeddings", MAX_CTX, &c->n_ctx},
    };
    nw_status st = NW_OK;

    for (size_t i = 0; i < NW_COUNT(dims) && st == NW_OK; i++) {
        st = dim(v, dims[i].key, dims[i].hi, dims[i].out, err);
    }
    if (st != NW_OK) {
        return st;
    }
    c->n_kv_heads = c->n_kv_heads != 0 ? c->n_kv_heads : c->n_heads;
    c->d_head = c->d_head != 0 ? c->d_head : c->d_model / c->n_heads;
    st = nw_json_opt_u32(v.o, v.name, "num_key_value_heads", 1, MAX_HEADS, &c->n_kv_heads, err);
    return st == NW_OK ? nw_json_opt_u32(v.o, v.name, "head_dim", 1, MAX_D_HEAD, &c->d_head, err)
                       : st;
}

static nw_status read_llama3(view v, nw_rope_scaling *s, nw_error *err)
{
    nw_status st = opt_f32(v, "low_freq_factor", 1e-3, 1e6, &s->low_freq_factor, err);

    if (st == NW_OK) {
        st = opt_f32(v, "high_freq_factor", 1e-3, 1e6, &s->high_freq_factor, err);
    }
    if (st == NW_OK) {
        st = nw_json_opt_u32(v.o, v.name, "original_max_position_embeddings", 1, MAX_CTX,
                             &s->original_n_ctx, err);
    }
    if (st == NW_OK && !(s->low_freq_factor > 0 && s->high_freq_factor > s->low_freq_factor &&
                         s->original_n_ctx > 0)) {
        st = nw_fail(err, NW_E_FORMAT,
                     "%s: RoPE scaling 'llama3' with frequency factors %g to %g and context "
                     "%" PRIu32 ": a number is missing or out of order",
                     v.name, (double)s->low_freq_factor, (double)s->high_freq_factor,
                     s->original_n_ctx);
    }
    return st;
}

/* {"rope_type" or "type", its numbers} */
static nw_status read_scaling(view v, nw_rope_scaling *s, nw_error *err)
{
    const char *type = "default";
    nw_status st = nw_json_opt_str(v.o, v.name, "type", &type, err);

    if (st == NW_OK) {
        st = nw_json_opt_str(v.o, v.name, "rope_type", &type, err);
    }
    if (st != NW_OK || strcmp(type, "default") == 0) {
        return st;
    }
    const bool llama3 = strcmp(type, "llama3") == 0;
    if (!llama3 && strcmp(type, "linear") != 0) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: RoPE scaling '%.40s', expected default, linear or llama3", v.name,
                       type);
    }
    s->kind = llama3 ? NW_ROPE_SCALE_LLAMA3 : NW_ROPE_SCALE_LINEAR;
    st = opt_f32(v, "factor", 1e-3, 1e6, &s->factor, err);
    if (st == NW_OK && !(s->factor > 0)) {
        st = nw_fail(err, NW_E_FORMAT, "%s: RoPE scaling '%s' without 'factor'", v.name, type);
    }
    return st == NW_OK && llama3 ? read_llama3(v, s, err) : st;
}

static nw_status read_rope_parameters(view v, const json_t *p, nw_model_config *c, nw_error *err)
{
    const json_t *full = json_object_get(p, "full_attention");
    const view global = {full != NULL ? full : p, v.name};
    const view local = {full != NULL ? json_object_get(p, "sliding_attention") : NULL, v.name};
    nw_rope_scaling none = {0};
    nw_status st = opt_f32(global, "rope_theta", 1, 1e12, &c->rope_base, err);

    if (st == NW_OK) {
        st = read_scaling(global, &c->rope_scaling, err);
    }
    if (st == NW_OK && local.o != NULL) {
        st = opt_f32(local, "rope_theta", 1, 1e12, &c->rope_base_local, err);
    }
    if (st == NW_OK && local.o != NULL) {
        st = read_scaling(local, &none, err);
    }
    if (st == NW_OK && none.kind != NW_ROPE_SCALE_NONE) {
        st = nw_fail(err, NW_E_UNSUPPORTED, "%s: RoPE scaling on sliding-window layers", v.name);
    }
    return st;
}

static nw_status read_rope(view v, nw_model_config *c, nw_error *err)
{
    const json_t *parameters = json_object_get(v.o, "rope_parameters");
    const view scaling = {json_object_get(v.o, "rope_scaling"), v.name};
    float partial = 1;
    nw_status st = opt_f32(v, "partial_rotary_factor", 0, 1, &partial, err);

    if (st == NW_OK && partial < 1) {
        st =
            nw_fail(err, NW_E_UNSUPPORTED, "%s: 'partial_rotary_factor' is %g, only 1 is supported",
                    v.name, (double)partial);
    }
    if (st == NW_OK) {
        st = opt_f32(v, "rope_theta", 1, 1e12, &c->rope_base, err);
    }
    if (st == NW_OK) {
        st = opt_f32(v, "rope_local_base_freq", 1, 1e12, &c->rope_base_local, err);
    }
    if (st == NW_OK && json_is_object(scaling.o)) {
        st = read_scaling(scaling, &c->rope_scaling, err);
    }
    if (st == NW_OK && json_is_object(parameters)) {
        st = read_rope_parameters(v, parameters, c, err);
    }
    return st;
}

/* "layer_types": where the period of global layers is not 6, and a proof that there is one. */
static nw_status read_layer_types(view v, nw_model_config *c, nw_error *err)
{
    const json_t *types = json_object_get(v.o, "layer_types");
    const size_t n = json_array_size(types);
    size_t first = c->n_layers;

    if (n == 0) {
        return NW_OK;
    }
    if (n != c->n_layers) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: 'layer_types' has %zu entries, the model %" PRIu32 " layers", v.name, n,
                       c->n_layers);
    }
    for (size_t i = 0; i < n; i++) {
        const char *t = json_string_value(json_array_get(types, i));
        const bool full = t != NULL && strcmp(t, "full_attention") == 0;
        if (!full && (t == NULL || strcmp(t, "sliding_attention") != 0)) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "%s: 'layer_types' entry %zu is neither full_attention nor "
                           "sliding_attention",
                           v.name, i);
        }
        first = full && first == n ? i : first;
        if (first < n && full != ((i + 1) % (first + 1) == 0)) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "%s: 'layer_types' has no fixed period: layer %zu breaks it", v.name, i);
        }
    }
    if (first < n ||
        c->global_every <= n) { /* without a global layer any period past them will do */
        c->global_every = (uint32_t)first + 1;
    }
    return NW_OK;
}

/* Every n-th layer is global. */
static nw_status read_pattern(view v, nw_model_config *c, nw_error *err)
{
    nw_status st =
        nw_json_opt_u32(v.o, v.name, "sliding_window", 1, MAX_CTX, &c->sliding_window, err);

    if (st == NW_OK) {
        st = nw_json_opt_u32(v.o, v.name, "_sliding_window_pattern", 1, MAX_LAYERS,
                             &c->global_every, err);
    }
    if (st == NW_OK) {
        st = nw_json_opt_u32(v.o, v.name, "sliding_window_pattern", 1, MAX_LAYERS, &c->global_every,
                             err);
    }
    return st == NW_OK ? read_layer_types(v, c, err) : st;
}

/* A window in the layers from `first_local` on, unless sliding_window is null. */
static nw_status read_one_window(view v, uint32_t first_local, nw_model_config *c, nw_error *err)
{
    if (json_is_null(json_object_get(v.o, "sliding_window")) || first_local >= c->n_layers) {
        return NW_OK;
    }
    c->global_every = c->n_layers + 1;
    c->global_first = first_local;
    return nw_json_opt_u32(v.o, v.name, "sliding_window", 1, MAX_CTX, &c->sliding_window, err);
}

/* Where "layer_types" stands beside the switch, it has to say the same. */
static nw_status check_layer_types(view v, const nw_model_config *c, nw_error *err)
{
    const json_t *types = json_object_get(v.o, "layer_types");

    for (uint32_t i = 0; i < json_array_size(types); i++) {
        const char *t = json_string_value(json_array_get(types, i));
        const char *want = nw_config_layer_is_global(c, i) ? "full_attention" : "sliding_attention";
        if (i >= c->n_layers || t == NULL || strcmp(t, want) != 0) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "%s: 'layer_types' entry %" PRIu32
                           " is '%.40s', 'use_sliding_window' and 'max_window_layers' ask for %s",
                           v.name, i, t != NULL ? t : "no string", want);
        }
    }
    return NW_OK;
}

static nw_status read_switched(view v, nw_model_config *c, nw_error *err)
{
    bool on = false;
    uint32_t first_local = 28; /* transformers' default of max_window_layers */
    nw_status st = nw_json_opt_bool(v.o, v.name, "use_sliding_window", &on, err);

    if (st == NW_OK) {
        st = nw_json_opt_u32(v.o, v.name, "max_window_layers", 0, MAX_LAYERS, &first_local, err);
    }
    if (st == NW_OK && on) {
        st = read_one_window(v, first_local, c, err);
    }
    return st == NW_OK ? check_layer_types(v, c, err) : st;
}

static nw_status read_window(view v, const nw_arch *a, nw_model_config *c, nw_error *err)
{
    nw_status st = NW_OK;

    switch (a->window) {
    case NW_WINDOW_NONE:
        break;
    case NW_WINDOW_PATTERN:
        st = read_pattern(v, c, err);
        break;
    case NW_WINDOW_ALL:
        st = read_one_window(v, 0, c, err);
        break;
    case NW_WINDOW_SWITCHED:
        st = read_switched(v, c, err);
        break;
    }
    if (c->global_every == 0) {
        c->sliding_window = 0;
    }
    return st;
}

static nw_status read_scales(view v, const nw_arch *a, nw_model_config *c, nw_error *err)
{
    uint32_t q_scalar = c->d_head;
    nw_status st = NW_OK;

    if (a->scale_embed) {
        c->embed_scale = sqrtf((float)c->d_model);
        st = nw_json_opt_u32(v.o, v.name, "query_pre_attn_scalar", 1, 1000000, &q_scalar, err);
    }
    c->attn_scale = 1.0F / sqrtf((float)q_scalar);
    if (st == NW_OK) {
        st = opt_f32(v, "rms_norm_eps", 0, 1, &c->norm_eps, err);
    }
    if (st == NW_OK) {
        st = opt_f32(v, "final_logit_softcapping", 0, 1e9, &c->logit_softcap, err);
    }
    return st == NW_OK ? opt_f32(v, "attn_logit_softcapping", 0, 1e9, &c->attn_softcap, err) : st;
}

/* What would give wrong numbers in silence. */
static nw_status refuse_unknown(view v, const nw_arch *a, nw_error *err)
{
    static const char *const flags[] = {"attention_bias", "mlp_bias",
                                        "use_bidirectional_attention"};
    const char *act = a->act;
    nw_status st = nw_json_opt_str(v.o, v.name, a->act_key, &act, err);

    if (st == NW_OK && strcmp(act, a->act) != 0) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: '%s' is '%.40s', only %s is supported", v.name,
                       a->act_key, act, a->act);
    }
    for (size_t i = 0; i < NW_COUNT(flags) && st == NW_OK; i++) {
        bool on = false;
        st = nw_json_opt_bool(v.o, v.name, flags[i], &on, err);
        if (st == NW_OK && on && !(i == 0 && a->defaults.qkv_bias)) {
            st = nw_fail(err, NW_E_UNSUPPORTED, "%s: '%s' is true, only false is supported", v.name,
                         flags[i]);
        }
    }
    return st;
}

static void add_eos(nw_model_config *c, int32_t id)
{
    for (uint32_t i = 0; i < c->n_eos; i++) {
        if (c->eos[i] == id) {
            return;
        }
    }
    if (c->n_eos < NW_MAX_EOS) {
        c->eos[c->n_eos++] = id;
    }
}

/* An id of the vocabulary; false for anything else. */
static bool token_id(const json_t *v, const nw_model_config *c, int32_t *out)
{
    const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;

    if (id < 0 || id >= (json_int_t)c->n_vocab) {
        return false;
    }
    *out = (int32_t)id;
    return true;
}

/* bos, pad and eos (one id or a list). Files carry ids that mean nothing (-1, past the vocabulary):
 * those count as none. */
static void read_tokens(const json_t *o, nw_model_config *c)
{
    const json_t *eos = json_object_get(o, "eos_token_id");
    int32_t id = -1;

    (void)token_id(json_object_get(o, "bos_token_id"), c, &c->bos);
    (void)token_id(json_object_get(o, "pad_token_id"), c, &c->pad);
    if (token_id(eos, c, &id)) {
        add_eos(c, id);
    }
    for (size_t i = 0; i < json_array_size(eos); i++) {
        if (token_id(json_array_get(eos, i), c, &id)) {
            add_eos(c, id);
        }
    }
}

static bool names(const json_t *root, const char *key, const char *value)
{
    const json_t *v = json_object_get(root, key);
    const char *s = json_string_value(json_is_array(v) ? json_array_get(v, 0) : v);
    return s != NULL && value != NULL && strcmp(s, value) == 0;
}

/* The row, and the object that describes the text model (text_config of a nested config). */
static const nw_arch *pick_arch(const json_t *root, const json_t **text)
{
    const json_t *inner = json_object_get(root, "text_config");
    const nw_arch *a = NULL;

    *text = root;
    for (size_t i = 0; (a = nw_arch_at(i)) != NULL; i++) {
        if (json_is_object(inner) && names(root, "model_type", a->nested_type)) {
            *text = inner;
            return a;
        }
        if (names(root, "architectures", a->hf_class) || names(root, "model_type", a->model_type)) {
            return a;
        }
    }
    return NULL;
}

static nw_status unknown_arch(const char *name, const json_t *root, nw_error *err)
{
    const char *s = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    char known[256] = "";

    for (size_t i = 0; nw_arch_at(i) != NULL; i++) {
        const size_t n = strlen(known);
        (void)snprintf(known + n, sizeof known - n, "%s%s", i > 0 ? ", " : "",
                       nw_arch_at(i)->hf_class);
    }
    s = s != NULL ? s : json_string_value(json_object_get(root, "model_type"));
    return nw_fail(err, NW_E_UNSUPPORTED, "%s: architecture '%.60s', expected one of %s", name,
                   s != NULL ? s : "(not named)", known);
}

nw_status nw_config_from_json(const char *name, const json_t *root, nw_model_config *out,
                              nw_error *err)
{
    const json_t *text = NULL;
    const nw_arch *a = json_is_object(root) ? pick_arch(root, &text) : NULL;

    if (a == NULL) {
        return unknown_arch(name, root, err);
    }
    const view v = {text, name};
    nw_model_config c = a->defaults;
    c.bos = c.pad = -1;
    nw_status st = refuse_unknown((view){root, name}, a, err);
    if (st == NW_OK) {
        st = refuse_unknown(v, a, err);
    }
    if (st == NW_OK) {
        st = read_dims(v, &c, err);
    }
    if (st == NW_OK) {
        st = read_rope(v, &c, err);
    }
    if (st == NW_OK) {
        st = read_window(v, a, &c, err);
    }
    if (st == NW_OK) {
        st = read_scales(v, a, &c, err);
    }
    if (st == NW_OK) {
        st = nw_json_opt_bool(root, name, "tie_word_embeddings", &c.tied, err);
    }
    if (st == NW_OK) {
        c.rope_base_local = c.rope_base_local > 0 ? c.rope_base_local : c.rope_base;
        read_tokens(text, &c);
        read_tokens(root, &c);
        st = nw_config_check(&c, name, err);
    }
    if (st == NW_OK) {
        *out = c;
    }
    return st;
}

static nw_status bad_dims(const char *name, const char *what, uint32_t a, uint32_t b, nw_error *err)
{
    return nw_fail(err, NW_E_RANGE, "%s: %s (%" PRIu32 " and %" PRIu32 ")", name, what, a, b);
}

nw_status nw_config_check(const nw_model_config *c, const char *name, nw_error *err)
{
    const struct {
        const char *what;
        uint32_t value, hi;
    } dims[] = {
        {"n_layers", c->n_layers, MAX_LAYERS}, {"d_model", c->d_model, MAX_D_MODEL},
        {"n_heads", c->n_heads, MAX_HEADS},    {"n_kv_heads", c->n_kv_heads, MAX_HEADS},
        {"d_head", c->d_head, MAX_D_HEAD},     {"d_ff", c->d_ff, MAX_D_FF},
        {"n_vocab", c->n_vocab, MAX_VOCAB},    {"n_ctx", c->n_ctx, MAX_CTX},
    };

    for (size_t i = 0; i < NW_COUNT(dims); i++) {
        if (dims[i].value < 1 || dims[i].value > dims[i].hi) {
            return nw_fail(err, NW_E_RANGE, "%s: %s is %" PRIu32 ", must be 1 to %" PRIu32, name,
                           dims[i].what, dims[i].value, dims[i].hi);
        }
    }
    if (c->n_heads % c->n_kv_heads != 0) {
        return bad_dims(name, "query heads are no multiple of key-value heads", c->n_heads,
                        c->n_kv_heads, err);
    }
    if (c->d_head % 2 != 0) {
        return bad_dims(name, "a head of odd size cannot be rotated", c->d_head, 2, err);
    }
    if (c->global_every > 0 && c->sliding_window == 0) {
        return nw_fail(err, NW_E_RANGE, "%s: layers with a sliding window of 0 tokens", name);
    }
    if (!(c->norm_eps >= 0 && c->norm_eps < 1) || !(c->rope_base >= 1 && c->rope_base <= 1e12F) ||
        !(c->rope_base_local >= 1 && c->rope_base_local <= 1e12F)) {
        return nw_fail(err, NW_E_RANGE, "%s: norm epsilon %g or RoPE base %g, %g out of range",
                       name, (double)c->norm_eps, (double)c->rope_base, (double)c->rope_base_local);
    }
    return NW_OK;
}

/* {dir}/{file}, when it is there; *root stays NULL otherwise. */
static nw_status load_if_there(const char *dir, const char *file, char **path, json_t **root,
                               nw_error *err)
{
    *path = nw_path_join(dir, file);
    if (*path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", dir);
    }
    return nw_file_exists(*path) ? nw_json_load(*path, MAX_CONFIG_BYTES, root, err) : NW_OK;
}

static bool is_hf(const json_t *root)
{
    return json_object_get(root, "architectures") != NULL ||
           json_object_get(root, "model_type") != NULL;
}

static nw_status load_generation(const char *dir, nw_model_config *c, nw_error *err)
{
    char *path = NULL;
    json_t *root = NULL;
    const nw_status st = load_if_there(dir, "generation_config.json", &path, &root, err);

    if (st == NW_OK) {
        read_tokens(root, c);
    }
    json_decref(root);
    free(path);
    return st;
}

nw_status nw_config_load(const char *dir, nw_model_config *out, nw_error *err)
{
    static const char *const files[] = {"config.json", "hf_config.json"};
    nw_model_config c = {0};
    bool found = false;
    nw_status st = NW_OK;

    for (size_t i = 0; i < NW_COUNT(files) && st == NW_OK && !found; i++) {
        char *path = NULL;
        json_t *root = NULL;
        st = load_if_there(dir, files[i], &path, &root, err);
        if (st == NW_OK && root != NULL && is_hf(root)) {
            found = true;
            st = nw_config_from_json(path, root, &c, err);
        }
        json_decref(root);
        free(path);
    }
    if (st == NW_OK && !found) {
        st = nw_fail(err, NW_E_FORMAT,
                     "%s: no config.json with 'architectures' or 'model_type' in the folder", dir);
    }
    if (st == NW_OK) {
        st = load_generation(dir, &c, err);
    }
    if (st == NW_OK) {
        *out = c;
    }
    return st;
}
