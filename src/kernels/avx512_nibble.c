/* linear of tiles of tokens for INT4 with a scale alone, NVFP4 and MXFP4, x INT8 or INT16 activations:
 * 4 panels x 3 tokens, or 2 x 4 where an activation is two bytes, so that the sums of a group (12 or
 * 16) and the results stay in registers. What multiplies and how sums are scaled: avx512_nibble.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_nibble.h"

/* Where a tile stands. */
typedef struct {
    const uint8_t *w;                 /* current group of the first panel */
    const uint8_t *a[NW_TILE_TOKENS]; /* codes of the group, high bytes where there are two */
    size_t low;                       /* from a code to its low byte */
    const uint8_t *next;              /* to be prefetched, `ahead` panels at a time */
    uint32_t ahead;
} place;

#define MOST_SUMS 16u

/* Sums: low (or only) bytes, and high ones; [token][panel]. */
typedef struct {
    __m512i one[MOST_SUMS], two[MOST_SUMS];
} sums;

/* Four columns of each panel, x, against the bytes at `at` of each token. */
NW_INLINE void add_step(const place *p, sums *c, const __m512i *x, size_t at,
                        const nw_nibble_form f)
{
    NW_EACH(m, f.mr) {
        const uint8_t *a = p->a[m] + at;
        const __m512i b = nw_spread(f.np == 2 ? a + p->low : a);
        NW_EACH(v, f.nv) {
            c->one[m * f.nv + v] = nw_dpbusd(c->one[m * f.nv + v], x[v], b);
        }
        if (f.np == 2) {
            const __m512i d = nw_spread(a);
            NW_EACH(v, f.nv) {
                c->two[m * f.nv + v] = nw_dpbusd(c->two[m * f.nv + v], x[v], d);
            }
        }
    }
}

/* The low nibbles of the group, the high ones, or both. */
NW_INLINE void add_codes(const nw_tile *t, place *p, sums *c, const bool low, const bool high,
                         const nw_nibble_form f)
{
    const uint8_t *codes = p->w + nw_nib_scale_bytes(f);

    for (size_t j0 = 0; j0 < f.steps; j0 += 4) {
        NW_EACH(i, 4) {
            const size_t j = j0 + i;
            __m512i x[4];
            __m512i x0[4];
            NW_EACH(v, f.nv) {
                x[v] = _mm512_loadu_si512(codes + v * t->w_stride + j * 64);
                x0[v] = nw_nib_low(f, x[v]);
            }
            if (low) {
                add_step(p, c, x0, j * 4, f);
            }
            if (high) {
                NW_EACH(v, f.nv) {
                    x[v] = nw_nib_high(f, x[v]);
                }
                add_step(p, c, x, (f.steps + j) * 4, f);
            }
        }
    }
}

NW_INLINE void begin(sums *c, int32_t (*starts)[NW_NIB_STARTS], uint32_t i, const nw_nibble_form f)
{
    NW_EACH(m, f.mr) {
        const __m512i start = _mm512_set1_epi32(starts[m][i]);
        NW_EACH(v, f.nv) {
            c->one[m * f.nv + v] = start;
            c->two[m * f.nv + v] = _mm512_setzero_si512();
        }
    }
}

/* y += sums * scales s [nv], and with 16-bit activations those of column `col`. */
NW_INLINE void scale_sums(const nw_tile *t, const sums *c, const __m512 *s, uint32_t col, __m512 *y,
                          const nw_nibble_form f)
{
    NW_EACH(m, f.mr) {
        const uint8_t *row = t->a + m * t->a_stride;
        NW_EACH(v, f.nv) {
            const unsigned i = m * f.nv + v;
            __m512 x = _mm512_cvtepi32_ps(nw_nib_join(f, c->one[i], c->two[i]));
            if (f.np == 2 && !nw_nib_folds(f)) {
                x = _mm512_mul_ps(x, nw_nib_act_scale(row, col));
            }
            y[i] = _mm512_fmadd_ps(x, s[v], y[i]);
        }
    }
}

/* Group i of the row, number `at` of the starts. */
NW_INLINE void add_group(const nw_tile *t, place *p, int32_t (*starts)[NW_NIB_STARTS], uint32_t i,
                         uint32_t at, __m512 *y, const nw_nibble_form f)
{
    const uint32_t col = i * nw_nib_cols(f);
    __m512 s[4][2];
    __m512 of_half[4];
    sums c;

    NW_EACH(h, nw_nib_halves(f)) {
        const bool both = nw_nib_halves(f) == 1;
        begin(&c, starts, at * nw_nib_halves(f) + h, f);
        add_codes(t, p, &c, both || h == 0, both || h == 1, f);
        NW_EACH(v, f.nv) {
            nw_nib_scales(f, p->w + v * t->w_stride, s[v]);
            of_half[v] = s[v][h];
        }
        scale_sums(t, &c, of_half, col, y, f);
    }
    p->w += nw_nib_group_bytes(f);
    NW_EACH(m, f.mr) {
        p->a[m] += nw_nib_cols(f);
    }
    p->next = nw_prefetch(p->next, p->ahead * f.steps + (p->ahead + 1) / 2); /* codes, scales */
}

/* Results are worked on once in 128 columns, and kept in memory between: the sums of those columns take
 * the registers. */
NW_INLINE void fold(const nw_tile *t, __m512 *part, __m512 *y, uint32_t col, const nw_nibble_form f)
{
    NW_EACH(m, f.mr) {
        const __m512 act = nw_nib_act_scale(t->a + m * t->a_stride, col);
        NW_EACH(v, f.nv) {
            const unsigned i = m * f.nv + v;
            y[i] = _mm512_fmadd_ps(part[i], act, y[i]);
            __asm__("" : "+m"(y[i])); /* see above */
            part[i] = _mm512_setzero_ps();
        }
    }
}

NW_INLINE place place_of(const nw_tile *t, const nw_nibble_row *row, const nw_nibble_form f)
{
    place p = {.w = t->w + nw_nib_first(f), .low = row->low, .next = t->next, .ahead = t->ahead};

    NW_EACH(m, f.mr) {
        p.a[m] = t->a + m * t->a_stride + row->codes;
    }
    return p;
}

NW_INLINE void tile(const nw_tile *t, const nw_nibble_form f)
{
    const nw_nibble_row row = nw_nib_row(t, f);
    const uint32_t n_groups = (t->n_cols + nw_nib_cols(f) - 1) / nw_nib_cols(f);
    const uint32_t most = NW_NIB_STARTS / nw_nib_halves(f);
    const uint32_t folds = NW_ACT_COLS / nw_nib_cols(f);
    _Alignas(64) int32_t starts[NW_TILE_TOKENS][NW_NIB_STARTS];
    place p = place_of(t, &row, f);
    __m512 y[MOST_SUMS];
    __m512 part[MOST_SUMS];

    NW_EACH(i, f.nv * f.mr) {
        y[i] = part[i] = _mm512_setzero_ps();
    }
    for (uint32_t i = 0; i < n_groups; i++) {
        if (i % most == 0) {
            NW_EACH(m, f.mr) {
                nw_nib_starts(t->a + m * t->a_stride + row.sums +
                                  (size_t)i * nw_nib_halves(f) * sizeof(int32_t),
                              f, starts[m]);
            }
        }
        add_group(t, &p, starts, i, i % most, nw_nib_folds(f) ? part : y, f);
        if (nw_nib_folds(f) && ((i + 1) % folds == 0 || i + 1 == n_groups)) {
            fold(t, part, y, i * nw_nib_cols(f), f);
        }
    }
    NW_EACH(m, f.mr) {
        NW_EACH(v, f.nv) {
            nw_nib_store(t, v, m, y[m * f.nv + v], f);
        }
    }
}

/* ---- tiles ---- */

NW_INLINE void tokens(const nw_tile *t, nw_nibble_form f, unsigned mr, const unsigned most)
{
    if (mr == 1) {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 1});
    } else if (mr == 2) {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 2});
    } else if (mr == 3 || most == 3) {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 3});
    } else {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 4});
    }
}

#define TILES(name, kind, steps)                                      \
    static void name##_a8(const nw_tile *t, unsigned mr)              \
    {                                                                 \
        if (t->n_panels == 4) {                                       \
            tokens(t, (nw_nibble_form){kind, steps, 1, 4, 1}, mr, 3); \
        } else {                                                      \
            tokens(t, (nw_nibble_form){kind, steps, 1, 1, 1}, mr, 3); \
        }                                                             \
    }                                                                 \
    static void name##_a16(const nw_tile *t, unsigned mr)             \
    {                                                                 \
        if (t->n_panels == 2) {                                       \
            tokens(t, (nw_nibble_form){kind, steps, 2, 2, 1}, mr, 4); \
        } else {                                                      \
            tokens(t, (nw_nibble_form){kind, steps, 2, 1, 1}, mr, 4); \
        }                                                             \
    }
TILES(int4_32, NW_NIB_INT4, 4)
TILES(int4_64, NW_NIB_INT4, 8)
TILES(int4_128, NW_NIB_INT4, 16)
TILES(mxfp4, NW_NIB_MXFP4, 4)
TILES(nvfp4, NW_NIB_NVFP4, 4)

static const struct {
    nw_tile_fn a8, a16;
} many[] = {{int4_32_a8, int4_32_a16},
            {int4_64_a8, int4_64_a16},
            {int4_128_a8, int4_128_a16},
            {mxfp4_a8, mxfp4_a16},
            {nvfp4_a8, nvfp4_a16}};

/* Columns of 16-bit activations above which they are read for 4 panels at a time: a panel and all of
 * them are then more than a first-level cache keeps, and panels are long enough for four streams. */
#define LONG_COLS 4096u

void nw_avx512_linear_nibble(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                             float *y, size_t ldy)
{
    const unsigned np = a->kind == NW_ACT_INT8 ? 1 : 2;
    const unsigned i = w->type.kind == NW_PANEL_INT4    ? w->type.group / 64U
                       : w->type.kind == NW_PANEL_MXFP4 ? 3
                                                        : 4;
    const nw_tile_fn one = nw_avx512_nibble_one(w->type, np);
    const nw_tile_width ones[] = {{4, 1, one}, {1, 1, one}};
    const nw_tile_width a8[] = {{4, 3, many[i].a8}, {1, 3, many[i].a8}};
    const nw_tile_width a16[] = {{2, 4, many[i].a16}, {1, 4, many[i].a16}};

    nw_linear_tiled(w, a, panel0, panel1, y, ldy,
                    np == 2 && w->n_cols > LONG_COLS ? ones : ones + 1, np == 1 ? a8 : a16);
}
