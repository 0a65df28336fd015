/* linear for int8 panels with one scale a row x INT8 activations: sums exact in int32, then scaled.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512.h"

/* Stored bytes are code + 128, so each accumulator starts at -128 times the token's sum. */
NW_INLINE void tile(const nw_tile *t, const unsigned nv, const unsigned mr, const uint32_t ahead)
{
    const uint32_t quads = (t->n_cols + 3) / 4;
    const size_t codes_at = nw_act_codes_at(NW_ACT_INT8, t->n_cols);
    const uint8_t *w[8];
    const uint8_t *a[NW_TILE_TOKENS];
    float scale[NW_TILE_TOKENS];
    __m512i c[24];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride + 64;
    }
    NW_EACH(m, mr) {
        nw_act_head head;
        memcpy(&head, t->a + m * t->a_stride, sizeof head);
        a[m] = t->a + m * t->a_stride + codes_at;
        scale[m] = head.scale;
        NW_EACH(v, nv) {
            c[m * nv + v] = _mm512_set1_epi32(-128 * head.sum);
        }
    }
    const uint8_t *next = t->next;
    for (size_t j = 0; j < quads; j++) {
        __m512i x[8];
        next = nw_prefetch(next, ahead);
        NW_EACH(v, nv) {
            x[v] = _mm512_loadu_si512(w[v] + j * 64);
        }
        NW_EACH(m, mr) {
            const __m512i b = nw_spread(a[m] + j * 4);
            NW_EACH(v, nv) {
                c[m * nv + v] = nw_dpbusd(c[m * nv + v], x[v], b);
            }
        }
    }
    NW_EACH(v, nv) {
        const uint32_t left = nw_rows_left(t, v);
        const __m512 s = _mm512_loadu_ps(t->w + v * t->w_stride);
        NW_EACH(m, mr) {
            const __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(c[m * nv + v]), s);
            nw_store_rows(t->y + m * t->ldy + v * 16, left,
                          _mm512_mul_ps(f, _mm512_set1_ps(scale[m])));
        }
    }
}

NW_INLINE void tokens(const nw_tile *t, const unsigned nv, unsigned mr)
{
    switch (mr) {
    case 1:
        tile(t, nv, 1, t->ahead);
        return;
    case 2:
        tile(t, nv, 2, t->ahead);
        return;
    case 3:
        tile(t, nv, 3, t->ahead);
        return;
    case 4:
        tile(t, nv, 4, t->ahead);
        return;
    case 5:
        tile(t, nv, 5, t->ahead);
        return;
    default:
        if (t->ahead > 0) {
            tile(t, nv, 6, t->ahead);
        } else { /* most tiles of a prefill: the test is out of the loop */
            tile(t, nv, 6, 0);
        }
        return;
    }
}

static void int8_1(const nw_tile *t, unsigned mr)
{
    tokens(t, 1, mr);
}

static void int8_2(const nw_tile *t, unsigned mr)
{
    tokens(t, 2, mr);
}

static void int8_4(const nw_tile *t, unsigned mr)
{
    tokens(t, 4, mr);
}

/* One token, one panel: one stream (docs/speed.md); sums are exact, so that
 * four of them may share a row. */
void nw_avx512_row_a8_one(const nw_tile *t, unsigned mr)
{
    const uint32_t n = (t->n_cols + 3) / 4;
    const uint8_t *w = t->w + 64;
    const uint8_t *a = t->a + nw_act_codes_at(NW_ACT_INT8, t->n_cols);
    __m512i c[4];
    nw_act_head head;
    size_t j = 0;

    (void)mr;
    memcpy(&head, t->a, sizeof head);
    c[0] = _mm512_set1_epi32(-128 * head.sum);
    c[1] = c[2] = c[3] = _mm512_setzero_si512();
    for (; j + 4 <= n; j += 4) {
        nw_ask_far(w + j * 64, t->far, 4);
        NW_EACH(i, 4) {
            c[i] = nw_dpbusd_at(c[i], _mm512_loadu_si512(w + (j + i) * 64), a + (j + i) * 4);
        }
    }
    for (; j < n; j++) {
        c[0] = nw_dpbusd_at(c[0], _mm512_loadu_si512(w + j * 64), a + j * 4);
    }
    c[0] = _mm512_add_epi32(_mm512_add_epi32(c[0], c[1]), _mm512_add_epi32(c[2], c[3]));
    const __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(c[0]), _mm512_loadu_ps(t->w));
    nw_store_rows(t->y, nw_rows_left(t, 0), _mm512_mul_ps(f, _mm512_set1_ps(head.scale)));
}

void nw_avx512_linear_row_a8(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                             float *y, size_t ldy)
{
    static const nw_tile_width one[] = {{1, 1, nw_avx512_row_a8_one}};
    static const nw_tile_width many[] = {{4, 6, int8_4}, {2, 6, int8_2}, {1, 6, int8_1}};
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, one, many);
}
