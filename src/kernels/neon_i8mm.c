/* The NEON tier of processors with usdot: only the products with INT8 activations differ from neon.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/lanes_tier.h"

static void attend(const nw_attn *a)
{
    nw_lanes_attend(a, &nw_kernels_neon_i8mm);
}

const nw_kernels nw_kernels_neon_i8mm = {
    .tier = "i8mm",
    .need = NW_CPU_NEON | NW_CPU_I8MM,
    NW_LANES_OPS,
    .attend = attend,
};
