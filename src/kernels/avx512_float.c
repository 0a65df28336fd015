/* linear for BF16 panels x BF16 activations and F32 panels x F32 activations. Lane r of an
 * accumulator is output row r of a panel; a token's pair of columns (or column) is broadcast.
 * One accumulator a row and token, columns in order: the same bits for every tile shape.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512.h"

/* One step of both kernels is 64 bytes of weights a panel against 4 bytes of each token. */
typedef __m512 (*step_fn)(__m512 c, __m512i w, __m512i a);

NW_INLINE __m512 step_bf16(__m512 c, __m512i w, __m512i a)
{
    return nw_dpbf16(c, w, a);
}

NW_INLINE __m512 step_f32(__m512 c, __m512i w, __m512i a)
{
    return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_castsi512_ps(a), c);
}

NW_INLINE void tile(const nw_tile *t, uint32_t n_steps, step_fn step, const unsigned nv,
                    const unsigned mr, const uint32_t ahead)
{
    const uint8_t *w[8];
    const uint8_t *a[NW_TILE_TOKENS];
    __m512 c[24];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride;
    }
    NW_EACH(m, mr) {
        a[m] = t->a + m * t->a_stride;
        NW_EACH(v, nv) {
            c[m * nv + v] = _mm512_setzero_ps();
        }
    }
    const uint8_t *next = t->next;
    for (size_t j = 0; j < n_steps; j++) {
        __m512i x[8];
        next = nw_prefetch(next, ahead);
        NW_EACH(v, nv) {
            x[v] = _mm512_loadu_si512(w[v] + j * 64);
        }
        NW_EACH(m, mr) {
            const __m512i b = nw_spread(a[m] + j * 4);
            NW_EACH(v, nv) {
                c[m * nv + v] = step(c[m * nv + v], x[v], b);
            }
        }
    }
    NW_EACH(v, nv) {
        const uint32_t left = nw_rows_left(t, v);
        NW_EACH(m, mr) {
            nw_store_rows(t->y + m * t->ldy + v * 16, left, c[m * nv + v]);
        }
    }
}

NW_INLINE void tiles(const nw_tile *t, uint32_t n_steps, step_fn step, const unsigned nv,
                     unsigned mr)
{
    switch (mr) {
    case 1:
        tile(t, n_steps, step, nv, 1, t->ahead);
        return;
    case 2:
        tile(t, n_steps, step, nv, 2, t->ahead);
        return;
    case 3:
        tile(t, n_steps, step, nv, 3, t->ahead);
        return;
    case 4:
        tile(t, n_steps, step, nv, 4, t->ahead);
        return;
    case 5:
        tile(t, n_steps, step, nv, 5, t->ahead);
        return;
    default:
        if (t->ahead > 0) {
            tile(t, n_steps, step, nv, 6, t->ahead);
        } else { /* most tiles of a prefill: the test is out of the loop */
            tile(t, n_steps, step, nv, 6, 0);
        }
        return;
    }
}

static void bf16_1(const nw_tile *t, unsigned mr)
{
    tiles(t, (t->n_cols + 1) / 2, step_bf16, 1, mr);
}

static void bf16_2(const nw_tile *t, unsigned mr)
{
    tiles(t, (t->n_cols + 1) / 2, step_bf16, 2, mr);
}

static void bf16_4(const nw_tile *t, unsigned mr)
{
    tiles(t, (t->n_cols + 1) / 2, step_bf16, 4, mr);
}

/* One token, one panel: one stream, and nothing asked for ahead (docs/speed.md). */
static void bf16_one(const nw_tile *t, unsigned mr)
{
    const uint32_t n = (t->n_cols + 1) / 2;
    __m512 c = _mm512_setzero_ps();
    size_t j = 0;

    (void)mr;
    for (; j + 4 <= n; j += 4) {
        NW_EACH(i, 4) {
            c = nw_dpbf16_at(c, _mm512_loadu_si512(t->w + (j + i) * 64), t->a + (j + i) * 4);
        }
    }
    for (; j < n; j++) {
        c = nw_dpbf16_at(c, _mm512_loadu_si512(t->w + j * 64), t->a + j * 4);
    }
    nw_store_rows(t->y, nw_rows_left(t, 0), c);
}

static void f32_1(const nw_tile *t, unsigned mr)
{
    tiles(t, t->n_cols, step_f32, 1, mr);
}

static void f32_2(const nw_tile *t, unsigned mr)
{
    tiles(t, t->n_cols, step_f32, 2, mr);
}

static void f32_4(const nw_tile *t, unsigned mr)
{
    tiles(t, t->n_cols, step_f32, 4, mr);
}

static void f32_8(const nw_tile *t, unsigned mr)
{
    (void)mr;
    tile(t, t->n_cols, step_f32, 8, 1, t->ahead);
}

void nw_avx512_linear_bf16(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                           float *y, size_t ldy)
{
    static const nw_tile_width one[] = {{1, 1, bf16_one}};
    static const nw_tile_width many[] = {{4, 6, bf16_4}, {2, 6, bf16_2}, {1, 6, bf16_1}};
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, one, many);
}

void nw_avx512_linear_f32(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                          float *y, size_t ldy)
{
    static const nw_tile_width widths[] = {
        {8, 1, f32_8}, {4, 6, f32_4}, {2, 6, f32_2}, {1, 6, f32_1}};
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, widths, widths + 1);
}
