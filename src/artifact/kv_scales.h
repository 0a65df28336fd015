/* What an artifact says of keys and values: the format in which sessions keep them unless they are told
 * otherwise, and what calibration found of them. A native artifact names the format in its manifest and
 * keeps the numbers in inputs.safetensors (inputs.h), all layers or none:
 *
 *   layers.N.k.scale   F32 [1 or n_kv_heads]     of FP8 codes of keys: largest |k| over 448
 *   layers.N.v.scale   likewise of values
 *   layers.N.k.mean    F32 [n_kv_heads * d_head] of each channel of keys
 *   layers.N.k.factor  likewise: what keys are divided by, and queries multiplied with
 *
 * Keys are as they are kept: after norm and rotary embedding. A folder of compressed-tensors with a
 * kv_cache_scheme has the scales, as k_scale and v_scale.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_KV_SCALES_H
#define NW_ARTIFACT_KV_SCALES_H

#include "artifact/artifact.h"

typedef struct nw_artifact_kv {
    const char *format;             /* "fp8", as --kv takes it; "" where nothing is said */
    uint32_t n_scales;              /* of a layer: 1, or one a kv head; 0: none */
    const float *k_scale, *v_scale; /* [n_layers][n_scales] */
    const float *k_mean, *k_factor; /* [n_layers][n_kv_heads * d_head]; NULL: none */
} nw_artifact_kv;

/* Never NULL; lives as long as the artifact. */
const nw_artifact_kv *nw_artifact_get_kv(const nw_artifact *a);

#endif
