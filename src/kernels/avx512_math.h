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

/* 2^(m - 1) of m in [1, 2), to 2^-13 and 2^-18: polynomials of least relative error. */
NW_INLINE __m512 nw_exp2_part13_ps(__m512 m)
{
    __m512 q = _mm512_set1_ps(0x1.3f96a4p-4F);

    q = _mm512_fmadd_ps(q, m, _mm512_set1_ps(-0x1.065aa8p-7F));
    q = _mm512_fmadd_ps(q, m, _mm512_set1_ps(0x1.e93d46p-2F));
    return _mm512_fmadd_ps(q, m, _mm512_set1_ps(0x1.cefc4cp-2F));
}

NW_INLINE __m512 nw_exp2_part18_ps(__m512 m)
{
    __m512 q = _mm512_set1_ps(0x1.bb7cd4p-7F);

    q = _mm512_fmadd_ps(q, m, _mm512_set1_ps(-0x1.168e4p-9F));
    q = _mm512_fmadd_ps(q, m, _mm512_set1_ps(0x1.553966p-3F));
    q = _mm512_fmadd_ps(q, m, _mm512_set1_ps(0x1.3f8122p-2F));
    return _mm512_fmadd_ps(q, m, _mm512_set1_ps(0x1.051a08p-1F));
}

/* log2(x) of a normal x > 0, to a few 2^-24 beside its size; NaN for NaN. */
NW_INLINE __m512 nw_log2_ps(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1);
    const __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
    const __m512 below = _mm512_getexp_ps(x); /* of m in [1, 2) */
    const __mmask16 up = _mm512_cmp_ps_mask(m, one, _CMP_LT_OQ);
    const __m512 whole = _mm512_mask_add_ps(below, up, below, one);
    const __m512 t = _mm512_sub_ps(m, one);
    __m512 q = _mm512_set1_ps(-0x1.743d92p-4F);

    q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(0x1.9c3902p-3F));
    q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(-0x1.01fd1ap-2F));
    q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(0x1.29c91cp-2F));
    q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(-0x1.70e846p-2F));
    q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(0x1.ec5758p-2F));
    q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(-0x1.71551p-1F));
    q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(0x1.715484p+0F));
    return _mm512_fmadd_ps(q, t, whole);
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
