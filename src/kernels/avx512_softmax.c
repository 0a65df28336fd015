/* Softmax of a group of rows over one page, and the joining of segments, in the AVX-512 tier.
 *
 * A row's scores become p[j] = 2^(y[j] - ref), y[j] = log2(e) score[j] + log2(scale of value j): what is
 * rounded for the products is the whole factor of a value, so that a token with a large probability
 * and a small value (the first of a text is one) takes nothing from the precision of the others. `ref`
 * is such that the largest p of the page is 1, or all the steps that integers count it in; sums are in
 * the same units, p[j] / scale[j]. First y and its largest, then p and the sums, then the states of
 * all rows at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/avx512_attn.h"
#include "kernels/avx512_math.h"

/* What is constant in a function: what p is written as, whether values have scales, whether slots are
 * hidden from a row. */
typedef enum { AS_F32, AS_BF16, AS_TWO_BYTES, AS_BYTE } p_kind;
typedef struct {
    p_kind kind;
    bool scaled, masked;
} form;

/* ---- lanes of rows ---- */

NW_INLINE __m512 join(__m512 a, __m512 b, const bool sums)
{
    return sums ? _mm512_add_ps(a, b) : _mm512_max_ps(a, b);
}

/* Lanes 0, 1 of each quarter: half of a's and of b's; 2, 3: the other half. */
NW_INLINE __m512 join_two(__m512 a, __m512 b, const bool sums)
{
    return join(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b), sums);
}

/* Each quarter: what it held of four rows. */
NW_INLINE __m512 join_four(const __m512 *row, const bool sums)
{
    const __m512d x = _mm512_castps_pd(join_two(row[0], row[1], sums));
    const __m512d y = _mm512_castps_pd(join_two(row[2], row[3], sums));
    return join(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)), sums);
}

/* Two quarters of a, then two of b. */
NW_INLINE __m512 join_half(__m512 a, __m512 b, const bool sums)
{
    return join(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE), sums);
}

/* The largest lane of row r, or the sum of its lanes, in lane r: in one order for every row. */
NW_INLINE __m512 join_rows(const __m512 *row, unsigned n_rows, const bool sums)
{
    const __m512 a = join_half(join_four(row, sums), join_four(row + 4, sums), sums);
    __m512 b = a;

    if (n_rows > 8) {
        const __m512 last = join_four(row + 8, sums);
        b = join_half(last, n_rows > 12 ? join_four(row + 12, sums) : last, sums);
    }
    return join(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD), sums);
}

/* ---- a row ---- */

/* Units of y: those of log2, or so many times smaller that a whole number of them is a float's bits. */
NW_INLINE float y_units(const form f)
{
    return f.kind == AS_F32 ? 1 : 0x1p23F;
}

NW_INLINE __mmask16 seen_of(const nw_softmax_group *g, unsigned r, unsigned b)
{
    return (__mmask16)(g->seen[r] >> (16 * b));
}

/* y of slots 16 b and on; hidden ones -Inf, whatever their values' scale is. */
NW_INLINE __m512 factor_of(const nw_softmax_group *g, unsigned r, unsigned b, __m512 unit,
                           const form f)
{
    const __m512 s = _mm512_loadu_ps(g->s + (size_t)r * NW_KV_PAGE + b * 16);
    const __m512 y = f.scaled ? _mm512_fmadd_ps(s, unit, _mm512_load_ps(g->v->log2 + b * 16))
                              : _mm512_mul_ps(s, unit);
    return f.masked ? _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), seen_of(g, r, b), y) : y;
}

/* The largest y of a row in one of the lanes; bit r of *nan is set where one is a NaN, which a maximum
 * may miss. */
NW_INLINE __m512 largest(const nw_softmax_group *g, unsigned r, uint32_t *nan, const form f)
{
    const __m512 unit = _mm512_set1_ps(g->unit[r] * y_units(f));
    __m512 y[4];

    NW_EACH(b, 4) {
        y[b] = factor_of(g, r, b, unit, f);
    }
    const __mmask16 x = _mm512_cmp_ps_mask(y[0], y[1], _CMP_UNORD_Q);
    const __mmask16 z = _mm512_cmp_ps_mask(y[2], y[3], _CMP_UNORD_Q);
    *nan |= (uint32_t)((x | z) != 0) << r;
    return _mm512_max_ps(_mm512_max_ps(y[0], y[1]), _mm512_max_ps(y[2], y[3]));
}

/* 2^x, x <= 0 or little more, in units of y, as near as p is kept. A whole number of units is split into
 * the bits of a mantissa, 2^f of which the polynomial makes of 1 + f, and those of an exponent. */
NW_INLINE __m512 power(__m512 x, const form f)
{
    const __m512i part = _mm512_set1_epi32(0x7FFFFF);

    if (f.kind == AS_F32) {
        return nw_exp2_ps(x);
    }
    const __m512i k = _mm512_cvtps_epi32(_mm512_max_ps(x, _mm512_set1_ps(-126 * 0x1p23F)));
    /* (k & part) | the bits of 1 */
    const __m512 m = _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(k, part, _mm512_set1_epi32(0x3F800000), 0xEA));
    const __m512 q = f.kind == AS_BYTE ? nw_exp2_part13_ps(m) : nw_exp2_part18_ps(m);
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(q), _mm512_andnot_si512(part, k)));
}

NW_INLINE void store_bytes(__m512i a, __m512i b, uint8_t *p)
{
    /* the packs take their quarters in turn */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_store_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b)));
}

/* p [64] as the values want it; integers saturate at the last step. */
NW_INLINE void store_p(const __m512 *e, uint8_t *p, const form f)
{
    if (f.kind == AS_F32) {
        NW_EACH(b, 4) {
            _mm512_store_ps(p + b * 64, e[b]);
        }
        return;
    }
    if (f.kind == AS_BF16) {
        _mm512_store_si512(p, (__m512i)_mm512_cvtne2ps_pbh(e[1], e[0]));
        _mm512_store_si512(p + 64, (__m512i)_mm512_cvtne2ps_pbh(e[3], e[2]));
        return;
    }
    const __m512i a = _mm512_packus_epi32(_mm512_cvtps_epi32(e[0]), _mm512_cvtps_epi32(e[1]));
    const __m512i b = _mm512_packus_epi32(_mm512_cvtps_epi32(e[2]), _mm512_cvtps_epi32(e[3]));
    if (f.kind == AS_BYTE) {
        store_bytes(a, b, p);
        return;
    }
    const __m512i low = _mm512_set1_epi16(0xFF);
    store_bytes(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8), p);
    store_bytes(_mm512_and_si512(a, low), _mm512_and_si512(b, low), p + NW_KV_PAGE);
}

/* Writes p of row r, given its reference; returns its sums. */
NW_INLINE __m512 write_row(const nw_softmax_group *g, unsigned r, float ref, const form f)
{
    const __m512 unit = _mm512_set1_ps(g->unit[r] * y_units(f));
    __m512 e[4];
    __m512 sum[4];

    NW_EACH(b, 4) {
        const __m512 y = factor_of(g, r, b, unit, f);
        e[b] = power(_mm512_sub_ps(y, _mm512_set1_ps(ref)), f);
        sum[b] = e[b];
    }
    NW_EACH(b, 4) {
        const __m512 inverse = f.scaled ? _mm512_load_ps(g->v->inverse + b * 16) : e[b];
        if (f.scaled) {
            sum[b] = f.masked ? _mm512_maskz_mul_ps(seen_of(g, r, b), e[b], inverse)
                              : _mm512_mul_ps(e[b], inverse);
        }
    }
    store_p(e, g->p + (size_t)r * NW_P_STRIDE, f);
    return _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
}

/* The states of the rows after a page whose p are in units of 2^ref, and what turns its sums of values
 * into those of the states. */
NW_INLINE void update(const nw_softmax_group *g, unsigned n_rows, __m512 ref, __m512 sums)
{
    const __mmask16 k = (__mmask16)((1U << n_rows) - 1);
    const __m512 was = _mm512_maskz_loadu_ps(k, g->state.max);
    const __m512 is = _mm512_max_ps(ref, was); /* `was` where ref is a NaN: then `new` is one */
    const __m512 old = nw_exp2_ps(_mm512_sub_ps(was, is));
    const __m512 new = nw_exp2_ps(_mm512_sub_ps(ref, is));
    const __m512 sum = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, g->state.sum), old);

    _mm512_mask_storeu_ps(g->state.max, k, is);
    _mm512_mask_storeu_ps(g->state.shrink, k, old);
    _mm512_mask_storeu_ps(g->state.sum, k, _mm512_fmadd_ps(sums, new, sum));
    _mm512_store_ps(g->share, new);
}

NW_INLINE void run(const nw_softmax_group *g, unsigned n_rows, const form f)
{
    const float steps = f.kind == AS_BYTE        ? NW_P_LOG2_BYTE
                        : f.kind == AS_TWO_BYTES ? NW_P_LOG2_TWO
                                                 : 0;
    __m512 part[NW_SOFTMAX_ROWS];
    _Alignas(64) float ref[16];
    uint32_t nan = 0;

    NW_EACH(r, NW_SOFTMAX_ROWS) {
        part[r] = _mm512_setzero_ps();
    }
    for (unsigned r = 0; r < n_rows; r++) {
        part[r] = largest(g, r, &nan, f);
    }
    const __m512 top =
        _mm512_max_ps(join_rows(part, n_rows, false), _mm512_set1_ps(NW_SOFTMAX_FLOOR));
    const __m512 best = _mm512_sub_ps(top, _mm512_set1_ps(steps * y_units(f)));
    const __m512 refs = _mm512_mask_mov_ps(best, (__mmask16)nan, _mm512_set1_ps(NAN));
    _mm512_store_ps(ref, refs);
    for (unsigned r = 0; r < n_rows; r++) {
        part[r] = write_row(g, r, ref[r], f);
    }
    update(g, n_rows, _mm512_mul_ps(refs, _mm512_set1_ps(1 / y_units(f))),
           join_rows(part, n_rows, true));
}

#define RUN(kind, scaled)                                \
    do {                                                 \
        if (masked) {                                    \
            run(g, n_rows, (form){kind, scaled, true});  \
        } else {                                         \
            run(g, n_rows, (form){kind, scaled, false}); \
        }                                                \
    } while (0)

/* Scores in units of the cap. */
static void cap_scores(nw_softmax_group *g, unsigned n_rows)
{
    for (unsigned r = 0; r < n_rows; r++) {
        float *s = g->s + (size_t)r * NW_KV_PAGE;
        const __m512 in = _mm512_set1_ps(g->unit[r] / (g->softcap * NW_LOG2E));
        NW_EACH(b, 4) {
            const __m512 z = _mm512_mul_ps(_mm512_loadu_ps(s + b * 16), in);
            _mm512_storeu_ps(s + b * 16, nw_tanh_ps(z));
        }
        g->unit[r] = g->softcap * NW_LOG2E;
    }
}

void nw_avx512_softmax_rows(nw_softmax_group *g, unsigned n_rows)
{
    bool masked = false;

    for (unsigned r = 0; r < n_rows; r++) {
        masked = masked || g->seen[r] != UINT64_MAX;
    }
    if (g->softcap > 0) {
        cap_scores(g, n_rows);
    }
    switch (g->kind) {
    case NW_KV_F32:
        RUN(AS_F32, false);
        return;
    case NW_KV_BF16:
        RUN(AS_BF16, false);
        return;
    case NW_KV_FP8:
        RUN(AS_BF16, true);
        return;
    case NW_KV_INT8:
    case NW_KV_INT4:
        if (g->planes == 1) {
            RUN(AS_BYTE, true);
        } else {
            RUN(AS_TWO_BYTES, true);
        }
        return;
    }
}

void nw_avx512_value_factors(const float *scales, float codes, nw_value_factors *out)
{
    for (unsigned i = 0; i < NW_KV_PAGE; i += 16) {
        const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(scales + i), _mm512_set1_ps(1 / codes));
        /* the second operand is what max returns for a NaN */
        const __m512 s = _mm512_max_ps(_mm512_set1_ps(NW_KV_TINY_SCALE), x);
        _mm512_store_ps(out->log2 + i, _mm512_mul_ps(nw_log2_ps(s), _mm512_set1_ps(0x1p23F)));
        _mm512_store_ps(out->inverse + i, _mm512_div_ps(_mm512_set1_ps(1), s));
    }
}

/* ---- segments ---- */

/* Weights of what was there and of the segment, for up to 16 rows. */
static void join_weights(const nw_softmax_states *state, const nw_softmax_states *sums, uint32_t r0,
                         uint32_t n, float *old, float *new)
{
    const __mmask16 k = (__mmask16)((1U << n) - 1);
    const __m512 sum = _mm512_maskz_loadu_ps(k, state->sum + r0);
    const __mmask16 any = _mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512 was = _mm512_maskz_loadu_ps(k, sums->max + r0);
    const __m512 is = _mm512_maskz_loadu_ps(k, state->max + r0);
    const __m512 max = _mm512_max_ps(was, is);
    const __m512 a = nw_exp2_ps(_mm512_sub_ps(was, max));
    const __m512 b = nw_exp2_ps(_mm512_sub_ps(is, max));
    const __m512 before = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, sums->sum + r0), a);

    _mm512_store_ps(old, a);
    _mm512_store_ps(new, b);
    _mm512_mask_storeu_ps(sums->sum + r0, any & k, _mm512_fmadd_ps(sum, b, before));
    _mm512_mask_storeu_ps(sums->max + r0, any & k, max);
}

void nw_avx512_attn_join(const nw_attn_tile *t, const nw_softmax_states *state, const float *o,
                         size_t ldo)
{
    const uint32_t n = nw_kv_v_panels(t->a->kv.d_head) * NW_KV_LANES;
    _Alignas(64) float old[16];
    _Alignas(64) float new[16];

    for (uint32_t r = 0; r < t->n_rows; r++) {
        float *total = t->total + (size_t)r * (NW_ATTN_STRIDE / sizeof *total);
        const float *part = o + r * ldo;
        if (r % 16 == 0) {
            join_weights(state, &t->sums, r, t->n_rows - r < 16 ? t->n_rows - r : 16, old, new);
        }
        if (state->sum[r] == 0.0F) { /* it sees nothing of the segment */
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
