/* Vectors of 16 rows or 16 values for the bodies in lanes_*.h: AVX-512 F, BW, DQ, VL and VNNI. What an
 * operation means is said in lanes.h, its includer.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_AVX512_H
#define NW_KERNELS_LANES_AVX512_H

#include <immintrin.h>

#include "kernels/tile.h"

#define NW_LANES     16u
#define NW_REGISTERS 32u

typedef __m512 nw_lanes_f;
typedef __m512i nw_lanes_i;
typedef __m256i nw_lanes_h;

NW_INLINE __mmask16 nw_lanes_first(size_t n)
{
    return (__mmask16)((1U << n) - 1); /* n < 16 */
}

/* ---- loads and stores ---- */

NW_INLINE nw_lanes_f nw_lanes_load(const float *x)
{
    return _mm512_loadu_ps(x);
}

NW_INLINE nw_lanes_f nw_lanes_load_n(const float *x, size_t n)
{
    return _mm512_maskz_loadu_ps(nw_lanes_first(n), x);
}

NW_INLINE void nw_lanes_store(float *y, nw_lanes_f x)
{
    _mm512_storeu_ps(y, x);
}

NW_INLINE void nw_lanes_store_n(float *y, size_t n, nw_lanes_f x)
{
    _mm512_mask_storeu_ps(y, nw_lanes_first(n), x);
}

NW_INLINE nw_lanes_i nw_lanes_bytes(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

NW_INLINE nw_lanes_i nw_lanes_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

NW_INLINE nw_lanes_f nw_lanes_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

NW_INLINE nw_lanes_i nw_lanes_pairs_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

NW_INLINE nw_lanes_i nw_lanes_pairs_s8(const uint8_t *p)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

NW_INLINE nw_lanes_i nw_lanes_table(const uint8_t t[16])
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)t));
}

/* ---- whole numbers ---- */

NW_INLINE nw_lanes_i nw_lanes_int(int32_t x)
{
    return _mm512_set1_epi32(x);
}

NW_INLINE nw_lanes_i nw_lanes_count(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

NW_INLINE nw_lanes_i nw_lanes_add_i(nw_lanes_i a, nw_lanes_i b)
{
    return _mm512_add_epi32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_sub_i(nw_lanes_i a, nw_lanes_i b)
{
    return _mm512_sub_epi32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_mul_i(nw_lanes_i a, nw_lanes_i b)
{
    return _mm512_mullo_epi32(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_and(nw_lanes_i a, nw_lanes_i b)
{
    return _mm512_and_si512(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_or(nw_lanes_i a, nw_lanes_i b)
{
    return _mm512_or_si512(a, b);
}

NW_INLINE nw_lanes_i nw_lanes_lookup(nw_lanes_i table, nw_lanes_i index)
{
    return _mm512_shuffle_epi8(table, index);
}

NW_INLINE nw_lanes_i nw_lanes_left(nw_lanes_i x, int n)
{
    return _mm512_slli_epi32(x, (unsigned)n);
}

NW_INLINE nw_lanes_i nw_lanes_right(nw_lanes_i x, int n)
{
    return _mm512_srli_epi32(x, (unsigned)n);
}

NW_INLINE nw_lanes_i nw_lanes_right_signed(nw_lanes_i x, int n)
{
    return _mm512_srai_epi32(x, (unsigned)n);
}

NW_INLINE nw_lanes_i nw_lanes_greater(nw_lanes_i a, nw_lanes_i b)
{
    return _mm512_movm_epi32(_mm512_cmpgt_epi32_mask(a, b));
}

/* ---- floats ---- */

NW_INLINE nw_lanes_f nw_lanes_set(float x)
{
    return _mm512_set1_ps(x);
}

NW_INLINE nw_lanes_f nw_lanes_add(nw_lanes_f a, nw_lanes_f b)
{
    return _mm512_add_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_sub(nw_lanes_f a, nw_lanes_f b)
{
    return _mm512_sub_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_mul(nw_lanes_f a, nw_lanes_f b)
{
    return _mm512_mul_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_div(nw_lanes_f a, nw_lanes_f b)
{
    return _mm512_div_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_fma(nw_lanes_f a, nw_lanes_f b, nw_lanes_f c)
{
    return _mm512_fmadd_ps(a, b, c);
}

NW_INLINE nw_lanes_f nw_lanes_max(nw_lanes_f a, nw_lanes_f b)
{
    return _mm512_max_ps(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_clamp(nw_lanes_f x, float lo, float hi)
{
    /* the second operand is what max and min return for a NaN */
    const __m512 low = _mm512_max_ps(_mm512_set1_ps(lo), x);
    return _mm512_min_ps(_mm512_set1_ps(hi), low);
}

NW_INLINE nw_lanes_f nw_lanes_round(nw_lanes_f x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

NW_INLINE nw_lanes_i nw_lanes_whole(nw_lanes_f x)
{
    return _mm512_cvtps_epi32(x);
}

NW_INLINE nw_lanes_f nw_lanes_float(nw_lanes_i x)
{
    return _mm512_cvtepi32_ps(x);
}

NW_INLINE nw_lanes_f nw_lanes_from_bits(nw_lanes_i x)
{
    return _mm512_castsi512_ps(x);
}

NW_INLINE nw_lanes_f nw_lanes_pick(nw_lanes_i mask, nw_lanes_f x, nw_lanes_f other)
{
    return _mm512_mask_mov_ps(other, _mm512_movepi32_mask(mask), x);
}

NW_INLINE float nw_lanes_sum(nw_lanes_f v)
{
    return _mm512_reduce_add_ps(v);
}

NW_INLINE float nw_lanes_top(nw_lanes_f v)
{
    return _mm512_reduce_max_ps(v);
}

/* ---- 16-bit words, one a lane ---- */

NW_INLINE nw_lanes_h nw_lanes_words_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

NW_INLINE nw_lanes_h nw_lanes_split(const uint8_t *p, unsigned pair)
{
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
    const __m512i at = _mm512_add_epi64(even, _mm512_set1_epi64(pair));
    return _mm512_castsi512_si256(_mm512_permutexvar_epi64(at, _mm512_loadu_si512(p)));
}

NW_INLINE nw_lanes_h nw_lanes_left_h(nw_lanes_h x, int n)
{
    return _mm256_slli_epi16(x, n);
}

NW_INLINE nw_lanes_h nw_lanes_right_h(nw_lanes_h x, int n)
{
    return _mm256_srli_epi16(x, n);
}

NW_INLINE nw_lanes_h nw_lanes_and_h(nw_lanes_h x, uint16_t mask)
{
    return _mm256_and_si256(x, _mm256_set1_epi16((short)mask));
}

NW_INLINE nw_lanes_h nw_lanes_or_h(nw_lanes_h a, nw_lanes_h b)
{
    return _mm256_or_si256(a, b);
}

NW_INLINE nw_lanes_f nw_lanes_from_f16(nw_lanes_h x)
{
    return _mm512_cvtph_ps(x);
}

/* ---- sums of 4 products of bytes ---- */

NW_INLINE nw_lanes_i nw_lanes_flip(nw_lanes_i stored)
{
    return _mm512_xor_si512(stored, _mm512_set1_epi8((char)0x80));
}

/* gcc 12 copies and spills accumulators around the intrinsic. */
NW_INLINE nw_lanes_i nw_lanes_dot_small(nw_lanes_i c, nw_lanes_i w, nw_lanes_i a)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(w), "v"(a));
    return c;
}

NW_INLINE int32_t nw_lanes_dot_start(int32_t sum)
{
    return -128 * sum;
}

NW_INLINE nw_lanes_i nw_lanes_dot_stored(nw_lanes_i c, nw_lanes_i stored, nw_lanes_i a)
{
    return nw_lanes_dot_small(c, stored, a);
}

#endif
