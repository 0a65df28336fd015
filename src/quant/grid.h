/* The grid of values that a layout offers to a group of columns, for 16 rows at a time (rows in
 * lanes: tile[column][16]): w' = scale * code + offset, where the offset is none, -8 scale, -zero *
 * scale with a stored zero point, or a stored minimum. Scales, zero points and minima here are
 * always ones that can be stored.
 *
 * Fitting a grid to a group: a search over scales, and for each the closed-form least-squares scale
 * (and minimum) of the codes that it gives, weighted by the importance of each column. With
 * u = code - zero, sums over the columns of the group with weights h:
 *
 *   scale only          s = sum h w u / sum h u^2
 *   scale and minimum   s = (H sum h w q - sum h q sum h w) / (H sum h q^2 - (sum h q)^2),
 *                       m = (sum h w - s sum h q) / H,   H = sum h
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_GRID_H
#define NW_QUANT_GRID_H

#include "formats/panel.h"
#include "quant/lanes.h"
#include "quant/rtn.h"

typedef enum {
    NW_GRID_CENTERED, /* int8: no offset */
    NW_GRID_MID,      /* int4: zero is code 8 */
    NW_GRID_ZERO,     /* with zero points */
    NW_GRID_MIN,      /* with minima */
    NW_GRID_FP4       /* nvfp4, mxfp4: codes are the values of E2M1 */
} nw_grid_kind;

typedef struct {
    nw_grid_kind kind;
    float lo, hi;    /* codes */
    bool f32_scale;  /* otherwise FP16 */
    bool bf16_scale; /* of either: only BF16 values */
    bool e4m3_scale; /* of FP4: E4M3 times tensor_scale; otherwise a power of two */
    float tensor_scale;
    uint32_t group; /* columns that share a scale: nw_panel_scale_cols */
    bool tensor;    /* all rows share it too: the fit is nw_grid_tensor_fit */
} nw_grid;

/* False for layouts that are no such grid (wider floats, two-level scales). An nvfp4 grid has the
 * tensor scale of scales->absmax. */
NW_MUST_USE bool nw_grid_of(nw_panel_type type, const nw_scales *scales, uint32_t n_cols,
                            nw_grid *out);

/* Scale and offset of one group of 16 rows; `zero` is the code that stands for 0 (zero points). */
typedef struct {
    float scale[NW_LANES], offset[NW_LANES], zero[NW_LANES];
} nw_grid_fit;

/* Codes of one column under a fit, as floats, and the values they stand for. */
void nw_grid_encode(const nw_grid *g, const nw_grid_fit *fit, const float *w, float *code,
                    float *value);

/* A wanted scale as it will be stored. */
float nw_grid_store_scale(const nw_grid *g, float scale);
/* Rounds a wanted scale and offset to ones that can be stored: offset is used by NW_GRID_MIN alone,
 * other kinds derive it from fit->zero. */
void nw_grid_store(const nw_grid *g, const float *scale, const float *offset, nw_grid_fit *fit);

/* What an error of a group counts: sum over columns of h[k] d_k^2 (h NULL: all 1; none is negative), or
 * d^T M d with the group's block M = full [n][ld] of the inputs' second moments, where it is there
 * and n is at most NW_GRID_FULL. Refits go by h in any case. */
#define NW_GRID_FULL 256u
typedef struct {
    const float *h, *full;
    size_t ld;
} nw_grid_metric;

/* The best fit found for tile [n][16], n <= group columns. A group of zeros gets scale 0. */
void nw_grid_search(const nw_grid *g, const float *tile, const nw_grid_metric *m, uint32_t n,
                    nw_grid_fit *fit);
/* Scale and offset of least squares, weighted by h, for the codes that `fit` gives; lanes where that
 * has no meaning (a group of one code) keep what they have. */
void nw_grid_refit(const nw_grid *g, const float *tile, const float *h, uint32_t n,
                   nw_grid_fit *fit);

/* ---- one scale a tensor ----
 * The same search without refits, over fractions of what the whole tensor's extent asks for. */
int nw_grid_n_candidates(const nw_grid *g);
/* Candidate i, the same in all lanes; lo <= 0 <= hi. */
void nw_grid_candidate(const nw_grid *g, float lo, float hi, int i, nw_grid_fit *fit);
/* The squared errors of tile [n][16] under a fit, a lane. */
void nw_grid_errors(const nw_grid *g, const float *tile, uint32_t n, const nw_grid_fit *fit,
                    float errors[NW_LANES]);
/* The best for tile [n][16] as a whole tensor; that of `scales`, where it has one. */
void nw_grid_tensor_fit(const nw_grid *g, const nw_scales *scales, const float *tile, uint32_t n,
                        nw_grid_fit *fit);

/* Packs codes [n_cols][16] and the fits of all groups into one panel. False when a scale or minimum
 * is not finite as stored; *bad_row then names the row. scratch: nw_grid_scratch_bytes. */
bool nw_grid_pack(nw_panel_type type, const nw_grid *g, const float *codes, const nw_grid_fit *fits,
                  uint32_t n_rows, uint32_t n_cols, uint8_t *panel, void *scratch,
                  uint32_t *bad_row);
size_t nw_grid_scratch_bytes(uint32_t n_cols);

#endif
