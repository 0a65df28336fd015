/* lanes.h in the instructions that every processor of its kind has, and the choice among what there is.
 * SPDX-License-Identifier: Apache-2.0 */
#define NW_LANES_OPS nw_lanes_plain
#include "base/cpu.h"
#include "quant/lanes_body.h"

const nw_lanes_ops *nw_lanes_pick(uint32_t features)
{
#if NW_HAVE_X86_KERNELS
    if ((features & NW_CPU_AVX512) != 0) {
        return &nw_lanes_avx512;
    }
    if ((features & NW_CPU_AVX2) != 0) {
        return &nw_lanes_avx2;
    }
#endif
    (void)features;
    return &nw_lanes_plain;
}

void nw_lanes_take_off(const float *a, size_t ld, uint32_t n, uint32_t m, const float *x, float *y)
{
    nw_lanes_pick(nw_cpu_features())->take_off(a, ld, n, m, x, y);
}

void nw_lanes_take_off_t(const float *a, size_t ld, uint32_t n, uint32_t m, const float *x,
                         float *y)
{
    nw_lanes_pick(nw_cpu_features())->take_off_t(a, ld, n, m, x, y);
}

void nw_lanes_form(const float *a, size_t ld, uint32_t n, const float *x, float *out)
{
    nw_lanes_pick(nw_cpu_features())->form(a, ld, n, x, out);
}
