/* Cosines and sines of the rotary position embedding, one row a position, for one base.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_ROPE_H
#define NW_ENGINE_ROPE_H

#include "base/arena.h"
#include "model/config.h"

typedef struct {
    uint32_t half;          /* d_head / 2 */
    const float *cos, *sin; /* [n_ctx][half] */
} nw_rope_table;

/* Angle of position p and pair i: p * f(i), f(i) = base^(-2i / d_head), then scaled: linear divides
 * by the factor; llama3 divides the long wavelengths only, with a ramp between them and the short
 * ones (transformers, modeling_rope_utils). Computed in double. NULL scaling: none. */
NW_MUST_USE nw_status nw_rope_build(nw_arena *arena, uint32_t n_ctx, uint32_t d_head, float base,
                                    const nw_rope_scaling *scaling, nw_rope_table *out,
                                    nw_error *err);

#endif
