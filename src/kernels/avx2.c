/* The table of the AVX2 tier: F32 activations, or INT8 where asked for. Packing and page encoding
 * are the plain ones, which are small beside the products.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2.h"

#include <assert.h>

#include "base/cpu.h"
#include "kernels/group.h"
#include "kernels/tiers.h"

static nw_act_kind act_kind(nw_panel_type type, bool a8)
{
    return a8 && nw_has_a8(type) ? NW_ACT_INT8 : NW_ACT_F32;
}

static void linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy)
{
    assert(a->kind == act_kind(w->type, a->kind == NW_ACT_INT8));
    if (a->kind == NW_ACT_INT8) {
        nw_avx2_linear_a8(w, a, panel0, panel1, y, ldy);
    } else if (nw_has_groups(w->type)) {
        nw_avx2_linear_group(w, a, panel0, panel1, y, ldy);
    } else {
        nw_avx2_linear_f32(w, a, panel0, panel1, y, ldy);
    }
}

static void attend(const nw_attn *a)
{
    static const nw_attn_ops ops = {.tier = &nw_kernels_avx2,
                                    .softmax = nw_avx2_softmax,
                                    .merge = nw_avx2_merge,
                                    .scale = nw_avx2_scale};
    nw_attend_tiled(a, &ops);
}

const nw_kernels nw_kernels_avx2 = {
    .tier = "avx2",
    .need = NW_CPU_AVX2,
    .act_kind = act_kind,
    .act_pack = nw_act_pack_plain,
    .linear = linear,
    .rmsnorm = nw_avx2_rmsnorm,
    .rope = nw_avx2_rope,
    .silu_mul = nw_avx2_silu_mul,
    .gelu_tanh_mul = nw_avx2_gelu_tanh_mul,
    .add = nw_avx2_add,
    .softcap = nw_avx2_softcap,
    .kv_put = nw_kv_put_plain,
    .attend = attend,
};
