/* The AVX-VNNI tier (AVX2 and 256-bit vpdpbusd, on processors without AVX-512): only the products
 * with INT8 activations differ from the AVX2 tier.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_attn.h"
#include "kernels/lanes_tier.h"

#if defined(NW_VNNI_EVEX) /* a test's build of this file, see lanes_avx2.h */
#define NEED (NW_CPU_AVX2 | NW_CPU_AVX512 | NW_CPU_AVX512VNNI)
#else
#define NEED (NW_CPU_AVX2 | NW_CPU_AVXVNNI)
#endif

static void linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy)
{
    assert(a->kind == nw_lanes_act_kind(w->type, a->kind == NW_ACT_INT8));
    (a->kind == NW_ACT_INT8 ? nw_la_linear : nw_avx2_linear_f32)(w, a, panel0, panel1, y, ldy);
}

const nw_kernels nw_kernels_avxvnni = {
    .tier = "avxvnni",
    .need = NEED,
    .linear = linear,
    NW_LANES_OPS,
    .kv_put = nw_avx2_kv_put,
    .attend = nw_avx2_attend,
};
