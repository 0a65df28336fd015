/* linear with F32 activations for every panel type, in lanes.h vectors. A column of a panel is decoded
 * to NW_PARTS vectors, with the scale and minimum of its group but not of its row, and multiplied
 * into one accumulator a row and token, columns in the stored order; so bf16-12 gives the bits of
 * bf16. Vector i of a tile is part i % NW_PARTS of panel i / NW_PARTS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_F32_H
#define NW_KERNELS_LANES_F32_H

#include <assert.h>

#include "formats/bf16_12.h"
#include "kernels/lanes_scales.h"

#define NW_LANES_MOST 16u /* accumulators of the largest tile */

/* One token against panels of 8 vectors: 8 accumulators cover the latency of an FMA. */
#define NW_LF_WIDE (8u / NW_PARTS)

/* How a step reads: a column of F32, a pair of BF16, a quad of bytes or BF16-12, 8 columns of nibbles. */
typedef enum {
    NW_LF_F32,
    NW_LF_BF16,
    NW_LF_BF16_12,
    NW_LF_INT8,
    NW_LF_E4M3,
    NW_LF_E5M2,
    NW_LF_BYTES, /* from here on with groups */
    NW_LF_NIBBLES,
    NW_LF_FP4 /* low and high nibbles with scales of their own */
} nw_lf_kind;

NW_INLINE unsigned nw_lf_columns(const nw_lf_kind k)
{
    return k == NW_LF_F32 ? 1 : k == NW_LF_BF16 ? 2 : k < NW_LF_NIBBLES ? 4 : 8;
}

/* ---- one column of the rows of one part, `row` the first of them ---- */

/* Of a pair as bfloat16, the first column low. */
NW_INLINE nw_lanes_f nw_lf_bf16(nw_lanes_i pair, unsigned c)
{
    return nw_lanes_from_bits(c == 0 ? nw_lanes_left(pair, 16)
                                     : nw_lanes_and(pair, nw_lanes_int((int32_t)0xFFFF0000U)));
}

/* Columns 0, 1 or 2, 3 of a quad of bf16-12 as such a pair; `exponents` a table (formats/bf16_12.h). */
NW_INLINE nw_lanes_i nw_lf_pair_of_12(const uint8_t *p, size_t row, unsigned pair,
                                      nw_lanes_i exponents)
{
    const nw_lanes_i sm = nw_lanes_pairs_s8(p + (size_t)pair * 32 + row * 2);
    const nw_lanes_i both = nw_lanes_pairs_u8(p + 64 + row * 2);
    const nw_lanes_i code =
        nw_lanes_and(pair == 0 ? both : nw_lanes_right(both, 4), nw_lanes_int(0x000F000F));
    const nw_lanes_i e = nw_lanes_left(nw_lanes_lookup(exponents, code), 7);
    return nw_lanes_or(nw_lanes_and(sm, nw_lanes_int((int32_t)0x807F807FU)),
                       nw_lanes_and(e, nw_lanes_int(0x7F807F80)));
}

/* Column c of a quad of fp8; E4M3 2^-8 times as large. */
NW_INLINE nw_lanes_f nw_lf_fp8(const uint8_t *p, size_t row, unsigned c, const bool e4m3)
{
    const nw_lanes_h pair = nw_lanes_split(p + row * 4, c / 2);
    const nw_lanes_h x = c % 2 == 0 ? nw_lanes_left_h(pair, 8) : pair;
    return e4m3 ? nw_lanes_small_e4m3(x) : nw_lanes_from_f16(nw_lanes_and_h(x, 0xFF00));
}

/* The codes of groups as floats, nibbles less their zero points: w is scale * this + min. */
NW_INLINE nw_lanes_f nw_lf_code(const uint8_t *p, const nw_lf_kind k, size_t row, unsigned c,
                                nw_lanes_i zero)
{
    const nw_lanes_i v = nw_lanes_bytes(p + row * 4);

    if (k == NW_LF_INT8 || k == NW_LF_BYTES) {
        return nw_lanes_float(nw_lanes_s8_of(nw_lanes_flip(v), c));
    }
    const nw_lanes_i codes =
        nw_lanes_and(nw_lanes_right(v, c < 4 ? 0 : 4), nw_lanes_int(0x0F0F0F0F));
    if (k == NW_LF_NIBBLES) {
        const nw_lanes_i code = nw_lanes_s8_of(codes, c % 4);
        return nw_lanes_float(nw_lanes_sub_i(code, zero));
    }
    const nw_lanes_i value = nw_lanes_lookup(nw_lanes_table(nw_lanes_e2m1), codes);
    return nw_lanes_float(nw_lanes_s8_of(value, c % 4));
}

/* ---- a tile ---- */

/* What a tile keeps of each panel; a type without groups is one group here. */
typedef struct {
    nw_groups g;
    uint32_t steps;
    const uint8_t *exponents[8]; /* bf16-12, and its escapes that are still to come */
    const nw_bf16_escape *escape[8], *end[8];
} nw_lf_tile_state;

NW_INLINE void nw_lf_begin(const nw_tile *t, nw_lf_tile_state *s, const nw_lf_kind k,
                           const unsigned nv)
{
    const unsigned columns = nw_lf_columns(k);

    if (k >= NW_LF_BYTES) {
        s->g = nw_groups_of(t->type, t->n_cols);
        s->steps = s->g.steps;
        return;
    }
    s->steps = (t->n_cols + columns - 1) / columns;
    s->g = (nw_groups){.n_groups = 1, .per_block = 1};
    s->g.first = k == NW_LF_F32 || k == NW_LF_BF16 ? 0 : 64;
    if (k == NW_LF_BF16_12) {
        NW_EACH(v, nv) {
            uint32_t n = 0;
            s->exponents[v] = t->w + v * t->w_stride;
            s->escape[v] = nw_bf16_12_escapes(t->type, s->exponents[v], t->n_cols, &n);
            s->end[v] = s->escape[v] + n;
        }
    }
}

/* Quad j of a bf16-12 panel as two steps of bf16, escapes in place. */
static inline void nw_lf_plain_quad(nw_lf_tile_state *s, unsigned v, size_t j, const uint8_t *p,
                                    uint8_t out[128])
{
    for (unsigned i = 0; i < 64; i++) { /* value i / 2 of columns 0, 1, then of columns 2, 3 */
        const unsigned both = p[64 + i % 32];
        const unsigned code = i < 32 ? both & 15U : both >> 4;
        const unsigned exponent = s->exponents[v][code];
        const uint16_t bits = (uint16_t)((p[i] & 0x80U) << 8 | exponent << 7 | (p[i] & 0x7FU));
        memcpy(out + (size_t)i * 2, &bits, sizeof bits);
    }
    for (; s->escape[v] < s->end[v] && s->escape[v]->col / 4 == j; s->escape[v]++) {
        const unsigned t = s->escape[v]->col % 4;
        const unsigned i = t / 2 * 32 + s->escape[v]->row % 16U * 2 + t % 2;
        memcpy(out + (size_t)i * 2, &s->escape[v]->bits, 2);
    }
}

/* The first quad to come in which a panel has an escape, or beyond the last. */
static inline size_t nw_lf_next_escape(const nw_lf_tile_state *s, const unsigned nv)
{
    size_t next = SIZE_MAX;
    for (unsigned v = 0; v < nv; v++) {
        if (s->escape[v] < s->end[v] && s->escape[v]->col / 4 < next) {
            next = s->escape[v]->col / 4;
        }
    }
    return next;
}

/* Column c of step j of the rows of vector i. */
NW_INLINE nw_lanes_f nw_lf_decode(const nw_lf_tile_state *s, const uint8_t *p, const nw_lf_kind k,
                                  unsigned i, unsigned c, const nw_lanes_group *groups)
{
    const size_t row = (size_t)(i % NW_PARTS) * NW_LANES;

    switch (k) {
    case NW_LF_F32:
        return nw_lanes_from_bits(nw_lanes_bytes(p + row * 4));
    case NW_LF_BF16:
        return nw_lf_bf16(nw_lanes_bytes(p + row * 4), c);
    case NW_LF_BF16_12:
        return nw_lf_bf16(
            nw_lf_pair_of_12(p, row, c / 2, nw_lanes_table(s->exponents[i / NW_PARTS])), c % 2);
    case NW_LF_INT8:
        return nw_lf_code(p, k, row, c, nw_lanes_int(0));
    case NW_LF_E4M3:
    case NW_LF_E5M2:
        return nw_lf_fp8(p, row, c, k == NW_LF_E4M3);
    case NW_LF_BYTES:
    case NW_LF_NIBBLES:
    case NW_LF_FP4:
        break;
    }
    const nw_lanes_group *g = &groups[k == NW_LF_FP4 ? i * 2 + c / 4 : i];
    return nw_lanes_fma(nw_lf_code(p, k, row, c, g->zero), g->scale, g->min);
}

/* The column that `c` of step j is, from the start of the group. */
NW_INLINE size_t nw_lf_column(const nw_lf_kind k, uint32_t steps, size_t j, unsigned c)
{
    return k >= NW_LF_NIBBLES ? 4 * (c < 4 ? j : j + steps) + c % 4 : nw_lf_columns(k) * j + c;
}

#define NW_LF_STEP_BYTES(k) ((k) == NW_LF_BF16_12 ? NW_BF16_12_QUAD : 64U)

/* Step j: w[v] at the steps of panel v, a[m] at the activations of the group. */
NW_INLINE void nw_lf_step(nw_lf_tile_state *s, const uint8_t *const *w, const float *const *a,
                          size_t j, nw_lanes_f *acc, const nw_lanes_group *groups,
                          const nw_lf_kind k, const unsigned n, const unsigned mr)
{
    NW_EACH(c, nw_lf_columns(k)) {
        const size_t at = nw_lf_column(k, s->steps, j, c);
        nw_lanes_f x[16];
        NW_EACH(i, n) {
            x[i] = nw_lf_decode(s, w[i / NW_PARTS] + j * NW_LF_STEP_BYTES(k), k, i, c, groups);
        }
        NW_EACH(m, mr) {
            const nw_lanes_f b = nw_lanes_set(a[m][at]);
            NW_EACH(i, n) {
                acc[m * n + i] = nw_lanes_fma(x[i], b, acc[m * n + i]);
            }
        }
    }
}

/* Quad j of bf16-12 as the two steps of bf16 that it stands for. */
NW_INLINE void nw_lf_quad_of_12(nw_lf_tile_state *s, const uint8_t *const *w, const float *const *a,
                                size_t j, nw_lanes_f *acc, const unsigned n, const unsigned mr)
{
    uint8_t plain[8][128];
    const uint8_t *at[8];
    const float *quad[NW_TILE_TOKENS];

    for (unsigned v = 0; v < n / NW_PARTS; v++) {
        nw_lf_plain_quad(s, v, j, w[v] + j * NW_BF16_12_QUAD, plain[v]);
        at[v] = plain[v];
    }
    for (unsigned m = 0; m < mr; m++) {
        quad[m] = a[m] + j * 4;
    }
    for (size_t half = 0; half < 2; half++) {
        nw_lf_step(s, at, quad, half, acc, NULL, NW_LF_BF16, n, mr);
    }
}

/* Of one group: one entry a vector, or two, of the low and of the high nibbles. */
NW_INLINE void nw_lf_scales(const nw_tile *t, const nw_groups *layout, const nw_lanes_place *at,
                            nw_lanes_group *out, const nw_lf_kind k, const unsigned n)
{
    NW_EACH(i, n) {
        const uint8_t *panel = t->w + i / NW_PARTS * t->w_stride;
        const size_t row = (size_t)(i % NW_PARTS) * NW_LANES;
        if (k == NW_LF_FP4) {
            out[i * 2] = nw_lanes_group_of(t, layout, panel, at, row, false);
            out[i * 2 + 1] = nw_lanes_group_of(t, layout, panel, at, row, true);
        } else {
            out[i] = nw_lanes_group_of(t, layout, panel, at, row, false);
        }
        if (k == NW_LF_BYTES && t->type.zero_point) { /* an exact minimum */
            const nw_lanes_f up = nw_lanes_mul(out[i].scale, nw_lanes_float(out[i].zero));
            out[i].min = nw_lanes_sub(nw_lanes_set(0), up);
        }
    }
}

NW_INLINE void nw_lf_group(const nw_tile *t, nw_lf_tile_state *s, uint32_t g, const float *const *a,
                           nw_lanes_f *acc, const nw_lf_kind k, const unsigned n, const unsigned mr)
{
    const nw_lanes_place place = nw_lanes_place_of(&s->g, g);
    nw_lanes_group groups[32];
    const uint8_t *w[8];
    size_t j = 0;

    if (k >= NW_LF_BYTES) {
        nw_lf_scales(t, &s->g, &place, groups, k, n);
    }
    NW_EACH(v, n / NW_PARTS) {
        w[v] = t->w + v * t->w_stride + place.codes;
    }
    for (;;) {
        const size_t escape = k == NW_LF_BF16_12 ? nw_lf_next_escape(s, n / NW_PARTS) : SIZE_MAX;
        const size_t end = escape < s->steps ? escape : s->steps;
        for (; j < end; j++) {
            nw_lf_step(s, w, a, j, acc, groups, k, n, mr);
        }
        if (k != NW_LF_BF16_12 || j == s->steps) {
            return;
        }
        nw_lf_quad_of_12(s, w, a, j++, acc, n, mr);
    }
}

NW_INLINE void nw_lf_tile(const nw_tile *t, const nw_lf_kind k, const unsigned nv,
                          const unsigned mr)
{
    const unsigned n = nv * NW_PARTS;
    nw_lf_tile_state s;
    const float *a[NW_TILE_TOKENS];
    nw_lanes_f acc[NW_LANES_MOST];

    nw_lf_begin(t, &s, k, nv);
    NW_EACH(m, mr) {
        a[m] = (const float *)(const void *)(t->a + m * t->a_stride);
        NW_EACH(i, n) {
            acc[m * n + i] = nw_lanes_set(0);
        }
    }
    for (uint32_t g = 0; g < s.g.n_groups; g++) {
        nw_lf_group(t, &s, g, a, acc, k, n, mr);
        NW_EACH(m, mr) {
            a[m] += s.g.cols;
        }
    }
    NW_EACH(i, n) {
        const uint8_t *panel = t->w + i / NW_PARTS * t->w_stride;
        const float *scales =
            (const float *)(const void *)panel + (size_t)(i % NW_PARTS) * NW_LANES;
        NW_EACH(m, mr) {
            nw_lanes_f y = acc[m * n + i];
            if (k == NW_LF_INT8 || k == NW_LF_E4M3 || k == NW_LF_E5M2) {
                y = k == NW_LF_E4M3 ? nw_lanes_mul(y, nw_lanes_set(256)) : y;
                y = nw_lanes_mul(y, nw_lanes_load(scales));
            } else if (k == NW_LF_FP4) {
                y = nw_lanes_mul(y, nw_lanes_set(nw_panel_tensor_scale(t->type, panel)));
            }
            nw_lanes_put(t, m, i, y);
        }
    }
}

/* 1 to 4 tokens, in code for 1, 2 and 4. */
NW_INLINE void nw_lf_tokens(const nw_tile *t, const nw_lf_kind k, unsigned mr)
{
    if (t->n_panels > 1) {
        nw_lf_tile(t, k, NW_LF_WIDE, 1);
    } else if (mr == 4) {
        nw_lf_tile(t, k, 1, 4);
    } else {
        const nw_tile last = nw_lanes_after(t, mr / 2 * 2);
        if (mr >= 2) {
            nw_lf_tile(t, k, 1, 2);
        }
        if (mr % 2 == 1) {
            nw_lf_tile(&last, k, 1, 1);
        }
    }
}

static inline void nw_lf_any(const nw_tile *t, unsigned mr)
{
    switch (t->type.kind) {
    case NW_PANEL_F32:
        nw_lf_tokens(t, NW_LF_F32, mr);
        return;
    case NW_PANEL_BF16:
        nw_lf_tokens(t, NW_LF_BF16, mr);
        return;
    case NW_PANEL_BF16_12:
        nw_lf_tokens(t, NW_LF_BF16_12, mr);
        return;
    case NW_PANEL_INT8:
        if (t->type.group > 0) {
            nw_lf_tokens(t, NW_LF_BYTES, mr);
        } else {
            nw_lf_tokens(t, NW_LF_INT8, mr);
        }
        return;
    case NW_PANEL_INT4:
        nw_lf_tokens(t, NW_LF_NIBBLES, mr);
        return;
    case NW_PANEL_FP8_E4M3:
        nw_lf_tokens(t, NW_LF_E4M3, mr);
        return;
    case NW_PANEL_FP8_E5M2:
        nw_lf_tokens(t, NW_LF_E5M2, mr);
        return;
    case NW_PANEL_NVFP4:
    case NW_PANEL_MXFP4:
        nw_lf_tokens(t, NW_LF_FP4, mr);
        return;
    case NW_PANEL_KINDS:
        break;
    }
    assert(0 && "panel kind");
}

static inline void nw_lf_linear(const nw_weight *w, const nw_act *a, uint32_t panel0,
                                uint32_t panel1, float *y, size_t ldy)
{
    static const nw_tile_width widths[] = {{NW_LF_WIDE, 1, nw_lf_any}, {1, 4, nw_lf_any}};

    nw_linear_tiled(w, a, panel0, panel1, y, ldy, widths, widths + 1);
}

#endif
