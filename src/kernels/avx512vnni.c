/* The AVX-512 tier of processors with VNNI but without VBMI or BF16: the bodies in lanes_*.h in
 * vectors of 16, floats by FMA.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/lanes_a8.h"
#include "kernels/lanes_tier.h"

static void linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy)
{
    assert(a->kind == nw_lanes_act_kind(w->type, a->kind == NW_ACT_INT8));
    (a->kind == NW_ACT_INT8 ? nw_la_linear : nw_avx512vnni_linear_f32)(w, a, panel0, panel1, y,
                                                                       ldy);
}

static void attend(const nw_attn *a)
{
    nw_lanes_attend(a, &nw_kernels_avx512vnni);
}

const nw_kernels nw_kernels_avx512vnni = {
    .tier = "avx512vnni",
    .need = NW_CPU_AVX512 | NW_CPU_AVX512VNNI,
    .act_kind = nw_lanes_act_kind,
    .act_pack = nw_act_pack_plain,
    .linear = linear,
    .kv_put = nw_kv_put_plain,
    .attend = attend,
    NW_LANES_OPS,
};
