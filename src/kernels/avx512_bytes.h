/* Bytes to pairs of BF16, for fp8 panels and pages. Exact: every value fits the 8 significant bits of a
 * BF16. Looked up rather than computed: vdpbf16ps reads subnormal BF16 as 0, and the subnormal values of
 * fp8 are normal in the tables.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_BYTES_H
#define NW_KERNELS_AVX512_BYTES_H

#include "kernels/avx512.h"

typedef enum { NW_BYTES_E4M3, NW_BYTES_E5M2 } nw_bytes;

/* High and low bytes of the BF16 of each stored byte without its sign (avx512_bytes.c). */
extern const uint8_t nw_bf16_of_e4m3[2][128];
extern const uint8_t nw_bf16_of_e5m2[2][128];

/* vpermi2b looks up the 7 bits; the top bit is the sign. */
typedef struct {
    __m512i high[2], low[2];
} nw_byte_tables;

NW_INLINE nw_byte_tables nw_byte_tables_of(const nw_bytes k)
{
    const uint8_t *t = k == NW_BYTES_E4M3 ? nw_bf16_of_e4m3[0] : nw_bf16_of_e5m2[0];
    nw_byte_tables b;

    NW_EACH(i, 2) {
        b.high[i] = _mm512_loadu_si512(t + (size_t)i * 64);
        b.low[i] = _mm512_loadu_si512(t + (size_t)(2 + i) * 64);
    }
    return b;
}

/* 64 stored bytes -> the BF16 pairs of columns (0, 1) and (2, 3) of each row's quad; they are stored in
 * the order that unpacking wants. */
NW_INLINE void nw_widen_bytes(const nw_byte_tables *b, __m512i x, __m512i *p01, __m512i *p23)
{
    const __m512i looked = _mm512_permutex2var_epi8(b->high[0], x, b->high[1]);
    const __m512i low = _mm512_permutex2var_epi8(b->low[0], x, b->low[1]);
    /* looked | x & 0x80 */
    const __m512i high = _mm512_ternarylogic_epi32(looked, x, _mm512_set1_epi8((char)0x80), 0xF8);

    *p01 = _mm512_unpacklo_epi8(low, high);
    *p23 = _mm512_unpackhi_epi8(low, high);
}

#endif
