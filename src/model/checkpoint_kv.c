/* Scales of keys and values in a Hugging Face folder: model.layers.N.self_attn.{k,v}_scale, one number
 * or one a kv head; older writers of fp8 folders have kv_scale for both, or {k,v}_proj.output_scale. A folder whose scales are all 1 was never calibrated: it has none, nor has
 * one whose config does not ask for FP8 with fixed scales.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/half.h"
#include "model/checkpoint_parts.h"

#define SHOW              96
#define NW_KV_SCALES_MOST 65536U /* values of one tensor */

/* "model.layers.7.self_attn.k_scale": the layer and what follows; NULL: another name. */
static const char *after_layer(const char *name, uint32_t *layer)
{
    static const char before[] = "model.layers.";
    static const char after[] = ".self_attn.";
    const size_t n = strlen(before);
    uint32_t at = 0;
    size_t digits = 0;

    if (strncmp(name, before, n) != 0) {
        return NULL;
    }
    name += n;
    for (; name[digits] >= '0' && name[digits] <= '9' && digits < 6; digits++) {
        at = at * 10 + (uint32_t)(name[digits] - '0');
    }
    if (digits == 0 || strncmp(name + digits, after, strlen(after)) != 0) {
        return NULL;
    }
    *layer = at;
    return name + digits + strlen(after);
}

/* Names of scales, below self_attn; those of queries are not used. */
static const struct {
    const char *name;
    bool of_keys, of_values;
} scale_names[] = {
    {"k_scale", true, false},
    {"v_scale", false, true},
    {"k_proj.output_scale", true, false},
    {"v_proj.output_scale", false, true},
    {"kv_scale", true, true},
    {"q_scale", false, false},
    {"q_proj.output_scale", false, false},
};

/* One for both yields to one of its own, whichever comes first. */
static bool take(nw_ckpt_source *to, const nw_ckpt_source *s, bool shared)
{
    if (shared && to->name != NULL) {
        return false;
    }
    *to = *s;
    return true;
}

nw_status nw_ckpt_place_kv(nw_checkpoint *c, const nw_ckpt_source *s, const char *name,
                           bool *placed, nw_error *err)
{
    uint32_t layer = 0;
    const char *what = after_layer(name, &layer);
    bool taken = false;
    size_t i = 0;

    while (what != NULL && i < NW_COUNT(scale_names) && strcmp(what, scale_names[i].name) != 0) {
        i++;
    }
    *placed = what != NULL && i < NW_COUNT(scale_names);
    if (!*placed) {
        return NW_OK;
    }
    const bool k = scale_names[i].of_keys;
    const bool v = scale_names[i].of_values;
    if (c->kv == NULL && layer < c->config.n_layers && (k || v)) {
        c->kv = calloc(c->config.n_layers, sizeof *c->kv);
        if (c->kv == NULL) {
            return nw_fail(err, NW_E_NOMEM, "%s: no memory for scales of keys and values", c->path);
        }
    }
    if (layer < c->config.n_layers) {
        taken = k && take(&c->kv[layer].k, s, v);
        taken = (v && take(&c->kv[layer].v, s, k)) || taken;
    }
    c->n_ignored += !taken;
    return NW_OK;
}

/* 0 where the number of values is none. */
static uint64_t n_values(const nw_ckpt_source *s)
{
    uint64_t n = s->name != NULL;

    for (uint32_t i = 0; i < s->n_dims; i++) {
        n = s->dims[i] > NW_KV_SCALES_MOST ? 0 : n * s->dims[i];
    }
    return n > NW_KV_SCALES_MOST ? 0 : n;
}

static float value_at(const nw_ckpt_source *s, size_t i)
{
    uint16_t half = 0;
    float x = 0;

    if (s->format == NW_FMT_F32) {
        memcpy(&x, s->data + i * sizeof x, sizeof x);
        return x;
    }
    memcpy(&half, s->data + i * sizeof half, sizeof half);
    return s->format == NW_FMT_BF16 ? nw_bf16_to_f32(half) : nw_f16_to_f32(half);
}

static nw_status check_source(const nw_checkpoint *c, uint32_t layer, bool value, nw_error *err)
{
    const nw_ckpt_source *s = value ? &c->kv[layer].v : &c->kv[layer].k;
    const uint64_t n = n_values(s);
    char shown[SHOW];

    if (s->name == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: layer %u has no scale of its %s, others have",
                       c->path, layer, value ? "values" : "keys");
    }
    (void)nw_name_show(s->name, strlen(s->name), shown, sizeof shown);
    if ((s->format != NW_FMT_F32 && s->format != NW_FMT_BF16 && s->format != NW_FMT_F16) ||
        (n != 1 && n != c->config.n_kv_heads) || n != n_values(&c->kv[0].k)) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: tensor '%s' is not one number, nor one for each of %u kv heads, as its "
                       "like",
                       c->path, shown, c->config.n_kv_heads);
    }
    for (size_t i = 0; i < n; i++) {
        const float x = value_at(s, i);
        if (!isfinite(x) || x <= 0) {
            return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' has %g, a scale is above 0", c->path,
                           shown, (double)x);
        }
    }
    return NW_OK;
}

static bool is_one(const nw_ckpt_source *s)
{
    for (size_t i = 0; i < n_values(s); i++) {
        const float x = value_at(s, i);
        if (x < 1 || x > 1) {
            return false;
        }
    }
    return true;
}

static void drop(nw_checkpoint *c)
{
    for (uint32_t i = 0; c->kv != NULL && i < c->config.n_layers; i++) {
        const nw_ckpt_source *k = &c->kv[i].k;
        const nw_ckpt_source *v = &c->kv[i].v;
        c->n_ignored += k->name != NULL ? 1 : 0;
        c->n_ignored += v->name != NULL && v->data != k->data ? 1 : 0;
    }
    free(c->kv);
    c->kv = NULL;
}

nw_status nw_ckpt_check_kv(nw_checkpoint *c, nw_error *err)
{
    bool one = true;

    if (!c->quant.kv_scheme) {
        drop(c);
    }
    for (uint32_t i = 0; c->kv != NULL && i < c->config.n_layers; i++) {
        if (check_source(c, i, false, err) != NW_OK || check_source(c, i, true, err) != NW_OK) {
            return err->code;
        }
        one = one && is_one(&c->kv[i].k) && is_one(&c->kv[i].v);
    }
    if (c->kv != NULL && one) {
        c->kv_all_one = true;
        drop(c);
    }
    return NW_OK;
}

bool nw_checkpoint_kv_scheme(const nw_checkpoint *c)
{
    return c->quant.kv_scheme;
}

uint32_t nw_checkpoint_n_kv_scales(const nw_checkpoint *c)
{
    return c->kv != NULL ? (uint32_t)n_values(&c->kv[0].k) : 0;
}

void nw_checkpoint_kv_scales(const nw_checkpoint *c, uint32_t layer, float *k, float *v)
{
    for (size_t i = 0; i < nw_checkpoint_n_kv_scales(c); i++) {
        k[i] = value_at(&c->kv[layer].k, i);
        v[i] = value_at(&c->kv[layer].v, i);
    }
}
