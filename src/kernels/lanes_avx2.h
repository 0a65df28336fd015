/* Vectors of 8 rows or 8 values for the bodies in lanes_*.h: AVX2, FMA and F16C. What an operation means is
 * said in lanes.h, its includer; the tiers' products of small integers are in avx2_int.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_AVX2_H
#define NW_KERNELS_LANES_AVX2_H

#include <immintrin.h>

#include "kernels/tile.h"

#define NW_LANES     8u
#define NW_REGISTERS 16u

typedef __m256 nw_lanes_f;
typedef __m256i nw_lanes_i;
typedef __m128i nw_lanes_h;

/* The first n (>= 8: all) of 8 lanes. */
NW_INLINE __m256i nw_lanes_first(size_t n)
{
    const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int)n : 8), count);
}

NW_INLINE __m128i nw_lanes_16_bytes(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* ---- loads and stores ---- */

NW_INLINE nw_lanes_f nw_lanes_load(const float *x)
{
    return _mm256_loadu_ps(x);
}

NW_INLINE nw_lanes_f nw_lanes_load_n(const float *x, size_t n)
{
    return _mm256_maskload_ps(x, nw_lanes_first(n));
}

NW_INLINE void nw_lanes_store(float *y, nw_lanes_f x)
{
    _mm256_storeu_ps(y, x);
}

NW_INLINE void nw_lanes_store_n(float *y, size_t n, nw_lanes_f x)
{
    _mm256_maskstore_ps(y, nw_lanes_first(n), x);
}

NW_INLINE nw_lanes_i nw_lanes_bytes(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

NW_INLINE nw_lanes_i nw_lanes_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

NW_INLINE nw_lanes_f nw_lanes_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(nw_lanes_16_bytes(p));
}

NW_INLINE nw_lanes_i nw_lanes_pairs_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi16(nw_lanes_16_bytes(p));
}

NW_INLINE nw_lanes_i nw_lanes_pairs_s8(const uint8_t *p)
{
    return _mm256_cvtepi8_epi16(nw_lanes_16_bytes(p));
}

NW_INLINE nw_lanes_i nw_lanes_table(const uint8_t t[16])
{
    return _mm256_broadcastsi128_si256(nw_lanes_16_bytes(t));
}

/* ---- whole numbers ---- */

NW_INLINE nw_lanes_i nw_lanes_int(int32_t x)
{
    return _mm256_set1_epi32(x);
}

NW_INLINE nw_lanes_i nw_lanes_count(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

NW_INLINE nw_lanes_i nw_lanes_add_i(nw_lanes_i a, nw_lanes_i b)
{
    return _mm256_add_epi32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_sub_i(nw_lanes_i a, nw_lanes_i b)
{
    return _mm256_sub_epi32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_mul_i(nw_lanes_i a, nw_lanes_i b)
{
    return _mm256_mullo_epi32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_and(nw_lanes_i a, nw_lanes_i b)
{
    return _mm256_and_si256(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_or(nw_lanes_i a, nw_lanes_i b)
{
    return _mm256_or_si256(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_lookup(nw_lanes_i table, nw_lanes_i index)
{
    return _mm256_shuffle_epi8(table, index);
}

NW_INLINE nw_lanes_i nw_lanes_left(nw_lanes_i x, int n)
{
    return _mm256_slli_epi32(x, n);
}

NW_INLINE nw_lanes_i nw_lanes_right(nw_lanes_i x, int n)
{
    return _mm256_srli_epi32(x, n);
}

NW_INLINE nw_lanes_i nw_lanes_right_signed(nw_lanes_i x, int n)
{
    return _mm256_srai_epi32(x, n);
}

NW_INLINE nw_lanes_i nw_lanes_greater(nw_lanes_i a, nw_lanes_i b)
{
    return _mm256_cmpgt_epi32(a, b);
}

/* ---- floats ---- */

NW_INLINE nw_lanes_f nw_lanes_set(float x)
{
    return _mm256_set1_ps(x);
}

NW_INLINE nw_lanes_f nw_lanes_add(nw_lanes_f a, nw_lanes_f b)
{
    return _mm256_add_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_sub(nw_lanes_f a, nw_lanes_f b)
{
    return _mm256_sub_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_mul(nw_lanes_f a, nw_lanes_f b)
{
    return _mm256_mul_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_div(nw_lanes_f a, nw_lanes_f b)
{
    return _mm256_div_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_fma(nw_lanes_f a, nw_lanes_f b, nw_lanes_f c)
{
    return _mm256_fmadd_ps(a, b, c);
}

NW_INLINE nw_lanes_f nw_lanes_max(nw_lanes_f a, nw_lanes_f b)
{
    return _mm256_max_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_clamp(nw_lanes_f x, float lo, float hi)
{
    /* the second operand is what max and min return for a NaN */
    const __m256 low = _mm256_max_ps(_mm256_set1_ps(lo), x);
    return _mm256_min_ps(_mm256_set1_ps(hi), low);
}

NW_INLINE nw_lanes_f nw_lanes_round(nw_lanes_f x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

NW_INLINE nw_lanes_i nw_lanes_whole(nw_lanes_f x)
{
    return _mm256_cvtps_epi32(x);
}

NW_INLINE nw_lanes_f nw_lanes_float(nw_lanes_i x)
{
    return _mm256_cvtepi32_ps(x);
}

NW_INLINE nw_lanes_f nw_lanes_from_bits(nw_lanes_i x)
{
    return _mm256_castsi256_ps(x);
}

NW_INLINE nw_lanes_f nw_lanes_pick(nw_lanes_i mask, nw_lanes_f x, nw_lanes_f other)
{
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(mask));
}

NW_INLINE float nw_lanes_sum(nw_lanes_f v)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

NW_INLINE float nw_lanes_top(nw_lanes_f v)
{
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* ---- 16-bit words, one a lane ---- */

NW_INLINE nw_lanes_h nw_lanes_words_u8(const uint8_t *p)
{
    return _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

NW_INLINE nw_lanes_h nw_lanes_split(const uint8_t *p, unsigned pair)
{
    const uint8_t *at = p + (size_t)pair * 8;
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(const void *)at),
                              _mm_loadl_epi64((const __m128i *)(const void *)(at + 16)));
}

NW_INLINE nw_lanes_h nw_lanes_left_h(nw_lanes_h x, int n)
{
    return _mm_slli_epi16(x, n);
}

NW_INLINE nw_lanes_h nw_lanes_right_h(nw_lanes_h x, int n)
{
    return _mm_srli_epi16(x, n);
}

NW_INLINE nw_lanes_h nw_lanes_and_h(nw_lanes_h x, uint16_t mask)
{
    return _mm_and_si128(x, _mm_set1_epi16((short)mask));
}

NW_INLINE nw_lanes_h nw_lanes_or_h(nw_lanes_h a, nw_lanes_h b)
{
    return _mm_or_si128(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_from_f16(nw_lanes_h x)
{
    return _mm256_cvtph_ps(x);
}

/* ---- codes of 8 bits ---- */

NW_INLINE nw_lanes_i nw_lanes_flip(nw_lanes_i stored)
{
    return _mm256_xor_si256(stored, _mm256_set1_epi8((char)0x80));
}

/* Sums of 4 products, so that lanes_a8.h is whole in vectors of 8 as well; the tiers have faster ones.
 * vpmaddubsw multiplies u8 by s8 and adds pairs in int16, saturating: small codes (15 * 127 * 2) are
 * far from that; others go by magnitude, |w| * (a with w's sign), at most 128 * 127 * 2 = 32512. */
NW_INLINE nw_lanes_i nw_lanes_dot_small(nw_lanes_i c, nw_lanes_i w, nw_lanes_i a)
{
    const __m256i pairs = _mm256_maddubs_epi16(w, a);
    return _mm256_add_epi32(c, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

NW_INLINE int32_t nw_lanes_dot_start(int32_t sum)
{
    (void)sum;
    return 0;
}

NW_INLINE nw_lanes_i nw_lanes_dot_stored(nw_lanes_i c, nw_lanes_i stored, nw_lanes_i a)
{
    const __m256i w = nw_lanes_flip(stored);
    return nw_lanes_dot_small(c, _mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
}

#endif
