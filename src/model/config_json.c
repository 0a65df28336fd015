/* Writes config.json: the keys transformers 4 and 5 both read. The inverse of config.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "model/arch.h"

/* The shortest decimal that reads back to the same float, as a double: "1e-05" and not
 * 9.99999974e-06. */
static json_t *real(float x)
{
    char text[32];

    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) {
            break;
        }
    }
    return json_real(strtod(text, NULL));
}

static json_t *scaling(const nw_rope_scaling *s)
{
    json_t *o = NULL;

    switch (s->kind) {
    case NW_ROPE_SCALE_NONE:
        return json_null();
    case NW_ROPE_SCALE_LINEAR:
        return json_pack("{s:s, s:o}", "rope_type", "linear", "factor", real(s->factor));
    case NW_ROPE_SCALE_LLAMA3:
        o = json_pack("{s:s, s:o}", "rope_type", "llama3", "factor", real(s->factor));
        (void)json_object_set_new(o, "low_freq_factor", real(s->low_freq_factor));
        (void)json_object_set_new(o, "high_freq_factor", real(s->high_freq_factor));
        (void)json_object_set_new(o, "original_max_position_embeddings",
                                  json_integer(s->original_n_ctx));
        return o;
    }
    return NULL;
}

static json_t *token(int32_t id)
{
    return id >= 0 ? json_integer(id) : json_null();
}

static json_t *eos(const nw_model_config *c)
{
    json_t *list = NULL;

    if (c->n_eos <= 1) {
        return token(c->n_eos == 1 ? c->eos[0] : -1);
    }
    list = json_array();
    for (uint32_t i = 0; i < c->n_eos; i++) {
        (void)json_array_append_new(list, json_integer(c->eos[i]));
    }
    return list;
}

/* What only models whose windows have a period have. */
static int add_pattern(json_t *o, const nw_model_config *c)
{
    json_t *types = json_array();
    int bad = 0;

    for (uint32_t i = 0; i < c->n_layers; i++) {
        bad |= json_array_append_new(
            types,
            json_string(nw_config_layer_is_global(c, i) ? "full_attention" : "sliding_attention"));
    }
    bad |= json_object_set_new(o, "layer_types", types);
    bad |= json_object_set_new(o, "sliding_window", json_integer(c->sliding_window));
    bad |= json_object_set_new(o, "sliding_window_pattern", json_integer(c->global_every));
    bad |= json_object_set_new(o, "rope_local_base_freq", real(c->rope_base_local));
    bad |= json_object_set_new(o, "query_pre_attn_scalar",
                               json_integer(lrintf(1.0F / (c->attn_scale * c->attn_scale))));
    bad |= json_object_set_new(o, "final_logit_softcapping",
                               c->logit_softcap > 0 ? real(c->logit_softcap) : json_null());
    bad |= json_object_set_new(o, "attn_logit_softcapping",
                               c->attn_softcap > 0 ? real(c->attn_softcap) : json_null());
    return bad;
}

static json_t *window_or_null(const nw_model_config *c)
{
    return c->global_every > 0 ? json_integer(c->sliding_window) : json_null();
}

static int add_windows(json_t *o, const nw_arch *a, const nw_model_config *c)
{
    int bad = 0;

    switch (a->window) {
    case NW_WINDOW_NONE:
        break;
    case NW_WINDOW_PATTERN:
        return c->global_every > 0 ? add_pattern(o, c) : 0;
    case NW_WINDOW_ALL:
        return json_object_set_new(o, "sliding_window", window_or_null(c));
    case NW_WINDOW_SWITCHED:
        bad |= json_object_set_new(o, "use_sliding_window", json_boolean(c->global_every > 0));
        bad |= json_object_set_new(o, "sliding_window", window_or_null(c));
        bad |=
            json_object_set_new(o, "max_window_layers",
                                json_integer(c->global_every > 0 ? c->global_first : c->n_layers));
        break;
    }
    return bad;
}

json_t *nw_config_to_json(const nw_model_config *c, const char *torch_dtype)
{
    const nw_arch *a = nw_arch_get(c->arch);
    json_t *o = json_pack("{s:[s], s:s, s:s, s:b, s:b}", "architectures", a->hf_class, "model_type",
                          a->model_type, a->act_key, a->act, "attention_bias", (int)c->qkv_bias,
                          "tie_word_embeddings", (int)c->tied);
    const struct {
        const char *key;
        json_t *value;
    } rows[] = {
        {"hidden_size", json_integer(c->d_model)},
        {"intermediate_size", json_integer(c->d_ff)},
        {"num_hidden_layers", json_integer(c->n_layers)},
        {"num_attention_heads", json_integer(c->n_heads)},
        {"num_key_value_heads", json_integer(c->n_kv_heads)},
        {"head_dim", json_integer(c->d_head)},
        {"vocab_size", json_integer(c->n_vocab)},
        {"max_position_embeddings", json_integer(c->n_ctx)},
        {"rms_norm_eps", real(c->norm_eps)},
        {"rope_theta", real(c->rope_base)},
        {"rope_scaling", scaling(&c->rope_scaling)},
        {"bos_token_id", token(c->bos)},
        {"eos_token_id", eos(c)},
        {"pad_token_id", token(c->pad)},
        {"torch_dtype", json_string(torch_dtype)},
    };
    int bad = o == NULL;

    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        bad |= json_object_set_new(o, rows[i].key, rows[i].value);
    }
    if (bad != 0 || add_windows(o, a, c) != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}
