/* What is done to whole rows where weights are streamed: decode a panel, look for values that are not
 * finite, add up errors. Each is written once (panel_rows_body.h) and compiled for each instruction
 * set; results have the same bits for all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_PANEL_ROWS_H
#define NW_FORMATS_PANEL_ROWS_H

#include "formats/panel.h"

/* Rows of one panel: row r to out + r * ld, n_rows <= 16. */
typedef struct {
    nw_panel_type type;
    const uint8_t *panel;
    uint32_t n_rows, n_cols;
    float *out;
    size_t ld;
} nw_panel_rows;

/* Sums over values w and what they became, w'. The i-th value adds to sum i % 16; those are added in
 * order at the end. */
typedef struct {
    double sum_sq, sum_out_sq, sum_err_sq; /* of w, w', w - w' */
    double max_abs_err;
    uint64_t n_nonzero; /* of w' */
} nw_row_error;

typedef struct {
    void (*unpack)(const nw_panel_rows *p); /* types of nw_panel_rows_knows */
    nw_row_error (*error)(const float *w, const float *decoded, size_t n);
    nw_row_error (*panel_error)(const nw_panel_rows *p, const float *w); /* as nw_panel_error */
    bool (*is_finite)(const float *w, size_t n);                         /* all of them */
} nw_rows_fns;

extern const nw_rows_fns nw_rows_plain;
#if NW_HAVE_X86_KERNELS
extern const nw_rows_fns nw_rows_avx2, nw_rows_avx512;
#endif
/* The fastest that these features (base/cpu.h) allow. */
const nw_rows_fns *nw_rows_pick(uint32_t features);
bool nw_panel_rows_knows(nw_panel_type type);

/* The same values as nw_panel_unpack_row gives, for any type; by this machine's functions. */
void nw_panel_unpack_rows(const nw_panel_rows *p);
/* What the panel's values are off those of w, row r at w + r * p->ld; the sums of w' alone where w is
 * NULL (not finite where a value is not). p->out is room for what is decoded, and may be written. */
nw_row_error nw_panel_error(const nw_panel_rows *p, const float *w);
nw_row_error nw_row_error_of(const float *w, const float *decoded, size_t n);
bool nw_rows_finite(const float *w, size_t n);

#endif
