/* Expands bf16-12 panels (formats/bf16_12.h) into bf16 panels, a few quads of columns at a time, so
 * that what multiplies them is the bf16 kernel itself: the same products in the same order.
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>
#include <string.h>

#include "kernels/tile.h"
#include "kernels/x86.h"

nw_bf16_12_reader nw_x86_bf16_12_read(nw_panel_type type, const uint8_t *panel, uint32_t n_cols)
{
    nw_bf16_12_reader r = {.quads = panel + NW_BF16_12_HEAD};
    uint32_t n = 0;

    r.escape = nw_bf16_12_escapes(type, panel, n_cols, &n);
    r.end = r.escape + n;
    memcpy(r.exponents, panel, sizeof r.exponents);
    return r;
}

/* The two halves of a bfloat16: sign and the exponent's upper 7 bits; its lowest bit and mantissa. */
typedef struct {
    __m256i high, low, sign;
} exponent_tables;

NW_INLINE exponent_tables make_tables(const uint8_t exponents[16])
{
    const __m256i e =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)exponents));
    const __m256i sign = _mm256_set1_epi8((char)0x80);
    return (exponent_tables){.high =
                                 _mm256_and_si256(_mm256_srli_epi16(e, 1), _mm256_set1_epi8(0x7F)),
                             .low = _mm256_and_si256(_mm256_slli_epi16(e, 7), sign),
                             .sign = sign};
}

/* 32 values: signs and mantissas sm, codes in the low nibbles. Stored as 32 words in order. */
NW_INLINE void expand32(const exponent_tables *t, __m256i sm, __m256i codes, uint8_t *out)
{
    const __m256i high =
        _mm256_or_si256(_mm256_shuffle_epi8(t->high, codes), _mm256_and_si256(sm, t->sign));
    const __m256i low =
        _mm256_or_si256(_mm256_shuffle_epi8(t->low, codes), _mm256_andnot_si256(t->sign, sm));
    const __m256i a = _mm256_unpacklo_epi8(low, high);
    const __m256i b = _mm256_unpackhi_epi8(low, high);
    _mm256_store_si256((__m256i *)(void *)out, _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_store_si256((__m256i *)(void *)(out + 32), _mm256_permute2x128_si256(a, b, 0x31));
}

NW_INLINE __m256i load256(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* Puts the escapes of columns [col0, col1) in place. A list that is not in order, which narrow does
 * not write, loses values but reaches no memory that is not its own. */
static void put_escapes(nw_bf16_12_reader *r, uint32_t col0, uint32_t col1, uint8_t *out)
{
    for (; r->escape < r->end && r->escape->col < col1; r->escape++) {
        const uint32_t c = r->escape->col;
        if (c >= col0) {
            const size_t pair = (c - col0) / 2;
            memcpy(out + pair * 64 + (r->escape->row % NW_PANEL_ROWS) * 4U + c % 2 * 2,
                   &r->escape->bits, sizeof r->escape->bits);
        }
    }
}

void nw_x86_bf16_12_expand(nw_bf16_12_reader *r, uint32_t quad0, uint32_t n, const uint8_t *next,
                           uint8_t *out)
{
    const exponent_tables t = make_tables(r->exponents);
    const __m256i nibble = _mm256_set1_epi8(15);
    const uint8_t *p = r->quads;

    for (uint32_t i = 0; i < n; i++, p += NW_BF16_12_QUAD) {
        const __m256i codes = load256(p + 64);
        _mm_prefetch((const char *)next + (size_t)i * 96, _MM_HINT_T0);
        _mm_prefetch((const char *)next + (size_t)i * 96 + 64, _MM_HINT_T0);
        expand32(&t, load256(p), _mm256_and_si256(codes, nibble), out + i * 128);
        expand32(&t, load256(p + 32), _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble),
                 out + i * 128 + 64);
    }
    r->quads = p;
    put_escapes(r, quad0 * 4, (quad0 + n) * 4, out);
}
