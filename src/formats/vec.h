/* Floats side by side, as many as the instruction set that a file is compiled for holds in a register,
 * so that a loop over rows is written once and compiled for each. The operators of C work on them
 * (GNU vectors); what is here is the rest. Every operation is an IEEE one that is rounded once, in
 * every instruction set the same: the same bits whatever the file is compiled for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_VEC_H
#define NW_FORMATS_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "formats/half.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#define NW_VEC 16u
typedef __m512 nw_vec;
#elif defined(__AVX2__)
#include <immintrin.h>
#define NW_VEC 8u
typedef __m256 nw_vec;
#else
#define NW_VEC 4u
typedef float nw_vec __attribute__((vector_size(16)));
#endif
typedef int32_t nw_vec_i __attribute__((vector_size(4 * NW_VEC)));
typedef uint32_t nw_vec_u __attribute__((vector_size(4 * NW_VEC)));

#define NW_VEC_INLINE static inline __attribute__((always_inline))

NW_VEC_INLINE nw_vec nw_vec_load(const float *p)
{
    nw_vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

NW_VEC_INLINE void nw_vec_store(float *p, nw_vec v)
{
    memcpy(p, &v, sizeof v);
}

NW_VEC_INLINE nw_vec_u nw_vec_load_u(const uint8_t *p)
{
    nw_vec_u v;
    memcpy(&v, p, sizeof v);
    return v;
}

NW_VEC_INLINE void nw_vec_store_u(uint8_t *p, nw_vec_u v)
{
    memcpy(p, &v, sizeof v);
}

NW_VEC_INLINE nw_vec nw_vec_all(float x)
{
    return x - (nw_vec){0};
}

/* x where the mask is set (all bits of a lane), else `other`. */
NW_VEC_INLINE nw_vec nw_vec_pick(nw_vec_i mask, nw_vec x, nw_vec other)
{
    return (nw_vec)(((nw_vec_i)x & mask) | ((nw_vec_i)other & ~mask));
}

/* a > b ? a : b, and a < b ? a : b. */
NW_VEC_INLINE nw_vec nw_vec_max(nw_vec a, nw_vec b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return nw_vec_pick(a > b, a, b);
#endif
}

NW_VEC_INLINE nw_vec nw_vec_min(nw_vec a, nw_vec b)
{
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    return nw_vec_pick(a < b, a, b);
#endif
}

/* Is the mask set in any lane? */
NW_VEC_INLINE bool nw_vec_any(nw_vec_i mask)
{
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps((__m256)mask) != 0;
#else
    return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
#endif
}

/* 1 / x; 0 where x is 0, or so small that 1 / x overflows. */
NW_VEC_INLINE nw_vec nw_vec_inverse(nw_vec x)
{
    const nw_vec inv = 1 / x;
    const nw_vec_i finite = ((nw_vec_i)inv & 0x7FFFFFFF) < 0x7F800000;
    return (nw_vec)((nw_vec_i)inv & finite);
}

/* To binary16 and back. */
NW_VEC_INLINE nw_vec nw_vec_to_f16(nw_vec x)
{
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__AVX2__)
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    for (unsigned i = 0; i < NW_VEC; i++) {
        x[i] = nw_f16_to_f32(nw_f16_from_f32(x[i]));
    }
    return x;
#endif
}

/* NW_VEC binary16 numbers. */
NW_VEC_INLINE nw_vec nw_vec_from_f16(const uint8_t *p)
{
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#elif defined(__AVX2__)
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#else
    uint16_t h[NW_VEC];
    nw_vec v;
    memcpy(h, p, sizeof h);
    for (unsigned i = 0; i < NW_VEC; i++) {
        v[i] = nw_f16_to_f32(h[i]);
    }
    return v;
#endif
}

/* To bfloat16 and back; of no NaN. */
NW_VEC_INLINE nw_vec nw_vec_to_bf16(nw_vec x)
{
    const nw_vec_u u = (nw_vec_u)x;
    return (nw_vec)((u + 0x7FFFU + (u >> 16 & 1U)) & 0xFFFF0000U);
}

/* Whole numbers both ways, exact. */
NW_VEC_INLINE nw_vec_u nw_vec_whole(nw_vec x)
{
    return (nw_vec_u) __builtin_convertvector(x, nw_vec_i);
}

NW_VEC_INLINE nw_vec nw_vec_from_whole(nw_vec_u x)
{
    return __builtin_convertvector((nw_vec_i)x, nw_vec);
}

/* ---- transposing: NW_VEC vectors of NW_VEC lanes ---- */

#if defined(__AVX512F__)
#define NW_VEC_LOW  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define NW_VEC_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX2__)
#define NW_VEC_LOW  0, 8, 1, 9, 2, 10, 3, 11
#define NW_VEC_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define NW_VEC_LOW  0, 4, 1, 5
#define NW_VEC_HIGH 2, 6, 3, 7
#endif

/* Lanes of the first half of two vectors by turns, then of the second. Done log2(NW_VEC) times to
 * vectors i and i + NW_VEC / 2, into 2 i and 2 i + 1, that makes rows of columns. */
NW_VEC_INLINE void nw_vec_transpose(nw_vec v[NW_VEC])
{
    for (unsigned step = 1; step < NW_VEC; step *= 2) {
        nw_vec next[NW_VEC];
        for (unsigned i = 0; i < NW_VEC / 2; i++) {
            next[2 * i] = __builtin_shufflevector(v[i], v[i + NW_VEC / 2], NW_VEC_LOW);
            next[2 * i + 1] = __builtin_shufflevector(v[i], v[i + NW_VEC / 2], NW_VEC_HIGH);
        }
        memcpy(v, next, sizeof next);
    }
}

#endif
