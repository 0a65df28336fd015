/* Statistics of keys and values: see kv_stats.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/kv_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/config.h"
#include "model/safetensors.h"

#define KV_FILE  "kv.safetensors"
#define KV_PARTS 5

static const char *const part_names[KV_PARTS] = {"k.min", "k.max", "k.mean", "k.spread",
                                                 "v.absmax"};

static float **part(nw_kv_stats *s, int i)
{
    float **all[KV_PARTS] = {&s->k_min, &s->k_max, &s->k_mean, &s->k_spread, &s->v_absmax};
    return all[i];
}

static nw_status alloc_parts(nw_kv_stats *s, const nw_model_config *c, nw_error *err)
{
    *s = (nw_kv_stats){.n_layers = c->n_layers, .n_channels = c->n_kv_heads * c->d_head};
    const size_t n = (size_t)s->n_layers * s->n_channels;

    for (int i = 0; i < KV_PARTS; i++) {
        float **p = part(s, i);
        *p = calloc(n, sizeof **p);
        if (*p == NULL) {
            nw_kv_stats_release(s);
            return nw_fail(err, NW_E_NOMEM, "no memory for statistics of %zu channels of keys", n);
        }
    }
    return NW_OK;
}

nw_status nw_kv_stats_init(nw_kv_stats *s, const nw_model_config *c, nw_error *err)
{
    if (alloc_parts(s, c, err) != NW_OK) {
        return err->code;
    }
    const size_t n = (size_t)s->n_layers * s->n_channels;
    s->sum = calloc(n, sizeof *s->sum);
    s->sum_sq = calloc(n, sizeof *s->sum_sq);
    s->n = calloc(s->n_layers, sizeof *s->n);
    if (s->sum == NULL || s->sum_sq == NULL || s->n == NULL) {
        nw_kv_stats_release(s);
        return nw_fail(err, NW_E_NOMEM, "no memory for statistics of %zu channels of keys", n);
    }
    for (size_t i = 0; i < n; i++) {
        s->k_min[i] = INFINITY;
        s->k_max[i] = -INFINITY;
    }
    return NW_OK;
}

void nw_kv_stats_release(nw_kv_stats *s)
{
    for (int i = 0; i < KV_PARTS; i++) {
        free(*part(s, i));
    }
    free(s->sum);
    free(s->sum_sq);
    free(s->n);
    *s = (nw_kv_stats){0};
}

static void add_value(nw_kv_stats *s, size_t at, float x)
{
    const float size = fabsf(x);
    s->v_absmax[at] = size > s->v_absmax[at] ? size : s->v_absmax[at];
}

static void add_key(nw_kv_stats *s, size_t at, float x)
{
    s->k_min[at] = x < s->k_min[at] ? x : s->k_min[at];
    s->k_max[at] = x > s->k_max[at] ? x : s->k_max[at];
    s->sum[at] += (double)x;
    s->sum_sq[at] += (double)x * (double)x;
}

nw_status nw_kv_stats_add(nw_kv_stats *s, uint32_t layer, bool value, const float *x,
                          uint32_t n_tokens, nw_error *err)
{
    const size_t first = (size_t)layer * s->n_channels;

    for (uint32_t t = 0; t < n_tokens; t++, x += s->n_channels) {
        for (uint32_t c = 0; c < s->n_channels; c++) {
            if (!isfinite(x[c])) {
                return nw_fail(err, NW_E_FORMAT, "%s: channel %u of token %u is not finite",
                               value ? "values" : "keys", c, t);
            }
            if (value) {
                add_value(s, first + c, x[c]);
            } else {
                add_key(s, first + c, x[c]);
            }
        }
    }
    s->n[layer] += value ? 0 : n_tokens;
    return NW_OK;
}

void nw_kv_stats_finish(nw_kv_stats *s)
{
    size_t at = 0;

    for (uint32_t layer = 0; layer < s->n_layers; layer++) {
        const double n = fmax(1, (double)s->n[layer]);
        for (uint32_t c = 0; c < s->n_channels; c++, at++) {
            const double mean = s->sum[at] / n;
            s->k_mean[at] = (float)mean;
            s->k_spread[at] = (float)sqrt(fmax(0, s->sum_sq[at] / n - mean * mean));
        }
    }
}

nw_status nw_kv_stats_write(const nw_kv_stats *s, const char *dir, json_t *manifest, nw_error *err)
{
    const float *all[KV_PARTS] = {s->k_min, s->k_max, s->k_mean, s->k_spread, s->v_absmax};
    const size_t n_bytes = (size_t)s->n_layers * s->n_channels * sizeof(float);
    nw_st_decl decls[KV_PARTS];
    nw_st_writer *w = NULL;
    char *path = nw_path_join(dir, KV_FILE);

    for (int i = 0; i < KV_PARTS; i++) {
        decls[i] = (nw_st_decl){.name = part_names[i],
                                .format = NW_FMT_F32,
                                .n_dims = 2,
                                .dims = {s->n_layers, s->n_channels}};
    }
    nw_status st = path == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", dir)
                                : nw_st_writer_open(path, decls, KV_PARTS, NULL, 64, &w, err);
    for (int i = 0; st == NW_OK && i < KV_PARTS; i++) {
        st = nw_st_writer_write(w, part_names[i], all[i], n_bytes, err);
    }
    st = st == NW_OK ? nw_st_writer_commit(w, err) : st;
    nw_st_writer_close(w);
    free(path);
    return st == NW_OK ? nw_stats_note_file(dir, KV_FILE, manifest, err) : st;
}

static nw_status check_numbers(const nw_kv_stats *s, const char *path, nw_error *err)
{
    for (size_t i = 0; i < (size_t)s->n_layers * s->n_channels; i++) {
        if (!isfinite(s->k_min[i]) || !isfinite(s->k_max[i]) || !isfinite(s->k_mean[i]) ||
            !isfinite(s->k_spread[i]) || !isfinite(s->v_absmax[i]) || s->k_min[i] > s->k_max[i] ||
            s->k_spread[i] < 0 || s->v_absmax[i] < 0) {
            return nw_fail(err, NW_E_FORMAT, "%s: channel %zu of layer %zu: no statistics of keys",
                           path, i % s->n_channels, i / s->n_channels);
        }
    }
    return NW_OK;
}

static nw_status fill(const nw_safetensors *st, nw_kv_stats *s, nw_error *err)
{
    const size_t n = (size_t)s->n_layers * s->n_channels;

    for (int i = 0; i < KV_PARTS; i++) {
        const nw_st_tensor *t = nw_st_find(st, part_names[i]);
        if (t == NULL || t->format != NW_FMT_F32 || t->n_elems != n) {
            return nw_fail(err, NW_E_FORMAT, "%s: no tensor '%s' of %u layers with %u channels",
                           nw_st_path(st, 0), part_names[i], s->n_layers, s->n_channels);
        }
        memcpy(*part(s, i), t->data, n * sizeof(float));
    }
    return check_numbers(s, nw_st_path(st, 0), err);
}

nw_status nw_kv_stats_load(const nw_stats *from, const nw_model_config *c, nw_kv_stats *out,
                           nw_error *err)
{
    nw_safetensors *st = NULL;
    nw_kv_stats got = {0};
    nw_status code = nw_stats_open_file(from, KV_FILE, &st, err);

    code = code == NW_OK ? alloc_parts(&got, c, err) : code;
    code = code == NW_OK ? fill(st, &got, err) : code;
    nw_st_close(st);
    if (code != NW_OK) {
        nw_kv_stats_release(&got);
        return code;
    }
    *out = got;
    return NW_OK;
}
