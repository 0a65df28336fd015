/* Scales of keys and values from their statistics: see kv_plan.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/kv_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine.h"
#include "formats/half.h"
#include "model/config.h"

#define E4M3_MOST 448.0F

_Static_assert(NW_MANIFEST_KV == NW_ENGINE_KV_TEXT, "the manifest holds what the engine writes");

/* The next number of BF16 that is not below x, which is above 0. */
static float bf16_up(float x)
{
    const float near = nw_bf16_to_f32(nw_bf16_from_f32(x));
    return near >= x ? near : nw_f32_from_bits(nw_f32_bits(near) + 0x10000U);
}

/* The scale whose 448-fold holds the largest of n channels; 2^-20 where all are 0. */
static float fp8_scale(const float *absmax, uint32_t n)
{
    float most = 0;

    for (uint32_t c = 0; c < n; c++) {
        most = absmax[c] > most ? absmax[c] : most;
    }
    return most > 0 ? bf16_up(most / E4M3_MOST) : 0x1p-20F;
}

static void plan_scales(nw_kv_plan *p, const nw_kv_stats *s, const float *k_absmax, uint32_t layer)
{
    const size_t first = (size_t)layer * s->n_channels;
    const uint32_t per = s->n_channels / p->n_scales;

    for (uint32_t h = 0; h < p->n_scales; h++) {
        const size_t at = (size_t)layer * p->n_scales + h;
        p->k_scale[at] = fp8_scale(k_absmax + (size_t)h * per, per);
        p->v_scale[at] = fp8_scale(s->v_absmax + first + (size_t)h * per, per);
    }
}

/* Means and factors of one head; a channel that never moved has factor 1. */
static void plan_head(const nw_kv_stats *s, size_t first, uint32_t d_head, float *mean,
                      float *factor)
{
    const float *spread = s->k_spread + first;
    double log_sum = 0;
    uint32_t n = 0;

    for (uint32_t c = 0; c < d_head; c++) {
        mean[c] = s->k_mean[first + c];
        log_sum += spread[c] > 0 ? log((double)spread[c]) / 2 : 0;
        n += spread[c] > 0;
    }
    const double middle = n > 0 ? exp(log_sum / n) : 1;
    for (uint32_t c = 0; c < d_head; c++) {
        const float f = (float)(sqrt((double)spread[c]) / middle);
        factor[c] = f > 0 ? f : 1;
    }
}

static nw_status fill(nw_kv_plan *p, const nw_kv_stats *s, uint32_t d_head, nw_error *err)
{
    float *k_absmax = calloc(s->n_channels, sizeof *k_absmax);

    if (k_absmax == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %u channels of keys", s->n_channels);
    }
    for (uint32_t layer = 0; layer < p->n_layers; layer++) {
        const size_t first = (size_t)layer * s->n_channels;
        for (uint32_t c = 0; c < s->n_channels; c++) {
            k_absmax[c] = fmaxf(fabsf(s->k_min[first + c]), fabsf(s->k_max[first + c]));
        }
        plan_scales(p, s, k_absmax, layer);
        for (size_t c = 0; c < s->n_channels; c += d_head) {
            plan_head(s, first + c, d_head, p->k_mean + first + c, p->k_factor + first + c);
        }
    }
    free(k_absmax);
    return NW_OK;
}

static nw_status alloc(nw_kv_plan *p, const nw_model_config *c, bool heads, nw_error *err)
{
    const uint32_t n_channels = c->n_kv_heads * c->d_head;

    p->n_layers = c->n_layers;
    p->n_scales = heads ? c->n_kv_heads : 1;
    p->n_channels = n_channels;
    const size_t n_scales = (size_t)p->n_layers * p->n_scales;
    const size_t n = (size_t)p->n_layers * n_channels;
    p->k_scale = calloc(n_scales, sizeof *p->k_scale);
    p->v_scale = calloc(n_scales, sizeof *p->v_scale);
    p->k_mean = calloc(n, sizeof *p->k_mean);
    p->k_factor = calloc(n, sizeof *p->k_factor);
    if (p->k_scale == NULL || p->v_scale == NULL || p->k_mean == NULL || p->k_factor == NULL) {
        nw_kv_plan_release(p);
        return nw_fail(err, NW_E_NOMEM, "no memory for scales of %zu channels of keys", n);
    }
    return NW_OK;
}

void nw_kv_plan_release(nw_kv_plan *p)
{
    free(p->k_scale);
    free(p->v_scale);
    free(p->k_mean);
    free(p->k_factor);
    *p = (nw_kv_plan){0};
}

/* Turns and scales of values happen after what the statistics saw. */
static nw_status check_transforms(const nw_recipe *r, nw_error *err)
{
    const unsigned moved = NW_TRANSFORM_ROTATE_HEADS | NW_TRANSFORM_AWQ | NW_TRANSFORM_SMOOTH;

    if ((nw_recipe_transforms(r) & moved) != 0 && nw_recipe_kv_calibration(r) == NULL) {
        return nw_fail(
            err, NW_E_USAGE,
            "kv '%s': rotate-heads, awq and smoothquant change the values that the statistics saw: "
            "calibrate the artifact that this recipe makes without kv, and name that "
            "folder as kv_calibration",
            nw_recipe_kv(r));
    }
    return NW_OK;
}

/* A format that keeps no numbers leaves no meaning to what only says how they are made. */
static nw_status check_unused(const nw_recipe *r, nw_error *err)
{
    if (nw_recipe_kv_heads(r) || nw_recipe_kv_calibration(r) != NULL) {
        return nw_fail(err, NW_E_USAGE, "kv '%s' needs no calibration: %s has no meaning beside it",
                       nw_recipe_kv(r),
                       nw_recipe_kv_heads(r) ? "kv_scales: head" : "kv_calibration");
    }
    return NW_OK;
}

nw_status nw_kv_plan_make(const nw_recipe *r, const nw_model_config *c, nw_kv_plan *out,
                          nw_error *err)
{
    nw_engine_options o = nw_engine_options_default();
    const char *dir = nw_recipe_kv_calibration(r) != NULL ? nw_recipe_kv_calibration(r)
                                                          : nw_recipe_calibration(r);
    nw_stats *stats = NULL;
    nw_kv_stats s = {0};

    *out = (nw_kv_plan){0};
    if (nw_recipe_kv(r) == NULL) {
        return NW_OK;
    }
    if (nw_engine_kv_parse(nw_recipe_kv(r), &o, err) != NW_OK) {
        return nw_context(err, "recipe '%s'", nw_recipe_name(r));
    }
    nw_engine_kv_text(&o, out->format);
    if (!nw_engine_kv_needs_numbers(&o)) {
        return check_unused(r, err);
    }
    if (dir == NULL) {
        return nw_fail(err, NW_E_USAGE,
                       "kv '%s' needs calibration: name the folder that narrow calibrate wrote",
                       nw_recipe_kv(r));
    }
    nw_status st = check_transforms(r, err);
    st = st == NW_OK ? nw_stats_open(dir, &stats, err) : st;
    st = st == NW_OK ? nw_kv_stats_load(stats, c, &s, err) : st;
    st = st == NW_OK ? alloc(out, c, nw_recipe_kv_heads(r), err) : st;
    st = st == NW_OK ? fill(out, &s, c->d_head, err) : st;
    if (st == NW_OK) {
        (void)snprintf(out->stats.hex, sizeof out->stats.hex, "%s", nw_stats_hash(stats));
    }
    nw_kv_stats_release(&s);
    nw_stats_close(stats);
    if (st != NW_OK) {
        nw_kv_plan_release(out);
    }
    return st;
}

void nw_kv_warn_left_out(const nw_checkpoint *c, const char *source)
{
    if (nw_checkpoint_n_kv_scales(c) > 0) {
        nw_log(NW_LOG_WARN, "%s: its scales of FP8 keys and values are left out", source);
    }
}
