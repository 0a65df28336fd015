/* What lanes.h does, as a table for each instruction set. The work is written once (lanes_body.h) and
 * compiled for each; bits are the same for all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_LANES_OPS_H
#define NW_QUANT_LANES_OPS_H

#include "quant/lanes.h"

typedef struct {
    void (*take_off)(const float *a, size_t ld, uint32_t n, uint32_t m, const float *x, float *y);
    void (*take_off_t)(const float *a, size_t ld, uint32_t n, uint32_t m, const float *x, float *y);
    void (*form)(const float *a, size_t ld, uint32_t n, const float *x, float *out);
} nw_lanes_ops;

extern const nw_lanes_ops nw_lanes_plain;
#if NW_HAVE_X86_KERNELS
extern const nw_lanes_ops nw_lanes_avx2;
extern const nw_lanes_ops nw_lanes_avx512;
#endif
/* The fastest that these features (base/cpu.h) allow. */
const nw_lanes_ops *nw_lanes_pick(uint32_t features);

#endif
