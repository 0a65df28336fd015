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

static void add(nw_row_error *sum, const nw_row_error *e)
{
    sum->sum_sq += e->sum_sq;
    sum->sum_out_sq += e->sum_out_sq;
    sum->sum_err_sq += e->sum_err_sq;
    sum->max_abs_err = e->max_abs_err > sum->max_abs_err ? e->max_abs_err : sum->max_abs_err;
    sum->n_nonzero += e->n_nonzero;
}

nw_row_error nw_panel_error(const nw_panel_rows *p, const float *w)
{
    nw_row_error sum = {0};

    if (nw_panel_rows_knows(p->type)) {
        return nw_rows_pick(nw_cpu_features())->panel_error(p, w);
    }
    nw_panel_unpack_rows(p);
    for (uint32_t r = 0; r < p->n_rows; r++) {
        const float *decoded = p->out + r * p->ld;
        const nw_row_error e =
            nw_row_error_of(w != NULL ? w + r * p->ld : decoded, decoded, p->n_cols);
        add(&sum, &e);
    }
    return sum;
}

nw_row_error nw_row_error_of(const float *w, const float *decoded, size_t n)
{
    return nw_rows_pick(nw_cpu_features())->error(w, decoded, n);
}

bool nw_rows_finite(const float *w, size_t n)
{
    return nw_rows_pick(nw_cpu_features())->is_finite(w, n);
}
