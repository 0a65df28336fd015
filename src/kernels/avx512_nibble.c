/* linear of tiles of tokens for INT4 with one level of scales, NVFP4 and MXFP4, x INT8 or INT16 activations:
 * 4 panels x 3 tokens (of MXFP4, whose look-ups cost more than loads, 2 x 6), or 2 x 4 where an activation
 * is two bytes, so that the sums of a group (12 or 16) and the results stay in registers. What
 * multiplies and how sums are scaled: avx512_nibble.h.
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
            const uint8_t *at = codes + j * 64;
            __m512i x[4];
            if (low) {
                NW_EACH(v, f.nv) {
                    x[v] = nw_nib_low(f, _mm512_loadu_si512(at + v * t->w_stride));
                }
                add_step(p, c, x, j * 4, f);
            }
            if (high) {
                NW_EACH(v, f.nv) {
                    x[v] = nw_nib_low(f, nw_load_shifted(at + v * t->w_stride));
                }
                add_step(p, c, x, (f.steps + j) * 4, f);
            }
        }
    }
}

NW_INLINE void begin(sums *c, int32_t (*starts)[NW_NIB_STARTS], uint32_t i, const nw_nibble_form f)
{
    NW_EACH(m, f.mr) {
        const __m512i start = nw_nib_start(f, starts[m][i]);
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
            __asm__("" : "+v"(y[i])); /* in a register: gcc 12 leaves some in memory */
        }
    }
}

/* y += minima of the groups * the sums of the activations, number `at` of the starts. */
NW_INLINE void add_minima(const nw_tile *t, const place *p, int32_t (*starts)[NW_NIB_STARTS],
                          uint32_t at, const __m512 *s, __m512 *y, const nw_nibble_form f)
{
    NW_EACH(v, f.nv) {
        const __m512 min = nw_nib_min(f, p->w + v * t->w_stride, s[v]);
        NW_EACH(m, f.mr) {
            const unsigned i = m * f.nv + v;
            y[i] = _mm512_fmadd_ps(min, nw_nib_act_sum(starts[m][at]), y[i]);
            __asm__("" : "+v"(y[i])); /* see above */
        }
    }
}

/* Group i of the row, number `at` of the starts. */
NW_INLINE void add_group(const nw_tile *t, place *p, int32_t (*starts)[NW_NIB_STARTS], uint32_t i,
                         uint32_t at, __m512 *y, const nw_nibble_form f)
{
    const uint32_t col = i * nw_nib_cols(f);
    __m512 s[4];
    sums c;

    NW_EACH(h, nw_nib_halves(f)) {
        const bool both = nw_nib_halves(f) == 1;
        begin(&c, starts, at * nw_nib_halves(f) + h, f);
        add_codes(t, p, &c, both || h == 0, both || h == 1, f);
        NW_EACH(v, f.nv) {
            s[v] = nw_nib_scale(f, p->w + v * t->w_stride, h);
        }
        scale_sums(t, &c, s, col, y, f);
    }
    if (nw_nib_has_min(f)) {
        add_minima(t, p, starts, at, s, y, f);
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
    for (uint32_t i0 = 0; i0 < n_groups; i0 += most) {
        const uint32_t n = n_groups - i0 < most ? n_groups - i0 : most;
        NW_EACH(m, f.mr) {
            nw_nib_starts(t->a + m * t->a_stride + row.sums +
                              (size_t)i0 * nw_nib_halves(f) * sizeof(int32_t),
                          f, starts[m]);
        }
        for (uint32_t at = 0; at < n; at++) {
            const uint32_t i = i0 + at;
            add_group(t, &p, starts, i, at, nw_nib_folds(f) ? part : y, f);
            if (nw_nib_folds(f) && ((i + 1) % folds == 0 || i + 1 == n_groups)) {
                fold(t, part, y, i * nw_nib_cols(f), f);
            }
        }
    }
    NW_EACH(m, f.mr) {
        NW_EACH(v, f.nv) {
            nw_nib_store(t, v, m, y[m * f.nv + v], f);
        }
    }
}

/* ---- tiles ---- */

/* Tiles of 3 tokens at most, or 4, or 6. */
NW_INLINE void tokens(const nw_tile *t, nw_nibble_form f, unsigned mr, const unsigned most)
{
    if (mr == 1) {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 1});
    } else if (mr == 2) {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 2});
    } else if (mr == 3 || most == 3) {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 3});
    } else if (mr == 4 || most == 4) {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 4});
    } else if (mr == 5) {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 5});
    } else {
        tile(t, (nw_nibble_form){f.k, f.steps, f.np, f.nv, 6});
    }
}

/* Tiles of `wide` panels, or one, and at most `most` tokens. */
#define TILES(name, kind, steps, np, wide, most)                             \
    static void name(const nw_tile *t, unsigned mr)                          \
    {                                                                        \
        if (t->n_panels == (wide)) {                                         \
            tokens(t, (nw_nibble_form){kind, steps, np, wide, 1}, mr, most); \
        } else {                                                             \
            tokens(t, (nw_nibble_form){kind, steps, np, 1, 1}, mr, most);    \
        }                                                                    \
    }
TILES(int4_32_a8, NW_NIB_INT4, 4, 1, 4, 3)
TILES(int4_64_a8, NW_NIB_INT4, 8, 1, 4, 3)
TILES(int4_128_a8, NW_NIB_INT4, 16, 1, 4, 3)
TILES(zero_32_a8, NW_NIB_INT4_ZERO, 4, 1, 4, 3)
TILES(zero_32_a16, NW_NIB_INT4_ZERO, 4, 2, 2, 4)
TILES(zero_64_a8, NW_NIB_INT4_ZERO, 8, 1, 4, 3)
TILES(zero_64_a16, NW_NIB_INT4_ZERO, 8, 2, 2, 4)
TILES(zero_128_a8, NW_NIB_INT4_ZERO, 16, 1, 4, 3)
TILES(zero_128_a16, NW_NIB_INT4_ZERO, 16, 2, 2, 4)
TILES(min_32_a8, NW_NIB_INT4_MIN, 4, 1, 4, 3)
TILES(min_32_a16, NW_NIB_INT4_MIN, 4, 2, 2, 4)
TILES(min_64_a8, NW_NIB_INT4_MIN, 8, 1, 4, 3)
TILES(min_64_a16, NW_NIB_INT4_MIN, 8, 2, 2, 4)
TILES(min_128_a8, NW_NIB_INT4_MIN, 16, 1, 4, 3)
TILES(min_128_a16, NW_NIB_INT4_MIN, 16, 2, 2, 4)
TILES(mxfp4_a8, NW_NIB_MXFP4, 4, 1, 2, 6)
TILES(nvfp4_a8, NW_NIB_NVFP4, 4, 1, 2, 4)
TILES(int4_32_a16, NW_NIB_INT4, 4, 2, 2, 4)
TILES(int4_64_a16, NW_NIB_INT4, 8, 2, 2, 4)
TILES(int4_128_a16, NW_NIB_INT4, 16, 2, 2, 4)
TILES(mxfp4_a16, NW_NIB_MXFP4, 4, 2, 2, 4)
TILES(nvfp4_a16, NW_NIB_NVFP4, 4, 2, 2, 4)

#define WIDTHS(run, wide, most) \
    {                           \
        {wide, most, run},      \
        {                       \
            1, most, run        \
        }                       \
    }
static const nw_tile_width many[][2][2] = {{WIDTHS(int4_32_a8, 4, 3), WIDTHS(int4_32_a16, 2, 4)},
                                           {WIDTHS(int4_64_a8, 4, 3), WIDTHS(int4_64_a16, 2, 4)},
                                           {WIDTHS(int4_128_a8, 4, 3), WIDTHS(int4_128_a16, 2, 4)},
                                           {WIDTHS(zero_32_a8, 4, 3), WIDTHS(zero_32_a16, 2, 4)},
                                           {WIDTHS(zero_64_a8, 4, 3), WIDTHS(zero_64_a16, 2, 4)},
                                           {WIDTHS(zero_128_a8, 4, 3), WIDTHS(zero_128_a16, 2, 4)},
                                           {WIDTHS(min_32_a8, 4, 3), WIDTHS(min_32_a16, 2, 4)},
                                           {WIDTHS(min_64_a8, 4, 3), WIDTHS(min_64_a16, 2, 4)},
                                           {WIDTHS(min_128_a8, 4, 3), WIDTHS(min_128_a16, 2, 4)},
                                           {WIDTHS(mxfp4_a8, 2, 6), WIDTHS(mxfp4_a16, 2, 4)},
                                           {WIDTHS(nvfp4_a8, 2, 4), WIDTHS(nvfp4_a16, 2, 4)}};

void nw_avx512_linear_nibble(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                             float *y, size_t ldy)
{
    const unsigned np = a->kind == NW_ACT_INT8 ? 1 : 2;
    const unsigned minima = w->type.zero_point ? 1 : w->type.min ? 2 : 0;
    const unsigned i = w->type.kind == NW_PANEL_INT4    ? minima * 3 + w->type.group / 64U
                       : w->type.kind == NW_PANEL_MXFP4 ? 9
                                                        : 10;
    const nw_tile_fn one = nw_avx512_nibble_one(w->type, np);
    const nw_tile_width ones[] = {{4, 1, one}, {1, 1, one}};

    nw_linear_tiled(w, a, panel0, panel1, y, ldy, nw_one_stream(a) ? ones + 1 : ones,
                    many[i][np - 1]);
}
