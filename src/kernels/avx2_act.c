/* Packing INT8 and INT16 activations for the AVX2 and AVX-VNNI tiers, 128 columns at a time: the bytes of
 * nw_act_pack_plain(), which packs the other kinds.
 * SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kernels/act.h"
#include "kernels/tile.h"
#include "kernels/x86.h"

#define VECTORS (NW_ACT_COLS / 8)

NW_INLINE void store(void *p, __m256i x)
{
    _mm256_storeu_si256((__m256i *)p, x);
}

/* 128 columns from c on, zeros behind the last. */
NW_INLINE const float *span(const float *x, uint32_t n_cols, uint32_t c, float few[NW_ACT_COLS])
{
    if (n_cols - c >= NW_ACT_COLS) {
        return x + c;
    }
    memset(few, 0, NW_ACT_COLS * sizeof *few);
    memcpy(few, x + c, (n_cols - c) * sizeof *few);
    return few;
}

/* The larger of *top and the bits of 128 absolute values, lane by lane: see nw_code_scale(). */
NW_INLINE __m256i top_of(const float *x, __m256i top)
{
    const __m256i size = _mm256_set1_epi32(0x7FFFFFFF);

    for (size_t i = 0; i < VECTORS; i++) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i * 8));
        top = _mm256_max_epu32(top, _mm256_and_si256(bits, size));
    }
    return top;
}

/* The scale of nw_code_scale() from those of all columns. */
NW_INLINE float scale_of(__m256i top, float most, float *inv)
{
    float x[8];

    _mm256_storeu_ps(x, _mm256_castsi256_ps(top));
    return nw_code_scale(x, 8, most, inv);
}

/* 16 codes as int16, in order. */
NW_INLINE __m256i codes16(const float *x, __m256 inv)
{
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inv));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inv));
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
}

/* 32 int16 that fit in int8, in order. */
NW_INLINE __m256i bytes32(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xD8);
}

/* Sums of each 16 of 128 codes. */
NW_INLINE __m256i sums_of(const __m256i words[8])
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i x[8];

    NW_EACH(i, 8) {
        x[i] = _mm256_madd_epi16(words[i], one);
    }
    const __m256i a =
        _mm256_hadd_epi32(_mm256_hadd_epi32(x[0], x[1]), _mm256_hadd_epi32(x[2], x[3]));
    const __m256i b =
        _mm256_hadd_epi32(_mm256_hadd_epi32(x[4], x[5]), _mm256_hadd_epi32(x[6], x[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

static void pack_int8(const float *x, uint32_t n_cols, uint8_t *row)
{
    uint8_t *sums = row + nw_act_sums_at(NW_ACT_INT8, n_cols);
    uint8_t *codes = row + nw_act_codes_at(NW_ACT_INT8, n_cols);
    __m256i top = _mm256_setzero_si256();
    float few[NW_ACT_COLS];
    nw_act_head head = {0};
    float inv = 0;

    for (uint32_t c = 0; c < n_cols; c += NW_ACT_COLS) {
        top = top_of(span(x, n_cols, c, few), top);
    }
    head.scale = scale_of(top, NW_INT8_MOST, &inv);
    for (uint32_t c = 0; inv > 0 && c < n_cols; c += NW_ACT_COLS) {
        const float *from = span(x, n_cols, c, few);
        __m256i words[8];
        NW_EACH(i, 8) {
            words[i] = codes16(from + (size_t)i * 16, _mm256_set1_ps(inv));
        }
        NW_EACH(i, 4) {
            store(codes + c + (size_t)i * 32, bytes32(words[2 * i], words[2 * i + 1]));
        }
        store(sums + (size_t)c / NW_ACT_SUM_COLS * sizeof(int32_t), sums_of(words));
    }
    nw_act_sum_levels(sums, n_cols);
    head.sum = nw_act_sum_i32(sums + nw_act_level_at(n_cols, NW_ACT_COLS),
                              nw_act_cols(n_cols) / NW_ACT_COLS);
    memcpy(row, &head, sizeof head);
}

static void pack_int16(const float *x, uint32_t n_cols, uint8_t *row)
{
    uint8_t *sums = row + nw_act_sums_at(NW_ACT_INT16, n_cols);
    uint8_t *high = row + nw_act_codes_at(NW_ACT_INT16, n_cols);
    uint8_t *low = high + nw_act_cols(n_cols);
    float few[NW_ACT_COLS];

    for (uint32_t c = 0; c < n_cols; c += NW_ACT_COLS) {
        const float *from = span(x, n_cols, c, few);
        float inv = 0;
        const float scale = scale_of(top_of(from, _mm256_setzero_si256()), NW_INT16_MOST, &inv);
        memcpy(row + (size_t)c / NW_ACT_COLS * sizeof scale, &scale, sizeof scale);
        if (inv <= 0) {
            continue;
        }
        __m256i words[8];
        __m256i up[8];
        __m256i down[8];
        NW_EACH(i, 8) {
            words[i] = codes16(from + (size_t)i * 16, _mm256_set1_ps(inv));
            up[i] = _mm256_srai_epi16(_mm256_add_epi16(words[i], _mm256_set1_epi16(128)), 8);
            down[i] = _mm256_sub_epi16(words[i], _mm256_slli_epi16(up[i], 8));
        }
        NW_EACH(i, 4) {
            store(high + c + (size_t)i * 32, bytes32(up[2 * i], up[2 * i + 1]));
            store(low + c + (size_t)i * 32, bytes32(down[2 * i], down[2 * i + 1]));
        }
        store(sums + (size_t)c / NW_ACT_SUM_COLS * sizeof(int32_t), sums_of(words));
    }
    nw_act_sum_levels(sums, n_cols);
}

void nw_avx2_act_pack(nw_act_kind kind, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                      uint32_t n_cols, void *dst)
{
    const size_t stride = nw_act_stride(kind, n_cols);

    if (kind != NW_ACT_INT8 && kind != NW_ACT_INT16) {
        nw_act_pack_plain(kind, x, ldx, t0, t1, n_cols, dst);
        return;
    }
    for (uint32_t t = t0; t < t1; t++) {
        uint8_t *row = (uint8_t *)dst + t * stride;
        memset(row, 0, stride);
        if (kind == NW_ACT_INT8) {
            pack_int8(x + t * ldx, n_cols, row);
        } else {
            pack_int16(x + t * ldx, n_cols, row);
        }
    }
}
