/* Attention products of INT8 and INT4 pages. Both sides are integers, their sums are exact, and the
 * two planes of a row (avx512_attn.h) are put together in F32 at the end: less than 2^24 a plane.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_attn.h"

#define PANELS 2u /* that are worked on together: with two planes of six rows, 24 accumulators */

typedef struct {
    __m512i high[PANELS * NW_ATTN_GROUP], low[PANELS * NW_ATTN_GROUP];
} planes;

/* One vector x[v] of each panel against four bytes of both planes of each row; keys are the
 * unsigned side, values the signed one. */
NW_INLINE void step(planes *c, const __m512i *x, const uint8_t *a, size_t stride, size_t plane,
                    const bool values, const unsigned nv, const unsigned rows)
{
    NW_EACH(r, rows) {
        const __m512i high = nw_spread(a + r * stride);
        const __m512i low = nw_spread(a + r * stride + plane);
        NW_EACH(v, nv) {
            __m512i *h = &c->high[v * rows + r];
            __m512i *l = &c->low[v * rows + r];
            *h = values ? nw_dpbusd(*h, high, x[v]) : nw_dpbusd(*h, x[v], high);
            *l = values ? nw_dpbusd(*l, low, x[v]) : nw_dpbusd(*l, x[v], low);
        }
    }
}

/* 64 bytes of nibbles: the low ones, then the high ones, as keys want them (0..15) or values (16
 * times the code, signed). */
NW_INLINE __m512i nibble(__m512i x, const bool values, const bool upper)
{
    if (values) {
        return _mm512_and_si512(upper ? x : _mm512_slli_epi16(x, 4), _mm512_set1_epi8((char)0xF0));
    }
    return _mm512_and_si512(upper ? _mm512_srli_epi16(x, 4) : x, _mm512_set1_epi8(0x0F));
}

NW_INLINE void product(planes *c, const uint8_t *w, size_t panel, ptrdiff_t ahead,
                       uint32_t n_vectors, const uint8_t *a, const bool values, const bool int4,
                       const unsigned nv, const unsigned rows)
{
    const size_t stride = values ? NW_P_STRIDE : NW_ATTN_STRIDE;
    const size_t plane = values ? NW_KV_PAGE : NW_Q_PLANE;
    const size_t bytes = int4 ? 8 : 4;

    for (size_t j = 0; j < n_vectors; j++, a += bytes) {
        __m512i x[PANELS];
        __m512i half[PANELS];
        NW_EACH(v, nv) {
            x[v] = _mm512_loadu_si512(w + v * panel + j * 64);
            nw_ask(w + v * panel + j * 64, ahead);
        }
        if (!int4) {
            step(c, x, a, stride, plane, values, nv, rows);
            continue;
        }
        NW_EACH(v, nv) {
            half[v] = nibble(x[v], values, false);
        }
        step(c, half, a, stride, plane, values, nv, rows);
        NW_EACH(v, nv) {
            half[v] = nibble(x[v], values, true);
        }
        step(c, half, a + 4, stride, plane, values, nv, rows);
    }
}

/* Keys are stored as code + zero: what that adds is known from the sums of a query's planes. */
NW_INLINE void keys(const nw_keys *w, const bool int4, const unsigned rows)
{
    const int32_t zero = int4 ? 8 : 128;
    nw_q_head head[NW_ATTN_GROUP];

    NW_EACH(r, rows) {
        memcpy(&head[r], w->q + r * NW_ATTN_STRIDE, sizeof head[r]);
    }
    for (uint32_t first = 0; first < w->n_panels; first += PANELS) {
        planes c;
        NW_EACH(r, rows) {
            NW_EACH(v, PANELS) {
                c.high[v * rows + r] = _mm512_set1_epi32(-zero * head[r].high_sum);
                c.low[v * rows + r] = _mm512_set1_epi32(-zero * head[r].low_sum);
            }
        }
        product(&c, w->k + first * w->panel, w->panel, w->ahead, w->n_vectors, w->q + NW_Q_AT,
                false, int4, PANELS, rows);
        NW_EACH(v, PANELS) {
            const __m512 scale = _mm512_loadu_ps(w->scales + (first + v) * w->scale_panel);
            nw_ask(w->scales + (first + v) * w->scale_panel, w->ahead);
            NW_EACH(r, rows) {
                const __m512 dot =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(c.high[v * rows + r]), _mm512_set1_ps(128),
                                    _mm512_cvtepi32_ps(c.low[v * rows + r]));
                const __m512 unit = _mm512_mul_ps(scale, _mm512_set1_ps(head[r].scale));
                _mm512_storeu_ps(w->s + r * NW_KV_PAGE + (first + v) * 16,
                                 _mm512_mul_ps(dot, unit));
            }
        }
    }
}

NW_INLINE void value_panels(const nw_values *w, uint32_t first, const bool int4, const unsigned nv,
                            const unsigned rows)
{
    planes c;

    NW_EACH(i, nv * rows) {
        c.high[i] = c.low[i] = _mm512_setzero_si512();
    }
    product(&c, w->v + first * w->panel, w->panel, w->ahead, w->n_vectors, w->p, true, int4, nv,
            rows);
    NW_EACH(r, rows) {
        float *o = w->o + r * (NW_ATTN_STRIDE / sizeof *o) + first * (size_t)NW_KV_LANES;
        const __m512 shrink = _mm512_set1_ps(w->state[r].shrink);
        const __m512 unit = _mm512_set1_ps(w->unit[r]);
        NW_EACH(v, nv) {
            const __m512 dot =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(c.high[v * rows + r]), _mm512_set1_ps(256),
                                _mm512_cvtepi32_ps(c.low[v * rows + r]));
            const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(o + v * 16), shrink);
            _mm512_storeu_ps(o + v * 16, _mm512_fmadd_ps(dot, unit, old));
        }
    }
}

NW_INLINE void values(const nw_values *w, const bool int4, const unsigned rows)
{
    uint32_t i = 0;

    for (; i + PANELS <= w->n_panels; i += PANELS) {
        value_panels(w, i, int4, PANELS, rows);
    }
    if (i < w->n_panels) {
        value_panels(w, i, int4, 1, rows);
    }
}

#define KEYS_INT8(rows)   keys(w, false, rows)
#define KEYS_INT4(rows)   keys(w, true, rows)
#define VALUES_INT8(rows) values(w, false, rows)
#define VALUES_INT4(rows) values(w, true, rows)

void nw_avx512_keys_int8(const nw_keys *w, unsigned n_rows)
{
    NW_FOR_ROWS(KEYS_INT8, n_rows);
}

void nw_avx512_keys_int4(const nw_keys *w, unsigned n_rows)
{
    NW_FOR_ROWS(KEYS_INT4, n_rows);
}

void nw_avx512_values_int8(const nw_values *w, unsigned n_rows)
{
    NW_FOR_ROWS(VALUES_INT8, n_rows);
}

void nw_avx512_values_int4(const nw_values *w, unsigned n_rows)
{
    NW_FOR_ROWS(VALUES_INT4, n_rows);
}
