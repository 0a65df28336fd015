/* Half-quadratic turns over 16 rows at a time: see hqq.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/hqq.h"

#include <math.h>

#define N_TURNS 10
#define BETA    10.0F

/* Sum over the group of |w - w'|^(1/2), and w with the outliers' part of the error taken off. */
static void split(const nw_grid *g, const float *tile, uint32_t n, const nw_grid_fit *fit,
                  float *target, float loss[NW_LANES])
{
    float code[NW_LANES];
    float value[NW_LANES];

    for (uint32_t r = 0; r < NW_LANES; r++) {
        loss[r] = 0;
    }
    for (uint32_t k = 0; k < n; k++) {
        const float *w = tile + (size_t)k * NW_LANES;
        nw_grid_encode(g, fit, w, code, value);
        for (uint32_t r = 0; r < NW_LANES; r++) {
            const float step = fabsf(fit->scale[r]);
            const float d = w[r] - value[r];
            const float x = step > 0 ? fabsf(d) / step : 0;
            const float root = sqrtf(x);
            const float e = x * root * BETA > 1 ? (x - 1 / (BETA * root)) * step : 0;
            loss[r] += root * sqrtf(step);
            target[(size_t)k * NW_LANES + r] = w[r] - copysignf(e, d);
        }
    }
}

/* The zero point of least squares for the targets' codes: the mean of code - target / scale. */
static void move_zero(const nw_grid *g, const float *target, uint32_t n, nw_grid_fit *fit)
{
    float sum[NW_LANES] = {0};
    float code[NW_LANES];
    float value[NW_LANES];

    for (uint32_t k = 0; k < n; k++) {
        const float *t = target + (size_t)k * NW_LANES;
        nw_grid_encode(g, fit, t, code, value);
        for (uint32_t r = 0; r < NW_LANES; r++) {
            sum[r] += fabsf(fit->scale[r]) > 0 ? code[r] - t[r] / fit->scale[r] : fit->zero[r];
        }
    }
    for (uint32_t r = 0; r < NW_LANES; r++) {
        fit->zero[r] = fminf(fmaxf(rintf(sum[r] / (float)n), g->lo), g->hi);
    }
    nw_grid_store(g, fit->scale, fit->offset, fit);
}

void nw_hqq_refine(const nw_grid *g, const float *tile, uint32_t n, nw_grid_fit *fit, float *work)
{
    nw_grid_fit now = *fit;
    float best[NW_LANES];
    float loss[NW_LANES];
    bool any = true;

    for (uint32_t r = 0; r < NW_LANES; r++) {
        best[r] = INFINITY;
    }
    for (int i = 0; any && i < N_TURNS; i++) {
        split(g, tile, n, &now, work, loss);
        any = false;
        for (uint32_t r = 0; r < NW_LANES; r++) {
            if (loss[r] < best[r]) {
                any = true;
                best[r] = loss[r];
                fit->scale[r] = now.scale[r];
                fit->offset[r] = now.offset[r];
                fit->zero[r] = now.zero[r];
            }
        }
        if (g->kind == NW_GRID_ZERO) {
            move_zero(g, work, n, &now);
        }
        nw_grid_refit(g, work, NULL, n, &now);
    }
}
