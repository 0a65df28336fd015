/* The op table of a tier that is compiled from the bodies in lanes_*.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_TIER_H
#define NW_KERNELS_LANES_TIER_H

#include <assert.h>

#include "base/cpu.h"
#include "kernels/lanes_ops.h"
#include "kernels/tiers.h"

/* F32 activations, or INT8 where asked for: lanes_f32.h and lanes_a8.h. */
static inline nw_act_kind nw_lanes_act_kind(nw_panel_type type, bool a8)
{
    return a8 && nw_has_a8(type) ? NW_ACT_INT8 : NW_ACT_F32;
}

static inline void nw_lanes_attend(const nw_attn *a, const nw_kernels *tier)
{
    const nw_attn_ops ops = {.tier = tier,
                             .n_rows = NW_ATTN_VECTOR,
                             .softmax = nw_lanes_softmax,
                             .merge = nw_lanes_merge,
                             .scale = nw_lanes_scale};
    nw_attend_tiled(a, &ops);
}

/* All of a table but .tier, .need, .act_kind, .act_pack, .linear, .kv_put and .attend. */
#define NW_LANES_OPS                                                                   \
    .rmsnorm = nw_lanes_rmsnorm, .rope = nw_lanes_rope, .silu_mul = nw_lanes_silu_mul, \
    .gelu_tanh_mul = nw_lanes_gelu_tanh_mul, .add = nw_lanes_add_to, .softcap = nw_lanes_softcap

#endif
