/* Rotations merged into the weights of a model, which stays the same function:
 *
 *   residual   norm gains go into the columns that they scale (gains become 1), then with an
 *              orthogonal Q of d_model:  embed Q, W_{q,k,v,gate,up} Q, Q^T W_{o,down}, head Q. A tied
 *              head needs its own matrix (nw_checkpoint_untie), since the embedding has no gain
 *   heads      R of d_head in each kv head: R^T on the rows of v, R on the columns of o
 *   down       the engine turns the input of down by Hadamard blocks at run time, and down's columns
 *              are turned by the same: `online_hadamard` in the manifest
 *
 * A large channel is spread over all: what a scale of a row, a token or a group then has to reach is
 * smaller. The residual cannot be turned where a norm stands between o or down and the residual add.
 * Sources: SliceGPT (arXiv 2401.15024) for the gains, QuaRot (arXiv 2404.00456) for the rest.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_ROTATE_H
#define NW_QUANT_ROTATE_H

#include "model/checkpoint.h"
#include "quant/input_stats.h"

#define NW_ROTATE_RESIDUAL 1u
#define NW_ROTATE_HEADS    2u
#define NW_ROTATE_DOWN     4u

typedef struct nw_rotation nw_rotation;

/* A sentence why a model cannot have these parts, or NULL. */
const char *nw_rotation_refusal(const nw_model_config *c, unsigned parts);

/* Reads the norm gains of the checkpoint, which is borrowed and untied where `parts` has RESIDUAL. */
NW_MUST_USE nw_status nw_rotation_new(const nw_checkpoint *c, unsigned parts, uint64_t seed,
                                      nw_rotation **out, nw_error *err);
void nw_rotation_free(nw_rotation *r); /* takes NULL */

/* An edit of the checkpoint (nw_ckpt_edit). Where rows mix (o, down, v) the tensor is turned whole
 * when its first rows are asked for, and kept until another is: F32, 4 bytes a value. */
nw_status nw_rotation_edit(void *ctx, const nw_ckpt_tensor *t, uint32_t row0, uint32_t n_rows,
                           float *rows, nw_error *err);

/* Statistics of an input of the turned model from those of the model: moments are turned, mean |x| is
 * taken as that of a gaussian of the same mean square, and absmax, which moments do not tell, is 0. */
NW_MUST_USE nw_status nw_rotation_stats(const nw_rotation *r, int32_t layer, nw_input input,
                                        nw_input_stats *s, nw_error *err);

#endif
