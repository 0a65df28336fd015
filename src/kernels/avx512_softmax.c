/* Softmax of one row of 64 scores, and the joining of segments, in the AVX-512 tier.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/avx512_attn.h"
#include "kernels/avx512_math.h"

/* Scores in units of log2, hidden keys -Inf. */
NW_INLINE __m512 score(const nw_softmax_row *row, __m512 s, __mmask16 seen)
{
    __m512 x;

    if (row->softcap > 0) {
        const __m512 z = _mm512_mul_ps(s, _mm512_set1_ps(row->scale / row->softcap));
        x = _mm512_mul_ps(nw_tanh_ps(z), _mm512_set1_ps(row->softcap * NW_LOG2E));
    } else {
        x = _mm512_mul_ps(s, _mm512_set1_ps(row->scale * NW_LOG2E));
    }
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), seen, x);
}

NW_INLINE __mmask16 seen_of(uint64_t seen, unsigned b)
{
    return (__mmask16)(seen >> (16 * b));
}

float nw_avx512_top_scale(const float *v_scales, uint64_t seen)
{
    __m512i top = _mm512_setzero_si512();

    NW_EACH(b, 4) {
        const __m512i x = _mm512_maskz_loadu_epi32(seen_of(seen, b), v_scales + b * 16);
        top = _mm512_max_epu32(top, _mm512_and_si512(x, _mm512_set1_epi32(0x7FFFFFFF)));
    }
    return _mm512_cvtss_f32(
        _mm512_castsi512_ps(_mm512_set1_epi32((int)_mm512_reduce_max_epu32(top))));
}

/* Probabilities x 16 b .. of the row, as its values want them; `steps` of the integers turns
 * factors into whole numbers. */
NW_INLINE void store_p(const nw_softmax_row *row, unsigned b, __m512 e, __mmask16 seen, float steps,
                       uint8_t *p)
{
    if (row->v_scales != NULL) { /* a hidden factor may be anything */
        e = _mm512_maskz_mul_ps(seen, e, _mm512_loadu_ps(row->v_scales + b * 16));
    }
    if (row->v == NW_KV_F32) {
        _mm512_storeu_ps(p + b * 64, e);
    } else if (row->v == NW_KV_BF16 || row->v == NW_KV_FP8) {
        _mm256_storeu_si256((__m256i *)(void *)(p + b * 32), (__m256i)_mm512_cvtneps_pbh(e));
    } else {
        const __m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(e, _mm512_set1_ps(steps)));
        _mm_storeu_si128((__m128i *)(void *)(p + b * 16),
                         _mm512_cvtepi32_epi8(_mm512_srli_epi32(n, 8)));
        _mm_storeu_si128((__m128i *)(void *)(p + NW_KV_PAGE + b * 16), _mm512_cvtepi32_epi8(n));
    }
}

void nw_avx512_softmax_row(const nw_softmax_row *row, const float *s, nw_softmax_state *st,
                           uint8_t *p)
{
    const float steps = row->top > 0 ? NW_P_STEPS / row->top : 0;
    __m512 x[4];
    __m512 sum[4];

    NW_EACH(b, 4) {
        x[b] = score(row, _mm512_loadu_ps(s + b * 16), seen_of(row->seen, b));
    }
    const float top =
        _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(x[0], x[1]), _mm512_max_ps(x[2], x[3])));
    const float max = top > st->max ? top : st->max;
    NW_EACH(b, 4) {
        const __mmask16 seen = seen_of(row->seen, b);
        sum[b] = nw_exp2_ps(_mm512_sub_ps(x[b], _mm512_set1_ps(max)));
        sum[b] = _mm512_maskz_mov_ps(seen, sum[b]);
        store_p(row, b, sum[b], seen, steps, p);
    }
    const float total = _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
    st->shrink = _mm512_cvtss_f32(nw_exp2_ps(_mm512_set1_ps(st->max - max)));
    st->sum = st->sum * st->shrink + total;
    st->max = max;
}

/* Weights of what was there and of the segment, for up to 16 rows. */
static void join_weights(const nw_softmax_state *state, nw_softmax_state *sums, uint32_t n,
                         float *old, float *new)
{
    _Alignas(64) float a[16] = {0};
    _Alignas(64) float b[16] = {0};

    for (uint32_t r = 0; r < n; r++) {
        a[r] = sums[r].max;
        b[r] = state[r].max;
    }
    const __m512 was = _mm512_load_ps(a);
    const __m512 is = _mm512_load_ps(b);
    const __m512 max = _mm512_max_ps(was, is);
    _mm512_store_ps(old, nw_exp2_ps(_mm512_sub_ps(was, max)));
    _mm512_store_ps(new, nw_exp2_ps(_mm512_sub_ps(is, max)));
    _mm512_store_ps(a, max);
    for (uint32_t r = 0; r < n; r++) {
        if (state[r].sum != 0.0F) {
            sums[r].sum = sums[r].sum * old[r] + state[r].sum * new[r];
            sums[r].max = a[r];
        }
    }
}

void nw_avx512_attn_join(const nw_attn_tile *t, const nw_softmax_state *state, const float *o,
                         size_t ldo)
{
    const uint32_t n = nw_kv_v_panels(t->a->kv.d_head) * NW_KV_LANES;
    _Alignas(64) float old[16];
    _Alignas(64) float new[16];

    for (uint32_t r = 0; r < t->n_rows; r++) {
        float *total = t->total + (size_t)r * (NW_ATTN_STRIDE / sizeof *total);
        const float *part = o + r * ldo;
        if (r % 16 == 0) {
            join_weights(state + r, t->sums + r, t->n_rows - r < 16 ? t->n_rows - r : 16, old, new);
        }
        if (state[r].sum == 0.0F) { /* it sees nothing of the segment */
            continue;
        }
        const __m512 a = _mm512_set1_ps(old[r % 16]);
        const __m512 b = _mm512_set1_ps(new[r % 16]);
        for (uint32_t i = 0; i < n; i += 16) {
            const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(part + i), b);
            _mm512_storeu_ps(total + i, _mm512_fmadd_ps(_mm512_loadu_ps(total + i), a, x));
        }
    }
}

void nw_avx512_scale(const float *x, uint32_t n, float factor, float *out)
{
    const __m512 f = _mm512_set1_ps(factor);
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 k = nw_lanes16(i, n);
        _mm512_mask_storeu_ps(out + i, k, _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x + i), f));
    }
}
