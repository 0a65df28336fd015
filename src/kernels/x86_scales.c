/* Scales of groups from what the layouts store to f32: fp16, E4M3, E8M0, and the two levels of the -k
 * layouts. All exact.
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kernels/tile.h"
#include "kernels/x86.h"

typedef struct {
    __m256 half[2]; /* rows 0..7 and 8..15 */
} rows16;

NW_INLINE __m128i load128(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

NW_INLINE rows16 from_fp16(const uint8_t *p)
{
    return (rows16){{_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 16))}};
}

NW_INLINE rows16 from_u8(const uint8_t *p)
{
    const __m128i x = load128(p);
    return (rows16){{_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)),
                     _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))}};
}

NW_INLINE rows16 from_s8(const uint8_t *p)
{
    const __m128i x = load128(p);
    return (rows16){{_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                     _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))}};
}

/* Signed bytes with the sign bit turned. */
NW_INLINE rows16 from_flipped(const uint8_t *p)
{
    const __m128i x = _mm_xor_si128(load128(p), _mm_set1_epi8((char)0x80));
    return (rows16){{_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                     _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))}};
}

/* E4M3 bits, moved up by 7, are an fp16 of 2^-8 times the value, subnormals included; its sign is
 * moved to the top by hand. */
NW_INLINE rows16 from_e4m3(const uint8_t *p)
{
    const __m256i x = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load128(p)), 7);
    const __m256i h = _mm256_and_si256(x, _mm256_set1_epi16((short)0xBFFF));
    const __m256 up = _mm256_set1_ps(256);
    return (rows16){{_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(h)), up),
                     _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)), up)}};
}

/* 2^(e - 127) is the float with exponent field e; that of e = 0 is subnormal. */
NW_INLINE rows16 from_e8m0(const uint8_t *p)
{
    const __m128i x = load128(p);
    const __m256i least = _mm256_set1_epi32(0x00400000);
    const __m256i a = _mm256_slli_epi32(_mm256_cvtepu8_epi32(x), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)), 23);
    return (rows16){{_mm256_castsi256_ps(_mm256_max_epu32(a, least)),
                     _mm256_castsi256_ps(_mm256_max_epu32(b, least))}};
}

NW_INLINE rows16 product(rows16 a, rows16 b)
{
    return (rows16){{_mm256_mul_ps(a.half[0], b.half[0]), _mm256_mul_ps(a.half[1], b.half[1])}};
}

NW_INLINE rows16 negative_product(rows16 a, rows16 b)
{
    const __m256 sign = _mm256_set1_ps(-0.0F);
    const rows16 p = product(a, b);
    return (rows16){{_mm256_xor_ps(p.half[0], sign), _mm256_xor_ps(p.half[1], sign)}};
}

NW_INLINE void store(float out[NW_PANEL_ROWS], rows16 x)
{
    _mm256_store_ps(out, x.half[0]);
    _mm256_store_ps(out + 8, x.half[1]);
}

/* The -k layouts: 16 d, 16 dmin, then s8 scales and u8 minima of all the block's groups. */
static void two_levels(const nw_groups *g, const uint8_t *panel, uint32_t g0, uint32_t n,
                       nw_chunk *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t in_block = (g0 + i) % g->per_block;
        const uint8_t *block = panel + (size_t)((g0 + i) / g->per_block) * g->block_bytes;
        const uint8_t *scales = block + 64 + (size_t)in_block * 16;
        store(out->scale[i], product(from_fp16(block), from_s8(scales)));
        if (g->min) {
            const rows16 m = from_u8(scales + (size_t)g->per_block * 16);
            store(out->min[i], negative_product(from_fp16(block + 32), m));
        }
    }
}

static void integers(nw_panel_type type, const nw_groups *g, const uint8_t *p, uint32_t n,
                     nw_chunk *out)
{
    for (uint32_t i = 0; i < n; i++, p += g->block_bytes) {
        const rows16 s = from_fp16(p);
        store(out->scale[i], s);
        if (type.min) {
            store(out->min[i], from_fp16(p + 32));
        } else if (type.zero_point) {
            const rows16 zero = g->codes == NW_CODES_BYTE ? from_flipped(p + 32) : from_u8(p + 32);
            store(out->min[i], negative_product(s, zero));
        }
    }
}

void nw_x86_scales(nw_panel_type type, const nw_groups *g, const uint8_t *panel, uint32_t g0,
                   uint32_t n, nw_chunk *out)
{
    const uint8_t *p = panel + g->first + g0 * g->block_bytes;

    if (type.two_level) {
        two_levels(g, panel, g0, n, out);
        return;
    }
    if (!g->fp4) {
        integers(type, g, p, n, out);
        return;
    }
    for (uint32_t i = 0; i < n; i++, p += g->block_bytes) {
        if (g->codes == NW_CODES_SPLIT) {
            store(out->scale[2 * i], from_e4m3(p));
            store(out->scale[2 * i + 1], from_e4m3(p + 16));
        } else {
            store(out->scale[i], from_e8m0(p));
        }
    }
}
