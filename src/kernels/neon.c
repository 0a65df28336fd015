/* The NEON tier of every AArch64 processor: the bodies in lanes_*.h in vectors of 4.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/lanes_a8.h"
#include "kernels/lanes_tier.h"

static void linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy)
{
    assert(a->kind == nw_lanes_act_kind(w->type, a->kind == NW_ACT_INT8));
    (a->kind == NW_ACT_INT8 ? nw_la_linear : nw_neon_linear_f32)(w, a, panel0, panel1, y, ldy);
}

static void attend(const nw_attn *a)
{
    nw_lanes_attend(a, &nw_kernels_neon);
}

const nw_kernels nw_kernels_neon = {
    .tier = "neon",
    .need = NW_CPU_NEON,
    .act_kind = nw_lanes_act_kind,
    .act_pack = nw_act_pack_plain,
    .linear = linear,
    .kv_put = nw_kv_put_plain,
    .attend = attend,
    NW_LANES_OPS,
};
