/* panel_rows.h in the instructions that every processor of its kind has, and the choice among what there
 * is.
 * SPDX-License-Identifier: Apache-2.0 */
#define NW_ROWS nw_rows_plain
#include "base/cpu.h"
#include "formats/panel_rows_body.h"

const nw_rows_fns *nw_rows_pick(uint32_t features)
{
#if NW_HAVE_X86_KERNELS
    if ((features & NW_CPU_AVX512) != 0) {
        return &nw_rows_avx512;
    }
    if ((features & NW_CPU_AVX2) != 0) {
        return &nw_rows_avx2;
    }
#endif
    (void)features;
    return &nw_rows_plain;
}

bool nw_panel_rows_knows(nw_panel_type type)
{
    return !type.two_level &&
           (type.kind == NW_PANEL_BF16 || type.kind == NW_PANEL_INT8 || type.kind == NW_PANEL_INT4);
}

void nw_panel_unpack_rows(const nw_panel_rows *p)
{
    if (nw_panel_rows_knows(p->type)) {
        nw_rows_pick(nw_cpu_features())->unpack(p);
        return;
    }
    for (uint32_t r = 0; r < p->n_rows; r++) {
        nw_panel_unpack_row(p->type, p->panel, p->n_cols, r, p->out + r * p->ld);
    }
}

nw_row_error nw_row_error_of(const float *w, const float *decoded, size_t n)
{
    return nw_rows_pick(nw_cpu_features())->error(w, decoded, n);
}

bool nw_rows_finite(const float *w, size_t n)
{
    return nw_rows_pick(nw_cpu_features())->is_finite(w, n);
}
