/* What the files of the AVX2 tier (AVX2, FMA, F16C) share. Included by them only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX2_H
#define NW_KERNELS_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/attn_tile.h"
#include "kernels/tile.h"

/* The first n (>= 8: all) of 8 lanes. */
NW_INLINE __m256i nw_lanes8(size_t n)
{
    const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int)n : 8), count);
}

/* Rows [8 * half, 8 * half + 8) of one panel; `left` rows of the matrix begin at the panel. */
NW_INLINE void nw_store_half(float *y, uint32_t left, unsigned half, __m256 x)
{
    const uint32_t n = left > 8 * half ? left - 8 * half : 0;
    if (n >= 8) {
        _mm256_storeu_ps(y + (size_t)8 * half, x);
    } else if (n > 0) {
        _mm256_maskstore_ps(y + (size_t)8 * half, nw_lanes8(n), x);
    }
}

/* Rows of the matrix from a panel of the tile on. */
NW_INLINE uint32_t nw_left_of(const nw_tile *t, unsigned panel)
{
    const uint32_t before = panel * NW_PANEL_ROWS;
    return t->n_rows > before ? t->n_rows - before : 0;
}

NW_INLINE __m256i nw_load256(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* linear for F32 activations, panels without and with groups, and for INT8 activations. */
void nw_avx2_linear_f32(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                        float *y, size_t ldy);
void nw_avx2_linear_group(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                          float *y, size_t ldy);
void nw_avx2_linear_a8(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                       float *y, size_t ldy);

/* Contracts: kernels.h. */
void nw_avx2_rmsnorm(const float *x, const float *gain, uint32_t n, float eps, float *y);
void nw_avx2_rope(float *x, uint32_t n_heads, uint32_t d_head, const float *cos, const float *sin);
void nw_avx2_silu_mul(const float *gate, const float *up, size_t n, float *y);
void nw_avx2_gelu_tanh_mul(const float *gate, const float *up, size_t n, float *y);
void nw_avx2_add(const float *x, size_t n, float *y);
void nw_avx2_softcap(float *x, size_t n, float cap);
/* Contracts: attn_tile.h. */
void nw_avx2_softmax(const nw_softmax_page *page, const float *s, nw_softmax_state *st, void *p);
void nw_avx2_merge(const float *part, uint32_t n, float shrink, float *out);
void nw_avx2_scale(const float *x, uint32_t n, float factor, float *out);

#endif
