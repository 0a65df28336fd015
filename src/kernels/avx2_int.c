/* linear of integer and FP4 weights x INT8 or INT16 activations in the AVX2 tier.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_many.h"
#include "kernels/avx2_one.h"
#include "kernels/tiers.h"

void nw_avx2_linear_int(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                        float *y, size_t ldy)
{
    if (a->n_tokens <= nw_one_tokens(w->type)) {
        nw_one_linear(w, a, panel0, panel1, y, ldy);
    } else if (a->kind == NW_ACT_INT8 && w->type.kind != NW_PANEL_INT8) {
        nw_avx2_linear_nibble(w, a, panel0, panel1, y, ldy);
    } else {
        nw_many_linear(w, a, panel0, panel1, y, ldy);
    }
}
