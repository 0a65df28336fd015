/* The statistics that the matrix in hand needs, loaded when the matrices before it read another
 * input: q, k, v share one, gate and up another. One input is held at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_INPUT_CACHE_H
#define NW_QUANT_INPUT_CACHE_H

#include "quant/input_plan.h"
#include "quant/recipe.h"
#include "quant/stats_folder.h"
#include "quant/transform.h"

typedef struct {
    nw_stats *stats;               /* NULL: nothing in the recipe needs any */
    const nw_transform *transform; /* of the model; NULL: none */
    const nw_input_plan *plan;     /* what is kept wide; NULL: nothing */
    int32_t layer;
    nw_input input;
    bool loaded, with_factor;
    nw_hessian h;
} nw_input_cache;

/* Opens the recipe's folder of statistics, where something in it needs them, and holds it to the model. */
NW_MUST_USE nw_status nw_input_cache_open(nw_input_cache *c, const nw_recipe *r,
                                          const nw_recipe_choice *choices, size_t n,
                                          const nw_model_config *config, nw_error *err);
void nw_input_cache_close(nw_input_cache *c); /* takes a zero object */

/* *out is NULL for a method that needs no statistics; valid until the next call. */
NW_MUST_USE nw_status nw_input_cache_get(nw_input_cache *c, const nw_recipe_choice *choice,
                                         bool tied, const nw_hessian **out, nw_error *err);

#endif
