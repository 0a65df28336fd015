/* From a recipe's `transform` to the transform of a model: rotations at once, since they need norm
 * gains alone, and the channel scales of AWQ and SmoothQuant when the statistics are there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_TRANSFORM_PLAN_H
#define NW_QUANT_TRANSFORM_PLAN_H

#include "base/pool.h"
#include "quant/recipe.h"
#include "quant/stats_folder.h"
#include "quant/transform.h"

/* *out is NULL where the recipe transforms nothing; else it is the checkpoint's edit, and the
 * checkpoint, untied where the residual stream is rotated, must be closed before it is freed. */
NW_MUST_USE nw_status nw_transform_open(const nw_recipe *r, nw_checkpoint *c, nw_transform **out,
                                        nw_error *err);

/* Searches the scales of every place with quantized readers, layer by layer, and sets them; a row
 * {layer, place, exponent, loss, loss_before} each is appended to `report`. */
NW_MUST_USE nw_status nw_transform_search(const nw_recipe *r, const nw_checkpoint *c,
                                          const nw_recipe_choice *choices, size_t n,
                                          const nw_stats *stats, nw_pool *pool, nw_transform *t,
                                          json_t *report, nw_error *err);

#endif
