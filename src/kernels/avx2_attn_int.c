/* Attention products of INT8 and INT4 pages in vectors of 8: codes become words by shifts alone, once
 * for all rows of a group, and vpmaddwd multiplies them by the words of queries and probabilities.
 * Sums of integers are exact: 255 * 16256 * 512 for keys, less for values, is below 2^31.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_attn.h"

#define MOST 12u /* accumulators */

/* What is constant in a function: keys, unsigned as they are stored, or values, signed; a panel is two
 * vectors. */
typedef struct {
    bool values, int4;
    unsigned np, rows;
    size_t stride; /* bytes from a row to the next */
} form;

NW_INLINE unsigned panels_of(const unsigned rows)
{
    return rows <= 2 ? 2 : 1;
}

/* Of each 16 bits the field of 16 - right bits that `left` bits stand before. */
NW_INLINE __m256i field(__m256i x, const int left, const int right, const bool is_signed)
{
    const __m256i y = left == 0 ? x : _mm256_slli_epi16(x, left);
    return is_signed ? _mm256_srai_epi16(y, right) : _mm256_srli_epi16(y, right);
}

/* Words k of the 32 bytes at p, and with which dword of a row's step they are multiplied. INT8: columns
 * 0, 2, then 1, 3; INT4 for the low nibbles and the high ones. */
NW_INLINE __m256i words(const uint8_t *p, unsigned k, const form f)
{
    const __m256i x = nw_avx2_bytes(p);

    if (!f.int4) {
        return field(x, k == 0 ? 8 : 0, 8, f.values);
    }
    return field(x, 12 - 4 * (int)k, 12, f.values);
}

NW_INLINE size_t dword_of(unsigned k, const form f)
{
    return f.int4 ? k % 2 * 2 + k / 2 : k;
}

NW_INLINE __m256i spread(const uint8_t *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

/* c + the sums of two products. gcc would add the products of a step first and run out of registers. */
NW_INLINE __m256i add_products(__m256i c, __m256i x, __m256i b)
{
    c = _mm256_add_epi32(c, _mm256_madd_epi16(x, b));
    __asm__("" : "+x"(c));
    return c;
}

/* Adds vector v of the panels at w x row r of a to c[v * rows + r]. */
NW_INLINE void product(const nw_avx2_side *s, const uint8_t *w, __m256i *c, const form f)
{
    const unsigned nv = 2 * f.np;
    const unsigned fields = f.int4 ? 4 : 2;
    const uint8_t *a = s->a;

    for (size_t j = 0; j < s->n_vectors; j++, w += 64, a += fields * sizeof(int32_t)) {
        NW_EACH(p, f.np) {
            nw_avx2_ask(w + p * s->panel, s->ahead);
        }
        NW_EACH(k, fields) {
            __m256i x[4];
            NW_EACH(v, nv) {
                x[v] = words(w + v / 2 * s->panel + v % 2 * 32, k, f);
            }
            NW_EACH(r, f.rows) {
                const __m256i b = spread(a + r * f.stride + dword_of(k, f) * sizeof(int32_t));
                NW_EACH(v, nv) {
                    c[v * f.rows + r] = add_products(c[v * f.rows + r], x[v], b);
                }
            }
        }
    }
}

/* Keys are stored as code + zero: what that adds is known from the sum of a query. */
NW_INLINE void key_panels(const nw_avx2_keys *k, uint32_t first, const form f)
{
    const int32_t zero = f.int4 ? 8 : 128;
    __m256i c[MOST];

    NW_EACH(r, f.rows) {
        nw_avx2_q_head head;
        memcpy(&head, k->side.a - NW_AVX2_Q_AT + r * f.stride, sizeof head);
        NW_EACH(v, 2 * f.np) {
            c[v * f.rows + r] = _mm256_set1_epi32(-zero * head.sum);
        }
    }
    product(&k->side, k->side.w + first * k->side.panel, c, f);
    NW_EACH(v, 2 * f.np) {
        const uint32_t panel = first + v / 2;
        const float *at = (const float *)(const void *)(k->scales + panel * k->scale_panel);
        const __m256 scale = _mm256_loadu_ps(at + v % 2 * 8);
        float *s = k->s + panel * (size_t)NW_KV_LANES + v % 2 * 8;
        NW_EACH(r, f.rows) {
            _mm256_storeu_ps(s + r * NW_KV_PAGE,
                             _mm256_mul_ps(_mm256_cvtepi32_ps(c[v * f.rows + r]), scale));
        }
    }
    nw_avx2_ask(k->scales + first * k->scale_panel, k->side.ahead);
}

/* A page has four panels: those of the last step are there. */
NW_INLINE void keys(const nw_avx2_keys *k, const bool int4, const unsigned rows)
{
    const form f = {false, int4, panels_of(rows), rows, NW_ATTN_STRIDE};

    for (uint32_t i = 0; i < k->side.n_panels; i += f.np) {
        key_panels(k, i, f);
    }
}

NW_INLINE void value_panels(const nw_avx2_values *w, uint32_t first, const form f)
{
    __m256i c[MOST];

    NW_EACH(i, 2 * f.np * f.rows) {
        c[i] = _mm256_setzero_si256();
    }
    product(&w->side, w->side.w + first * w->side.panel, c, f);
    NW_EACH(r, f.rows) {
        float *o = w->o + r * (NW_ATTN_STRIDE / sizeof *o) + first * (size_t)NW_KV_LANES;
        const __m256 shrink = _mm256_set1_ps(w->shrink[r]);
        const __m256 share = _mm256_set1_ps(w->share[r]);
        NW_EACH(v, 2 * f.np) {
            const __m256 old = _mm256_mul_ps(_mm256_loadu_ps(o + v * 8), shrink);
            const __m256 sum = _mm256_cvtepi32_ps(c[v * f.rows + r]);
            _mm256_storeu_ps(o + v * 8, _mm256_fmadd_ps(sum, share, old));
        }
    }
}

NW_INLINE void values(const nw_avx2_values *w, const bool int4, const unsigned rows)
{
    const form f = {true, int4, panels_of(rows), rows, NW_AVX2_P_STRIDE};
    const form one = {true, int4, 1, rows, NW_AVX2_P_STRIDE};
    uint32_t i = 0;

    for (; i + f.np <= w->side.n_panels; i += f.np) {
        value_panels(w, i, f);
    }
    for (; i < w->side.n_panels; i++) {
        value_panels(w, i, one);
    }
}

#define KEYS_INT8(rows)   keys(k, false, rows)
#define KEYS_INT4(rows)   keys(k, true, rows)
#define VALUES_INT8(rows) values(v, false, rows)
#define VALUES_INT4(rows) values(v, true, rows)

void nw_avx2_keys_int8(const nw_avx2_keys *k, unsigned n_rows)
{
    NW_FOR_ROWS(KEYS_INT8, n_rows);
}

void nw_avx2_keys_int4(const nw_avx2_keys *k, unsigned n_rows)
{
    NW_FOR_ROWS(KEYS_INT4, n_rows);
}

void nw_avx2_values_int8(const nw_avx2_values *v, unsigned n_rows)
{
    NW_FOR_ROWS(VALUES_INT8, n_rows);
}

void nw_avx2_values_int4(const nw_avx2_values *v, unsigned n_rows)
{
    NW_FOR_ROWS(VALUES_INT4, n_rows);
}
