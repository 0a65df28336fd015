/* Softmax of a group of rows over one page, and the joining of segments, in vectors of 8.
 *
 * A row's scores, in log2, become e = 2^(score - max), max being the largest so far, and f = e times the
 * scale of a value. Floats are written as they are; words count f in steps of the largest of the page,
 * so that no token is rounded more coarsely than its weight in the result wants.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/avx2_attn.h"
#include "kernels/lanes_ops.h"

#define VECTORS (NW_KV_PAGE / 8)
/* The smallest largest factor that is counted: steps / this is a float. */
#define TINY 0x1p-111F

/* What is constant in a function: whether p is words, values have scales, slots are hidden from a row. */
typedef struct {
    bool words, scaled, masked;
} form;

/* 2^x for x <= 0, NaN for NaN; 2^-126 for what is below. */
NW_INLINE __m256 power(__m256 x)
{
    const __m256 y = _mm256_max_ps(_mm256_set1_ps(-126), x); /* the second where one is a NaN */
    const __m256i n = _mm256_cvtps_epi32(y);
    const __m256 f = _mm256_sub_ps(y, _mm256_cvtepi32_ps(n));
    const __m256 q = nw_lanes_power_of(f);

    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(q), _mm256_slli_epi32(n, 23)));
}

/* Lanes of vector b that a row sees. */
NW_INLINE __m256 seen_of(const nw_avx2_softmax *g, unsigned r, unsigned b)
{
    const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i at = _mm256_add_epi32(count, _mm256_set1_epi32((int)(b * 8)));
    const __m256i after = _mm256_cmpgt_epi32(at, _mm256_set1_epi32((int)g->j0[r] - 1));
    const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)g->j1[r]), at);
    return _mm256_castsi256_ps(_mm256_and_si256(after, before));
}

/* Scores of row r to log2, hidden ones to -Inf; the largest. A NaN it may miss, sums do not. */
NW_INLINE float scores(const nw_avx2_softmax *g, unsigned r, const form f)
{
    const __m256 unit = _mm256_set1_ps(g->unit[r]);
    float *s = g->s + (size_t)r * NW_KV_PAGE;
    __m256 top[2] = {_mm256_set1_ps(-INFINITY), _mm256_set1_ps(-INFINITY)};

    NW_EACH(b, VECTORS) {
        __m256 x = _mm256_mul_ps(_mm256_loadu_ps(s + b * 8), unit);
        if (f.masked) {
            x = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), x, seen_of(g, r, b));
        }
        _mm256_storeu_ps(s + b * 8, x);
        top[b % 2] = _mm256_max_ps(top[b % 2], x);
    }
    return nw_lanes_top(_mm256_max_ps(top[0], top[1]));
}

/* f of row r to `out`; returns the sums of e, *top gets the largest of f as bits, a NaN above all. */
NW_INLINE __m256 factors(const nw_avx2_softmax *g, unsigned r, float max, float *out, __m256i *top,
                         const form f)
{
    const float *s = g->s + (size_t)r * NW_KV_PAGE;
    const __m256 hidden = _mm256_set1_ps(-INFINITY);
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};

    *top = _mm256_setzero_si256();
    NW_EACH(b, VECTORS) {
        const __m256 x = _mm256_loadu_ps(s + b * 8);
        __m256 e = power(_mm256_sub_ps(x, _mm256_set1_ps(max)));
        if (f.masked) {
            e = _mm256_and_ps(e, _mm256_cmp_ps(x, hidden, _CMP_NEQ_UQ));
        }
        sum[b % 2] = _mm256_add_ps(sum[b % 2], e);
        if (f.scaled) {
            const __m256 y = _mm256_mul_ps(e, _mm256_loadu_ps(g->v_scales + b * 8));
            e = f.masked ? _mm256_and_ps(y, _mm256_cmp_ps(x, hidden, _CMP_NEQ_UQ)) : y;
        }
        if (f.words) {
            *top = _mm256_max_epu32(*top, _mm256_castps_si256(e));
        }
        _mm256_storeu_ps(out + b * 8, e);
    }
    return _mm256_add_ps(sum[0], sum[1]);
}

NW_INLINE __m256i whole(const float *x, __m256 inv)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inv));
}

/* x * inv as words in the order of avx2_attn.h. */
NW_INLINE void count(const float *x, float inv, uint8_t *p)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    const __m256 by = _mm256_set1_ps(inv);

    NW_EACH(i, VECTORS / 2) {
        const __m256i quads = _mm256_packs_epi32(whole(x + i * 16, by), whole(x + i * 16 + 8, by));
        const __m256i turned = _mm256_shuffle_epi8(quads, order); /* of 0, 8, 4, 12 */
        _mm256_storeu_si256((__m256i *)(void *)(p + i * 32),
                            _mm256_permute4x64_epi64(turned, 0xD8));
    }
}

/* The states of the rows after a page: shrink, and max and sum given the new ones. */
NW_INLINE void update(const nw_avx2_softmax *g, unsigned n_rows, const float *max, const float *sum)
{
    const __m256i k = nw_lanes_first(n_rows);
    const __m256 was = _mm256_maskload_ps(g->state.max, k);
    const __m256 is = _mm256_maskload_ps(max, k);
    const __m256 shrink = nw_lanes_exp2(_mm256_sub_ps(was, is));
    const __m256 before = _mm256_maskload_ps(g->state.sum, k);

    _mm256_maskstore_ps(g->state.shrink, k, shrink);
    _mm256_maskstore_ps(g->state.max, k, is);
    _mm256_maskstore_ps(g->state.sum, k, _mm256_fmadd_ps(before, shrink, _mm256_loadu_ps(sum)));
}

NW_INLINE float top_of(__m256i bits)
{
    const __m128i four =
        _mm_max_epu32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    const __m128i two = _mm_max_epu32(four, _mm_unpackhi_epi64(four, four));
    const __m128i one = _mm_max_epu32(two, _mm_shuffle_epi32(two, 1));
    return _mm_cvtss_f32(_mm_castsi128_ps(one));
}

NW_INLINE void run(const nw_avx2_softmax *g, unsigned n_rows, const form f)
{
    float max[NW_AVX2_SOFTMAX_ROWS];
    float sum[NW_AVX2_SOFTMAX_ROWS] = {0};

    for (unsigned r = 0; r < n_rows; r++) {
        const float top = scores(g, r, f);
        max[r] = top > g->state.max[r] ? top : g->state.max[r];
    }
    for (unsigned r = 0; r < n_rows; r++) {
        uint8_t *p = g->p + (size_t)r * NW_AVX2_P_STRIDE;
        float *s = g->s + (size_t)r * NW_KV_PAGE;
        __m256i top;
        sum[r] = nw_lanes_sum(factors(g, r, max[r], f.words ? s : (float *)(void *)p, &top, f));
        if (f.words) {
            const float most = top_of(top);
            g->share[r] = most < TINY ? 0 : most / g->steps; /* a NaN stays one */
            count(s, most >= TINY ? g->steps / most : 0, p);
        }
    }
    update(g, n_rows, max, sum);
}

/* Scores in units of the cap. */
static void cap_scores(nw_avx2_softmax *g, unsigned n_rows)
{
    for (unsigned r = 0; r < n_rows; r++) {
        float *s = g->s + (size_t)r * NW_KV_PAGE;
        const __m256 in = _mm256_set1_ps(g->unit[r] / (g->softcap * NW_LOG2E));
        NW_EACH(b, VECTORS) {
            const __m256 z = _mm256_mul_ps(_mm256_loadu_ps(s + b * 8), in);
            _mm256_storeu_ps(s + b * 8, nw_lanes_tanh(z));
        }
        g->unit[r] = g->softcap * NW_LOG2E;
    }
}

#define RUN(words, scaled)                                \
    do {                                                  \
        if (g->masked) {                                  \
            run(g, n_rows, (form){words, scaled, true});  \
        } else {                                          \
            run(g, n_rows, (form){words, scaled, false}); \
        }                                                 \
    } while (0)

void nw_avx2_softmax_rows(nw_avx2_softmax *g, unsigned n_rows)
{
    if (g->softcap > 0) {
        cap_scores(g, n_rows);
    }
    if (nw_kv_is_int(g->kind)) {
        RUN(true, true);
    } else if (g->v_scales != NULL) {
        RUN(false, true);
    } else {
        RUN(false, false);
    }
}

/* ---- segments ---- */

/* Weights of what was there and of the segment, for up to 8 rows. */
static void join_weights(const nw_softmax_states *state, const nw_softmax_states *sums, uint32_t r0,
                         uint32_t n, float *old, float *new)
{
    const __m256i k = nw_lanes_first(n);
    const __m256 sum = _mm256_maskload_ps(state->sum + r0, k);
    const __m256 any = _mm256_cmp_ps(sum, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    const __m256i put = _mm256_and_si256(k, _mm256_castps_si256(any));
    const __m256 was = _mm256_maskload_ps(sums->max + r0, k);
    const __m256 is = _mm256_maskload_ps(state->max + r0, k);
    const __m256 max = _mm256_max_ps(was, is);
    const __m256 a = nw_lanes_exp2(_mm256_sub_ps(was, max));
    const __m256 b = nw_lanes_exp2(_mm256_sub_ps(is, max));
    const __m256 before = _mm256_mul_ps(_mm256_maskload_ps(sums->sum + r0, k), a);

    _mm256_storeu_ps(old, a);
    _mm256_storeu_ps(new, b);
    _mm256_maskstore_ps(sums->sum + r0, put, _mm256_fmadd_ps(sum, b, before));
    _mm256_maskstore_ps(sums->max + r0, put, max);
}

void nw_avx2_attn_join(const nw_attn_tile *t, const nw_softmax_states *state, const float *o,
                       size_t ldo)
{
    const uint32_t n = nw_kv_v_panels(t->a->kv.d_head) * NW_KV_LANES;
    float old[8];
    float new[8];

    for (uint32_t r = 0; r < t->n_rows; r++) {
        float *total = t->total + (size_t)r * (NW_ATTN_STRIDE / sizeof *total);
        const float *part = o + r * ldo;
        if (r % 8 == 0) {
            join_weights(state, &t->sums, r, t->n_rows - r < 8 ? t->n_rows - r : 8, old, new);
        }
        if (state->sum[r] == 0.0F) { /* it sees nothing of the segment */
            continue;
        }
        const __m256 a = _mm256_set1_ps(old[r % 8]);
        const __m256 b = _mm256_set1_ps(new[r % 8]);
        for (uint32_t i = 0; i < n; i += 8) {
            const __m256 x = _mm256_mul_ps(_mm256_loadu_ps(part + i), b);
            _mm256_storeu_ps(total + i, _mm256_fmadd_ps(_mm256_loadu_ps(total + i), a, x));
        }
    }
}

void nw_avx2_scale(const float *x, uint32_t n, float factor, float *out)
{
    nw_lanes_scale(x, n, factor, out);
}
