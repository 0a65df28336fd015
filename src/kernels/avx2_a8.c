/* linear with INT8 activations: exact int32 sums of a row's quads. vpmaddubsw multiplies u8 by s8 and
 * adds pairs in int16, saturating: codes of 4 bits (at most 24 * 127 * 2, E2M1 as 2 * value + 12) are
 * far from that; int8 goes by magnitude, |w| * (a with w's sign), at most 128 * 127 * 2 = 32512. With
 * groups f = sum * scale + f for each, then f = minimum * (sum of the codes) + f.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2.h"
#include "kernels/x86.h"

typedef enum { BYTE, INT, FP, FP_SPLIT } codes;

NW_INLINE __m256i spread4(const uint8_t *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

/* c + the sum over 4 of u8(w) * s8(a) in each lane, |pairs| < 2^15. */
NW_INLINE __m256i dot4(__m256i c, __m256i w, __m256i a)
{
    const __m256i pairs = _mm256_maddubs_epi16(w, a);
    return _mm256_add_epi32(c, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* The same for stored bytes of int8 codes. */
NW_INLINE __m256i dot4_bytes(__m256i c, __m256i stored, __m256i a)
{
    const __m256i w = _mm256_xor_si256(stored, _mm256_set1_epi8((char)0x80));
    return dot4(c, _mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
}

NW_INLINE float token_scale(const nw_tile *t, unsigned m)
{
    nw_act_head head;
    memcpy(&head, t->a + m * t->a_stride, sizeof head);
    return head.scale;
}

/* ---- int8 with a scale a row ---- */

NW_INLINE void row_tile(const nw_tile *t, const unsigned nv, const unsigned mr)
{
    const uint32_t quads = (t->n_cols + 3) / 4;
    const size_t codes_at = nw_act_codes_at(NW_ACT_INT8, t->n_cols);
    __m256i c[12];

    NW_EACH(i, mr * nv * 2) {
        c[i] = _mm256_setzero_si256();
    }
    for (size_t j = 0; j < quads; j++) {
        NW_EACH(i, nv * 2) {
            const uint8_t *p = t->w + (i / 2) * t->w_stride + 64 + j * 64 + (size_t)(i % 2) * 32;
            const __m256i w = nw_load256(p);
            NW_EACH(m, mr) {
                const __m256i a = spread4(t->a + m * t->a_stride + codes_at + j * 4);
                c[m * nv * 2 + i] = dot4_bytes(c[m * nv * 2 + i], w, a);
            }
        }
    }
    NW_EACH(i, nv * 2) {
        const uint8_t *scales = t->w + (i / 2) * t->w_stride + (size_t)(i % 2) * 32;
        const __m256 s = _mm256_castsi256_ps(nw_load256(scales));
        NW_EACH(m, mr) {
            const __m256 f = _mm256_mul_ps(_mm256_cvtepi32_ps(c[m * nv * 2 + i]), s);
            nw_store_half(t->y + m * t->ldy + (i / 2) * 16, nw_left_of(t, i / 2), i % 2,
                          _mm256_mul_ps(f, _mm256_set1_ps(token_scale(t, m))));
        }
    }
}

/* ---- groups ---- */

/* A group of 8 rows. */
typedef struct {
    uint32_t steps, cols;
    int32_t zero; /* to be taken from every code */
    bool min;
    const uint8_t *w;                    /* codes, of the half */
    const uint8_t *a[NW_TILE_TOKENS];    /* codes */
    const uint8_t *sums[NW_TILE_TOKENS]; /* partial sums of them */
} place;

NW_INLINE __m256i low_nibbles(const codes k, __m256i x)
{
    const __m256i code = _mm256_and_si256(x, _mm256_set1_epi8(15));
    const __m256i twice = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return k == INT ? code : _mm256_shuffle_epi8(twice, code);
}

/* Sums of the low nibbles (or bytes) in c, of the high ones in d, which may be c. */
NW_INLINE void add_steps(const place *p, const codes k, __m256i *c, __m256i *d, const unsigned mr)
{
    for (size_t j = 0; j < p->steps; j++) {
        const __m256i x = nw_load256(p->w + j * 64);
        if (k == BYTE) {
            NW_EACH(m, mr) {
                c[m] = dot4_bytes(c[m], x, spread4(p->a[m] + j * 4));
            }
        } else {
            const __m256i low = low_nibbles(k, x);
            const __m256i high = low_nibbles(k, _mm256_srli_epi16(x, 4));
            NW_EACH(m, mr) {
                c[m] = dot4(c[m], low, spread4(p->a[m] + j * 4));
                d[m] = dot4(d[m], high, spread4(p->a[m] + (p->steps + j) * 4));
            }
        }
    }
}

/* f += (c - zero * sum) * s. */
NW_INLINE __m256 scaled(__m256 f, __m256i c, int32_t zero, int32_t sum, __m256 s)
{
    const __m256i x = _mm256_sub_epi32(c, _mm256_set1_epi32(zero * sum));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), s, f);
}

NW_INLINE void add_group(const place *p, const codes k, const nw_chunk *chunk, uint32_t i,
                         unsigned half, __m256 *f, const unsigned mr)
{
    const uint32_t n = k == FP_SPLIT ? 2 : 1;
    const uint32_t parts = p->cols / NW_ACT_SUM_COLS;
    const float *s = chunk->scale[(size_t)i * n] + (size_t)half * 8;
    __m256i c[NW_TILE_TOKENS];
    __m256i d[NW_TILE_TOKENS];

    NW_EACH(m, mr) {
        c[m] = _mm256_setzero_si256();
        d[m] = c[m];
    }
    add_steps(p, k, c, k == FP_SPLIT ? d : c, mr);
    NW_EACH(m, mr) {
        const int32_t sum = nw_act_sum_i32(p->sums[m], parts / n);
        f[m] = scaled(f[m], c[m], p->zero, sum, _mm256_load_ps(s));
        if (k == FP_SPLIT) {
            f[m] = scaled(f[m], d[m], p->zero, nw_act_sum_i32(p->sums[m] + sizeof sum, 1),
                          _mm256_load_ps(s + NW_PANEL_ROWS));
        }
        if (p->min) {
            f[m] = _mm256_fmadd_ps(_mm256_load_ps(chunk->min[i] + (size_t)half * 8),
                                   _mm256_set1_ps((float)sum), f[m]);
        }
    }
}

NW_INLINE void group_half(const nw_tile *t, const nw_groups *g, const codes k, unsigned half,
                          const unsigned mr)
{
    place p = {.steps = g->steps,
               .cols = g->cols,
               .zero = k == FP || k == FP_SPLIT ? 12
                       : k == BYTE              ? 0
                                                : g->zero,
               .min = g->min,
               .w = t->w + g->first + g->codes_at + (size_t)half * 32};
    const float unit =
        (k == FP || k == FP_SPLIT ? 0.5F : 1.0F) * nw_panel_tensor_scale(t->type, t->w);
    nw_chunk chunk;
    __m256 f[NW_TILE_TOKENS];

    NW_EACH(m, mr) {
        f[m] = _mm256_setzero_ps();
        p.a[m] = t->a + m * t->a_stride + nw_act_codes_at(NW_ACT_INT8, t->n_cols);
        p.sums[m] = t->a + m * t->a_stride + nw_act_sums_at(NW_ACT_INT8, t->n_cols);
    }
    for (uint32_t i = 0; i < g->n_groups; i++) {
        if (i % NW_CHUNK == 0) {
            const uint32_t n = g->n_groups - i < NW_CHUNK ? g->n_groups - i : NW_CHUNK;
            nw_x86_scales(t->type, g, t->w, i, n, &chunk);
        }
        add_group(&p, k, &chunk, i % NW_CHUNK, half, f, mr);
        p.w += (size_t)p.steps * 64 + ((i + 1) % g->per_block == 0 ? g->codes_at : 0);
        NW_EACH(m, mr) {
            p.a[m] += p.cols;
            p.sums[m] += p.cols / NW_ACT_SUM_COLS * sizeof(int32_t);
        }
    }
    NW_EACH(m, mr) {
        const __m256 x = _mm256_mul_ps(f[m], _mm256_set1_ps(unit));
        nw_store_half(t->y + m * t->ldy, t->n_rows, half,
                      _mm256_mul_ps(x, _mm256_set1_ps(token_scale(t, m))));
    }
}

/* ---- tiles ---- */

NW_INLINE void group_tile(const nw_tile *t, const codes k, const unsigned mr)
{
    const nw_groups g = nw_groups_of(t->type, t->n_cols);

    group_half(t, &g, k, 0, mr);
    group_half(t, &g, k, 1, mr);
}

NW_INLINE void group_tiles(const nw_tile *t, const codes k, unsigned mr)
{
    switch (mr) {
    case 1:
        group_tile(t, k, 1);
        return;
    case 2:
        group_tile(t, k, 2);
        return;
    case 3:
        group_tile(t, k, 3);
        return;
    default:
        group_tile(t, k, 4);
        return;
    }
}

static void row(const nw_tile *t, unsigned mr)
{
    if (t->n_panels == 4) {
        row_tile(t, 4, 1);
        return;
    }
    switch (mr) {
    case 1:
        row_tile(t, 1, 1);
        return;
    case 2:
        row_tile(t, 1, 2);
        return;
    case 3:
        row_tile(t, 1, 3);
        return;
    case 4:
        row_tile(t, 1, 4);
        return;
    case 5:
        row_tile(t, 1, 5);
        return;
    default:
        row_tile(t, 1, 6);
        return;
    }
}

static void bytes(const nw_tile *t, unsigned mr)
{
    group_tiles(t, BYTE, mr);
}

static void int4(const nw_tile *t, unsigned mr)
{
    group_tiles(t, INT, mr);
}

static void mxfp4(const nw_tile *t, unsigned mr)
{
    group_tiles(t, FP, mr);
}

static void nvfp4(const nw_tile *t, unsigned mr)
{
    group_tiles(t, FP_SPLIT, mr);
}

void nw_avx2_linear_a8(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                       float *y, size_t ldy)
{
    static const nw_tile_width rows[] = {{4, 1, row}, {1, 6, row}};
    static const nw_tile_width groups[NW_PANEL_KINDS] = {[NW_PANEL_INT8] = {1, 4, bytes},
                                                         [NW_PANEL_INT4] = {1, 4, int4},
                                                         [NW_PANEL_MXFP4] = {1, 4, mxfp4},
                                                         [NW_PANEL_NVFP4] = {1, 4, nvfp4}};
    const nw_tile_width *k = &groups[w->type.kind];

    if (nw_has_groups(w->type)) {
        nw_linear_tiled(w, a, panel0, panel1, y, ldy, k, k);
    } else {
        nw_linear_tiled(w, a, panel0, panel1, y, ldy, rows, rows + 1);
    }
}
