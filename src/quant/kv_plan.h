/* What a recipe wants said of keys and values (artifact/kv_scales.h): the format that sessions keep them
 * in (`kv: fp8`), and from statistics (kv_stats.h)
 *
 *   scales of FP8   largest |x| / 448, rounded up to BF16, in which other engines keep them; one a layer,
 *                   or under `kv_scales: head` one a kv head
 *   key channels    the mean of a channel, and as its factor the square root of its root mean square
 *                   about it, over the geometric mean of these in its head: a channel that moves more
 *                   is made smaller, and the queries that meet it larger by as much
 *
 * The numbers are of the model that was calibrated: a recipe that turns or scales values needs the
 * statistics of its own result (`kv_calibration`).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_KV_PLAN_H
#define NW_QUANT_KV_PLAN_H

#include "artifact/manifest.h"
#include "quant/kv_stats.h"
#include "quant/recipe.h"

typedef struct {
    char format[NW_MANIFEST_KV];             /* as the engine writes it; "": nothing is said */
    uint32_t n_layers, n_scales, n_channels; /* n_layers 0: no numbers */
    float *k_scale, *v_scale;                /* [n_layers][n_scales] */
    float *k_mean, *k_factor;                /* [n_layers][n_channels] */
    nw_digest stats;                         /* of the folder that the numbers are from */
} nw_kv_plan;

/* Leaves a zero plan where the recipe names no format, and no numbers where the format needs none: a
 * recipe that says how to make them is refused then. */
NW_MUST_USE nw_status nw_kv_plan_make(const nw_recipe *r, const nw_model_config *c, nw_kv_plan *out,
                                      nw_error *err);
void nw_kv_plan_release(nw_kv_plan *p); /* takes a zero object */

/* Says so where a checkpoint has scales of FP8 that the result will not have. */
void nw_kv_warn_left_out(const nw_checkpoint *c, const char *source);

#endif
