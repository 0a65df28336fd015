/* Element-wise ops and activation packing for the AVX-512 tier. 16 lanes a step, the rest by mask, so
 * that no byte beyond a buffer is touched.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_ops.h"

#include <math.h>

#include "kernels/avx512_math.h"

#define ROOT_2_OVER_PI 0x1.988454p-1F

/* x / (1 + 2^(-x * rate)): x * sigmoid(x * rate * ln 2). */
NW_INLINE __m512 gated(__m512 x, __m512 arg)
{
    const __m512 e = nw_exp2_ps(_mm512_sub_ps(_mm512_setzero_ps(), arg));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1), e));
}

void nw_avx512_rmsnorm(const float *x, const float *gain, uint32_t n, float eps, float *y)
{
    __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                     _mm512_setzero_ps()};

    for (uint32_t i = 0; i < n; i += 16) {
        const __m512 v = _mm512_maskz_loadu_ps(nw_lanes16(i, n), x + i);
        sum[i / 16 % 4] = _mm512_fmadd_ps(v, v, sum[i / 16 % 4]);
    }
    const __m512 s = _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
    const float mean = _mm512_reduce_add_ps(s) / (float)n;
    const __m512 inv = _mm512_set1_ps(1 / sqrtf(mean + eps));
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 k = nw_lanes16(i, n);
        const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x + i), inv);
        _mm512_mask_storeu_ps(y + i, k, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(k, gain + i)));
    }
}

void nw_avx512_rope(float *x, uint32_t n_heads, uint32_t d_head, const float *cos, const float *sin)
{
    const uint32_t half = d_head / 2;

    for (uint32_t h = 0; h < n_heads; h++, x += d_head) {
        for (uint32_t i = 0; i < half; i += 16) {
            const __mmask16 k = nw_lanes16(i, half);
            const __m512 c = _mm512_maskz_loadu_ps(k, cos + i);
            const __m512 s = _mm512_maskz_loadu_ps(k, sin + i);
            const __m512 a = _mm512_maskz_loadu_ps(k, x + i);
            const __m512 b = _mm512_maskz_loadu_ps(k, x + i + half);
            _mm512_mask_storeu_ps(x + i, k, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
            _mm512_mask_storeu_ps(x + i + half, k, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
        }
    }
}

void nw_avx512_silu_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 k = nw_lanes16(i, n);
        const __m512 g = _mm512_maskz_loadu_ps(k, gate + i);
        const __m512 s = gated(g, _mm512_mul_ps(g, _mm512_set1_ps(NW_LOG2E)));
        _mm512_mask_storeu_ps(y + i, k, _mm512_mul_ps(s, _mm512_maskz_loadu_ps(k, up + i)));
    }
}

void nw_avx512_gelu_tanh_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 k = nw_lanes16(i, n);
        const __m512 g = _mm512_maskz_loadu_ps(k, gate + i);
        /* 1/2 (1 + tanh u) = sigmoid(2u), u = sqrt(2 / pi) (g + 0.044715 g^3) */
        const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(g, g), g);
        const __m512 u = _mm512_fmadd_ps(cube, _mm512_set1_ps(0.044715F), g);
        const __m512 s = gated(g, _mm512_mul_ps(u, _mm512_set1_ps(2 * ROOT_2_OVER_PI * NW_LOG2E)));
        _mm512_mask_storeu_ps(y + i, k, _mm512_mul_ps(s, _mm512_maskz_loadu_ps(k, up + i)));
    }
}

void nw_avx512_add(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 k = nw_lanes16(i, n);
        const __m512 v = _mm512_maskz_loadu_ps(k, x + i);
        _mm512_mask_storeu_ps(y + i, k, _mm512_add_ps(_mm512_maskz_loadu_ps(k, y + i), v));
    }
}

void nw_avx512_softcap(float *x, size_t n, float cap)
{
    const __m512 c = _mm512_set1_ps(cap);
    const __m512 inv = _mm512_set1_ps(1 / cap);

    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 k = nw_lanes16(i, n);
        const __m512 z = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x + i), inv);
        _mm512_mask_storeu_ps(x + i, k, _mm512_mul_ps(nw_tanh_ps(z), c));
    }
}

/* ---- activation packing ---- */

static void pack_bf16(const float *x, uint32_t n, uint8_t *row)
{
    uint8_t *sums = row + nw_act_sums_at(NW_ACT_BF16, n);

    for (uint32_t i = 0; i < n; i += NW_ACT_SUM_COLS, sums += sizeof(float)) {
        const __m512 v = _mm512_maskz_loadu_ps(nw_lanes16(i, n), x + i);
        const __m256i h = (__m256i)_mm512_cvtneps_pbh(v);
        const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
        const float sum = _mm512_reduce_add_ps(_mm512_castsi512_ps(wide));
        _mm256_storeu_si256((__m256i *)(void *)(row + i * sizeof(uint16_t)), h);
        memcpy(sums, &sum, sizeof sum);
    }
}

NW_INLINE float code_scale(const float *x, uint32_t n, float most, float *inv)
{
    __m512i top = _mm512_setzero_si512();

    for (uint32_t i = 0; i < n; i += 16) {
        const __m512 v = _mm512_maskz_loadu_ps(nw_lanes16(i, n), x + i);
        top = _mm512_max_epu32(top, _mm512_castps_si512(_mm512_abs_ps(v)));
    }
    const float amax =
        _mm512_cvtss_f32(_mm512_castsi512_ps(_mm512_set1_epi32((int)_mm512_reduce_max_epu32(top))));
    /* a single value has the scale of the whole row, and the same rules for NaN and 0 */
    return nw_code_scale(&amax, 1, most, inv);
}

/* 16 codes, all 0 where inv is 0: x may then hold a NaN. */
NW_INLINE __m512i codes16(const float *x, __mmask16 k, __m512 inv)
{
    const __mmask16 live = _mm512_mask_cmp_ps_mask(k, inv, _mm512_setzero_ps(), _CMP_GT_OQ);
    const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x), inv);
    return _mm512_maskz_cvtps_epi32(live, v);
}

static void pack_int8(const float *x, uint32_t n, uint8_t *row)
{
    uint8_t *codes = row + nw_act_codes_at(NW_ACT_INT8, n);
    uint8_t *sums = row + nw_act_sums_at(NW_ACT_INT8, n);
    nw_act_head head = {0};
    float inv = 0;

    head.scale = code_scale(x, n, NW_INT8_MOST, &inv);
    for (uint32_t i = 0; i < n; i += NW_ACT_SUM_COLS, sums += sizeof(int32_t)) {
        const __m512i a = codes16(x + i, nw_lanes16(i, n), _mm512_set1_ps(inv));
        const int32_t sum = _mm512_reduce_add_epi32(a);
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm512_cvtepi32_epi8(a));
        memcpy(sums, &sum, sizeof sum);
        head.sum += sum;
    }
    nw_act_sum_levels(row + nw_act_sums_at(NW_ACT_INT8, n), n);
    memcpy(row, &head, sizeof head);
}

static void pack_int16(const float *x, uint32_t n, uint8_t *row)
{
    uint8_t *sums = row + nw_act_sums_at(NW_ACT_INT16, n);
    uint8_t *high = row + nw_act_codes_at(NW_ACT_INT16, n);
    uint8_t *low = high + nw_act_cols(n);
    float inv = 0;

    for (uint32_t i = 0; i < n; i += NW_ACT_SUM_COLS, sums += sizeof(int32_t)) {
        if (i % NW_ACT_COLS == 0) {
            const uint32_t left = n - i < NW_ACT_COLS ? n - i : NW_ACT_COLS;
            const float scale = code_scale(x + i, left, NW_INT16_MOST, &inv);
            memcpy(row + i / NW_ACT_COLS * sizeof scale, &scale, sizeof scale);
        }
        const __m512i a = codes16(x + i, nw_lanes16(i, n), _mm512_set1_ps(inv));
        const __m512i up = _mm512_add_epi32(a, _mm512_set1_epi32(128));
        const int32_t sum = _mm512_reduce_add_epi32(a);
        _mm_storeu_si128((__m128i *)(void *)(high + i),
                         _mm512_cvtepi32_epi8(_mm512_srai_epi32(up, 8)));
        _mm_storeu_si128((__m128i *)(void *)(low + i), _mm512_cvtepi32_epi8(a));
        memcpy(sums, &sum, sizeof sum);
    }
    nw_act_sum_levels(row + nw_act_sums_at(NW_ACT_INT16, n), n);
}

void nw_avx512_act_pack(nw_act_kind kind, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                        uint32_t n_cols, void *dst)
{
    const size_t stride = nw_act_stride(kind, n_cols);

    if (kind == NW_ACT_F32) {
        nw_act_pack_plain(kind, x, ldx, t0, t1, n_cols, dst);
        return;
    }
    for (uint32_t t = t0; t < t1; t++) {
        uint8_t *row = (uint8_t *)dst + t * stride;
        memset(row, 0, stride);
        if (kind == NW_ACT_BF16) {
            pack_bf16(x + t * ldx, n_cols, row);
        } else if (kind == NW_ACT_INT8) {
            pack_int8(x + t * ldx, n_cols, row);
        } else {
            pack_int16(x + t * ldx, n_cols, row);
        }
    }
}
