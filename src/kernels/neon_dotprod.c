/* The NEON tier of processors with sdot: only the products with INT8 activations differ from neon.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/lanes_tier.h"

static void attend(const nw_attn *a)
{
    nw_lanes_attend(a, &nw_kernels_neon_dotprod);
}

const nw_kernels nw_kernels_neon_dotprod = {
    .tier = "dotprod",
    .need = NW_CPU_NEON | NW_CPU_DOTPROD,
    NW_LANES_OPS,
    .attend = attend,
};
