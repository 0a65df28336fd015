/* One linear kernel of one tier, timed beside the roofs of the machine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_LINEAR_H
#define NW_BENCH_LINEAR_H

#include "kernels/kernels.h"
#include "probe.h"

typedef struct {
    const char *type; /* of the panels */
    bool a8;
} nw_linear_kind;

/* Every type of panels, with each kind of activations that it has. */
extern const nw_linear_kind nw_linear_kinds[];
extern const size_t n_linear_kinds;

/* Weights beyond any cache (or few enough for the nearest, where `cached`), and packed tokens. */
typedef struct {
    const nw_kernels *kernels;
    nw_weight weight; /* one matrix of the pool's */
    nw_act act;
    float *y;
    uint8_t *pool;
    size_t pool_bytes, matrix_bytes, act_bytes, y_bytes;
    uint32_t n_matrices;
    nw_peak peak;
    double dots; /* products of that instruction for one of the layer: nw_kernels_dots() */
} nw_linear_job;

typedef struct {
    uint32_t n_rows, n_cols, n_tokens;
    bool cached; /* a single matrix */
} nw_linear_shape;

void nw_linear_open(nw_linear_job *j, const nw_kernels *kernels, nw_linear_kind kind,
                    nw_linear_shape shape);
void nw_linear_close(nw_linear_job *j);

/* Shares of the roofs, the medians of `rounds` rounds of about 2 ms: of a read of the same bytes, of
 * the peak of the multiply-adds (0 where it is not known), and of the higher of the two. */
typedef struct {
    double of_raw, of_peak, of_roof;
    double bytes_s, macs_s; /* of one thread's CPU second */
    /* (upper - lower quartile) / median of the raw read and of the peak: how quiet the machine is */
    double raw_spread, peak_spread;
} nw_linear_result;
nw_linear_result nw_linear_time(nw_linear_job *j, nw_pool *pool, unsigned rounds);

#endif
