/* Function-preserving channel rescaling, so that weights that were once quantized no longer sit on
 * the grid of that quantization: every place of a transform (transform.h) gets factors log-uniform in
 * [0.8, 1.25], from streams of the seed that depend on layer and place only. In exact arithmetic the
 * model is the same function.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_OFFGRID_H
#define NW_QUANT_OFFGRID_H

#include "quant/transform.h"

/* A transform with those factors; the place of the last norm only where the head is its own. */
NW_MUST_USE nw_status nw_offgrid_new(const nw_model_config *config, uint64_t seed,
                                     nw_transform **out, nw_error *err);

#endif
