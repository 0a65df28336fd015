/* Data-free refinement of a group's grid by half-quadratic splitting: the scale (and zero point or
 * minimum) of least sum of |w - w'|^(1/2), a norm that forgives a few large errors, which heavy tails
 * leave anyway, to have the many small ones smaller. With r = (w - w') / scale the error in steps,
 *
 *   e = sign(r) max(0, |r| - 1 / (10 sqrt |r|))     what the norm takes as an outlier's own
 *   scale, zero point, minimum = least squares of w - e scale for the codes as they are
 *
 * in turns, from the fit of least squared error, while the sum falls. The exponent is 1/2 and not the
 * 0.7 of the source so that every operation is an IEEE one.
 * Source: H. Badri, A. Shaji, Half-Quadratic Quantization (mobiusml, 2023).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_HQQ_H
#define NW_QUANT_HQQ_H

#include "quant/grid.h"

/* tile [n][16]; fit: where to begin, and the result. work [n][16]. */
void nw_hqq_refine(const nw_grid *g, const float *tile, uint32_t n, nw_grid_fit *fit, float *work);

#endif
