/* Element-wise ops and the softmax of attention for the AVX2 tier: the formulas of avx512_ops.c in 8
 * lanes, the rest by mask, so that no byte beyond a buffer is touched. exp as there: 2^x with the
 * degree-4 minimax polynomial q of 2^f = 1 + f q(f), relative error 9.2e-8.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/avx2.h"

#define LOG2E          0x1.715476p+0F
#define ROOT_2_OVER_PI 0x1.988454p-1F

/* 2^n for whole |n| <= 126. */
NW_INLINE __m256 pow2(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* 2^x; 0 below -150, Inf above 128, NaN for NaN. 2^0 is exactly 1. Scaled in two steps, so that
 * each factor is a normal number. */
NW_INLINE __m256 exp2_ps(__m256 x)
{
    /* the second operand is what min and max return for a NaN */
    const __m256 low = _mm256_max_ps(_mm256_set1_ps(-200), x);
    const __m256 bound = _mm256_min_ps(_mm256_set1_ps(200), low);
    const __m256 whole = _mm256_round_ps(bound, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 f = _mm256_sub_ps(bound, whole);
    const __m256i n = _mm256_cvtps_epi32(whole);
    const __m256i half = _mm256_srai_epi32(n, 1);
    __m256 q = _mm256_set1_ps(0x1.5bba14p-10F);

    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(0x1.3cea88p-7F));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(0x1.c6b752p-5F));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(0x1.ebf9bcp-3F));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(0x1.62e42ap-1F));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(1));
    return _mm256_mul_ps(_mm256_mul_ps(q, pow2(half)), pow2(_mm256_sub_epi32(n, half)));
}

NW_INLINE __m256 load(const float *x, size_t i, size_t n)
{
    return n - i >= 8 ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, nw_lanes8(n - i));
}

NW_INLINE void store(float *y, size_t i, size_t n, __m256 v)
{
    if (n - i >= 8) {
        _mm256_storeu_ps(y + i, v);
    } else {
        _mm256_maskstore_ps(y + i, nw_lanes8(n - i), v);
    }
}

NW_INLINE float sum8(__m256 v)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

NW_INLINE float max8(__m256 v)
{
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* x / (1 + 2^-arg). */
NW_INLINE __m256 gated(__m256 x, __m256 arg)
{
    const __m256 e = exp2_ps(_mm256_sub_ps(_mm256_setzero_ps(), arg));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1), e));
}

/* tanh(z) = 1 - 2 / (e^2z + 1): a few 2^-24 absolute, which is what a score needs. */
NW_INLINE __m256 tanh_ps(__m256 z)
{
    const __m256 e = exp2_ps(_mm256_mul_ps(z, _mm256_set1_ps(2 * LOG2E)));
    const __m256 one = _mm256_set1_ps(1);
    return _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2), _mm256_add_ps(e, one)));
}

void nw_avx2_rmsnorm(const float *x, const float *gain, uint32_t n, float eps, float *y)
{
    __m256 even = _mm256_setzero_ps();
    __m256 odd = _mm256_setzero_ps();

    for (uint32_t i = 0; i < n; i += 8) {
        const __m256 v = load(x, i, n);
        if (i / 8 % 2 == 0) {
            even = _mm256_fmadd_ps(v, v, even);
        } else {
            odd = _mm256_fmadd_ps(v, v, odd);
        }
    }
    const float mean = sum8(_mm256_add_ps(even, odd)) / (float)n;
    const __m256 inv = _mm256_set1_ps(1 / sqrtf(mean + eps));
    for (uint32_t i = 0; i < n; i += 8) {
        store(y, i, n, _mm256_mul_ps(_mm256_mul_ps(load(x, i, n), inv), load(gain, i, n)));
    }
}

void nw_avx2_rope(float *x, uint32_t n_heads, uint32_t d_head, const float *cos, const float *sin)
{
    const uint32_t half = d_head / 2;

    for (uint32_t h = 0; h < n_heads; h++, x += d_head) {
        for (uint32_t i = 0; i < half; i += 8) {
            const __m256 c = load(cos, i, half);
            const __m256 s = load(sin, i, half);
            const __m256 a = load(x, i, half);
            const __m256 b = load(x + half, i, half);
            store(x, i, half, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
            store(x + half, i, half, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
        }
    }
}

void nw_avx2_silu_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += 8) {
        const __m256 g = load(gate, i, n);
        const __m256 s = gated(g, _mm256_mul_ps(g, _mm256_set1_ps(LOG2E)));
        store(y, i, n, _mm256_mul_ps(s, load(up, i, n)));
    }
}

void nw_avx2_gelu_tanh_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += 8) {
        const __m256 g = load(gate, i, n);
        /* 1/2 (1 + tanh u) = sigmoid(2u), u = sqrt(2 / pi) (g + 0.044715 g^3) */
        const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(g, g), g);
        const __m256 u = _mm256_fmadd_ps(cube, _mm256_set1_ps(0.044715F), g);
        const __m256 s = gated(g, _mm256_mul_ps(u, _mm256_set1_ps(2 * ROOT_2_OVER_PI * LOG2E)));
        store(y, i, n, _mm256_mul_ps(s, load(up, i, n)));
    }
}

void nw_avx2_add(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += 8) {
        store(y, i, n, _mm256_add_ps(load(y, i, n), load(x, i, n)));
    }
}

void nw_avx2_softcap(float *x, size_t n, float cap)
{
    const __m256 inv = _mm256_set1_ps(1 / cap);
    for (size_t i = 0; i < n; i += 8) {
        const __m256 t = tanh_ps(_mm256_mul_ps(load(x, i, n), inv));
        store(x, i, n, _mm256_mul_ps(t, _mm256_set1_ps(cap)));
    }
}

/* Scores 8b .. 8b + 7 in units of log2, hidden keys -Inf; *seen gets the lanes that are not. */
NW_INLINE __m256 score(const nw_softmax_page *page, const float *s, unsigned b, __m256 *seen)
{
    const __m256i at = _mm256_add_epi32(_mm256_set1_epi32((int)(8 * b)),
                                        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i after = _mm256_cmpgt_epi32(at, _mm256_set1_epi32((int)page->j0 - 1));
    const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)page->j1), at);
    const __m256 raw = _mm256_loadu_ps(s + (size_t)b * 8);
    __m256 x = _mm256_mul_ps(raw, _mm256_set1_ps(page->scale * LOG2E));

    if (page->softcap > 0) {
        const __m256 z = _mm256_mul_ps(raw, _mm256_set1_ps(page->scale / page->softcap));
        x = _mm256_mul_ps(tanh_ps(z), _mm256_set1_ps(page->softcap * LOG2E));
    }
    *seen = _mm256_castsi256_ps(_mm256_and_si256(after, before));
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), x, *seen);
}

void nw_avx2_softmax(const nw_softmax_page *page, const float *s, nw_softmax_state *st, void *p)
{
    __m256 x[8];
    __m256 seen[8];
    __m256 top = _mm256_set1_ps(-INFINITY);
    __m256 sum = _mm256_setzero_ps();

    NW_EACH(b, 8) {
        x[b] = score(page, s, b, &seen[b]);
        top = _mm256_max_ps(top, x[b]);
    }
    const float most = max8(top);
    const float max = most > st->max ? most : st->max;
    NW_EACH(b, 8) {
        __m256 e = exp2_ps(_mm256_sub_ps(x[b], _mm256_set1_ps(max)));
        e = _mm256_and_ps(e, seen[b]);
        sum = _mm256_add_ps(sum, e);
        if (page->v_scales != NULL) {
            e = _mm256_mul_ps(e, _mm256_loadu_ps(page->v_scales + (size_t)b * 8));
        }
        _mm256_storeu_ps((float *)p + (size_t)b * 8, e);
    }
    st->shrink = _mm256_cvtss_f32(exp2_ps(_mm256_set1_ps(st->max - max)));
    st->sum = st->sum * st->shrink + sum8(sum);
    st->max = max;
}

void nw_avx2_merge(const float *part, uint32_t n, float shrink, float *out)
{
    for (uint32_t i = 0; i < n; i += 8) {
        const __m256 o = load(out, i, n);
        store(out, i, n, _mm256_fmadd_ps(o, _mm256_set1_ps(shrink), load(part, i, n)));
    }
}

void nw_avx2_scale(const float *x, uint32_t n, float factor, float *out)
{
    for (uint32_t i = 0; i < n; i += 8) {
        store(out, i, n, _mm256_mul_ps(load(x, i, n), _mm256_set1_ps(factor)));
    }
}
