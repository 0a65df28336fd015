/* Reading what an artifact says of keys and values: see kv_scales.h. Every number is checked before the
 * engine sees it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/kv_scales.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "artifact/artifact_parts.h"

#define NAME_BYTES 64

const nw_artifact_kv *nw_artifact_get_kv(const nw_artifact *a)
{
    return &a->kv;
}

static const nw_st_tensor *find(const nw_artifact *a, uint32_t layer, const char *part)
{
    char name[NAME_BYTES];

    (void)snprintf(name, sizeof name, "layers.%u.%s", layer, part);
    return nw_st_find(a->inputs, name);
}

/* One of the four kinds, of every layer; *out stays NULL where the first layer has none. */
static nw_status take(nw_artifact *a, const char *part, uint64_t n, bool above_zero,
                      const float **out, size_t *n_found, nw_error *err)
{
    const uint32_t n_layers = a->config.n_layers;

    if (find(a, 0, part) == NULL) {
        return NW_OK;
    }
    float *all = nw_arena_array(&a->arena, (size_t)n_layers * n, sizeof *all);
    if (all == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for '%s' of all layers", a->path, part);
    }
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        const nw_st_tensor *t = find(a, layer, part);
        float *x = all + layer * n;
        if (t == NULL || t->format != NW_FMT_F32 || t->n_elems != n) {
            return nw_fail(err, NW_E_FORMAT, "%s/%s: 'layers.%u.%s' is no F32 of %llu numbers",
                           a->path, NW_INPUTS_FILE, layer, part, (unsigned long long)n);
        }
        memcpy(x, t->data, t->n_bytes);
        for (uint64_t i = 0; i < n; i++) {
            if (!isfinite(x[i]) || (above_zero && x[i] <= 0)) {
                return nw_fail(err, NW_E_FORMAT, "%s/%s: 'layers.%u.%s' has %g", a->path,
                               NW_INPUTS_FILE, layer, part, (double)x[i]);
            }
        }
    }
    *n_found += n_layers;
    *out = all;
    return NW_OK;
}

nw_status nw_artifact_take_kv(nw_artifact *a, size_t *n_found, nw_error *err)
{
    nw_artifact_kv *kv = &a->kv;
    const nw_st_tensor *first = find(a, 0, "k.scale");
    const bool heads = first != NULL && first->n_elems > 1;
    const uint32_t n_scales = heads ? a->config.n_kv_heads : 1;
    const uint64_t n_channels = (uint64_t)a->config.n_kv_heads * a->config.d_head;

    if (take(a, "k.scale", n_scales, true, &kv->k_scale, n_found, err) != NW_OK ||
        take(a, "v.scale", n_scales, true, &kv->v_scale, n_found, err) != NW_OK ||
        take(a, "k.mean", n_channels, false, &kv->k_mean, n_found, err) != NW_OK ||
        take(a, "k.factor", n_channels, true, &kv->k_factor, n_found, err) != NW_OK) {
        return err->code;
    }
    if ((kv->k_scale == NULL) != (kv->v_scale == NULL) ||
        (kv->k_mean == NULL) != (kv->k_factor == NULL)) {
        return nw_fail(
            err, NW_E_FORMAT,
            "%s/%s: scales of keys and of values, means and factors of keys come in pairs", a->path,
            NW_INPUTS_FILE);
    }
    kv->n_scales = kv->k_scale != NULL ? n_scales : 0;
    return NW_OK;
}

nw_status nw_artifact_take_ckpt_kv(nw_artifact *a, const nw_checkpoint *c, nw_error *err)
{
    const uint32_t n = nw_checkpoint_n_kv_scales(c);
    float *k = n > 0 ? nw_arena_array(&a->arena, (size_t)n * a->config.n_layers, sizeof *k) : NULL;
    float *v = n > 0 ? nw_arena_array(&a->arena, (size_t)n * a->config.n_layers, sizeof *v) : NULL;

    a->kv.format = n > 0 ? "fp8" : "";
    if (n > 0 && (k == NULL || v == NULL)) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for scales of keys and values", a->path);
    }
    for (uint32_t layer = 0; n > 0 && layer < a->config.n_layers; layer++) {
        nw_checkpoint_kv_scales(c, layer, k + (size_t)layer * n, v + (size_t)layer * n);
    }
    a->kv.k_scale = k;
    a->kv.v_scale = v;
    a->kv.n_scales = n;
    return NW_OK;
}
