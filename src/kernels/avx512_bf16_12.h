/* bf16-12 to BF16 in registers (formats/bf16_12.h), a quad of columns at a time: for the kernels that multiply it
 * so, and for those that store it as tiles. Escapes are put in place as the row passes their column.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_BF16_12_H
#define NW_KERNELS_AVX512_BF16_12_H

#include "formats/bf16_12.h"
#include "kernels/avx512.h"

/* The escapes of a panel that are still to come; `quad` is that of the first. */
typedef struct {
    const nw_bf16_escape *at, *end;
    uint32_t quad;
} nw_rare;

NW_INLINE uint32_t nw_next_rare(const nw_rare *e)
{
    return e->at < e->end ? e->at->col / 4 : UINT32_MAX;
}

NW_INLINE nw_rare nw_rare_of(const nw_tile *t, const uint8_t *panel)
{
    uint32_t n = 0;
    nw_rare e = {.at = nw_bf16_12_escapes(t->type, panel, t->n_cols, &n)};

    e.end = e.at + n;
    e.quad = nw_next_rare(&e);
    return e;
}

/* A code is its exponent's place; 32 words, as vpermw looks at 5 bits of which the codes are 4. */
NW_INLINE __m512i nw_exponents_of(const uint8_t *panel)
{
    const __m256i e = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)panel));
    return _mm512_broadcast_i64x4(_mm256_slli_epi16(e, 7));
}

/* Sign and mantissa of 32 values, joined to the exponents of the codes in the low 4 bits of words. */
NW_INLINE __m512i nw_join_bf16(const uint8_t *sm, __m512i codes, __m512i exponents)
{
    const __m512i wide =
        _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)sm));
    const __m512i high = _mm512_permutexvar_epi16(codes, exponents);
    /* (wide & 0x807F) | high */
    return _mm512_ternarylogic_epi32(wide, _mm512_set1_epi16((short)0x807F), high, 0xEA);
}

/* Puts the escapes of quad j in place. Out of the hot loop's way: one quad in some hundred has one. */
static __attribute__((noinline)) void nw_put_rare(nw_rare *e, uint32_t j, uint16_t words[64])
{
    for (; e->at < e->end && e->at->col / 4 <= j; e->at++) {
        const uint32_t t = e->at->col % 4;
        if (e->at->col / 4 == j) {
            words[t / 2 * 32 + (e->at->row % NW_PANEL_ROWS) * 2 + t % 2] = e->at->bits;
        }
    }
    e->quad = nw_next_rare(e);
}

/* Quad j of a panel as the two pairs of columns of each row. */
NW_INLINE void nw_expand_quad(const uint8_t *quad, __m512i exponents, nw_rare *e, uint32_t j,
                              __m512i *p01, __m512i *p23)
{
    const __m512i codes =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(quad + 64)));

    *p01 = nw_join_bf16(quad, codes, exponents);
    *p23 = nw_join_bf16(quad + 32, _mm512_srli_epi16(codes, 4), exponents);
    if (__builtin_expect(j >= e->quad, 0)) {
        _Alignas(64) uint16_t words[64];
        _mm512_store_si512(words, *p01);
        _mm512_store_si512(words + 32, *p23);
        nw_put_rare(e, j, words);
        *p01 = _mm512_load_si512(words);
        *p23 = _mm512_load_si512(words + 32);
    }
}

#endif
