/* The NEON tier of every AArch64 processor: the bodies in lanes_*.h in vectors of 4.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/lanes_tier.h"

static void attend(const nw_attn *a)
{
    nw_lanes_attend(a, &nw_kernels_neon);
}

const nw_kernels nw_kernels_neon = {
    .tier = "neon",
    .need = NW_CPU_NEON,
    NW_LANES_OPS,
    .attend = attend,
};
