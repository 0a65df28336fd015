/* The AVX-512 tier of processors with VNNI but without VBMI or BF16: the bodies in lanes_*.h in
 * vectors of 16, BF16 weights by FMA.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/lanes_tier.h"

static void attend(const nw_attn *a)
{
    nw_lanes_attend(a, &nw_kernels_avx512vnni);
}

const nw_kernels nw_kernels_avx512vnni = {
    .tier = "avx512vnni",
    .need = NW_CPU_AVX512 | NW_CPU_AVX512VNNI,
    NW_LANES_OPS,
    .attend = attend,
};
