/* One scale for a whole tensor, where its values are at hand (grid.h); over the panels of a checkpoint:
 * tensor_scale.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "quant/grid.h"

static void set_all(const nw_grid *g, float scale, float zero, nw_grid_fit *fit)
{
    for (uint32_t r = 0; r < NW_LANES; r++) {
        fit->scale[r] = scale;
        fit->zero[r] = zero;
    }
    nw_grid_store(g, fit->scale, fit->offset, fit);
}

void nw_grid_tensor_fit(const nw_grid *g, const nw_scales *scales, const float *tile, uint32_t n,
                        nw_grid_fit *fit)
{
    double least = INFINITY;
    float lo = 0;
    float hi = 0;
    nw_grid_fit c = {0};

    set_all(g, scales->scale, scales->zero, fit);
    if (scales->scale < 0 || scales->scale > 0) {
        return;
    }
    for (size_t i = 0; i < (size_t)n * NW_LANES; i++) {
        lo = tile[i] < lo ? tile[i] : lo;
        hi = tile[i] > hi ? tile[i] : hi;
    }
    for (int i = 0; i < nw_grid_n_candidates(g); i++) {
        float errors[NW_LANES];
        double sum = 0;
        nw_grid_candidate(g, lo, hi, i, &c);
        nw_grid_errors(g, tile, n, &c, errors);
        for (uint32_t r = 0; r < NW_LANES; r++) {
            sum += (double)errors[r];
        }
        if (sum < least) {
            least = sum;
            *fit = c;
        }
    }
    if (!isfinite(least)) {
        set_all(g, INFINITY, 0, fit);
    }
}
