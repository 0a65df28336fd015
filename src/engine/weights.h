/* The weights of an open artifact as the forward pass wants them: one struct a layer, every pointer
 * checked for presence and shape once, at open.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_WEIGHTS_H
#define NW_ENGINE_WEIGHTS_H

#include "artifact/inputs.h"
#include "base/arena.h"
#include "kernels/kernels.h"

typedef struct {
    nw_weight q, k, v, o, gate, up, down;
    nw_weight q_wide, k_wide, v_wide, o_wide, gate_wide, up_wide, down_wide; /* data NULL: none */
    /* a quantized matrix, in whatever panels: the engine's rule rounds what it reads */
    bool q_coded, k_coded, v_coded, o_coded, gate_coded, up_coded, down_coded;
    const nw_artifact_input *q_in, *o_in, *gate_in, *down_in; /* NULL: nothing is said of it */
    const float *attn_norm, *ffn_norm;                        /* [d_model] */
    const float *q_bias, *k_bias, *v_bias;       /* [heads * d_head], NULL without biases */
    const float *post_attn_norm, *post_ffn_norm; /* [d_model], NULL without post norms */
    const float *q_norm, *k_norm;                /* [d_head], NULL without qk norms */
} nw_layer;

typedef struct {
    nw_layer *layers; /* [n_layers] */
    nw_weight head;   /* the embedding where tied */
    bool head_coded;
    const float *out_norm; /* [d_model] */
    uint64_t step_bytes;   /* of the matrices that every decoded token reads */
    uint64_t embed_bytes;  /* of the embedding, where it is not the head */
    uint32_t max_cols;     /* widest input of any matrix */
    uint32_t max_wide;     /* most columns of an input that are kept wide */
} nw_weights;

/* Views live as long as the artifact; the layer table lives in `arena`. NW_E_FORMAT names the role
 * and layer that is missing or has a shape the config does not give it. */
NW_MUST_USE nw_status nw_weights_bind(const nw_artifact *a, nw_arena *arena, nw_weights *out,
                                      nw_error *err);

/* Binds one matrix of another artifact of this shape. */
NW_MUST_USE nw_status nw_weights_swap(const nw_artifact *a, nw_role role, int32_t layer,
                                      nw_weights *w, nw_error *err);

#endif
