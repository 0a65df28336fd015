/* What calibration knows about the keys and values of a model as they are kept (keys after norm and rotary
 * embedding): of each channel of each kv head of each layer the smallest and the largest key, the mean of
 * keys and their root mean square about it, and the largest |value|. They stand in the folder of
 * statistics (stats_folder.h) as kv.safetensors, F32 [n_layers][n_kv_heads * d_head] each:
 *
 *   k.min  k.max  k.mean  k.spread  v.absmax
 *
 * Sums are taken token by token in the order of the samples: the same bits for any number of threads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_KV_STATS_H
#define NW_QUANT_KV_STATS_H

#include "quant/stats_folder.h"

typedef struct {
    uint32_t n_layers, n_channels;
    float *k_min, *k_max, *k_mean, *k_spread, *v_absmax; /* [n_layers][n_channels] */
    double *sum, *sum_sq;                                /* of keys, while they are taken */
    uint64_t *n;                                         /* [n_layers] tokens */
} nw_kv_stats;

NW_MUST_USE nw_status nw_kv_stats_init(nw_kv_stats *s, const nw_model_config *c, nw_error *err);
void nw_kv_stats_release(nw_kv_stats *s); /* takes a zero object */

/* Adds keys, or values, of a layer: x [n_tokens][n_channels]. NW_E_FORMAT where one is not finite. */
NW_MUST_USE nw_status nw_kv_stats_add(nw_kv_stats *s, uint32_t layer, bool value, const float *x,
                                      uint32_t n_tokens, nw_error *err);
/* Sums to means. */
void nw_kv_stats_finish(nw_kv_stats *s);

/* Into a folder of statistics and its manifest, and back: hash, shapes and numbers are checked. A folder
 * without them is NW_E_FORMAT. */
NW_MUST_USE nw_status nw_kv_stats_write(const nw_kv_stats *s, const char *dir, json_t *manifest,
                                        nw_error *err);
NW_MUST_USE nw_status nw_kv_stats_load(const nw_stats *from, const nw_model_config *c,
                                       nw_kv_stats *out, nw_error *err);

#endif
