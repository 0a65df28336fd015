/* The table of the AVX-512 tier. Codes of 4 or 8 bits that stand for small integers (FP4 doubled) take
 * activations of 16 bits, or of 8 where asked for; bf16, bf16-12 and fp8 take BF16, f32 F32.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "kernels/avx512_attn.h"
#include "kernels/avx512_ops.h"
#include "kernels/group.h"
#include "kernels/tiers.h"

nw_act_kind nw_avx512_act_kind(nw_panel_type type, bool a8)
{
    if (type.kind == NW_PANEL_F32) {
        return NW_ACT_F32;
    }
    return !nw_has_a8(type) ? NW_ACT_BF16 : a8 ? NW_ACT_INT8 : NW_ACT_INT16;
}

static nw_avx512_linear *as_bf16(nw_panel_type type)
{
    return type.kind == NW_PANEL_BF16      ? nw_avx512_linear_bf16
           : type.kind == NW_PANEL_BF16_12 ? nw_avx512_linear_bf16_12
                                           : nw_avx512_linear_row_a16;
}

static nw_avx512_linear *linear_of(nw_panel_type type, nw_act_kind act)
{
    if (nw_is_plain_nibble(type)) {
        return nw_avx512_linear_nibble;
    }
    switch (act) {
    case NW_ACT_F32:
        return nw_avx512_linear_f32;
    case NW_ACT_BF16:
        return as_bf16(type);
    case NW_ACT_INT8:
        return nw_has_groups(type) ? nw_avx512_linear_group_a8 : nw_avx512_linear_row_a8;
    case NW_ACT_INT16:
        break;
    }
    return nw_avx512_linear_int_a16;
}

nw_tile_fn nw_avx512_stream(nw_panel_type type, nw_act_kind act)
{
    if (nw_is_plain_nibble(type)) {
        return nw_avx512_nibble_one(type, act == NW_ACT_INT8 ? 1 : 2);
    }
    if (type.kind != NW_PANEL_INT8 || nw_has_groups(type)) {
        return NULL;
    }
    return act == NW_ACT_INT8 ? nw_avx512_row_a8_one : nw_avx512_row_a16_one;
}

static void linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy)
{
    linear_of(w->type, a->kind)(w, a, panel0, panel1, y, ldy);
}

void nw_avx512_attend(const nw_attn *a)
{
    static const nw_attn_ops ops = {.tier = &nw_kernels_avx512,
                                    .n_rows = NW_ATTN_VECTOR,
                                    .scale = nw_avx512_scale,
                                    .load = nw_avx512_attn_load,
                                    .page = nw_avx512_attn_page,
                                    .join = nw_avx512_attn_join,
                                    .rotate = nw_avx512_rotate};
    nw_attend_tiled(a, &ops);
}

const nw_kernels nw_kernels_avx512 = {
    .tier = "avx512",
    .need = NW_AVX512_NEED,
    .linear = linear,
    .attend = nw_avx512_attend,
    NW_AVX512_OPS,
};
