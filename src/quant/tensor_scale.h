/* Layouts with one scale for a whole tensor (NVFP4; INT8 and FP8 under `scale: tensor`) need its
 * largest |w| before the first panel is written, and int4-tensor and its like the scale and zero point of least
 * squared error (grid.h), which is a second pass. NVFP4 shares the scale among the matrices that a
 * runtime fuses into one, q, k, v and gate, up, where all of them are NVFP4: readers that keep one
 * scale a fused matrix (vLLM) then lose nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_TENSOR_SCALE_H
#define NW_QUANT_TENSOR_SCALE_H

#include "base/pool.h"
#include "quant/recipe.h"

/* Sets choices[i].absmax, or scale and zero, where the choice needs them; reads those tensors once or twice,
 * panels spread over the pool's threads. scales: of the recipe. */
NW_MUST_USE nw_status nw_tensor_scale_plan(const nw_checkpoint *c, const nw_scales *scales,
                                           nw_recipe_choice *choices, size_t n, nw_pool *pool,
                                           nw_error *err);

#endif
