/* linear with INT8 activations for INT8 and INT4 panels, in lanes.h vectors: exact int32 sums of a
 * row's quads; int4 groups are then scaled and added in float, f = sum * scale + f. Vector i of a
 * tile is part i % NW_PARTS of panel i / NW_PARTS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_A8_H
#define NW_KERNELS_LANES_A8_H

#include "kernels/lanes.h"

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

/* ---- INT4 ---- */

/* The sum of a token's codes over group g. */
NW_INLINE int32_t nw_la_group_sum(const nw_tile *t, unsigned m, uint32_t g)
{
    const uint32_t parts = t->type.group / NW_ACT_SUM_COLS;
    const uint8_t *sums = t->a + m * t->a_stride + nw_act_sums_at(NW_ACT_INT8, t->n_cols);
    return nw_act_sum_i32(sums + (size_t)g * parts * sizeof(int32_t), parts);
}

/* The products of one group; w and a point at its codes. */
NW_INLINE void nw_la_int4_dots(const nw_tile *t, const uint8_t *const *w, const uint8_t *a,
                               nw_lanes_i *c, const unsigned n, const unsigned mr)
{
    const uint32_t quads = t->type.group / 8;
    const nw_lanes_i nibble = nw_lanes_int(0x0F0F0F0F);

    NW_EACH(i, n * mr) {
        c[i] = nw_lanes_int(0);
    }
    for (size_t j = 0; j < quads; j++) {
        nw_lanes_i low[8];
        nw_lanes_i high[8];
        NW_EACH(i, n) {
            const nw_lanes_i x = nw_lanes_bytes(w[i] + j * 64);
            low[i] = nw_lanes_and(x, nibble);
            high[i] = nw_lanes_and(nw_lanes_right(x, 4), nibble);
        }
        NW_EACH(m, mr) {
            const uint8_t *at = a + m * t->a_stride + j * 4;
            const nw_lanes_i first = nw_lanes_spread(at);
            const nw_lanes_i second = nw_lanes_spread(at + (size_t)quads * 4);
            NW_EACH(i, n) {
                c[m * n + i] = nw_lanes_dot_small(c[m * n + i], low[i], first);
                c[m * n + i] = nw_lanes_dot_small(c[m * n + i], high[i], second);
            }
        }
    }
}

/* Group g of vectors [v0, v0 + n), `at` bytes into their panels; a at the group's codes. */
NW_INLINE void nw_la_int4_group(const nw_tile *t, size_t at, const uint8_t *a, uint32_t g,
                                const bool zp, nw_lanes_f *f, const unsigned v0, const unsigned n,
                                const unsigned mr)
{
    const uint8_t *w[8];
    nw_lanes_i c[16];

    NW_EACH(i, n) {
        w[i] = nw_la_panel(t, v0 + i) + at + (zp ? 48 : 32) + nw_la_part(v0 + i) * NW_LANES * 4;
    }
    nw_la_int4_dots(t, w, a, c, n, mr);
    NW_EACH(i, n) {
        const uint8_t *scales = nw_la_panel(t, v0 + i) + at;
        const size_t first = nw_la_part(v0 + i) * NW_LANES;
        const nw_lanes_f s = nw_lanes_f16(scales + first * 2);
        const nw_lanes_i zero = zp ? nw_lanes_u8(scales + 32 + first) : nw_lanes_int(8);
        NW_EACH(m, mr) {
            const int32_t sum = nw_la_group_sum(t, m, g);
            const nw_lanes_i off = nw_lanes_mul_i(zero, nw_lanes_int(sum));
            const nw_lanes_f x = nw_lanes_float(nw_lanes_sub_i(c[m * n + i], off));
            f[m * n + i] = nw_lanes_fma(x, s, f[m * n + i]);
        }
    }
}

/* Vectors [v0, v0 + n) for mr tokens; n <= 8, n * mr <= 16. */
NW_INLINE void nw_la_int4(const nw_tile *t, const bool zp, const unsigned v0, const unsigned n,
                          const unsigned mr)
{
    const uint32_t group = t->type.group;
    const uint32_t n_groups = (t->n_cols + group - 1) / group;
    const size_t bytes = (zp ? 48 : 32) + group * 8U;
    const uint8_t *codes = t->a + nw_act_codes_at(NW_ACT_INT8, t->n_cols);
    nw_lanes_f f[16];

    NW_EACH(i, n * mr) {
        f[i] = nw_lanes_set(0);
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        nw_la_int4_group(t, g * bytes, codes + (size_t)g * group, g, zp, f, v0, n, mr);
    }
    NW_EACH(m, mr) {
        const nw_lanes_f s = nw_lanes_set(nw_la_head(t, m).scale);
        NW_EACH(i, n) {
            nw_lanes_put(t, m, v0 + i, nw_lanes_mul(f[m * n + i], s));
        }
    }
}

/* ---- tiles ---- */

/* Vectors of one pass: as many as leave no accumulator in memory. */
#define NW_LA_ONE  (NW_LANES == 16 ? 4U : 8U) /* int8, one token */
#define NW_LA_MANY (NW_REGISTERS / 16)        /* int4, 4 tokens */

/* nv panels x mr tokens, n8 vectors a pass for int8 and n4 for int4. */
NW_INLINE void nw_la_tile(const nw_tile *t, const unsigned nv, const unsigned n8, const unsigned n4,
                          const unsigned mr)
{
    if (t->type.kind == NW_PANEL_INT8) {
        for (unsigned v = 0; v < nv * NW_PARTS; v += n8) {
            nw_la_int8(t, v, n8, mr);
        }
        return;
    }
    for (unsigned v = 0; v < nv * NW_PARTS; v += n4) {
        if (t->type.zero_point) {
            nw_la_int4(t, true, v, n4, mr);
        } else {
            nw_la_int4(t, false, v, n4, mr);
        }
    }
}

static inline void nw_la_panels_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    nw_la_tile(t, 4, NW_LA_ONE, 4, 1);
}

static inline void nw_la_panels_1(const nw_tile *t, unsigned mr)
{
    const unsigned n8 = NW_PARTS > 1 ? 2 : 1;
    const unsigned n4 = NW_PARTS > 1 ? NW_LA_MANY : 1;

    switch (mr) {
    case 1:
        nw_la_tile(t, 1, n8, n4, 1);
        return;
    case 2:
        nw_la_tile(t, 1, n8, n4, 2);
        return;
    case 3:
        nw_la_tile(t, 1, n8, n4, 3);
        return;
    default:
        nw_la_tile(t, 1, n8, n4, 4);
        return;
    }
}

static inline void nw_la_linear(const nw_weight *w, const nw_act *a, uint32_t panel0,
                                uint32_t panel1, float *y, size_t ldy)
{
    static const nw_tile_width widths[] = {{4, 1, nw_la_panels_4}, {1, 4, nw_la_panels_1}};
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, widths, widths + 1);
}

#endif
