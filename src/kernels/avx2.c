/* The table of the AVX2 tier (AVX2, FMA, F16C): integer and FP4 weights avx2_int.c, attention avx2_attn.c, the
 * rest the bodies in lanes_*.h in vectors of 8.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_attn.h"
#include "kernels/avx2_int.h"
#include "kernels/lanes_tier.h"
#include "kernels/x86.h"

static void linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy)
{
    assert(a->kind == nw_int_act_kind(w->type, a->kind == NW_ACT_INT8));
    (a->kind == NW_ACT_F32 ? nw_avx2_linear_f32 : nw_avx2_linear_int)(w, a, panel0, panel1, y, ldy);
}

const nw_kernels nw_kernels_avx2 = {
    .tier = "avx2",
    .need = NW_CPU_AVX2,
    .act_kind = nw_int_act_kind,
    .act_pack = nw_avx2_act_pack,
    .linear = linear,
    NW_LANES_OPS,
    .kv_put = nw_avx2_kv_put,
    .attend = nw_avx2_attend,
};
