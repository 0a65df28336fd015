/* Attention products of BF16 and F32 pages. Lane r of an accumulator is a token (keys) or a value of
 * the head (values); one accumulator a lane and row, in order: the same bits for every group.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_attn.h"

/* 64 bytes of a page against 4 bytes of a row. */
typedef __m512 (*step_fn)(__m512 c, __m512i w, __m512i a);

NW_INLINE __m512 step_bf16(__m512 c, __m512i w, __m512i a)
{
    return nw_dpbf16(c, w, a);
}

NW_INLINE __m512 step_f32(__m512 c, __m512i w, __m512i a)
{
    return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_castsi512_ps(a), c);
}

/* c[v * rows + r] = panel v of w x row r of a. */
NW_INLINE void product(const uint8_t *w, size_t panel, ptrdiff_t ahead, uint32_t n_vectors,
                       const uint8_t *a, size_t stride, step_fn step, const unsigned nv,
                       const unsigned rows, __m512 *c)
{
    NW_EACH(i, nv * rows) {
        c[i] = _mm512_setzero_ps();
    }
    for (size_t j = 0; j < n_vectors; j++) {
        __m512i x[4];
        NW_EACH(v, nv) {
            x[v] = _mm512_loadu_si512(w + v * panel + j * 64);
            nw_ask(w + v * panel + j * 64, ahead);
        }
        NW_EACH(r, rows) {
            const __m512i b = nw_spread(a + r * stride + j * 4);
            NW_EACH(v, nv) {
                c[v * rows + r] = step(c[v * rows + r], x[v], b);
            }
        }
    }
}

NW_INLINE void keys(const nw_keys *w, step_fn step, const unsigned rows)
{
    __m512 c[24];

    product(w->k, w->panel, w->ahead, w->n_vectors, w->q + NW_Q_AT, NW_ATTN_STRIDE, step, 4, rows,
            c);
    NW_EACH(v, 4) {
        if (w->scales != NULL) {
            const __m512 scale = _mm512_loadu_ps(w->scales + v * w->scale_panel);
            NW_EACH(r, rows) {
                c[v * rows + r] = _mm512_mul_ps(c[v * rows + r], scale);
            }
        }
        NW_EACH(r, rows) {
            _mm512_storeu_ps(w->s + r * NW_KV_PAGE + v * 16, c[v * rows + r]);
        }
    }
}

NW_INLINE void value_panels(const nw_values *w, uint32_t first, step_fn step, const unsigned nv,
                            const unsigned rows)
{
    __m512 c[24];

    product(w->v + first * w->panel, w->panel, w->ahead, w->n_vectors, w->p, NW_P_STRIDE, step, nv,
            rows, c);
    NW_EACH(r, rows) {
        float *o = w->o + r * (NW_ATTN_STRIDE / sizeof *o) + first * (size_t)NW_KV_LANES;
        const __m512 shrink = _mm512_set1_ps(w->shrink[r]);
        const __m512 share = _mm512_set1_ps(w->share[r]);
        NW_EACH(v, nv) {
            const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(o + v * 16), shrink);
            _mm512_storeu_ps(o + v * 16, _mm512_fmadd_ps(c[v * rows + r], share, old));
        }
    }
}

NW_INLINE void values(const nw_values *w, step_fn step, const unsigned rows)
{
    uint32_t i = 0;

    for (; i + 4 <= w->n_panels; i += 4) {
        value_panels(w, i, step, 4, rows);
    }
    for (; i < w->n_panels; i++) {
        value_panels(w, i, step, 1, rows);
    }
}

#define KEYS_BF16(rows)   keys(w, step_bf16, rows)
#define KEYS_F32(rows)    keys(w, step_f32, rows)
#define VALUES_BF16(rows) values(w, step_bf16, rows)
#define VALUES_F32(rows)  values(w, step_f32, rows)

void nw_avx512_keys_bf16(const nw_keys *w, unsigned n_rows)
{
    NW_FOR_ROWS(KEYS_BF16, n_rows);
}

void nw_avx512_keys_f32(const nw_keys *w, unsigned n_rows)
{
    NW_FOR_ROWS(KEYS_F32, n_rows);
}

void nw_avx512_values_bf16(const nw_values *w, unsigned n_rows)
{
    NW_FOR_ROWS(VALUES_BF16, n_rows);
}

void nw_avx512_values_f32(const nw_values *w, unsigned n_rows)
{
    NW_FOR_ROWS(VALUES_F32, n_rows);
}
