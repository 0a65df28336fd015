/* linear with INT8 activations for panels of small integer codes, in lanes.h vectors: exact int32 sums
 * of a row's quads; those of groups are then scaled and added in float, f = sum * scale + f. Vector
 * i of a tile is part i % NW_PARTS of panel i / NW_PARTS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_A8_H
#define NW_KERNELS_LANES_A8_H

#include "kernels/lanes_scales.h"

NW_INLINE nw_act_head nw_la_head(const nw_tile *t, unsigned m)
{
    nw_act_head head;
    memcpy(&head, t->a + m * t->a_stride, sizeof head);
    return head;
}

/* Where vector v of a tile stands. */
NW_INLINE const uint8_t *nw_la_panel(const nw_tile *t, unsigned v)
{
    return t->w + v / NW_PARTS * t->w_stride;
}

NW_INLINE size_t nw_la_part(unsigned v)
{
    return v % NW_PARTS;
}

/* ---- INT8 ---- */

/* Vectors [v0, v0 + n) for mr tokens; n <= 8, n * mr <= 16. */
NW_INLINE void nw_la_int8(const nw_tile *t, const unsigned v0, const unsigned n, const unsigned mr)
{
    const uint32_t quads = (t->n_cols + 3) / 4;
    const uint8_t *a = t->a + nw_act_codes_at(NW_ACT_INT8, t->n_cols);
    const uint8_t *w[8];
    nw_lanes_i c[16];

    NW_EACH(i, n) {
        w[i] = nw_la_panel(t, v0 + i) + 64 + nw_la_part(v0 + i) * NW_LANES * 4;
        NW_EACH(m, mr) {
            c[m * n + i] = nw_lanes_int(nw_lanes_dot_start(nw_la_head(t, m).sum));
        }
    }
    for (size_t j = 0; j < quads; j++) {
        nw_lanes_i x[8];
        NW_EACH(i, n) {
            x[i] = nw_lanes_bytes(w[i] + j * 64);
        }
        NW_EACH(m, mr) {
            const nw_lanes_i b = nw_lanes_spread(a + m * t->a_stride + j * 4);
            NW_EACH(i, n) {
                c[m * n + i] = nw_lanes_dot_stored(c[m * n + i], x[i], b);
            }
        }
    }
    NW_EACH(i, n) {
        const float *scales = (const float *)(const void *)nw_la_panel(t, v0 + i);
        const nw_lanes_f s = nw_lanes_load(scales + nw_la_part(v0 + i) * NW_LANES);
        NW_EACH(m, mr) {
            const nw_lanes_f f = nw_lanes_mul(nw_lanes_float(c[m * n + i]), s);
            nw_lanes_put(t, m, v0 + i, nw_lanes_mul(f, nw_lanes_set(nw_la_head(t, m).scale)));
        }
    }
}

/* ---- groups ---- */

/* FP4: low and high nibbles with scales of their own. */
typedef enum { NW_LA_BYTES, NW_LA_NIBBLES, NW_LA_FP4 } nw_la_kind;

/* What a step of codes is multiplied as: w * a sums to code * a with `up` times the sum of a more. */
NW_INLINE nw_lanes_i nw_la_codes(nw_lanes_i x, const nw_la_kind k, unsigned half)
{
    const nw_lanes_i codes =
        nw_lanes_and(nw_lanes_right(x, half == 0 ? 0 : 4), nw_lanes_int(0x0F0F0F0F));
    return k == NW_LA_NIBBLES ? codes : nw_lanes_lookup(nw_lanes_table(nw_lanes_e2m1_up), codes);
}

/* The products of one group: w[i] at the codes of vector i, a at those of the tokens. FP4 has the sums
 * of its high nibbles in c[mr * n] and on. */
NW_INLINE void nw_la_dots(const nw_tile *t, const nw_groups *g, const uint8_t *const *w,
                          const uint8_t *a, nw_lanes_i *c, const nw_la_kind k, const unsigned n,
                          const unsigned mr)
{
    const unsigned halves = k == NW_LA_BYTES ? 1 : 2;

    for (size_t j = 0; j < g->steps; j++) {
        nw_lanes_i x[8];
        NW_EACH(i, n) {
            x[i] = nw_lanes_bytes(w[i] + j * 64);
        }
        NW_EACH(half, halves) {
            const unsigned to = k == NW_LA_FP4 ? half * n * mr : 0;
            NW_EACH(m, mr) {
                const nw_lanes_i b =
                    nw_lanes_spread(a + m * t->a_stride + (j + (size_t)half * g->steps) * 4);
                NW_EACH(i, n) {
                    nw_lanes_i *sum = &c[to + m * n + i];
                    *sum = k == NW_LA_BYTES
                               ? nw_lanes_dot_stored(*sum, x[i], b)
                               : nw_lanes_dot_small(*sum, nw_la_codes(x[i], k, half), b);
                }
            }
        }
    }
}

/* f + the share of a group: scale * (sum of products - zero * sum) + min * sum. */
NW_INLINE nw_lanes_f nw_la_scaled(nw_lanes_f f, nw_lanes_i c, const nw_lanes_group *g, int32_t sum,
                                  const bool min, const nw_la_kind k)
{
    nw_lanes_i exact = c;

    if (k == NW_LA_NIBBLES || k == NW_LA_BYTES) {
        exact = nw_lanes_sub_i(c, nw_lanes_mul_i(g->zero, nw_lanes_int(sum)));
    } else {
        exact = nw_lanes_sub_i(c, nw_lanes_int(NW_E2M1_UP * sum));
    }
    const nw_lanes_f all = nw_lanes_fma(nw_lanes_float(exact), g->scale, f);
    return min ? nw_lanes_fma(g->min, nw_lanes_set((float)sum), all) : all;
}

/* Group i of vectors [v0, v0 + n); a at the tokens' codes of it, sums_at: of their partial sums. */
NW_INLINE void nw_la_group(const nw_tile *t, const nw_groups *g, uint32_t i, const uint8_t *a,
                           size_t sums_at, nw_lanes_f *f, const nw_la_kind k, const unsigned v0,
                           const unsigned n, const unsigned mr)
{
    const uint32_t halves = k == NW_LA_FP4 ? 2 : 1;
    const uint32_t parts = g->cols / NW_ACT_SUM_COLS / halves;
    const nw_lanes_place place = nw_lanes_place_of(g, i);
    int32_t sums[4][2];
    const uint8_t *w[8];
    nw_lanes_i c[32];

    NW_EACH(m, mr) {
        NW_EACH(h, halves) {
            sums[m][h] = nw_act_sum_i32(
                t->a + m * t->a_stride + sums_at + (size_t)h * parts * sizeof(int32_t), parts);
        }
        NW_EACH(q, n * halves) {
            c[q / n * n * mr + m * n + q % n] =
                nw_lanes_int(k == NW_LA_BYTES ? nw_lanes_dot_start(sums[m][0]) : 0);
        }
    }
    NW_EACH(q, n) {
        w[q] = nw_la_panel(t, v0 + q) + place.codes + nw_la_part(v0 + q) * NW_LANES * 4;
    }
    nw_la_dots(t, g, w, a, c, k, n, mr);
    NW_EACH(q, n * halves) {
        const unsigned v = v0 + q % n;
        const nw_lanes_group s = nw_lanes_group_of(t, g, nw_la_panel(t, v), &place,
                                                   nw_la_part(v) * NW_LANES, q / n == 1);
        NW_EACH(m, mr) {
            nw_lanes_f *sum = &f[m * n + q % n];
            *sum = nw_la_scaled(*sum, c[q / n * n * mr + m * n + q % n], &s, sums[m][q / n],
                                t->type.min, k);
        }
    }
}

/* Vectors [v0, v0 + n) for mr tokens; n <= 8, mr <= 4, n * mr <= 16. */
NW_INLINE void nw_la_groups(const nw_tile *t, const nw_la_kind k, const unsigned v0,
                            const unsigned n, const unsigned mr)
{
    const nw_groups g = nw_groups_of(t->type, t->n_cols);
    const uint8_t *a = t->a + nw_act_codes_at(NW_ACT_INT8, t->n_cols);
    size_t sums_at = nw_act_sums_at(NW_ACT_INT8, t->n_cols);
    nw_lanes_f f[16];

    NW_EACH(i, n * mr) {
        f[i] = nw_lanes_set(0);
    }
    for (uint32_t i = 0; i < g.n_groups; i++, a += g.cols) {
        nw_la_group(t, &g, i, a, sums_at, f, k, v0, n, mr);
        sums_at += g.cols / NW_ACT_SUM_COLS * sizeof(int32_t);
    }
    NW_EACH(q, n) {
        const float last = nw_panel_tensor_scale(t->type, nw_la_panel(t, v0 + q));
        NW_EACH(m, mr) {
            const nw_lanes_f s = nw_lanes_set(nw_la_head(t, m).scale);
            nw_lanes_f y = nw_lanes_mul(f[m * n + q], s);
            if (k == NW_LA_FP4) {
                y = nw_lanes_mul(y, nw_lanes_set(last));
            }
            nw_lanes_put(t, m, v0 + q, y);
        }
    }
}

/* ---- tiles ---- */

/* Vectors of one pass: as many as leave no accumulator in memory. */
#define NW_LA_ONE  (NW_LANES == 16 ? 4U : 8U) /* int8, one token */
#define NW_LA_MANY (NW_REGISTERS / 16)        /* groups, 4 tokens */

/* nv panels x mr tokens, n8 vectors a pass for int8 and n4 for types with groups. */
NW_INLINE void nw_la_tile(const nw_tile *t, const unsigned nv, const unsigned n8, const unsigned n4,
                          const unsigned mr)
{
    if (!nw_has_groups(t->type)) {
        for (unsigned v = 0; v < nv * NW_PARTS; v += n8) {
            nw_la_int8(t, v, n8, mr);
        }
        return;
    }
    for (unsigned v = 0; v < nv * NW_PARTS; v += n4) {
        if (t->type.kind == NW_PANEL_INT8) {
            nw_la_groups(t, NW_LA_BYTES, v, n4, mr);
        } else if (t->type.kind == NW_PANEL_INT4) {
            nw_la_groups(t, NW_LA_NIBBLES, v, n4, mr);
        } else {
            nw_la_groups(t, NW_LA_FP4, v, n4, mr);
        }
    }
}

/* 4 panels and a token, or a panel and 1 to 4 tokens, in code for 1, 2 and 4. */
static inline void nw_la_any(const nw_tile *t, unsigned mr)
{
    const unsigned n8 = NW_PARTS > 1 ? 2 : 1;
    const unsigned n4 = NW_PARTS > 1 ? NW_LA_MANY : 1;

    if (t->n_panels > 1) {
        nw_la_tile(t, 4, NW_LA_ONE, 4, 1);
    } else if (mr == 4) {
        nw_la_tile(t, 1, n8, n4, 4);
    } else {
        const nw_tile last = nw_lanes_after(t, mr / 2 * 2);
        if (mr >= 2) {
            nw_la_tile(t, 1, n8, n4, 2);
        }
        if (mr % 2 == 1) {
            nw_la_tile(&last, 1, n8, n4, 1);
        }
    }
}

static inline void nw_la_linear(const nw_weight *w, const nw_act *a, uint32_t panel0,
                                uint32_t panel1, float *y, size_t ldy)
{
    static const nw_tile_width widths[] = {{4, 1, nw_la_any}, {1, 4, nw_la_any}};
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, widths, widths + 1);
}

#endif
