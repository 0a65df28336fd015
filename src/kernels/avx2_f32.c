/* linear with F32 activations: floats by avx2_float.c, what is left by lanes_f32.h in vectors of 8.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_float.h"
#include "kernels/lanes_f32.h"
#include "kernels/tiers.h"

void nw_avx2_linear_f32(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                        float *y, size_t ldy)
{
    const nw_panel_kind k = w->type.kind;

    if (k == NW_PANEL_F32 || k == NW_PANEL_BF16 || k == NW_PANEL_BF16_12 ||
        k == NW_PANEL_FP8_E4M3 || k == NW_PANEL_FP8_E5M2) {
        nw_avx2_linear_float(w, a, panel0, panel1, y, ldy);
    } else {
        nw_lf_linear(w, a, panel0, panel1, y, ldy);
    }
}
