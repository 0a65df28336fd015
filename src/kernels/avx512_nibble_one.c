/* linear of one token for INT4 with one level of scales, NVFP4 and MXFP4, x INT8 or INT16 activations. What
 * bounds it is memory, so a panel is read as one stream from front to back, scales where they stand,
 * and left to the hardware's prefetchers, unless the tier says otherwise (nw_tile.far; docs/speed.md).
 * High nibbles of INT4 are multiplied where they are, as 16 times the code, and their sums divided:
 * exact, and a mask instead of a shift and a mask.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_nibble.h"

/* Sums of a panel's group: of low nibbles and of high ones, each of low (or only) bytes and of high
 * bytes of the activations. */
typedef struct {
    __m512i low[2], high[2];
} sums;

NW_INLINE void add_group(sums *c, const uint8_t *codes, const uint8_t *a, size_t low,
                         const nw_nibble_form f)
{
    const uint8_t *one = f.np == 2 ? a + low : a; /* the low bytes, or the only ones */
    const size_t half = f.steps * (size_t)4;

    NW_EACH(j, f.steps) {
        __m512i x = _mm512_loadu_si512(codes + j * 64);
        __asm__("" : "+v"(x)); /* loaded once: gcc would read it again for the high nibbles */
        const __m512i x0 = nw_nib_low(f, x);
        const __m512i x1 = nw_nib_is_int(f)
                               ? _mm512_and_si512(x, _mm512_set1_epi32((int)0xF0F0F0F0))
                               : nw_nib_low(f, _mm512_srli_epi16(x, 4));
        c->low[0] = nw_dpbusd_at(c->low[0], x0, one + j * 4);
        c->high[0] = nw_dpbusd_at(c->high[0], x1, one + half + j * 4);
        if (f.np == 2) {
            c->low[1] = nw_dpbusd_at(c->low[1], x0, a + j * 4);
            c->high[1] = nw_dpbusd_at(c->high[1], x1, a + half + j * 4);
        }
    }
}

/* act: the scale of 16-bit activations, where it is applied here; start: of the group. */
NW_INLINE void scale_group(const sums *c, const uint8_t *group, __m512 act, int32_t start,
                           __m512 *y, const nw_nibble_form f)
{
    __m512 x[2];
    const __m512i low = nw_nib_join(f, c->low[0], c->low[1]);
    const __m512i high = nw_nib_join(f, c->high[0], c->high[1]);

    x[0] = _mm512_cvtepi32_ps(f.k == NW_NIB_NVFP4 ? low
                              : f.k == NW_NIB_MXFP4
                                  ? _mm512_add_epi32(low, high)
                                  : _mm512_add_epi32(low, _mm512_srai_epi32(high, 4)));
    x[1] = _mm512_cvtepi32_ps(high);
    NW_EACH(h, nw_nib_halves(f)) {
        if (f.np == 2 && !nw_nib_folds(f)) {
            x[h] = _mm512_mul_ps(x[h], act);
        }
        *y = _mm512_fmadd_ps(x[h], nw_nib_scale(f, group, h), *y);
    }
    if (nw_nib_has_min(f)) {
        const __m512 min = nw_nib_min(f, group, nw_nib_scale(f, group, 0));
        *y = _mm512_fmadd_ps(min, nw_nib_act_sum(start), *y);
    }
}

/* The sums of the 128 columns of which `col` is one, or of what there is of them, into the results. */
NW_INLINE void fold(const nw_tile *t, uint32_t col, __m512 *y, __m512 *part, const nw_nibble_form f)
{
    const __m512 act = nw_nib_act_scale(t->a, col);

    NW_EACH(v, f.nv) {
        y[v] = _mm512_fmadd_ps(part[v], act, y[v]);
        part[v] = _mm512_setzero_ps();
    }
}

/* Groups [i0, i0 + n) of the panels, n <= NW_NIB_STARTS / halves; w, a: of group i0. */
NW_INLINE void run(const nw_tile *t, const nw_nibble_row *row, uint32_t i0, uint32_t n,
                   const uint8_t *w, __m512 *y, __m512 *part, const nw_nibble_form f)
{
    const unsigned halves = nw_nib_halves(f);
    const uint32_t folds = NW_ACT_COLS / nw_nib_cols(f); /* groups */
    const uint8_t *a = t->a + row->codes + (size_t)i0 * nw_nib_cols(f);
    _Alignas(64) int32_t starts[NW_NIB_STARTS];

    nw_nib_starts(t->a + row->sums + (size_t)i0 * halves * sizeof *starts, f, starts);
    for (uint32_t i = 0; i < n; i++, a += nw_nib_cols(f), w += nw_nib_group_bytes(f)) {
        const __m512 act = f.np == 2 && !nw_nib_folds(f)
                               ? nw_nib_act_scale(t->a, (i0 + i) * nw_nib_cols(f))
                               : _mm512_setzero_ps();
        const __m512i start = nw_nib_start(f, starts[i * halves]);
        const __m512i start2 =
            halves == 2 ? _mm512_set1_epi32(starts[i * 2 + 1]) : _mm512_setzero_si512();
        NW_EACH(v, f.nv) {
            const uint8_t *group = w + v * t->w_stride;
            nw_ask_far(group, t->far, f.steps + 1);
            sums c = {{start, _mm512_setzero_si512()}, {start2, _mm512_setzero_si512()}};
            add_group(&c, group + nw_nib_scale_bytes(f), a, row->low, f);
            scale_group(&c, group, act, starts[i * halves], nw_nib_folds(f) ? &part[v] : &y[v], f);
        }
        if (nw_nib_folds(f) && (i0 + i + 1) % folds == 0) {
            fold(t, (i0 + i) * nw_nib_cols(f), y, part, f);
        }
    }
}

NW_INLINE void tile(const nw_tile *t, const nw_nibble_form f)
{
    const nw_nibble_row row = nw_nib_row(t, f);
    const uint32_t n_groups = (t->n_cols + nw_nib_cols(f) - 1) / nw_nib_cols(f);
    const uint32_t most = NW_NIB_STARTS / nw_nib_halves(f);
    const uint8_t *w = t->w + nw_nib_first(f);
    __m512 y[4];
    __m512 part[4];

    NW_EACH(v, f.nv) {
        y[v] = part[v] = _mm512_setzero_ps();
    }
    for (uint32_t i = 0; i < n_groups; i += most, w += most * nw_nib_group_bytes(f)) {
        run(t, &row, i, n_groups - i < most ? n_groups - i : most, w, y, part, f);
    }
    if (nw_nib_folds(f) && n_groups * nw_nib_cols(f) % NW_ACT_COLS != 0) {
        fold(t, (n_groups - 1) * nw_nib_cols(f), y, part, f);
    }
    NW_EACH(v, f.nv) {
        nw_nib_store(t, v, 0, y[v], f);
    }
}

/* ---- instances ---- */

#define ONE(name, kind, steps, np)                            \
    static void name(const nw_tile *t, unsigned mr)           \
    {                                                         \
        (void)mr;                                             \
        if (t->n_panels == 4) {                               \
            tile(t, (nw_nibble_form){kind, steps, np, 4, 1}); \
        } else {                                              \
            tile(t, (nw_nibble_form){kind, steps, np, 1, 1}); \
        }                                                     \
    }
ONE(int4_32_a8, NW_NIB_INT4, 4, 1)
ONE(int4_64_a8, NW_NIB_INT4, 8, 1)
ONE(int4_128_a8, NW_NIB_INT4, 16, 1)
ONE(zero_32_a8, NW_NIB_INT4_ZERO, 4, 1)
ONE(zero_64_a8, NW_NIB_INT4_ZERO, 8, 1)
ONE(zero_128_a8, NW_NIB_INT4_ZERO, 16, 1)
ONE(zero_32_a16, NW_NIB_INT4_ZERO, 4, 2)
ONE(zero_64_a16, NW_NIB_INT4_ZERO, 8, 2)
ONE(zero_128_a16, NW_NIB_INT4_ZERO, 16, 2)
ONE(min_32_a8, NW_NIB_INT4_MIN, 4, 1)
ONE(min_64_a8, NW_NIB_INT4_MIN, 8, 1)
ONE(min_128_a8, NW_NIB_INT4_MIN, 16, 1)
ONE(min_32_a16, NW_NIB_INT4_MIN, 4, 2)
ONE(min_64_a16, NW_NIB_INT4_MIN, 8, 2)
ONE(min_128_a16, NW_NIB_INT4_MIN, 16, 2)
ONE(mxfp4_a8, NW_NIB_MXFP4, 4, 1)
ONE(nvfp4_a8, NW_NIB_NVFP4, 4, 1)
ONE(int4_32_a16, NW_NIB_INT4, 4, 2)
ONE(int4_64_a16, NW_NIB_INT4, 8, 2)
ONE(int4_128_a16, NW_NIB_INT4, 16, 2)
ONE(mxfp4_a16, NW_NIB_MXFP4, 4, 2)
ONE(nvfp4_a16, NW_NIB_NVFP4, 4, 2)

nw_tile_fn nw_avx512_nibble_one(nw_panel_type type, unsigned np)
{
    static const nw_tile_fn int4[3][3][2] = {
        {{int4_32_a8, int4_32_a16}, {int4_64_a8, int4_64_a16}, {int4_128_a8, int4_128_a16}},
        {{zero_32_a8, zero_32_a16}, {zero_64_a8, zero_64_a16}, {zero_128_a8, zero_128_a16}},
        {{min_32_a8, min_32_a16}, {min_64_a8, min_64_a16}, {min_128_a8, min_128_a16}}};
    static const nw_tile_fn fp4[2][2] = {{mxfp4_a8, mxfp4_a16}, {nvfp4_a8, nvfp4_a16}};

    const unsigned minima = type.zero_point ? 1 : type.min ? 2 : 0;
    return type.kind == NW_PANEL_INT4 ? int4[minima][type.group / 64][np - 1]
                                      : fp4[type.kind == NW_PANEL_NVFP4][np - 1];
}
