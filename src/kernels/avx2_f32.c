/* linear with F32 activations: lanes_f32.h in vectors of 8.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/lanes_f32.h"
#include "kernels/tiers.h"

void nw_avx2_linear_f32(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                        float *y, size_t ldy)
{
    nw_lf_linear(w, a, panel0, panel1, y, ldy);
}
