/* Bytes to pairs of BF16, for int8 and fp8 panels. Exact: an int8 code and every fp8 value fit the 8
 * significant bits of a BF16. Looked up rather than computed: vdpbf16ps reads subnormal BF16 as 0,
 * and the subnormal values of fp8 are normal in the tables.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_BYTES_H
#define NW_KERNELS_AVX512_BYTES_H

#include "kernels/avx512.h"

typedef enum { NW_BYTES_INT8, NW_BYTES_E4M3, NW_BYTES_E5M2 } nw_bytes;

/* High and low bytes of the BF16 of each stored byte: code + 128 for int8, 7 bits without the sign
 * for fp8 (avx512_bytes.c). */
extern const uint8_t nw_bf16_of_int8[2][256];
extern const uint8_t nw_bf16_of_e4m3[2][128];
extern const uint8_t nw_bf16_of_e5m2[2][128];

/* vpermi2b looks up 7 bits, so int8 bytes below and above 128 have a table each and the top bit
 * selects: [2 * top bit + half]. fp8 has one table; its top bit is the sign. */
typedef struct {
    __m512i high[4], low[4];
    __m512i order;
} nw_byte_tables;

NW_INLINE nw_byte_tables nw_byte_tables_of(const nw_bytes k)
{
    nw_byte_tables b = {.order = nw_pair_order()};
    const uint8_t *t = k == NW_BYTES_INT8   ? nw_bf16_of_int8[0]
                       : k == NW_BYTES_E4M3 ? nw_bf16_of_e4m3[0]
                                            : nw_bf16_of_e5m2[0];
    const unsigned n = k == NW_BYTES_INT8 ? 4 : 2;

    NW_EACH(i, n) {
        b.high[i] = _mm512_loadu_si512(t + (size_t)i * 64);
        b.low[i] = _mm512_loadu_si512(t + (size_t)(n + i) * 64);
    }
    return b;
}

/* 64 stored bytes -> the BF16 pairs of columns (0, 1) and (2, 3) of each row's quad. fp8 is stored in
 * the order that unpacking wants. */
NW_INLINE void nw_widen_bytes(const nw_byte_tables *b, const nw_bytes k, __m512i bytes,
                              __m512i *p01, __m512i *p23)
{
    const __m512i x = k == NW_BYTES_INT8 ? _mm512_shuffle_epi8(bytes, b->order) : bytes;
    __m512i high = _mm512_permutex2var_epi8(b->high[0], x, b->high[1]);
    __m512i low = _mm512_permutex2var_epi8(b->low[0], x, b->low[1]);

    if (k == NW_BYTES_INT8) {
        const __mmask64 top = _mm512_movepi8_mask(x);
        high =
            _mm512_mask_blend_epi8(top, high, _mm512_permutex2var_epi8(b->high[2], x, b->high[3]));
        low = _mm512_mask_blend_epi8(top, low, _mm512_permutex2var_epi8(b->low[2], x, b->low[3]));
    } else { /* high | x & 0x80 */
        high = _mm512_ternarylogic_epi32(high, x, _mm512_set1_epi8((char)0x80), 0xF8);
    }
    *p01 = _mm512_unpacklo_epi8(low, high);
    *p23 = _mm512_unpackhi_epi8(low, high);
}

#endif
