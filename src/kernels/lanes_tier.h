/* The op table of a tier that is compiled from the bodies in lanes_*.h: F32 activations, or INT8 where
 * asked for. Packing and page encoding are the plain ones, which are small beside the products. A
 * tier's file is its table alone; its flags (CMakeLists.txt) make the code.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_TIER_H
#define NW_KERNELS_LANES_TIER_H

#include <assert.h>

#include "base/cpu.h"
#include "kernels/lanes_a8.h"
#include "kernels/lanes_f32.h"
#include "kernels/lanes_ops.h"
#include "kernels/tiers.h"

/* The layouts with a kernel of their own here; the others run as the reference does. */
static inline bool nw_lanes_has(nw_panel_type type)
{
    return type.kind <= NW_PANEL_INT4 && !type.min &&
           (type.kind != NW_PANEL_INT8 || type.group == 0);
}

static inline nw_act_kind nw_lanes_act_kind(nw_panel_type type, bool a8)
{
    return a8 && nw_has_a8(type) ? NW_ACT_INT8 : NW_ACT_F32;
}

static inline void nw_lanes_linear(const nw_weight *w, const nw_act *a, uint32_t panel0,
                                   uint32_t panel1, float *y, size_t ldy)
{
    assert(a->kind == nw_lanes_act_kind(w->type, a->kind == NW_ACT_INT8));
    if (!nw_lanes_has(w->type)) {
        nw_kernels_ref.linear(w, a, panel0, panel1, y, ldy);
    } else if (a->kind == NW_ACT_INT8) {
        nw_la_linear(w, a, panel0, panel1, y, ldy);
    } else {
        nw_lf_linear(w, a, panel0, panel1, y, ldy);
    }
}

static inline void nw_lanes_attend(const nw_attn *a, const nw_kernels *tier)
{
    const nw_attn_ops ops = {.tier = tier,
                             .softmax = nw_lanes_softmax,
                             .merge = nw_lanes_merge,
                             .scale = nw_lanes_scale};
    nw_attend_tiled(a, &ops);
}

/* All of a table but .tier, .need and .attend. */
#define NW_LANES_OPS                                                                              \
    .act_kind = nw_lanes_act_kind, .act_pack = nw_act_pack_plain, .linear = nw_lanes_linear,      \
    .rmsnorm = nw_lanes_rmsnorm, .rope = nw_lanes_rope, .silu_mul = nw_lanes_silu_mul,            \
    .gelu_tanh_mul = nw_lanes_gelu_tanh_mul, .add = nw_lanes_add_to, .softcap = nw_lanes_softcap, \
    .kv_put = nw_kv_put_plain

#endif
