/* Codes of every integer and FP4 layout to bytes or words: avx2_block.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_block.h"

#include <immintrin.h>

#include "kernels/tile.h"
#include "kernels/x86.h"

NW_INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

NW_INLINE void store(uint8_t *p, __m256i x)
{
    _mm256_store_si256((__m256i *)(void *)p, x);
}

NW_INLINE __m256i nibbles(__m256i x)
{
    return _mm256_and_si256(x, _mm256_set1_epi8(0x0F));
}

/* Of each quad columns 0, 2, 1, 3. */
NW_INLINE __m128i swapped(void)
{
    return _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
}

size_t nw_block_at(const nw_groups *g, uint32_t i)
{
    return g->first + (size_t)(i / g->per_block) * g->block_bytes +
           (i % g->per_block > 0 ? g->codes_at : 0) + (size_t)(i % g->per_block) * g->steps * 64;
}

static const uint8_t *codes_of(const nw_groups *g, const uint8_t *panel, uint32_t i)
{
    return panel + nw_block_codes_at(g, i);
}

void nw_avx2_block_scales(nw_panel_type type, const nw_groups *g, const uint8_t *panel, uint32_t g0,
                          uint32_t n, float (*scale)[NW_PANEL_ROWS], float (*min)[NW_PANEL_ROWS])
{
    nw_chunk chunk;

    for (uint32_t i = 0; i < n; i += NW_CHUNK) {
        const uint32_t m = n - i < NW_CHUNK ? n - i : NW_CHUNK;
        nw_x86_scales(type, g, panel, g0 + i, m, &chunk);
        memcpy(scale[(size_t)i * g->n_scales], chunk.scale,
               m * g->n_scales * sizeof chunk.scale[0]);
        if (g->min) {
            memcpy(min[i], chunk.min, m * sizeof chunk.min[0]);
        }
    }
}

/* Codes of a step of 64 bytes to bytes: of the columns of its low nibbles and of its high ones. */
NW_INLINE void bytes_of(const uint8_t *step, const bool fp4, uint8_t *low, uint8_t *high)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

    NW_EACH(v, 2) {
        const __m256i x = load(step + v * 32);
        const __m256i a = nibbles(x);
        const __m256i b = nibbles(_mm256_srli_epi16(x, 4));
        store(low + v * 32, fp4 ? _mm256_shuffle_epi8(table, a) : a);
        store(high + v * 32, fp4 ? _mm256_shuffle_epi8(table, b) : b);
    }
}

void nw_avx2_block_bytes(nw_panel_type type, const nw_groups *g, const uint8_t *panel, uint32_t g0,
                         uint32_t n, uint32_t quads, nw_block *out)
{
    const size_t group = (size_t)g->cols * NW_PANEL_ROWS;

    if (!nw_has_groups(type)) {
        memcpy(out->codes, codes_of(g, panel, g0), (size_t)quads * 64);
        return;
    }
    nw_avx2_block_scales(type, g, panel, g0, n, out->scale, out->min);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *codes = codes_of(g, panel, g0 + i);
        uint8_t *to = out->codes + i * group;
        if (g->codes == NW_CODES_BYTE) {
            memcpy(to, codes, group);
            continue;
        }
        for (uint32_t j = 0; j < g->steps; j++) {
            uint8_t *low = to + (size_t)j * 64;
            if (g->fp4) {
                bytes_of(codes + (size_t)j * 64, true, low, low + group / 2);
            } else {
                bytes_of(codes + (size_t)j * 64, false, low, low + group / 2);
            }
        }
    }
}

/* 32 signed bytes of half a quad's rows to words: columns 0 and 1, columns 2 and 3. */
NW_INLINE void words_of(__m256i bytes, uint8_t *quad)
{
    const __m256i x = _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(swapped()));
    store(quad, _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    store(quad + 64, _mm256_srai_epi16(x, 8));
}

NW_INLINE __m256i signed_nibbles(__m256i x, const bool fp4, __m256i zero)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    const __m256i code = nibbles(x);
    return fp4 ? _mm256_shuffle_epi8(table, code) : _mm256_sub_epi8(code, zero);
}

NW_INLINE void nibble_words(const uint8_t *codes, uint32_t steps, const bool fp4, int32_t zero,
                            uint8_t *to)
{
    const __m256i z = _mm256_set1_epi8((char)zero);

    for (uint32_t j = 0; j < steps; j++, to += 128, codes += 64) {
        _mm_prefetch((const char *)codes + NW_BLOCK_AHEAD, _MM_HINT_T0);
        NW_EACH(v, 2) {
            const __m256i x = load(codes + v * 32);
            words_of(signed_nibbles(x, fp4, z), to + v * 32);
            words_of(signed_nibbles(_mm256_srli_epi16(x, 4), fp4, z),
                     to + (size_t)steps * 128 + v * 32);
        }
    }
}

static void byte_words(const uint8_t *codes, uint32_t quads, uint8_t *to)
{
    const __m256i flip = _mm256_set1_epi8((char)0x80);

    for (uint32_t j = 0; j < quads; j++, to += 128, codes += 64) {
        _mm_prefetch((const char *)codes + NW_BLOCK_AHEAD, _MM_HINT_T0);
        words_of(_mm256_xor_si256(load(codes), flip), to);
        words_of(_mm256_xor_si256(load(codes + 32), flip), to + 32);
    }
}

void nw_avx2_block_words(nw_panel_type type, const nw_groups *g, const uint8_t *panel, uint32_t g0,
                         uint32_t n, uint32_t quads, unsigned at, nw_block *out)
{
    const size_t first = (size_t)at * NW_WORDS_SCALES;
    uint8_t *to = out->codes + (size_t)at * NW_WORDS_BYTES;

    if (!nw_has_groups(type)) {
        byte_words(codes_of(g, panel, g0), quads, to);
        return;
    }
    nw_avx2_block_scales(type, g, panel, g0, n, out->scale + first, out->min + first);
    for (uint32_t i = 0; i < n; i++, to += (size_t)g->cols * NW_PANEL_ROWS * 2) {
        const uint8_t *codes = codes_of(g, panel, g0 + i);
        if (g->codes == NW_CODES_BYTE) {
            byte_words(codes, g->steps, to);
        } else if (g->fp4) {
            nibble_words(codes, g->steps, true, 0, to);
        } else {
            nibble_words(codes, g->steps, false, g->zero, to);
        }
    }
}

/* ---- activations ---- */

void nw_avx2_act_words(nw_act_kind kind, const uint8_t *row, uint32_t n_cols, uint32_t c0,
                       uint32_t n, int16_t *out)
{
    const uint8_t *codes = row + nw_act_codes_at(kind, n_cols) + c0;
    const uint8_t *low = codes + nw_act_cols(n_cols);

    /* rows are padded to NW_ACT_COLS, so that the last step stays in the row */
    for (uint32_t c = 0; c < n; c += 32) {
        const __m256i x = load(codes + c);
        __m256i *to = (__m256i *)(void *)(out + c);
        if (kind == NW_ACT_INT8) {
            _mm256_store_si256(to, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x)));
            _mm256_store_si256(to + 1, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1)));
            continue;
        }
        /* 256 * high + low, whose sign the high byte takes */
        const __m256i l = load(low + c);
        const __m256i h = _mm256_add_epi8(x, _mm256_cmpgt_epi8(_mm256_setzero_si256(), l));
        const __m256i a = _mm256_unpacklo_epi8(l, h);
        const __m256i b = _mm256_unpackhi_epi8(l, h);
        _mm256_store_si256(to, _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_store_si256(to + 1, _mm256_permute2x128_si256(a, b, 0x31));
    }
}

/* 16 bytes: of each quad columns 0, 2, 1, 3. */
NW_INLINE __m128i even_odd(const uint8_t *p)
{
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)p), swapped());
}

void nw_avx2_act_even_odd(nw_act_kind kind, const uint8_t *row, uint32_t n_cols, uint32_t c0,
                          uint32_t n, int16_t *out)
{
    const uint8_t *codes = row + nw_act_codes_at(kind, n_cols) + c0;
    const uint8_t *low = codes + nw_act_cols(n_cols);

    /* rows are padded to NW_ACT_COLS, so that the last step stays in the row */
    for (uint32_t c = 0; c < n; c += 16) {
        __m256i x = _mm256_cvtepi8_epi16(even_odd(codes + c));
        if (kind == NW_ACT_INT16) {
            const __m256i l = _mm256_cvtepi8_epi16(even_odd(low + c));
            x = _mm256_add_epi16(_mm256_slli_epi16(x, 8), l);
        }
        _mm256_storeu_si256((__m256i *)(void *)(out + c), x);
    }
}
