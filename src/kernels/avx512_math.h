/* exp, tanh and masks of the AVX-512 tier. exp is 2^x: x is split into a whole and a part in
 * [-1/2, 1/2], whose 2^f = 1 + f q(f) with q the degree-4 minimax polynomial of its relative error
 * (9.2e-8).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_MATH_H
#define NW_KERNELS_AVX512_MATH_H

#include "kernels/avx512.h"

#define NW_LOG2E 0x1.715476p+0F

/* 2^x; 0 below -150, Inf above 128, NaN for NaN. 2^0 is exactly 1. */
NW_INLINE __m512 nw_exp2_ps(__m512 x)
{
    /* the second operand is what max returns for a NaN */
    const __m512 bound = _mm512_max_ps(_mm512_set1_ps(-1e4F), x);
    const __m512 whole = _mm512_roundscale_ps(bound, _MM_FROUND_TO_NEAREST_INT);
    const __m512 f = _mm512_sub_ps(bound, whole);
    __m512 q = _mm512_set1_ps(0x1.5bba14p-10F);

    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.3cea88p-7F));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.c6b752p-5F));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.ebf9bcp-3F));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.62e42ap-1F));
    return _mm512_scalef_ps(_mm512_fmadd_ps(q, f, _mm512_set1_ps(1)), whole);
}

/* tanh(z) = 1 - 2 / (e^2z + 1): a few 2^-24 absolute, which is what a score needs. */
NW_INLINE __m512 nw_tanh_ps(__m512 z)
{
    const __m512 e = nw_exp2_ps(_mm512_mul_ps(z, _mm512_set1_ps(2 * NW_LOG2E)));
    const __m512 one = _mm512_set1_ps(1);
    return _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2), _mm512_add_ps(e, one)));
}

/* Lanes of the step at i of n. */
NW_INLINE __mmask16 nw_lanes16(size_t i, size_t n)
{
    return (__mmask16)(n - i >= 16 ? 0xFFFFU : (1U << (n - i)) - 1);
}

#endif
