/* Changes of the weights that leave the model the same function, so that they can be quantized with
 * less loss: rotations (rotate.h), then factors of channels. A place is where a vector passes from
 * what makes it to what reads it; its channels can be divided on one side and multiplied on the other:
 *
 *   attn, ffn, out   the norm's gain / f, the columns of q, k, v (gate, up; an untied head) * f
 *   up               rows of up * f, columns of down / f
 *   v                rows of v * f, columns of o / f in every query head that shares the kv head
 *
 * The factors commute with q/k norms and soft caps, since neither stands between v and o. Where they
 * come from: offgrid.h draws them, channel_scales.h searches them (AWQ, SmoothQuant).
 *
 * A transform is the edit of a checkpoint (nw_checkpoint_set_edit): whoever reads it then reads the
 * transformed model. Setting factors and reading must not overlap.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_TRANSFORM_H
#define NW_QUANT_TRANSFORM_H

#include "quant/rotate.h"

typedef enum {
    NW_PLACE_ATTN,
    NW_PLACE_V,
    NW_PLACE_FFN,
    NW_PLACE_UP,
    NW_PLACE_OUT, /* of no layer */
    NW_PLACE_COUNT
} nw_place;

const char *nw_place_name(nw_place place); /* "attn" "v" "ffn" "up" "out" */
/* Channels of a place. */
uint32_t nw_place_width(const nw_model_config *c, nw_place place);
/* The input whose channels those are, and the channel of the place that channel k of the input is. */
nw_input nw_place_input(nw_place place);
uint32_t nw_place_channel(const nw_model_config *c, nw_place place, uint32_t k);
/* Whether rows or gains, and not columns, are what the place's factors multiply: columns are then
 * divided. */
bool nw_place_multiplies_maker(nw_place place);

typedef struct nw_transform nw_transform;

/* `rotation` (may be NULL) comes first and is taken over, on failure too. */
NW_MUST_USE nw_status nw_transform_new(const nw_model_config *config, nw_rotation *rotation,
                                       nw_transform **out, nw_error *err);
void nw_transform_free(nw_transform *t); /* takes NULL */

/* The factors of a place, to be filled; all 1 at first. NULL without memory. */
double *nw_transform_factors(nw_transform *t, int32_t layer, nw_place place);

/* An edit of the checkpoint: ctx is the transform. */
nw_status nw_transform_edit(void *ctx, const nw_ckpt_tensor *tensor, uint32_t row0, uint32_t n_rows,
                            float *rows, nw_error *err);
/* Statistics of an input of the model become those of the transformed model. */
NW_MUST_USE nw_status nw_transform_stats(const nw_transform *t, int32_t layer, nw_input input,
                                         nw_input_stats *s, nw_error *err);

#endif
