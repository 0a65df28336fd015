/* What one token and tiles of tokens share for INT4 with one level of scales, NVFP4 and MXFP4: how 64 bytes of
 * nibbles become unsigned bytes, where things stand, and how sums are scaled. In a group sums are
 * exact int32; then, the same for every tile shape:
 *   8-bit activations    f = sum * scale + f, a group
 *   16-bit ones          t = sum * scale + t, a group;  f = t * (their scale) + f, 128 columns
 *   16-bit ones, MXFP4   f = (sum * their scale) * scale + f, a group: a product with its scales, of
 *                        8 bits of exponent, may leave the range of a float that the result is in
 * and with minima, min * (sum of the activations' codes) is added where sum * scale was. A zero point is a
 * minimum, -scale * zero, exactly.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_NIBBLE_H
#define NW_KERNELS_AVX512_NIBBLE_H

#include "kernels/avx512.h"

typedef enum {
    NW_NIB_INT4,
    NW_NIB_INT4_ZERO,
    NW_NIB_INT4_MIN,
    NW_NIB_MXFP4,
    NW_NIB_NVFP4
} nw_nibble_kind;

/* What is constant in a function: codes, 64-byte steps of a group, bytes of an activation, panels,
 * tokens. */
typedef struct {
    nw_nibble_kind k;
    unsigned steps, np, nv, mr;
} nw_nibble_form;

NW_INLINE bool nw_nib_is_int(const nw_nibble_form f)
{
    return f.k <= NW_NIB_INT4_MIN;
}

NW_INLINE bool nw_nib_has_min(const nw_nibble_form f)
{
    return f.k == NW_NIB_INT4_ZERO || f.k == NW_NIB_INT4_MIN;
}

NW_INLINE unsigned nw_nib_cols(const nw_nibble_form f)
{
    return f.steps * 8;
}

/* Bytes of a group's scales, which stand before its codes, and of a group. */
NW_INLINE size_t nw_nib_scale_bytes(const nw_nibble_form f)
{
    static const uint8_t bytes[] = {32, 48, 64, 16, 32};
    return bytes[f.k];
}

NW_INLINE size_t nw_nib_group_bytes(const nw_nibble_form f)
{
    return nw_nib_scale_bytes(f) + f.steps * (size_t)64;
}

/* Sums of one group: NVFP4 has one of low nibbles and one of high ones. */
NW_INLINE unsigned nw_nib_halves(const nw_nibble_form f)
{
    return f.k == NW_NIB_NVFP4 ? 2 : 1;
}

/* What a code has been moved up by, to be unsigned. E2M1 codes are twice their value. */
NW_INLINE int32_t nw_nib_zero(const nw_nibble_form f)
{
    return f.k == NW_NIB_INT4 ? 8 : nw_nib_has_min(f) ? 0 : 12;
}

NW_INLINE __m512i nw_nib_table(void)
{
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

NW_INLINE __m512i nw_nib_low(const nw_nibble_form f, __m512i x)
{
    return nw_nib_is_int(f) ? _mm512_and_si512(x, _mm512_set1_epi32(0x0F0F0F0F))
                            : _mm512_permutexvar_epi8(x, nw_nib_table());
}

/* The scales of the 16 rows: of the group, or of half 0 (low nibbles) or 1 of it. Those of NVFP4 2^-8
 * times as large, which nw_nib_unit() makes up for: E4M3 bits moved up by 7 are such an fp16,
 * subnormals included. 2^(e - 127) is the float with exponent field e; that of e = 0 is subnormal. */
NW_INLINE __m512 nw_nib_scale(const nw_nibble_form f, const uint8_t *group, unsigned half)
{
    if (nw_nib_is_int(f)) {
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)group));
    }
    const __m128i codes =
        _mm_loadu_si128((const __m128i *)(const void *)(group + (size_t)half * 16));
    if (f.k == NW_NIB_MXFP4) {
        return _mm512_castsi512_ps(_mm512_max_epu32(
            _mm512_slli_epi32(_mm512_cvtepu8_epi32(codes), 23), _mm512_set1_epi32(0x00400000)));
    }
    const __m256i x = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(x, _mm256_set1_epi16((short)0xBFFF)));
}

/* The minima of the 16 rows, given their scales. */
NW_INLINE __m512 nw_nib_min(const nw_nibble_form f, const uint8_t *group, __m512 scale)
{
    const uint8_t *at = group + 32;

    if (f.k == NW_NIB_INT4_MIN) {
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
    }
    const __m512i zero = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
    return _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), scale), _mm512_cvtepi32_ps(zero));
}

/* What remains to be multiplied to a row's result beside the scale of 8-bit activations. */
NW_INLINE float nw_nib_unit(const nw_tile *t, const uint8_t *panel, const nw_nibble_form f)
{
    return nw_nib_is_int(f)      ? 1.0F
           : f.k == NW_NIB_MXFP4 ? 0.5F
                                 : 128.0F * nw_panel_tensor_scale(t->type, panel);
}

/* Bytes of a panel before its first group. */
NW_INLINE size_t nw_nib_first(const nw_nibble_form f)
{
    return f.k == NW_NIB_NVFP4 ? 64 : 0;
}

/* Where a token's row has its codes (high bytes, where there are two), its sums of the columns that
 * share a scale, and how far the low bytes are from the codes. */
typedef struct {
    size_t codes, sums, low;
} nw_nibble_row;

NW_INLINE nw_nibble_row nw_nib_row(const nw_tile *t, const nw_nibble_form f)
{
    const nw_act_kind kind = f.np == 1 ? NW_ACT_INT8 : NW_ACT_INT16;

    return (nw_nibble_row){.codes = nw_act_codes_at(kind, t->n_cols),
                           .sums = nw_act_sums_at(kind, t->n_cols) +
                                   nw_act_level_at(t->n_cols, nw_nib_cols(f) / nw_nib_halves(f)),
                           .low = nw_act_cols(t->n_cols)};
}

/* Sums that are worked on together. */
#define NW_NIB_STARTS 16u

/* What the sums of the low (or only) bytes start at, -zero times those of the activations, for
 * NW_NIB_STARTS of them; with minima those of the activations, as floats. Reads past the last one stay
 * in the row: codes follow. */
NW_INLINE void nw_nib_starts(const uint8_t *sums, const nw_nibble_form f, int32_t *starts)
{
    const __m512i x = _mm512_loadu_si512(sums);

    if (nw_nib_has_min(f)) {
        _mm512_store_si512(starts, _mm512_castps_si512(_mm512_cvtepi32_ps(x)));
        return;
    }
    _mm512_store_si512(starts, _mm512_mullo_epi32(x, _mm512_set1_epi32(-nw_nib_zero(f))));
}

/* What a sum starts at, and what a minimum is multiplied by. */
NW_INLINE __m512i nw_nib_start(const nw_nibble_form f, int32_t start)
{
    return nw_nib_has_min(f) ? _mm512_setzero_si512() : _mm512_set1_epi32(start);
}

NW_INLINE __m512 nw_nib_act_sum(int32_t start)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32(start));
}

/* One sum of two planes, the low bytes' first. */
NW_INLINE __m512i nw_nib_join(const nw_nibble_form f, __m512i low, __m512i high)
{
    return f.np == 1 ? low : _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
}

/* The scale of 16-bit activations at column col. */
NW_INLINE __m512 nw_nib_act_scale(const uint8_t *row, uint32_t col)
{
    return _mm512_castsi512_ps(nw_spread(row + col / NW_ACT_COLS * sizeof(float)));
}

/* Whether scales of 16-bit activations are applied once for their 128 columns. */
NW_INLINE bool nw_nib_folds(const nw_nibble_form f)
{
    return f.np == 2 && f.k != NW_NIB_MXFP4;
}

/* y = f * unit * (the token's scale, of 8-bit activations). */
NW_INLINE void nw_nib_store(const nw_tile *t, unsigned v, unsigned m, __m512 y,
                            const nw_nibble_form f)
{
    nw_act_head head = {.scale = 1};

    if (f.np == 1) {
        memcpy(&head, t->a + m * t->a_stride, sizeof head);
    }
    if (!nw_nib_is_int(f)) {
        y = _mm512_mul_ps(y, _mm512_set1_ps(nw_nib_unit(t, t->w + v * t->w_stride, f)));
    }
    nw_store_rows(t->y + m * t->ldy + v * 16, nw_rows_left(t, v),
                  f.np == 1 ? _mm512_mul_ps(y, _mm512_set1_ps(head.scale)) : y);
}

#endif
