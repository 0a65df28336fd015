/* linear with F32 activations for panels with groups: int4, int8 with groups, nvfp4, mxfp4. Each weight
 * is decoded to its f32 value (exact, or rounded once where a minimum is added) and multiplied into
 * one accumulator a row and token, columns in the stored order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2.h"
#include "kernels/x86.h"

typedef enum { BYTE, INT, FP, FP_SPLIT } codes;

typedef struct {
    uint32_t steps, cols;
    bool min;
    __m256 zero; /* of integer codes */
    const uint8_t *w[4];
    const float *a[NW_TILE_TOKENS]; /* of the current group */
} place;

/* E2M1 codes in 8 lanes: 3 bits of size, looked up, and the sign above them. */
NW_INLINE __m256 e2m1(__m256i code)
{
    const __m256 sizes = _mm256_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6);
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(8)), 28);
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(sizes, code), _mm256_castsi256_ps(sign));
}

/* The value behind the code of column `c` of a step for 8 rows: bytes have 4 columns a step, nibbles
 * 4 low ones and then 4 high ones. */
NW_INLINE __m256 value(const place *p, const codes k, __m256i step, unsigned c)
{
    if (k == BYTE) {
        const __m256i x =
            _mm256_and_si256(_mm256_srli_epi32(step, (int)(8 * c)), _mm256_set1_epi32(255));
        return _mm256_sub_ps(_mm256_cvtepi32_ps(x), p->zero);
    }
    const __m256i x = _mm256_and_si256(
        _mm256_srli_epi32(step, (int)(c < 4 ? 8 * c : 8 * (c - 4) + 4)), _mm256_set1_epi32(15));
    return k == INT ? _mm256_sub_ps(_mm256_cvtepi32_ps(x), p->zero) : e2m1(x);
}

/* Scales (and minima) of both halves of the panels of a group; the second of n_scales is that of the
 * high nibbles. */
typedef struct {
    __m256 scale[2][8], min[8];
} halves;

NW_INLINE void load_halves(const nw_chunk *chunk, uint32_t i, const codes k, bool min, halves *h,
                           const unsigned nv)
{
    const uint32_t n = k == FP_SPLIT ? 2 : 1;

    NW_EACH(e, nv * 2) {
        const float *s = chunk[e / 2].scale[(size_t)i * n] + (size_t)(e % 2) * 8;
        const float *m = chunk[e / 2].min[i] + (size_t)(e % 2) * 8;
        h->scale[0][e] = _mm256_load_ps(s);
        h->scale[1][e] = k == FP_SPLIT ? _mm256_load_ps(s + NW_PANEL_ROWS) : h->scale[0][e];
        h->min[e] = min ? _mm256_load_ps(m) : _mm256_setzero_ps();
    }
}

NW_INLINE void add_group(const place *p, const halves *h, __m256 *acc, const codes k,
                         const unsigned nv, const unsigned mr)
{
    const unsigned columns = k == BYTE ? 4 : 8;

    for (size_t j = 0; j < p->steps; j++) {
        NW_EACH(c, columns) {
            const size_t at = 4 * (c < 4 ? j : j + p->steps) + c % 4;
            __m256 x[8];
            NW_EACH(i, nv * 2) {
                const __m256i step = nw_load256(p->w[i / 2] + j * 64 + (size_t)(i % 2) * 32);
                x[i] = _mm256_fmadd_ps(value(p, k, step, c), h->scale[c / 4][i], h->min[i]);
            }
            NW_EACH(m, mr) {
                const __m256 b = _mm256_broadcast_ss(p->a[m] + at);
                NW_EACH(i, nv * 2) {
                    acc[m * nv * 2 + i] = _mm256_fmadd_ps(x[i], b, acc[m * nv * 2 + i]);
                }
            }
        }
    }
}

NW_INLINE void finish(const nw_tile *t, const __m256 *acc, const unsigned nv, const unsigned mr)
{
    NW_EACH(i, nv * 2) {
        const __m256 unit =
            _mm256_set1_ps(nw_panel_tensor_scale(t->type, t->w + (i / 2) * t->w_stride));
        NW_EACH(m, mr) {
            nw_store_half(t->y + m * t->ldy + (i / 2) * 16, nw_left_of(t, i / 2), i % 2,
                          _mm256_mul_ps(acc[m * nv * 2 + i], unit));
        }
    }
}

NW_INLINE void tile(const nw_tile *t, const codes k, const unsigned nv, const unsigned mr)
{
    const nw_groups g = nw_groups_of(t->type, t->n_cols);
    const size_t scales = g.codes_at;
    place p = {
        .steps = g.steps, .cols = g.cols, .min = g.min, .zero = _mm256_set1_ps((float)g.zero)};
    nw_chunk chunk[4];
    __m256 acc[12];

    NW_EACH(v, nv) {
        p.w[v] = t->w + v * t->w_stride + g.first + scales;
    }
    NW_EACH(m, mr) {
        p.a[m] = (const float *)(const void *)(t->a + m * t->a_stride);
        NW_EACH(i, nv * 2) {
            acc[m * nv * 2 + i] = _mm256_setzero_ps();
        }
    }
    for (uint32_t i = 0; i < g.n_groups; i++) {
        halves h;
        if (i % NW_CHUNK == 0) {
            const uint32_t n = g.n_groups - i < NW_CHUNK ? g.n_groups - i : NW_CHUNK;
            NW_EACH(v, nv) {
                nw_x86_scales(t->type, &g, t->w + v * t->w_stride, i, n, &chunk[v]);
            }
        }
        load_halves(chunk, i % NW_CHUNK, k, p.min, &h, nv);
        add_group(&p, &h, acc, k, nv, mr);
        NW_EACH(v, nv) {
            p.w[v] += (size_t)p.steps * 64 + ((i + 1) % g.per_block == 0 ? scales : 0);
        }
        NW_EACH(m, mr) {
            p.a[m] += p.cols;
        }
    }
    finish(t, acc, nv, mr);
}

NW_INLINE void tiles(const nw_tile *t, const codes k, unsigned mr)
{
    if (t->n_panels == 4) { /* one token: 8 accumulators cover the latency of an FMA */
        tile(t, k, 4, 1);
        return;
    }
    switch (mr) {
    case 1:
        tile(t, k, 1, 1);
        return;
    case 2:
        tile(t, k, 1, 2);
        return;
    case 3:
        tile(t, k, 1, 3);
        return;
    default:
        tile(t, k, 1, 4);
        return;
    }
}

static void bytes(const nw_tile *t, unsigned mr)
{
    tiles(t, BYTE, mr);
}

static void int4(const nw_tile *t, unsigned mr)
{
    tiles(t, INT, mr);
}

static void mxfp4(const nw_tile *t, unsigned mr)
{
    tiles(t, FP, mr);
}

static void nvfp4(const nw_tile *t, unsigned mr)
{
    tiles(t, FP_SPLIT, mr);
}

void nw_avx2_linear_group(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                          float *y, size_t ldy)
{
    static const nw_tile_width widths[NW_PANEL_KINDS][2] = {
        [NW_PANEL_INT8] = {{4, 1, bytes}, {1, 4, bytes}},
        [NW_PANEL_INT4] = {{4, 1, int4}, {1, 4, int4}},
        [NW_PANEL_MXFP4] = {{4, 1, mxfp4}, {1, 4, mxfp4}},
        [NW_PANEL_NVFP4] = {{4, 1, nvfp4}, {1, 4, nvfp4}}};
    const nw_tile_width *k = widths[w->type.kind];

    nw_linear_tiled(w, a, panel0, panel1, y, ldy, k, k + 1);
}
