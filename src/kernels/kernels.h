/* The op table: every number-heavy loop of the engine, picked once at run time by CPU features.
 * Kernels allocate nothing, start no threads and keep no state; any may run at the same time on
 * different outputs. All pointers are borrowed for the call; none needs alignment unless said.
 *
 * Bits: within a tier, the numbers of a token depend on that token and the weights alone: not on
 * n_tokens, on its place in the batch, on how panels or tokens are split over threads, or on
 * alignment. Tiers differ from the reference by rounding only (tests/kernels holds the bounds).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_KERNELS_H
#define NW_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/panel.h"
#include "kernels/attention.h"

/* A weight matrix [n_rows][n_cols] in panels; y = W x. A view. */
typedef struct {
    nw_panel_type type;
    const uint8_t *data;
    uint32_t n_rows, n_cols;
} nw_weight;

/* Packed activations: one row a token, the row stride is nw_act_stride(). INT8 is symmetric per
 * token: scale = absmax / 127, code = nearest-even(x * (127 / absmax)). INT16 is symmetric per token
 * and 128 columns: scale = absmax / 32639, code likewise; its error stays below that of bf16 even
 * beside an outlier (docs/methods.md), and integer dot products take it in two bytes. Where absmax is
 * below 2^-100 codes are zeros; a NaN or Inf gives NaN outputs. */
typedef enum { NW_ACT_F32, NW_ACT_BF16, NW_ACT_INT8, NW_ACT_INT16 } nw_act_kind;
#define NW_ACT_KINDS 4u

typedef struct {
    nw_act_kind kind;
    uint32_t n_tokens, n_cols;
    const void *data; /* nw_act_bytes(), 64-byte aligned, filled by act_pack */
} nw_act;

/* Columns of packed activations are padded with zeros to a multiple of this (the largest group). */
#define NW_ACT_COLS 128u

typedef struct nw_kernels {
    const char *tier; /* "ref", or named after the instructions: "avx512vnni" */
    uint32_t need;    /* nw_cpu_feature bits */

    /* The activations this tier wants for a weight. a8 asks for int8 activations; types that have
     * none (f32, bf16, bf16-12, fp8) ignore it. */
    nw_act_kind (*act_kind)(nw_panel_type type, bool a8);
    /* Packs tokens [t0, t1) of x [n_tokens][ldx] into dst, the buffer of all the tokens: disjoint
     * ranges may be packed by different threads. dst is 64-byte aligned. */
    void (*act_pack)(nw_act_kind kind, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                     uint32_t n_cols, void *dst);
    /* y[t][r] = sum over c of w[r][c] * a[t][c] for the rows of panels [panel0, panel1): written,
     * not accumulated; y [n_tokens][ldy] starts at row 0 of the matrix; rows >= n_rows are not
     * written. a->kind is act_kind(w->type, ...) and a->n_cols == w->n_cols; int8 activations
     * of int8 weights without groups want n_cols <= 65536 (int32 sums stay exact). */
    void (*linear)(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy);

    /* y[i] = x[i] * gain[i] / sqrt(mean(x^2) + eps); y may be x. */
    void (*rmsnorm)(const float *x, const float *gain, uint32_t n, float eps, float *y);
    /* Rotates x [n_heads][d_head] in place, halves split: (x[i], x[i + d_head/2]) turned by the
     * angle whose cos and sin stand at [i], i < d_head/2, of the caller's table row. */
    void (*rope)(float *x, uint32_t n_heads, uint32_t d_head, const float *cos, const float *sin);
    /* y = silu(gate) * up and y = gelu_tanh(gate) * up; y may be gate or up. */
    void (*silu_mul)(const float *gate, const float *up, size_t n, float *y);
    void (*gelu_tanh_mul)(const float *gate, const float *up, size_t n, float *y);
    /* y += x. */
    void (*add)(const float *x, size_t n, float *y);
    /* x = cap * tanh(x / cap) in place (logit softcap). */
    void (*softcap)(float *x, size_t n, float cap);

    /* Pages of keys and values, and attention over them: attention.h. */
    void (*kv_put)(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                   uint8_t *k_page, uint8_t *v_page);
    void (*attend)(const nw_attn *a);
} nw_kernels;

/* Bytes from a token's packed row to the next (an odd number of 64-byte lines: rows of a tile must
 * not fall on the same sets of a cache), and of n_tokens rows. All tiers share this layout:
 *   f32:  the values, padded with zeros to NW_ACT_COLS
 *   bf16: the same, then f32 sums of each 16 of them (of the padded values, halves added to halves)
 *   int8: f32 scale, i32 sum of all codes, 56 bytes unused, i32 sums of each 16 codes, then of each
 *         32, 64, 128 (to 64 bytes), codes, padded with zeros to NW_ACT_COLS
 *   int16: f32 scales of each 128 columns (padded to 64 bytes), sums as int8, then the codes' high
 *         bytes and their low ones, code = 256 * s8 high + s8 low, both padded like int8's codes */
size_t nw_act_stride(nw_act_kind kind, uint32_t n_cols);
/* 0 on overflow. */
size_t nw_act_bytes(nw_act_kind kind, uint32_t n_tokens, uint32_t n_cols);

/* How many products of the instruction that multiplies bytes (`narrow doctor` names it) one product of a
 * layer costs: 2 with INT16 activations, which are two bytes, and for INT8 weights in the AVX2 tier, whose
 * products overflow it and go at half its rate as words; otherwise 1. In the AMX tier that instruction is the tiles',
 * and what vectors multiply there shows as a small share of it. */
unsigned nw_kernels_dots(const nw_kernels *k, nw_panel_type type, nw_act_kind act);

/* Best tier first, the reference last: a list for tests and for `narrow doctor`. */
const nw_kernels *const *nw_kernels_list(size_t *n);
/* The best tier whose needs are in cpu_features (nw_cpu_features()); never NULL. */
const nw_kernels *nw_kernels_pick(uint32_t cpu_features);
/* NULL for an unknown name. The caller checks ->need against the CPU. */
const nw_kernels *nw_kernels_by_name(const char *tier);

#endif
