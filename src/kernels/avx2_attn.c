/* Attention of the AVX2 tiers: packing of queries, and one page for a tile of rows: scores of all rows,
 * their softmax, then values. Pages of FP8 are widened to F32 first, once for all rows, which is
 * exact.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_attn.h"

#include <math.h>

#include "kernels/act.h"
#include "kernels/avx2_float.h"
#include "kernels/kv_put.h"
#include "kernels/lanes_ops.h"

/* ---- queries ---- */

static void load_words(const float *q, uint32_t d_head, bool a8, uint8_t *row)
{
    static const uint8_t order[4] = {0, 2, 1, 3};
    float inv = 0;
    nw_avx2_q_head head = {0};
    int16_t *out = (int16_t *)(void *)(row + NW_AVX2_Q_AT);
    const uint32_t padded = (d_head + NW_KV_LANES - 1) / NW_KV_LANES * NW_KV_LANES;

    head.scale = nw_code_scale(q, d_head, a8 ? NW_ATTN_Q8 : NW_ATTN_Q15, &inv);
    for (uint32_t i = 0; i < padded; i++) {
        const uint32_t at = i / 4 * 4 + order[i % 4];
        out[i] = at < d_head ? (int16_t)nw_code(q[at], inv) : 0;
        head.sum += out[i];
    }
    memcpy(row, &head, sizeof head);
}

/* Numbers of a row behind its end, up to what kernels read: a multiple of 16 columns. */
void nw_avx2_attn_load(nw_kv_kind kind, bool a8, const float *q, uint32_t d_head, uint8_t *row)
{
    const uint32_t padded = (d_head + NW_KV_LANES - 1) / NW_KV_LANES * NW_KV_LANES;

    if (nw_kv_is_int(kind)) {
        load_words(q, d_head, a8, row);
        return;
    }
    memcpy(row + NW_AVX2_Q_AT, q, d_head * sizeof *q);
    memset(row + NW_AVX2_Q_AT + d_head * sizeof *q, 0, (padded - d_head) * sizeof *q);
}

/* ---- rotation ---- */

/* Sums and differences of neighbours 1, 2 and 4 lanes away. */
NW_INLINE __m256 turn8(__m256 x)
{
    const __m256 odd = _mm256_castsi256_ps(_mm256_set1_epi64x(INT64_MIN));
    const __m256 upper_two = _mm256_castsi256_ps(
        _mm256_setr_epi32(0, 0, INT32_MIN, INT32_MIN, 0, 0, INT32_MIN, INT32_MIN));
    const __m256 upper_four = _mm256_castsi256_ps(
        _mm256_setr_epi32(0, 0, 0, 0, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN));

    x = _mm256_add_ps(_mm256_permute_ps(x, 0xB1), _mm256_xor_ps(x, odd));
    x = _mm256_add_ps(_mm256_permute_ps(x, 0x4E), _mm256_xor_ps(x, upper_two));
    return _mm256_add_ps(_mm256_permute2f128_ps(x, x, 1), _mm256_xor_ps(x, upper_four));
}

/* Blocks of 8 and more; the sums of nw_kv_rotate_plain in its order. */
void nw_avx2_rotate(float *x, uint32_t n)
{
    const uint32_t block = n & (~n + 1);

    if (block < 8) {
        nw_kv_rotate_plain(x, n);
        return;
    }
    for (uint32_t i = 0; i < n; i += 8) {
        _mm256_storeu_ps(x + i, turn8(_mm256_loadu_ps(x + i)));
    }
    for (uint32_t half = 8; half < block; half *= 2) {
        for (uint32_t i = 0; i < n; i += 8) {
            if ((i & half) == 0) {
                const __m256 a = _mm256_loadu_ps(x + i);
                const __m256 b = _mm256_loadu_ps(x + i + half);
                _mm256_storeu_ps(x + i, _mm256_add_ps(a, b));
                _mm256_storeu_ps(x + i + half, _mm256_sub_ps(a, b));
            }
        }
    }
    const __m256 scale = _mm256_set1_ps(1 / sqrtf((float)block));
    for (uint32_t i = 0; i < n; i += 8) {
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), scale));
    }
}

void nw_avx2_kv_put(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                    uint8_t *k_page, uint8_t *v_page)
{
    nw_kv_put(kv, slot, k, v, k_page, v_page, nw_avx2_rotate);
}

/* ---- FP8 ---- */

/* n vectors of FP8, four columns of 16 each, to as many columns of floats, NW_AVX2_E4M3_FACTOR too small. */
static void widen(const uint8_t *from, size_t n, ptrdiff_t ahead, float *to)
{
    for (; n > 0; n--, from += 64, to += 64) {
        nw_avx2_ask(from, ahead);
        NW_EACH(i, 2) { /* rows 8 i and on */
            __m256 x[4];
            nw_avx2_fp8_quad(from + i * 32, true, x);
            NW_EACH(c, 4) {
                _mm256_storeu_ps(to + c * 16 + i * 8, x[c]);
            }
        }
    }
}

/* ---- a page ---- */

/* The pieces of `work`: scores and probabilities of all rows, and a page as F32. */
typedef struct {
    float *s, *share, *wide;
    uint8_t *p;
} workspace;

static workspace cut(const nw_attn_tile *t)
{
    workspace w = {.s = (float *)(void *)t->work};

    w.share = w.s + (size_t)NW_ATTN_ROWS * NW_KV_PAGE;
    w.p = (uint8_t *)(w.share + 32);
    w.wide = (float *)(void *)(w.p + (size_t)NW_ATTN_ROWS * NW_AVX2_P_STRIDE);
    return w;
}

static nw_avx2_keys keys_of(const nw_attn_page *p, const workspace *w)
{
    const uint32_t cols = nw_kv_vector_cols(p->kv.k);
    nw_avx2_keys k = {.side = {.w = p->k,
                               .panel = nw_kv_k_panel_bytes(&p->kv),
                               .ahead = p->next_k - p->k,

                               .n_vectors = (p->kv.d_head + cols - 1) / cols},
                      .factor = 1};

    if (nw_kv_scaled(p->kv.k)) {
        k.scales = p->k;
        k.scale_panel = k.side.panel;
        k.side.w += 64;
    }
    if (p->kv.k == NW_KV_FP8) {
        for (uint32_t i = 0; i < NW_KV_PAGE / NW_KV_LANES; i++) {
            widen(k.side.w + i * k.side.panel, k.side.n_vectors, k.side.ahead,
                  w->wide + i * k.side.n_vectors * (size_t)64);
        }
        k.factor = NW_AVX2_E4M3_FACTOR;
        k.side.w = (const uint8_t *)w->wide;
        k.side.ahead = 0;
        k.side.n_vectors *= 4;
        k.side.panel = k.side.n_vectors * (size_t)64;
    }
    return k;
}

static nw_avx2_values values_of(const nw_attn_page *p, const workspace *w, uint32_t seen)
{
    const uint32_t cols = nw_kv_vector_cols(p->kv.v);
    nw_avx2_values v = {.side = {.w = p->v + nw_kv_v_codes_at(p->kv.v),
                                 .panel = nw_kv_panel_bytes(p->kv.v, NW_KV_PAGE),
                                 .ahead = p->next_v - p->v,
                                 .n_vectors = (seen + cols - 1) / cols,

                                 .n_panels = nw_kv_v_panels(p->kv.d_head)}};

    if (p->kv.v == NW_KV_FP8) {
        widen(v.side.w, v.side.n_panels * v.side.panel / 64, v.side.ahead, w->wide);
        v.side.w = (const uint8_t *)w->wide;
        v.side.ahead = 0;
        v.side.n_vectors = seen;
        v.side.panel *= 4;
    }
    return v;
}

/* Rows [r0, r0 + n) of the page. */
static void softmax(const nw_attn_tile *t, const nw_attn_page *p, const workspace *w, uint32_t r0,
                    uint32_t n)
{
    const bool coded = nw_kv_is_int(p->kv.k);
    nw_avx2_softmax g = {.kind = p->kv.v,
                         .steps = t->a->a8 ? NW_AVX2_P_STEPS8 : NW_AVX2_P_STEPS,
                         .softcap = t->a->softcap,
                         .s = w->s + (size_t)r0 * NW_KV_PAGE,
                         .p = w->p + (size_t)r0 * NW_AVX2_P_STRIDE,
                         .state = nw_softmax_from(&t->state, r0),
                         .share = w->share + r0};

    if (nw_kv_scaled(p->kv.v)) {
        g.v_scales = (const float *)(const void *)p->v;
    }
    for (uint32_t r = 0; r < n; r++) {
        nw_avx2_q_head head = {.scale = 1};
        if (coded) {
            memcpy(&head, p->q + (size_t)(r0 + r) * NW_ATTN_STRIDE, sizeof head);
        }
        g.unit[r] = head.scale * (t->a->scale * NW_LOG2E);
        g.share[r] = p->kv.v == NW_KV_FP8 ? NW_AVX2_E4M3_FACTOR : 1;
        nw_attn_span(t, p, r0 + r, &g.j0[r], &g.j1[r]);
        g.masked = g.masked || g.j0[r] > 0 || g.j1[r] < NW_KV_PAGE;
    }
    nw_avx2_softmax_rows(&g, n);
}

typedef void (*keys_fn)(const nw_avx2_keys *k, unsigned n_rows);
typedef void (*values_fn)(const nw_avx2_values *v, unsigned n_rows);

/* Rows are cut in groups as even as they come. */
static void run_keys(const nw_attn_page *p, const workspace *w, nw_avx2_keys *k)
{
    static const keys_fn run[NW_KV_KINDS] = {nw_avx2_keys_f32, nw_avx2_keys_bf16, nw_avx2_keys_f32,
                                             nw_avx2_keys_int8, nw_avx2_keys_int4};
    const uint32_t n_groups = (p->n_rows + NW_ATTN_GROUP - 1) / NW_ATTN_GROUP;

    for (uint32_t i = 0; i < n_groups; i++) {
        const uint32_t r0 = p->n_rows * i / n_groups;
        k->side.a = p->q + NW_AVX2_Q_AT + (size_t)r0 * NW_ATTN_STRIDE;
        k->s = w->s + (size_t)r0 * NW_KV_PAGE;
        run[p->kv.k](k, p->n_rows * (i + 1) / n_groups - r0);
        k->side.ahead = 0; /* asked for */
    }
}

static void run_values(const nw_attn_tile *t, const nw_attn_page *p, const workspace *w,
                       nw_avx2_values *v)
{
    static const values_fn run[NW_KV_KINDS] = {nw_avx2_values_f32, nw_avx2_values_bf16,
                                               nw_avx2_values_f32, nw_avx2_values_int8,
                                               nw_avx2_values_int4};
    const uint32_t n_groups = (p->n_rows + NW_ATTN_GROUP - 1) / NW_ATTN_GROUP;

    for (uint32_t i = 0; i < n_groups; i++) {
        const uint32_t r0 = p->n_rows * i / n_groups;
        v->side.a = w->p + (size_t)r0 * NW_AVX2_P_STRIDE;
        v->shrink = t->state.shrink + r0;
        v->share = w->share + r0;
        v->o = t->o + (size_t)r0 * (NW_ATTN_STRIDE / sizeof *v->o);
        run[p->kv.v](v, p->n_rows * (i + 1) / n_groups - r0);
        v->side.ahead = 0;
    }
}

void nw_avx2_attn_page(const nw_attn_tile *t, const nw_attn_page *p)
{
    const uint32_t last = t->pos[p->n_rows - 1] - p->first;
    const uint32_t seen =
        last < NW_KV_PAGE - 1 ? last + 1 : NW_KV_PAGE; /* slots that any row sees */
    const workspace w = cut(t);
    nw_avx2_keys k = keys_of(p, &w);

    k.side.n_panels = (seen + NW_KV_LANES - 1) / NW_KV_LANES;
    run_keys(p, &w, &k);
    for (uint32_t r = 0; r < p->n_rows; r += NW_AVX2_SOFTMAX_ROWS) {
        const uint32_t left = p->n_rows - r;
        softmax(t, p, &w, r, left < NW_AVX2_SOFTMAX_ROWS ? left : NW_AVX2_SOFTMAX_ROWS);
    }
    nw_avx2_values v = values_of(p, &w, seen);
    run_values(t, p, &w, &v);
}

void nw_avx2_attend(const nw_attn *a)
{
    static const nw_attn_ops ops = {.n_rows = NW_ATTN_VECTOR,
                                    .load = nw_avx2_attn_load,
                                    .page = nw_avx2_attn_page,
                                    .join = nw_avx2_attn_join,
                                    .scale = nw_avx2_scale,
                                    .rotate = nw_avx2_rotate};
    nw_attend_tiled(a, &ops);
}
