/* linear with F32 activations for every panel type, in lanes.h vectors. A column of a panel is decoded
 * to NW_PARTS vectors (exact: BF16, codes, and fp16 scale x code fit an f32; the int8 row scale is
 * applied at the end), and multiplied into one accumulator a row and token, columns in the stored
 * order. Vector i of a tile is part i % NW_PARTS of panel i / NW_PARTS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_F32_H
#define NW_KERNELS_LANES_F32_H

#include "kernels/lanes.h"

#define NW_LANES_MOST 24u /* accumulators of the largest tile */

typedef enum { NW_LF_F32, NW_LF_BF16, NW_LF_INT8, NW_LF_INT4, NW_LF_INT4_ZP } nw_lf_kind;

/* Scale and zero point of the rows of one vector in the current group. */
typedef struct {
    nw_lanes_f scale;
    nw_lanes_i zero;
} nw_lf_group;

NW_INLINE nw_lf_group nw_lf_load_group(const uint8_t *group, const nw_lf_kind k, unsigned part)
{
    nw_lf_group g = {nw_lanes_set(0), nw_lanes_int(8)};
    if (k == NW_LF_INT4 || k == NW_LF_INT4_ZP) {
        g.scale = nw_lanes_f16(group + (size_t)part * NW_LANES * 2);
    }
    if (k == NW_LF_INT4_ZP) {
        g.zero = nw_lanes_u8(group + 32 + (size_t)part * NW_LANES);
    }
    return g;
}

/* Column `c` of the 64-byte step at p for the rows of one part: f32 1 column a step, bf16 2, int8 4,
 * int4 4 low nibbles and then 4 high ones. */
NW_INLINE nw_lanes_f nw_lf_decode(const uint8_t *p, const nw_lf_kind k, unsigned part, unsigned c,
                                  const nw_lf_group *g)
{
    const nw_lanes_i v = nw_lanes_bytes(p + (size_t)part * NW_LANES * 4);

    switch (k) {
    case NW_LF_F32:
        return nw_lanes_from_bits(v);
    case NW_LF_BF16:
        return nw_lanes_from_bits(c == 0 ? nw_lanes_left(v, 16)
                                         : nw_lanes_and(v, nw_lanes_int((int32_t)0xFFFF0000U)));
    case NW_LF_INT8:
        return nw_lanes_float(
            nw_lanes_right_signed(nw_lanes_left(nw_lanes_flip(v), 24 - 8 * (int)c), 24));
    case NW_LF_INT4:
    case NW_LF_INT4_ZP:
        break;
    }
    const nw_lanes_i code =
        nw_lanes_and(nw_lanes_right(v, (int)(c < 4 ? 8 * c : 8 * (c - 4) + 4)), nw_lanes_int(15));
    return nw_lanes_mul(nw_lanes_float(nw_lanes_sub_i(code, g->zero)), g->scale);
}

typedef struct {
    uint32_t n_groups, steps; /* 64-byte steps of a group */
    size_t head;              /* bytes of a group before its steps */
    size_t first;             /* bytes of a panel before its groups */
} nw_lf_shape;

NW_INLINE nw_lf_shape nw_lf_shape_of(const nw_tile *t, const nw_lf_kind k)
{
    const uint32_t group = t->type.group;

    switch (k) {
    case NW_LF_F32:
        return (nw_lf_shape){1, t->n_cols, 0, 0};
    case NW_LF_BF16:
        return (nw_lf_shape){1, (t->n_cols + 1) / 2, 0, 0};
    case NW_LF_INT8:
        return (nw_lf_shape){1, (t->n_cols + 3) / 4, 0, 64};
    case NW_LF_INT4:
    case NW_LF_INT4_ZP:
        break;
    }
    return (nw_lf_shape){(t->n_cols + group - 1) / group, group / 8, k == NW_LF_INT4_ZP ? 48 : 32,
                         0};
}

NW_INLINE unsigned nw_lf_columns(const nw_lf_kind k)
{
    switch (k) {
    case NW_LF_F32:
        return 1;
    case NW_LF_BF16:
        return 2;
    case NW_LF_INT8:
        return 4;
    case NW_LF_INT4:
    case NW_LF_INT4_ZP:
        break;
    }
    return 8;
}

/* The column that `c` of step j is, from the start of the group. */
NW_INLINE size_t nw_lf_column(const nw_lf_kind k, const nw_lf_shape *s, size_t j, unsigned c)
{
    if (k == NW_LF_INT4 || k == NW_LF_INT4_ZP) {
        return 4 * (c < 4 ? j : j + s->steps) + c % 4;
    }
    return nw_lf_columns(k) * j + c;
}

NW_INLINE void nw_lf_add_group(const uint8_t *const *w, const float *const *a, nw_lanes_f *acc,
                               const nw_lf_shape *s, const nw_lf_kind k, const unsigned n,
                               const unsigned mr)
{
    nw_lf_group g[16];

    NW_EACH(i, n) {
        g[i] = nw_lf_load_group(w[i / NW_PARTS], k, i % NW_PARTS);
    }
    for (size_t j = 0; j < s->steps; j++) {
        NW_EACH(c, nw_lf_columns(k)) {
            const size_t at = nw_lf_column(k, s, j, c);
            nw_lanes_f x[16];
            NW_EACH(i, n) {
                x[i] = nw_lf_decode(w[i / NW_PARTS] + s->head + j * 64, k, i % NW_PARTS, c, &g[i]);
            }
            NW_EACH(m, mr) {
                const nw_lanes_f b = nw_lanes_set(a[m][at]);
                NW_EACH(i, n) {
                    acc[m * n + i] = nw_lanes_fma(x[i], b, acc[m * n + i]);
                }
            }
        }
    }
}

NW_INLINE void nw_lf_tile(const nw_tile *t, const nw_lf_kind k, const unsigned nv,
                          const unsigned mr)
{
    const nw_lf_shape s = nw_lf_shape_of(t, k);
    const unsigned n = nv * NW_PARTS;
    const uint8_t *w[8];
    const float *a[NW_TILE_TOKENS];
    nw_lanes_f acc[NW_LANES_MOST];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride + s.first;
    }
    NW_EACH(m, mr) {
        a[m] = (const float *)(const void *)(t->a + m * t->a_stride);
        NW_EACH(i, n) {
            acc[m * n + i] = nw_lanes_set(0);
        }
    }
    for (uint32_t g = 0; g < s.n_groups; g++) {
        nw_lf_add_group(w, a, acc, &s, k, n, mr);
        NW_EACH(v, nv) {
            w[v] += s.head + (size_t)s.steps * 64;
        }
        NW_EACH(m, mr) {
            a[m] += t->type.group;
        }
    }
    NW_EACH(i, n) {
        const float *scales = (const float *)(const void *)(t->w + i / NW_PARTS * t->w_stride);
        NW_EACH(m, mr) {
            nw_lanes_f y = acc[m * n + i];
            if (k == NW_LF_INT8) {
                y = nw_lanes_mul(y, nw_lanes_load(scales + (size_t)(i % NW_PARTS) * NW_LANES));
            }
            nw_lanes_put(t, m, i, y);
        }
    }
}

NW_INLINE void nw_lf_tokens(const nw_tile *t, const nw_lf_kind k, const unsigned nv, unsigned mr)
{
    switch (mr) {
    case 1:
        nw_lf_tile(t, k, nv, 1);
        return;
    case 2:
        nw_lf_tile(t, k, nv, 2);
        return;
    case 3:
        nw_lf_tile(t, k, nv, 3);
        return;
    case 4:
        nw_lf_tile(t, k, nv, 4);
        return;
    case 5:
        nw_lf_tile(t, k, nv, 5);
        return;
    default:
        nw_lf_tile(t, k, nv, 6);
        return;
    }
}

/* nv panels and mr tokens, in code for each type. */
NW_INLINE void nw_lf_any(const nw_tile *t, const unsigned nv, unsigned mr)
{
    switch (t->type.kind) {
    case NW_PANEL_F32:
        nw_lf_tokens(t, NW_LF_F32, nv, mr);
        return;
    case NW_PANEL_BF16:
        nw_lf_tokens(t, NW_LF_BF16, nv, mr);
        return;
    case NW_PANEL_INT8:
        nw_lf_tokens(t, NW_LF_INT8, nv, mr);
        return;
    case NW_PANEL_INT4:
        if (t->type.zero_point) {
            nw_lf_tokens(t, NW_LF_INT4_ZP, nv, mr);
        } else {
            nw_lf_tokens(t, NW_LF_INT4, nv, mr);
        }
        return;
    case NW_PANEL_FP8_E4M3:
    case NW_PANEL_FP8_E5M2:
    case NW_PANEL_NVFP4:
    case NW_PANEL_MXFP4:
    case NW_PANEL_BF16_12:
    case NW_PANEL_KINDS:
        break;
    }
}

/* One token against panels of 8 vectors: 8 accumulators cover the latency of an FMA. */
#define NW_LF_WIDE (8u / NW_PARTS)

static inline void nw_lf_wide(const nw_tile *t, unsigned mr)
{
    (void)mr;
    nw_lf_any(t, NW_LF_WIDE, 1);
}

static inline void nw_lf_panel(const nw_tile *t, unsigned mr)
{
    nw_lf_any(t, 1, mr);
}

static inline void nw_lf_linear(const nw_weight *w, const nw_act *a, uint32_t panel0,
                                uint32_t panel1, float *y, size_t ldy)
{
    /* types that are decoded leave registers for 4 tokens */
    static const nw_tile_width plain[] = {{NW_LF_WIDE, 1, nw_lf_wide}, {1, 6, nw_lf_panel}};
    static const nw_tile_width coded[] = {{NW_LF_WIDE, 1, nw_lf_wide}, {1, 4, nw_lf_panel}};
    const nw_tile_width *k = w->type.kind == NW_PANEL_F32 ? plain : coded;

    nw_linear_tiled(w, a, panel0, panel1, y, ldy, k, k + 1);
}

#endif
