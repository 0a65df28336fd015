/* Attention products of BF16 and F32 pages in vectors of 8. Lane r of an accumulator is a token (keys)
 * or a value of the head (values); one accumulator a lane and row, columns in order: the same bits
 * for every group. Few rows take several panels at once, so that eight chains of FMAs and more run
 * side by side.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_attn.h"
#include "kernels/avx2_float.h"

#define MOST 12u /* accumulators */

/* What is constant in a function; a panel is two vectors. */
typedef struct {
    bool bf16;
    unsigned np, rows;
    size_t stride; /* bytes from a row to the next */
} form;

NW_INLINE unsigned panels_of(const unsigned rows)
{
    return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

/* c[v * rows + r] = vector v of the panels at w x row r of a. */
NW_INLINE void product(const nw_avx2_side *s, const uint8_t *w, __m256 *c, const form f)
{
    const unsigned nv = 2 * f.np;
    const unsigned columns = f.bf16 ? 2 : 1;
    const uint8_t *a = s->a;

    NW_EACH(i, nv * f.rows) {
        c[i] = _mm256_setzero_ps();
    }
    for (size_t j = 0; j < s->n_vectors; j++, w += 64, a += columns * sizeof(float)) {
        NW_EACH(p, f.np) {
            nw_avx2_ask(w + p * s->panel, s->ahead);
        }
        NW_EACH(k, columns) {
            __m256 x[8];
            NW_EACH(v, nv) {
                x[v] = nw_avx2_column(w + v / 2 * s->panel + v % 2 * 32, k, f.bf16);
            }
            NW_EACH(r, f.rows) {
                const float *at = (const float *)(const void *)(a + r * f.stride);
                nw_avx2_fma_row(c, x, at + k, r, nv, f.rows);
            }
        }
    }
}

NW_INLINE void key_panels(const nw_avx2_keys *k, uint32_t first, const form f)
{
    __m256 c[MOST];

    product(&k->side, k->side.w + first * k->side.panel, c, f);
    NW_EACH(v, 2 * f.np) {
        const uint32_t panel = first + v / 2;
        float *s = k->s + panel * (size_t)NW_KV_LANES + v % 2 * 8;
        if (k->scales != NULL) {
            const float *at = (const float *)(const void *)(k->scales + panel * k->scale_panel);
            const __m256 scale = _mm256_loadu_ps(at + v % 2 * 8);
            NW_EACH(r, f.rows) {
                const __m256 x = _mm256_mul_ps(c[v * f.rows + r], _mm256_set1_ps(k->factor));
                c[v * f.rows + r] = _mm256_mul_ps(x, scale);
            }
        }
        NW_EACH(r, f.rows) {
            _mm256_storeu_ps(s + r * NW_KV_PAGE, c[v * f.rows + r]);
        }
    }
}

/* A page has four panels: those of the last step are there. */
NW_INLINE void keys(const nw_avx2_keys *k, const bool bf16, const unsigned rows)
{
    const form f = {bf16, panels_of(rows), rows, NW_ATTN_STRIDE};

    for (uint32_t i = 0; i < k->side.n_panels; i += f.np) {
        key_panels(k, i, f);
    }
}

NW_INLINE void value_panels(const nw_avx2_values *w, uint32_t first, const form f)
{
    __m256 c[MOST];

    product(&w->side, w->side.w + first * w->side.panel, c, f);
    NW_EACH(r, f.rows) {
        float *o = w->o + r * (NW_ATTN_STRIDE / sizeof *o) + first * (size_t)NW_KV_LANES;
        const __m256 shrink = _mm256_set1_ps(w->shrink[r]);
        const __m256 share = _mm256_set1_ps(w->share[r]);
        NW_EACH(v, 2 * f.np) {
            const __m256 old = _mm256_mul_ps(_mm256_loadu_ps(o + v * 8), shrink);
            _mm256_storeu_ps(o + v * 8, _mm256_fmadd_ps(c[v * f.rows + r], share, old));
        }
    }
}

NW_INLINE void values(const nw_avx2_values *w, const bool bf16, const unsigned rows)
{
    const form f = {bf16, panels_of(rows), rows, NW_AVX2_P_STRIDE};
    const form one = {bf16, 1, rows, NW_AVX2_P_STRIDE};
    uint32_t i = 0;

    for (; i + f.np <= w->side.n_panels; i += f.np) {
        value_panels(w, i, f);
    }
    for (; i < w->side.n_panels; i++) {
        value_panels(w, i, one);
    }
}

#define KEYS_BF16(rows)   keys(k, true, rows)
#define KEYS_F32(rows)    keys(k, false, rows)
#define VALUES_BF16(rows) values(v, true, rows)
#define VALUES_F32(rows)  values(v, false, rows)

void nw_avx2_keys_bf16(const nw_avx2_keys *k, unsigned n_rows)
{
    NW_FOR_ROWS(KEYS_BF16, n_rows);
}

void nw_avx2_keys_f32(const nw_avx2_keys *k, unsigned n_rows)
{
    NW_FOR_ROWS(KEYS_F32, n_rows);
}

void nw_avx2_values_bf16(const nw_avx2_values *v, unsigned n_rows)
{
    NW_FOR_ROWS(VALUES_BF16, n_rows);
}

void nw_avx2_values_f32(const nw_avx2_values *v, unsigned n_rows)
{
    NW_FOR_ROWS(VALUES_F32, n_rows);
}
