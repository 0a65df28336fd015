/* The AVX-VNNI tier (AVX2 and 256-bit vpdpbusd, on processors without AVX-512): only the products
 * of bytes differ from the AVX2 tier.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_attn.h"
#include "kernels/avx2_many.h"
#include "kernels/avx2_one.h"
#include "kernels/lanes_tier.h"

#if defined(NW_VNNI_PLAIN) /* tests' builds of this file, see avx2_int.h */
#define NEED NW_CPU_AVX2
#elif defined(NW_VNNI_EVEX)
#define NEED (NW_CPU_AVX2 | NW_CPU_AVX512 | NW_CPU_AVX512VNNI)
#else
#define NEED (NW_CPU_AVX2 | NW_CPU_AVXVNNI)
#endif

static void linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy)
{
    assert(a->kind == nw_int_act_kind(w->type, a->kind == NW_ACT_INT8));
    if (a->kind == NW_ACT_F32) {
        nw_avx2_linear_f32(w, a, panel0, panel1, y, ldy);
    } else if (a->n_tokens <= nw_one_tokens(w->type)) {
        nw_one_linear(w, a, panel0, panel1, y, ldy);
    } else {
        nw_many_linear(w, a, panel0, panel1, y, ldy);
    }
}

const nw_kernels nw_kernels_avxvnni = {
    .tier = "avxvnni",
    .need = NEED,
    .act_kind = nw_int_act_kind,
    .act_pack = nw_avx2_act_pack,
    .linear = linear,
    NW_LANES_OPS,
    .kv_put = nw_avx2_kv_put,
    .attend = nw_avx2_attend,
};
