/* Element-wise ops, activation packing, key and value encoding and the softmax of attention for the
 * AVX-512 tier. 16 lanes a step, the rest by mask, so that no byte beyond a buffer is touched.
 * exp is 2^x: x is split into a whole and a part in [-1/2, 1/2], whose 2^f = 1 + f q(f) with q the
 * degree-4 minimax polynomial of its relative error (9.2e-8).
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_ops.h"

#include <math.h>

#define LOG2E          0x1.715476p+0F
#define ROOT_2_OVER_PI 0x1.988454p-1F

/* 2^x; 0 below -150, Inf above 128, NaN for NaN. 2^0 is exactly 1. */
NW_INLINE __m512 exp2_ps(__m512 x)
{
    /* the second operand is what max returns for a NaN */
    const __m512 bound = _mm512_max_ps(_mm512_set1_ps(-1e4F), x);
    const __m512 whole = _mm512_roundscale_ps(bound, _MM_FROUND_TO_NEAREST_INT);
    const __m512 f = _mm512_sub_ps(bound, whole);
    __m512 q = _mm512_set1_ps(0x1.5bba14p-10F);

    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.3cea88p-7F));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.c6b752p-5F));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.ebf9bcp-3F));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.62e42ap-1F));
    return _mm512_scalef_ps(_mm512_fmadd_ps(q, f, _mm512_set1_ps(1)), whole);
}

/* x / (1 + 2^(-x * rate)): x * sigmoid(x * rate * ln 2). */
NW_INLINE __m512 gated(__m512 x, __m512 arg)
{
    const __m512 e = exp2_ps(_mm512_sub_ps(_mm512_setzero_ps(), arg));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1), e));
}

/* tanh(z) = 1 - 2 / (e^2z + 1): a few 2^-24 absolute, which is what a score needs. */
NW_INLINE __m512 tanh_ps(__m512 z)
{
    const __m512 e = exp2_ps(_mm512_mul_ps(z, _mm512_set1_ps(2 * LOG2E)));
    const __m512 one = _mm512_set1_ps(1);
    return _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2), _mm512_add_ps(e, one)));
}

/* Lanes of the step at i of n. */
NW_INLINE __mmask16 lanes(size_t i, size_t n)
{
    return (__mmask16)(n - i >= 16 ? 0xFFFFU : (1U << (n - i)) - 1);
}

void nw_avx512_rmsnorm(const float *x, const float *gain, uint32_t n, float eps, float *y)
{
    __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                     _mm512_setzero_ps()};

    for (uint32_t i = 0; i < n; i += 16) {
        const __m512 v = _mm512_maskz_loadu_ps(lanes(i, n), x + i);
        sum[i / 16 % 4] = _mm512_fmadd_ps(v, v, sum[i / 16 % 4]);
    }
    const __m512 s = _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
    const float mean = _mm512_reduce_add_ps(s) / (float)n;
    const __m512 inv = _mm512_set1_ps(1 / sqrtf(mean + eps));
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 k = lanes(i, n);
        const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x + i), inv);
        _mm512_mask_storeu_ps(y + i, k, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(k, gain + i)));
    }
}

void nw_avx512_rope(float *x, uint32_t n_heads, uint32_t d_head, const float *cos, const float *sin)
{
    const uint32_t half = d_head / 2;

    for (uint32_t h = 0; h < n_heads; h++, x += d_head) {
        for (uint32_t i = 0; i < half; i += 16) {
            const __mmask16 k = lanes(i, half);
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
        const __mmask16 k = lanes(i, n);
        const __m512 g = _mm512_maskz_loadu_ps(k, gate + i);
        const __m512 s = gated(g, _mm512_mul_ps(g, _mm512_set1_ps(LOG2E)));
        _mm512_mask_storeu_ps(y + i, k, _mm512_mul_ps(s, _mm512_maskz_loadu_ps(k, up + i)));
    }
}

void nw_avx512_gelu_tanh_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 k = lanes(i, n);
        const __m512 g = _mm512_maskz_loadu_ps(k, gate + i);
        /* 1/2 (1 + tanh u) = sigmoid(2u), u = sqrt(2 / pi) (g + 0.044715 g^3) */
        const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(g, g), g);
        const __m512 u = _mm512_fmadd_ps(cube, _mm512_set1_ps(0.044715F), g);
        const __m512 s = gated(g, _mm512_mul_ps(u, _mm512_set1_ps(2 * ROOT_2_OVER_PI * LOG2E)));
        _mm512_mask_storeu_ps(y + i, k, _mm512_mul_ps(s, _mm512_maskz_loadu_ps(k, up + i)));
    }
}

void nw_avx512_add(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 k = lanes(i, n);
        const __m512 v = _mm512_maskz_loadu_ps(k, x + i);
        _mm512_mask_storeu_ps(y + i, k, _mm512_add_ps(_mm512_maskz_loadu_ps(k, y + i), v));
    }
}

void nw_avx512_softcap(float *x, size_t n, float cap)
{
    const __m512 c = _mm512_set1_ps(cap);
    const __m512 inv = _mm512_set1_ps(1 / cap);

    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 k = lanes(i, n);
        const __m512 z = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x + i), inv);
        _mm512_mask_storeu_ps(x + i, k, _mm512_mul_ps(tanh_ps(z), c));
    }
}

/* ---- activation packing ---- */

static void pack_bf16(const float *x, uint32_t n, uint8_t *row)
{
    uint8_t *sums = row + nw_act_sums_at(NW_ACT_BF16, n);

    for (uint32_t i = 0; i < n; i += NW_ACT_SUM_COLS, sums += sizeof(float)) {
        const __m512 v = _mm512_maskz_loadu_ps(lanes(i, n), x + i);
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
        const __m512 v = _mm512_maskz_loadu_ps(lanes(i, n), x + i);
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
        const __m512i a = codes16(x + i, lanes(i, n), _mm512_set1_ps(inv));
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
        const __m512i a = codes16(x + i, lanes(i, n), _mm512_set1_ps(inv));
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

/* ---- keys and values ---- */

/* BF16 page: a row of K is one dword a pair of columns; a column of V is every second word of its
 * rows. */
static void put_k_bf16(uint32_t slot, const float *k, uint32_t d_head, uint8_t *page)
{
    size_t panel = (size_t)(d_head + 1) / 2 * 64;
    uint8_t *p = page + slot / NW_PANEL_ROWS * panel + slot % NW_PANEL_ROWS * 4;

    for (uint32_t d = 0; d < d_head; d += 16) {
        const uint32_t pairs = d_head - d < 16 ? (d_head - d + 1) / 2 : 8;
        _Alignas(32) uint32_t pair[8];
        const __m512 v = _mm512_maskz_loadu_ps(lanes(d, d_head), k + d);
        _mm256_store_si256((__m256i *)(void *)pair, (__m256i)_mm512_cvtneps_pbh(v));
        for (uint32_t j = 0; j < pairs; j++, p += 64) {
            memcpy(p, &pair[j], sizeof pair[j]);
        }
    }
}

static void put_v_bf16(uint32_t slot, const float *v, uint32_t d_head, uint8_t *page)
{
    const size_t panel = NW_KV_PAGE / 2 * 64;
    const __mmask32 word = slot % 2 == 0 ? 0x55555555U : 0xAAAAAAAAU;
    uint8_t *p = page + (size_t)(slot / 2) * 64;

    for (uint32_t d = 0; d < d_head; d += 16, p += panel) {
        const __m512 x = _mm512_maskz_loadu_ps(lanes(d, d_head), v + d);
        const __m512i w = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x));
        const __m512i both = _mm512_or_si512(w, _mm512_slli_epi32(w, 16));
        _mm512_storeu_si512(p, _mm512_mask_mov_epi16(_mm512_loadu_si512(p), word, both));
    }
}

/* INT8 page: a row of K is one dword a quad of columns, behind the 16 row scales; a column of V is
 * one byte of every dword. Stored bytes are code ^ 0x80. */
static void put_k_int8(uint32_t slot, const float *k, uint32_t d_head, uint8_t *page)
{
    const size_t panel = 64 + (size_t)(d_head + 3) / 4 * 64;
    uint8_t *p = page + slot / NW_PANEL_ROWS * panel + slot % NW_PANEL_ROWS * 4;
    float inv = 0;
    const float scale = code_scale(k, d_head, NW_INT8_MOST, &inv);

    memcpy(p, &scale, sizeof scale);
    p += 64;
    for (uint32_t d = 0; d < d_head; d += 16) {
        const uint32_t quads = d_head - d < 16 ? (d_head - d + 3) / 4 : 4;
        const __m512i c = codes16(k + d, lanes(d, d_head), _mm512_set1_ps(inv));
        _Alignas(16) uint32_t quad[4];
        _mm_store_si128((__m128i *)(void *)quad,
                        _mm_xor_si128(_mm512_cvtepi32_epi8(c), _mm_set1_epi8((char)0x80)));
        for (uint32_t j = 0; j < quads; j++, p += 64) {
            memcpy(p, &quad[j], sizeof quad[j]);
        }
    }
}

static void put_v_int8(const nw_kv_type *kv, uint32_t slot, const float *v, uint8_t *page)
{
    const size_t panel = 64 + NW_KV_PAGE / 4 * 64;
    const __mmask64 byte = (__mmask64)0x1111111111111111U << slot % 4;
    uint8_t *p = page + 64 + (size_t)(slot / 4) * 64;
    float inv = 0;
    const float scale = code_scale(v, kv->d_head, NW_INT8_MOST, &inv);

    memcpy(page + nw_kv_v_scales_at(kv) + slot * sizeof scale, &scale, sizeof scale);
    for (uint32_t d = 0; d < kv->d_head; d += 16, p += panel) {
        const __m512i c = codes16(v + d, lanes(d, kv->d_head), _mm512_set1_ps(inv));
        const __m512i stored = _mm512_xor_si512(c, _mm512_set1_epi32(0x80));
        const __m512i at = _mm512_sll_epi32(stored, _mm_cvtsi32_si128((int)(slot % 4 * 8)));
        _mm512_storeu_si512(p, _mm512_mask_mov_epi8(_mm512_loadu_si512(p), byte, at));
    }
}

void nw_avx512_kv_put(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                      uint8_t *k_page, uint8_t *v_page)
{
    if (kv->k == NW_KV_F32 || kv->v == NW_KV_F32) { /* of tests and comparisons */
        nw_kv_put_plain(kv, slot, k, v, k_page, v_page);
        return;
    }
    if (slot == 0) {
        nw_kv_clear_k(kv, k_page);
        nw_kv_clear_v(kv, v_page);
    }
    if (kv->k == NW_KV_BF16) {
        put_k_bf16(slot, k, kv->d_head, k_page);
    } else {
        put_k_int8(slot, k, kv->d_head, k_page);
    }
    if (kv->v == NW_KV_BF16) {
        put_v_bf16(slot, v, kv->d_head, v_page);
    } else {
        put_v_int8(kv, slot, v, v_page);
    }
}

/* ---- softmax of attention ---- */

/* Scores in units of log2, hidden keys -Inf. */
NW_INLINE __m512 score(const nw_softmax_page *page, __m512 s, __mmask16 seen)
{
    const __m512 scale = _mm512_set1_ps(page->scale);
    const __m512 log2e = _mm512_set1_ps(LOG2E);
    __m512 x;

    if (page->softcap > 0) {
        const __m512 z = _mm512_mul_ps(_mm512_mul_ps(s, scale), _mm512_set1_ps(1 / page->softcap));
        x = _mm512_mul_ps(_mm512_mul_ps(tanh_ps(z), _mm512_set1_ps(page->softcap)), log2e);
    } else {
        x = _mm512_mul_ps(s, _mm512_mul_ps(scale, log2e));
    }
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), seen, x);
}

NW_INLINE void store_p(void *p, unsigned b, nw_act_kind kind, __m512 x)
{
    if (kind == NW_ACT_BF16) {
        _mm256_storeu_si256((__m256i *)p + b, (__m256i)_mm512_cvtneps_pbh(x));
    } else {
        _mm512_storeu_ps((float *)p + b * 16, x);
    }
}

void nw_avx512_softmax(const nw_softmax_page *page, const float *s, nw_softmax_state *st, void *p)
{
    const uint64_t upto = page->j1 < 64 ? ((uint64_t)1 << page->j1) - 1 : UINT64_MAX;
    const uint64_t seen = upto & (UINT64_MAX << page->j0);
    __m512 x[4];
    __m512 sum[4];

    NW_EACH(b, 4) {
        x[b] = score(page, _mm512_loadu_ps(s + b * 16), (__mmask16)(seen >> (16 * b)));
    }
    const float top =
        _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(x[0], x[1]), _mm512_max_ps(x[2], x[3])));
    const float max = top > st->max ? top : st->max;
    NW_EACH(b, 4) {
        sum[b] = exp2_ps(_mm512_sub_ps(x[b], _mm512_set1_ps(max)));
        sum[b] = _mm512_maskz_mov_ps((__mmask16)(seen >> (16 * b)), sum[b]);
        const __m512 v = page->v_scales == NULL
                             ? sum[b]
                             : _mm512_mul_ps(sum[b], _mm512_loadu_ps(page->v_scales + b * 16));
        store_p(p, b, page->kind, v);
    }
    const float total = _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
    st->shrink = _mm512_cvtss_f32(exp2_ps(_mm512_set1_ps(st->max - max)));
    st->sum = st->sum * st->shrink + total;
    st->max = max;
}

void nw_avx512_merge(const float *part, uint32_t n, float shrink, float *out)
{
    const __m512 f = _mm512_set1_ps(shrink);
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 k = lanes(i, n);
        const __m512 o = _mm512_maskz_loadu_ps(k, out + i);
        _mm512_mask_storeu_ps(out + i, k,
                              _mm512_fmadd_ps(o, f, _mm512_maskz_loadu_ps(k, part + i)));
    }
}

void nw_avx512_scale(const float *x, uint32_t n, float factor, float *out)
{
    const __m512 f = _mm512_set1_ps(factor);
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 k = lanes(i, n);
        _mm512_mask_storeu_ps(out + i, k, _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x + i), f));
    }
}
