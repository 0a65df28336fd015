/* How the codes of a matrix are chosen. One row a method, one function a panel:
 *
 *   rtn         round to nearest under searched scales (rtn.h); as refit where a layout has groups
 *               that rtn.h does not know (INT8 in groups, minima)
 *   refit       the search with the least-squares refit of scale and minimum (grid.h)
 *   hqq         that fit, refined for the many small errors (hqq.h); integer layouts
 *   imatrix     as refit, each column weighted by the mean of its input's square
 *   awq         as imatrix, but fits are compared by the output error of their group, its whole block of
 *               the second moments: AWQ's clipping; the recipe scales channels first (channel_scales.h)
 *   gptq        scales as imatrix, codes by GPTQ (gptq.h)
 *   gptq-refit  the same, then codes, scales and minima polished under the whole Hessian
 *
 * The last four need calibration statistics of the matrix's input.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_METHOD_H
#define NW_QUANT_METHOD_H

#include "formats/format.h"
#include "quant/hessian.h"
#include "quant/rtn.h"

typedef enum {
    NW_METHOD_RTN,
    NW_METHOD_REFIT,
    NW_METHOD_HQQ,
    NW_METHOD_IMATRIX,
    NW_METHOD_AWQ,
    NW_METHOD_GPTQ,
    NW_METHOD_GPTQ_REFIT,
    NW_METHOD_COUNT
} nw_method;

const char *nw_method_name(nw_method m);
NW_MUST_USE bool nw_method_parse(const char *name, nw_method *out);
bool nw_method_needs_stats(nw_method m);
bool nw_method_needs_factor(nw_method m); /* of the Hessian */
/* False where the method has no meaning for a layout: floats; awq for groups of more than NW_GRID_FULL
 * columns and for whole rows; all but rtn and gptq for one scale a tensor. */
bool nw_method_knows(nw_method m, nw_panel_type type);
/* The method itself, or what is done in its place: imatrix for awq, gptq for gptq-refit, else rounding to
 * nearest. */
nw_method nw_method_for(nw_method m, nw_panel_type type);
/* Whether any method writes this layout. */
bool nw_method_writes(nw_panel_type type);
/* Sentence for the manifest: what the method does to this layout. */
const char *nw_method_text(nw_method m, nw_panel_type type, nw_scale_rule rule);

/* What all panels of a matrix share; read-only. */
typedef struct {
    nw_method method;
    nw_panel_type type;
    nw_format_id block;  /* a block type whose encoder chooses (block_method.h); F32: none */
    nw_scales scales;    /* the rule is of rtn */
    const nw_hessian *h; /* of the matrix's input; NULL where the method needs none. Without h->h,
                          * importance alone: no output error is measured */
    uint32_t n_cols;
} nw_method_job;

/* Squared error of the outputs and their power, E |(W - W') x|^2 and E |W x|^2; 0 without h. */
typedef struct {
    double err, power;
} nw_output_error;

/* rows [n_rows][n_cols], n_rows <= 16, finite, to one panel. scratch: nw_method_scratch_bytes, for
 * one caller at a time. False as nw_rtn_pack_panel. */
bool nw_method_pack_panel(const nw_method_job *j, const float *rows, uint32_t n_rows,
                          uint8_t *panel, void *scratch, nw_output_error *out, uint32_t *bad_row);
size_t nw_method_scratch_bytes(const nw_method_job *j);

#endif
