/* Attention in the AVX-512 tier: packing of queries, and one page for a tile of rows, group by group:
 * scores, softmax, values. Pages of FP8 are widened to BF16 first, once for all groups, which is
 * exact.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_attn.h"

#include "kernels/avx512_bytes.h"
#include "kernels/avx512_math.h"

NW_INLINE float largest(const float *q, uint32_t d_head)
{
    __m512i top = _mm512_setzero_si512();

    for (uint32_t i = 0; i < d_head; i += 16) {
        const __m512 x = _mm512_maskz_loadu_ps(nw_lanes16(i, d_head), q + i);
        top = _mm512_max_epu32(top, _mm512_castps_si512(_mm512_abs_ps(x)));
    }
    return _mm512_cvtss_f32(
        _mm512_castsi512_ps(_mm512_set1_epi32((int)_mm512_reduce_max_epu32(top))));
}

/* Numbers of a row behind its end, up to what kernels read: a multiple of 16 columns. */
static void load_int(const float *q, uint32_t d_head, bool a8, uint8_t *row)
{
    const float most = a8 ? NW_ATTN_Q8 : NW_ATTN_Q15;
    const __m512i half = _mm512_set1_epi32(64);
    const float amax = largest(q, d_head);
    const bool finite = amax <= 0x1p100F; /* false for a NaN */
    const float inv = finite && amax >= 0x1p-100F ? most / amax : 0;
    nw_q_head head = {.scale = finite ? amax / most : NAN};
    __m512i high_sum = _mm512_setzero_si512();
    __m512i low_sum = _mm512_setzero_si512();

    for (uint32_t i = 0; i < d_head; i += 16) {
        const __mmask16 k = nw_lanes16(i, inv > 0 ? d_head : i);
        const __m512i n =
            _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(k, q + i), _mm512_set1_ps(inv)));
        const __m512i high = a8 ? n : _mm512_srai_epi32(_mm512_add_epi32(n, half), 7);
        const __m512i low = _mm512_sub_epi32(n, _mm512_slli_epi32(high, 7));
        high_sum = _mm512_add_epi32(high_sum, high);
        low_sum = _mm512_add_epi32(low_sum, low);
        _mm_storeu_si128((__m128i *)(void *)(row + NW_Q_AT + i), _mm512_cvtepi32_epi8(high));
        if (!a8) {
            _mm_storeu_si128((__m128i *)(void *)(row + NW_Q_AT + NW_Q_PLANE + i),
                             _mm512_cvtepi32_epi8(low));
        }
    }
    head.high_sum = _mm512_reduce_add_epi32(high_sum);
    head.low_sum = _mm512_reduce_add_epi32(low_sum);
    memcpy(row, &head, sizeof head);
}

void nw_avx512_attn_load(nw_kv_kind kind, bool a8, const float *q, uint32_t d_head, uint8_t *row)
{
    if (nw_kv_is_int(kind)) {
        load_int(q, d_head, a8, row);
        return;
    }
    for (uint32_t i = 0; i < d_head; i += 16) {
        const __m512 x = _mm512_maskz_loadu_ps(nw_lanes16(i, d_head), q + i);
        if (kind == NW_KV_F32) {
            _mm512_storeu_ps(row + NW_Q_AT + i * sizeof(float), x);
        } else {
            _mm256_storeu_si256((__m256i *)(void *)(row + NW_Q_AT + i * sizeof(uint16_t)),
                                (__m256i)_mm512_cvtneps_pbh(x));
        }
    }
}

/* x and the sums and differences with its neighbour `half` lanes away. */
NW_INLINE __m512 turn(__m512 x, __m512i lane, const int half)
{
    const __m512i other = _mm512_xor_si512(lane, _mm512_set1_epi32(half));
    const __mmask16 upper = _mm512_test_epi32_mask(lane, _mm512_set1_epi32(half));
    const __m512 y = _mm512_permutexvar_ps(other, x);
    return _mm512_mask_sub_ps(_mm512_add_ps(x, y), upper, y, x);
}

/* Blocks of 16 and more; the sums of nw_kv_rotate_plain in its order. */
void nw_avx512_rotate(float *x, uint32_t n)
{
    const uint32_t block = n & (~n + 1);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

    if (block < 16) {
        nw_kv_rotate_plain(x, n);
        return;
    }
    for (uint32_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        v = turn(turn(turn(turn(v, lane, 1), lane, 2), lane, 4), lane, 8);
        _mm512_storeu_ps(x + i, v);
    }
    for (uint32_t half = 16; half < block; half *= 2) {
        for (uint32_t i = 0; i < n; i += 16) {
            if ((i & half) == 0) {
                const __m512 a = _mm512_loadu_ps(x + i);
                const __m512 b = _mm512_loadu_ps(x + i + half);
                _mm512_storeu_ps(x + i, _mm512_add_ps(a, b));
                _mm512_storeu_ps(x + i + half, _mm512_sub_ps(a, b));
            }
        }
    }
    const __m512 scale = _mm512_set1_ps(1 / sqrtf((float)block));
    for (uint32_t i = 0; i < n; i += 16) {
        _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), scale));
    }
}

/* n vectors of FP8 to twice as many of BF16. */
static void widen_fp8(const uint8_t *from, size_t n, ptrdiff_t ahead, uint8_t *to)
{
    const nw_byte_tables tables = nw_byte_tables_of(NW_BYTES_E4M3);

    for (; n > 0; n--, from += 64, to += 128) {
        __m512i low;
        __m512i high;
        nw_ask(from, ahead);
        nw_widen_bytes(&tables, _mm512_loadu_si512(from), &low, &high);
        _mm512_store_si512(to, low);
        _mm512_store_si512(to + 64, high);
    }
}

/* n vectors of nibbles to twice as many of bytes: the low ones, then the high ones, as nw_attn_products has them. */
static void spread_nibbles(const uint8_t *from, size_t n, ptrdiff_t ahead, bool values, uint8_t *to)
{
    const __m512i keep = _mm512_set1_epi8(values ? (char)0xF0 : 0x0F);

    for (; n > 0; n--, from += 64, to += 128) {
        const __m512i x = _mm512_loadu_si512(from);
        nw_ask(from, ahead);
        const __m512i low = values ? _mm512_slli_epi16(x, 4) : x;
        const __m512i high = values ? x : _mm512_srli_epi16(x, 4);
        _mm512_store_si512(to, _mm512_and_si512(low, keep));
        _mm512_store_si512(to + 64, _mm512_and_si512(high, keep));
    }
}

/* Whether the products want a page of this kind wider than it is. */
static bool is_widened(nw_kv_kind kind, const nw_attn_products *x)
{
    return kind == NW_KV_FP8 || (kind == NW_KV_INT4 && x->nibbles_as_bytes);
}

static void widen(nw_kv_kind kind, const uint8_t *from, size_t n, ptrdiff_t ahead, bool values,
                  uint8_t *to)
{
    if (kind == NW_KV_FP8) {
        widen_fp8(from, n, ahead, to);
    } else {
        spread_nibbles(from, n, ahead, values, to);
    }
}

/* The pieces of `work`: scores and probabilities of rows that share a softmax, the factors of the values,
 * a page as BF16. */
typedef struct {
    float *s, *share;
    uint8_t *p, *wide_k, *wide_v;
    nw_value_factors *factors;
} workspace;

static workspace cut(const nw_attn_tile *t)
{
    const size_t wide = NW_KV_PAGE * (size_t)nw_kv_v_panels(t->a->kv.d_head) * 16 * 2;
    workspace w = {.s = (float *)(void *)t->work};

    w.share = w.s + (size_t)NW_SOFTMAX_ROWS * NW_KV_PAGE;
    w.p = (uint8_t *)(w.share + 16);
    w.factors = (nw_value_factors *)(void *)(w.p + (size_t)NW_SOFTMAX_ROWS * NW_P_STRIDE);
    w.wide_k = (uint8_t *)(w.factors + 1);
    w.wide_v = w.wide_k + wide;
    return w;
}

static nw_keys keys_of(const nw_attn_page *p, const workspace *w, const nw_attn_products *x,
                       unsigned planes)
{
    const uint32_t cols = nw_kv_vector_cols(p->kv.k);
    nw_keys k = {.k = p->k,
                 .panel = nw_kv_k_panel_bytes(&p->kv),
                 .ahead = p->next_k - p->k,
                 .n_vectors = (p->kv.d_head + cols - 1) / cols,
                 .planes = planes};

    if (nw_kv_scaled(p->kv.k)) {
        k.scales = p->k;
        k.scale_panel = k.panel;
        k.k += 64;
    }
    if (is_widened(p->kv.k, x)) {
        for (uint32_t i = 0; i < NW_KV_PAGE / NW_KV_LANES; i++) {
            widen(p->kv.k, k.k + i * k.panel, k.n_vectors, k.ahead, false,
                  w->wide_k + i * k.n_vectors * (size_t)128);
        }
        k.k = w->wide_k;
        k.ahead = 0;
        k.n_vectors *= 2;
        k.panel = k.n_vectors * (size_t)64;
    }
    return k;
}

static nw_values values_of(const nw_attn_page *p, const workspace *w, const nw_attn_products *x,
                           uint32_t seen, unsigned planes)
{
    const uint32_t cols = nw_kv_vector_cols(p->kv.v);
    nw_values v = {.v = p->v + nw_kv_v_codes_at(p->kv.v),
                   .panel = nw_kv_panel_bytes(p->kv.v, NW_KV_PAGE),
                   .ahead = p->next_v - p->v,
                   .n_vectors = (seen + cols - 1) / cols,
                   .n_panels = nw_kv_v_panels(p->kv.d_head),
                   .planes = planes};

    if (is_widened(p->kv.v, x)) {
        widen(p->kv.v, v.v, v.n_panels * v.panel / 64, v.ahead, true, w->wide_v);
        v.v = w->wide_v;
        v.ahead = 0;
        v.n_vectors = (seen + cols / 2 - 1) / (cols / 2);
        v.panel *= 2;
    }
    return v;
}

/* The slots that row r sees. */
static uint64_t seen_by(const nw_attn_tile *t, const nw_attn_page *p, uint32_t r)
{
    uint32_t j0 = 0;
    uint32_t j1 = 0;

    nw_attn_span(t, p, r, &j0, &j1);
    return UINT64_MAX >> (NW_KV_PAGE - j1) & UINT64_MAX << j0;
}

static nw_softmax_group softmax_of(const nw_attn_tile *t, const nw_attn_page *p, const workspace *w,
                                   unsigned planes)
{
    if (nw_kv_scaled(p->kv.v)) {
        nw_avx512_value_factors((const float *)(const void *)p->v,
                                p->kv.v == NW_KV_INT4 ? 16.0F : 1.0F, w->factors);
    }
    return (nw_softmax_group){.kind = p->kv.v,
                              .planes = planes,
                              .softcap = t->a->softcap,
                              .v = w->factors,
                              .s = w->s,
                              .p = w->p,
                              .share = w->share};
}

/* The softmax of rows [r0, r0 + n) over their scores. */
static void softmax(const nw_attn_tile *t, const nw_attn_page *p, uint32_t r0, uint32_t n,
                    nw_softmax_group *g)
{
    const bool coded = nw_kv_is_int(p->kv.k);

    g->state = nw_softmax_from(&t->state, r0);
    for (uint32_t r = 0; r < n; r++) {
        nw_q_head head = {.scale = 1};
        if (coded) {
            memcpy(&head, p->q + (size_t)(r0 + r) * NW_ATTN_STRIDE, sizeof head);
        }
        g->unit[r] = head.scale * (t->a->scale * NW_LOG2E);
        g->seen[r] = seen_by(t, p, r0 + r);
    }
    nw_avx512_softmax_rows(g, n);
}

/* Groups [g0, g1) of the n_groups that the page's rows are cut in, as even as they come, with one softmax. */
static void run_groups(const nw_attn_tile *t, const nw_attn_page *p, const nw_attn_products *x,
                       uint32_t g0, uint32_t g1, uint32_t n_groups, nw_keys *k, nw_values *v,
                       nw_softmax_group *g)
{
    const uint32_t first = p->n_rows * g0 / n_groups;

    for (uint32_t i = g0; i < g1; i++) {
        const uint32_t r0 = p->n_rows * i / n_groups;
        k->q = p->q + (size_t)r0 * NW_ATTN_STRIDE;
        k->s = g->s + (size_t)(r0 - first) * NW_KV_PAGE;
        x->keys[p->kv.k](k, p->n_rows * (i + 1) / n_groups - r0);
        k->ahead = 0; /* asked for */
    }
    softmax(t, p, first, p->n_rows * g1 / n_groups - first, g);
    for (uint32_t i = g0; i < g1; i++) {
        const uint32_t r0 = p->n_rows * i / n_groups;
        v->p = g->p + (size_t)(r0 - first) * NW_P_STRIDE;
        v->shrink = t->state.shrink + r0;
        v->share = g->share + (r0 - first);
        v->o = t->o + (size_t)r0 * (NW_ATTN_STRIDE / sizeof *v->o);
        x->values[p->kv.v](v, p->n_rows * (i + 1) / n_groups - r0);
        v->ahead = 0;
    }
}

void nw_avx512_attn_page_by(const nw_attn_tile *t, const nw_attn_page *p, const nw_attn_products *x)
{
    const uint32_t last = t->pos[p->n_rows - 1] - p->first;
    const uint32_t seen =
        last < NW_KV_PAGE - 1 ? last + 1 : NW_KV_PAGE; /* slots that any row sees */
    const uint32_t n_groups = (p->n_rows + x->n_rows - 1) / x->n_rows;
    const workspace w = cut(t);
    const unsigned planes = t->a->a8 ? 1 : 2;
    nw_keys k = keys_of(p, &w, x, planes);
    nw_values v = values_of(p, &w, x, seen, planes);
    nw_softmax_group g = softmax_of(t, p, &w, planes);

    k.n_panels = (seen + NW_KV_LANES - 1) / NW_KV_LANES;
    k.steps = v.steps = x->steps;
    for (uint32_t i = 0; i < n_groups; i += x->n_groups) {
        const uint32_t end = i + x->n_groups < n_groups ? i + x->n_groups : n_groups;
        run_groups(t, p, x, i, end, n_groups, &k, &v, &g);
    }
}

void nw_avx512_attn_page(const nw_attn_tile *t, const nw_attn_page *p)
{
    static const nw_attn_products products = {
        .n_rows = NW_ATTN_GROUP,
        .n_groups = 2,
        .keys = {nw_avx512_keys_f32, nw_avx512_keys_bf16, nw_avx512_keys_bf16, nw_avx512_keys_int8,
                 nw_avx512_keys_int4},
        .values = {nw_avx512_values_f32, nw_avx512_values_bf16, nw_avx512_values_bf16,
                   nw_avx512_values_int8, nw_avx512_values_int4}};
    nw_avx512_attn_page_by(t, p, &products);
}
