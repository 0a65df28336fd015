/* The table of the AVX-512 tier: BF16 activations for BF16, INT8 and INT4 weights, INT8 activations
 * where asked for, F32 for F32 weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "base/cpu.h"
#include "kernels/avx512_ops.h"
#include "kernels/tiers.h"

/* The layouts with a kernel of their own here; the others run as the reference does. */
static bool is_fast(nw_panel_type type)
{
    return type.kind <= NW_PANEL_INT4 && !type.min &&
           (type.kind != NW_PANEL_INT8 || type.group == 0);
}

static nw_act_kind act_kind(nw_panel_type type, bool a8)
{
    const bool has_a8 = type.kind == NW_PANEL_INT8 || type.kind == NW_PANEL_INT4;
    if (!is_fast(type)) {
        return nw_kernels_ref.act_kind(type, a8);
    }
    if (type.kind == NW_PANEL_F32) {
        return NW_ACT_F32;
    }
    return a8 && has_a8 ? NW_ACT_INT8 : NW_ACT_BF16;
}

static void linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy)
{
    const bool a8 = a->kind == NW_ACT_INT8;

    assert(a->kind == act_kind(w->type, a8));
    if (!is_fast(w->type)) {
        nw_kernels_ref.linear(w, a, panel0, panel1, y, ldy);
        return;
    }
    switch (w->type.kind) {
    case NW_PANEL_F32:
        nw_avx512_linear_f32(w, a, panel0, panel1, y, ldy);
        return;
    case NW_PANEL_BF16:
        nw_avx512_linear_bf16(w, a, panel0, panel1, y, ldy);
        return;
    case NW_PANEL_INT8:
        (a8 ? nw_avx512_linear_int8_a8 : nw_avx512_linear_int8_a16)(w, a, panel0, panel1, y, ldy);
        return;
    case NW_PANEL_INT4:
        (a8 ? nw_avx512_linear_int4_a8 : nw_avx512_linear_int4_a16)(w, a, panel0, panel1, y, ldy);
        return;
    case NW_PANEL_FP8_E4M3:
    case NW_PANEL_FP8_E5M2:
    case NW_PANEL_NVFP4:
    case NW_PANEL_MXFP4:
    case NW_PANEL_BF16_12:
    case NW_PANEL_KINDS:
        break;
    }
}

static void attend(const nw_attn *a)
{
    static const nw_attn_ops ops = {.tier = &nw_kernels_avx512,
                                    .softmax = nw_avx512_softmax,
                                    .merge = nw_avx512_merge,
                                    .scale = nw_avx512_scale};
    nw_attend_tiled(a, &ops);
}

const nw_kernels nw_kernels_avx512 = {
    .tier = "avx512",
    .need = NW_CPU_AVX512 | NW_CPU_AVX512VNNI | NW_CPU_AVX512VBMI | NW_CPU_AVX512BF16,
    .act_kind = act_kind,
    .act_pack = nw_avx512_act_pack,
    .linear = linear,
    .rmsnorm = nw_avx512_rmsnorm,
    .rope = nw_avx512_rope,
    .silu_mul = nw_avx512_silu_mul,
    .gelu_tanh_mul = nw_avx512_gelu_tanh_mul,
    .add = nw_avx512_add,
    .softcap = nw_avx512_softcap,
    .kv_put = nw_avx512_kv_put,
    .attend = attend,
};
