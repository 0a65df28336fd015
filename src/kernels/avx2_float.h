/* Float weights in vectors of 8: what several tokens and one token share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX2_FLOAT_H
#define NW_KERNELS_AVX2_FLOAT_H

#include <immintrin.h>
#include <stdbool.h>

#include "kernels/lanes_avx2.h"

/* Contract: `linear` in kernels.h, with F32 activations, for BF16, BF16-12, FP8 and F32 weights. */
void nw_avx2_linear_float(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                          float *y, size_t ldy);
/* The same for one token; y starts at row 0. */
void nw_avx2_linear_float_one(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                              float *y);

/* c[0] += x[0] * a, c[1] += x[1] * a. As gcc orders them, tiles of 12 sums run out of registers. */
NW_INLINE void nw_avx2_fma2(__m256 *c0, __m256 *c1, __m256 x0, __m256 x1, const float *a)
{
    __m256 b;
    __asm__("vbroadcastss %5, %2\n\tvfmadd231ps %3, %2, %0\n\tvfmadd231ps %4, %2, %1"
            : "+x"(*c0), "+x"(*c1), "=&x"(b)
            : "x"(x0), "x"(x1), "m"(*a));
}

/* Sums c[v * rows + r] of nv vectors x and a row: two of them by themselves, for few rows more. */
NW_INLINE void nw_avx2_fma_row(__m256 *c, const __m256 *x, const float *a, const unsigned r,
                               const unsigned nv, const unsigned rows)
{
    if (nv == 2) {
        nw_avx2_fma2(&c[r], &c[rows + r], x[0], x[1], a);
        return;
    }
    const __m256 b = _mm256_broadcast_ss(a);
    NW_EACH(v, nv) {
        c[v * rows + r] = _mm256_fmadd_ps(x[v], b, c[v * rows + r]);
    }
}

/* Column k of the 32 bytes at p: of pairs of BF16, or 8 floats. */
NW_INLINE __m256 nw_avx2_column(const uint8_t *p, unsigned k, const bool bf16)
{
    const __m256i x = nw_lanes_bytes(p);

    if (!bf16) {
        return _mm256_castsi256_ps(x);
    }
    return _mm256_castsi256_ps(k == 0 ? _mm256_slli_epi32(x, 16)
                                      : _mm256_and_si256(x, _mm256_set1_epi32((int)0xFFFF0000U)));
}

/* ---- FP8 (formats/panel.h) by way of fp16, of which E5M2 is the upper half; E4M3 2^-8 times as large ---- */

#define NW_AVX2_E4M3_FACTOR 256.0F

/* Words whose high bytes are codes to fp16; what their low bytes hold is dropped. */
NW_INLINE __m256i nw_avx2_fp8_halves(__m256i x, const bool e4m3)
{
    if (!e4m3) {
        return _mm256_and_si256(x, _mm256_set1_epi16((short)0xFF00));
    }
    const __m256i size = _mm256_and_si256(_mm256_srli_epi16(x, 1), _mm256_set1_epi16(0x3F80));
    return _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi16(INT16_MIN)), size);
}

/* Four columns of 8 rows from 32 bytes of a quad. */
NW_INLINE void nw_avx2_fp8_quad(const uint8_t *p, const bool e4m3, __m256 x[4])
{
    const __m256i pairs = _mm256_permute4x64_epi64(nw_lanes_bytes(p), 0xD8);
    const __m256i even = nw_avx2_fp8_halves(_mm256_slli_epi16(pairs, 8), e4m3);
    const __m256i odd = nw_avx2_fp8_halves(pairs, e4m3);

    x[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(even));
    x[1] = _mm256_cvtph_ps(_mm256_castsi256_si128(odd));
    x[2] = _mm256_cvtph_ps(_mm256_extracti128_si256(even, 1));
    x[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1));
}

/* Two columns as pairs of BF16, exactly. */
NW_INLINE __m256i nw_avx2_bf16_pairs(__m256 even, __m256 odd)
{
    return _mm256_or_si256(
        _mm256_srli_epi32(_mm256_castps_si256(even), 16),
        _mm256_and_si256(_mm256_castps_si256(odd), _mm256_set1_epi32((int)0xFFFF0000U)));
}

/* n quads to 2 n steps of BF16. */
static inline void nw_avx2_widen_fp8(const uint8_t *from, size_t n, const bool e4m3, uint8_t *to)
{
    for (; n > 0; n--, from += 64, to += 128) {
        NW_EACH(i, 2) {
            __m256 x[4];
            nw_avx2_fp8_quad(from + i * 32, e4m3, x);
            __m256i *out = (__m256i *)(void *)(to + i * 32);
            _mm256_store_si256(out, nw_avx2_bf16_pairs(x[0], x[1]));
            _mm256_store_si256(out + 2, nw_avx2_bf16_pairs(x[2], x[3]));
        }
    }
}

#endif
