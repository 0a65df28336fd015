/* Attention products of INT8 and INT4 pages. Both sides are integers, their sums are exact, and the
 * planes of a row (avx512_attn.h) are put together in F32 at the end: less than 2^24 a plane.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_attn.h"

#define SUMS 24u /* accumulators of 6 rows: 4 panels of one plane, 2 of two */

/* What is constant in a function: keys (the unsigned side) or values (the signed one), nibbles, planes of
 * a row, panels that are worked on together, rows. */
typedef struct {
    bool values, int4;
    unsigned np, nv, rows;
} form;

NW_INLINE unsigned sum_at(unsigned plane, unsigned v, unsigned r, const form f)
{
    return (plane * f.nv + v) * f.rows + r;
}

/* One vector x[v] of each panel against four bytes of each plane of each row. */
NW_INLINE void step(__m512i *c, const __m512i *x, const uint8_t *a, const form f)
{
    const size_t stride = f.values ? NW_P_STRIDE : NW_ATTN_STRIDE;
    const size_t plane = f.values ? NW_KV_PAGE : NW_Q_PLANE;

    NW_EACH(r, f.rows) {
        NW_EACH(i, f.np) {
            const __m512i b = nw_spread(a + r * stride + i * plane);
            NW_EACH(v, f.nv) {
                __m512i *sum = &c[sum_at(i, v, r, f)];
                *sum = f.values ? nw_dpbusd(*sum, b, x[v]) : nw_dpbusd(*sum, x[v], b);
            }
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

NW_INLINE void product(__m512i *c, const uint8_t *w, size_t panel, ptrdiff_t ahead,
                       uint32_t n_vectors, const uint8_t *a, const form f)
{
    const size_t bytes = f.int4 ? 8 : 4;

    for (size_t j = 0; j < n_vectors; j++, a += bytes) {
        __m512i x[4];
        __m512i half[4];
        NW_EACH(v, f.nv) {
            x[v] = _mm512_loadu_si512(w + v * panel + j * 64);
            nw_ask(w + v * panel + j * 64, ahead);
        }
        if (!f.int4) {
            step(c, x, a, f);
            continue;
        }
        NW_EACH(v, f.nv) {
            half[v] = nibble(x[v], f.values, false);
        }
        step(c, half, a, f);
        NW_EACH(v, f.nv) {
            half[v] = nibble(x[v], f.values, true);
        }
        step(c, half, a + 4, f);
    }
}

/* The number that the sums of a row's planes stand for; 2^bits: what the high one counts for. */
NW_INLINE __m512 joined(const __m512i *c, unsigned v, unsigned r, const form f)
{
    const __m512 high = _mm512_cvtepi32_ps(c[sum_at(0, v, r, f)]);
    const __m512 times = _mm512_set1_ps(f.values ? 256 : 128);
    return f.np == 1 ? high
                     : _mm512_fmadd_ps(high, times, _mm512_cvtepi32_ps(c[sum_at(1, v, r, f)]));
}

/* Keys are stored as code + zero: what that adds is known from the sums of a query's planes. */
NW_INLINE void key_panels(const nw_keys *w, uint32_t first, const nw_q_head *head, const form f)
{
    const int32_t zero = f.int4 ? 8 : 128;
    __m512i c[SUMS];

    NW_EACH(r, f.rows) {
        NW_EACH(v, f.nv) {
            c[sum_at(0, v, r, f)] = _mm512_set1_epi32(-zero * head[r].high_sum);
            if (f.np == 2) {
                c[sum_at(1, v, r, f)] = _mm512_set1_epi32(-zero * head[r].low_sum);
            }
        }
    }
    product(c, w->k + first * w->panel, w->panel, w->ahead, w->n_vectors, w->q + NW_Q_AT, f);
    NW_EACH(v, f.nv) {
        const __m512 scale = _mm512_loadu_ps(w->scales + (first + v) * w->scale_panel);
        nw_ask(w->scales + (first + v) * w->scale_panel, w->ahead);
        NW_EACH(r, f.rows) {
            _mm512_storeu_ps(w->s + r * NW_KV_PAGE + (first + v) * 16,
                             _mm512_mul_ps(joined(c, v, r, f), scale));
        }
    }
}

/* Panels that no row sees may be among the last four or two: the page has them. */
NW_INLINE void keys(const nw_keys *w, const bool int4, const unsigned np, const unsigned rows)
{
    const form f = {false, int4, np, 4 / np, rows};
    nw_q_head head[NW_ATTN_GROUP];

    NW_EACH(r, rows) {
        memcpy(&head[r], w->q + r * NW_ATTN_STRIDE, sizeof head[r]);
    }
    for (uint32_t first = 0; first < w->n_panels; first += f.nv) {
        key_panels(w, first, head, f);
    }
}

NW_INLINE void value_panels(const nw_values *w, uint32_t first, const form f)
{
    __m512i c[SUMS];

    NW_EACH(i, f.np * f.nv * f.rows) {
        c[i] = _mm512_setzero_si512();
    }
    product(c, w->v + first * w->panel, w->panel, w->ahead, w->n_vectors, w->p, f);
    NW_EACH(r, f.rows) {
        float *o = w->o + r * (NW_ATTN_STRIDE / sizeof *o) + first * (size_t)NW_KV_LANES;
        const __m512 shrink = _mm512_set1_ps(w->shrink[r]);
        const __m512 share = _mm512_set1_ps(w->share[r]);
        NW_EACH(v, f.nv) {
            const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(o + v * 16), shrink);
            _mm512_storeu_ps(o + v * 16, _mm512_fmadd_ps(joined(c, v, r, f), share, old));
        }
    }
}

NW_INLINE void values(const nw_values *w, const bool int4, const unsigned np, const unsigned rows)
{
    const unsigned nv = 4 / np;
    uint32_t i = 0;

    for (; i + nv <= w->n_panels; i += nv) {
        value_panels(w, i, (form){true, int4, np, nv, rows});
    }
    for (; i < w->n_panels; i++) {
        value_panels(w, i, (form){true, int4, np, 1, rows});
    }
}

#define KEYS_INT8(rows)        keys(w, false, 2, rows)
#define KEYS_INT8_BYTE(rows)   keys(w, false, 1, rows)
#define KEYS_INT4(rows)        keys(w, true, 2, rows)
#define KEYS_INT4_BYTE(rows)   keys(w, true, 1, rows)
#define VALUES_INT8(rows)      values(w, false, 2, rows)
#define VALUES_INT8_BYTE(rows) values(w, false, 1, rows)
#define VALUES_INT4(rows)      values(w, true, 2, rows)
#define VALUES_INT4_BYTE(rows) values(w, true, 1, rows)

void nw_avx512_keys_int8(const nw_keys *w, unsigned n_rows)
{
    if (w->planes == 1) {
        NW_FOR_ROWS(KEYS_INT8_BYTE, n_rows);
    } else {
        NW_FOR_ROWS(KEYS_INT8, n_rows);
    }
}

void nw_avx512_keys_int4(const nw_keys *w, unsigned n_rows)
{
    if (w->planes == 1) {
        NW_FOR_ROWS(KEYS_INT4_BYTE, n_rows);
    } else {
        NW_FOR_ROWS(KEYS_INT4, n_rows);
    }
}

void nw_avx512_values_int8(const nw_values *w, unsigned n_rows)
{
    if (w->planes == 1) {
        NW_FOR_ROWS(VALUES_INT8_BYTE, n_rows);
    } else {
        NW_FOR_ROWS(VALUES_INT8, n_rows);
    }
}

void nw_avx512_values_int4(const nw_values *w, unsigned n_rows)
{
    if (w->planes == 1) {
        NW_FOR_ROWS(VALUES_INT4_BYTE, n_rows);
    } else {
        NW_FOR_ROWS(VALUES_INT4, n_rows);
    }
}
