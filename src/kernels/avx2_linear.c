/* linear with F32 activations for panels without groups: f32, bf16, int8, fp8, bf16-12. A column of a
 * panel is decoded to two vectors of 8 rows, exactly (the row scale is applied at the end), and
 * multiplied into one accumulator a row and token, columns in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2.h"
#include "kernels/x86.h"

typedef enum { F32, BF16, INT8, E4M3, E5M2 } format;

#define EXPAND_QUADS 16u /* of bf16-12 at a time: 2 KiB of bf16 a panel */

/* fp8 of 8 rows as fp16, for column c of 4: E5M2 is the upper byte of one; E4M3 bits, moved down by 1
 * from there, are one of 2^-8 times the value. */
NW_INLINE __m128i fp8_half(const uint8_t *p, const format k, unsigned half, unsigned c)
{
    const uint8_t *at = p + (size_t)half * 32 + (size_t)(c / 2) * 8;
    const __m128i pairs =
        _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(const void *)at),
                           _mm_loadl_epi64((const __m128i *)(const void *)(at + 16)));
    const __m128i x = c % 2 == 0 ? _mm_slli_epi16(pairs, 8) : pairs;

    if (k == E5M2) {
        return _mm_and_si128(x, _mm_set1_epi16((short)0xFF00));
    }
    return _mm_or_si128(_mm_and_si128(x, _mm_set1_epi16((short)0x8000)),
                        _mm_and_si128(_mm_srli_epi16(x, 1), _mm_set1_epi16(0x3F80)));
}

/* Column `c` of the 64-byte step at p for 8 rows: f32 1 column a step, bf16 2, int8 and fp8 4. */
NW_INLINE __m256 decode(const uint8_t *p, const format k, unsigned half, unsigned c)
{
    if (k == E4M3 || k == E5M2) {
        return _mm256_cvtph_ps(fp8_half(p, k, half, c));
    }
    const __m256i v = nw_load256(p + (size_t)half * 32);
    if (k == F32) {
        return _mm256_castsi256_ps(v);
    }
    if (k == BF16) {
        return _mm256_castsi256_ps(c == 0
                                       ? _mm256_slli_epi32(v, 16)
                                       : _mm256_and_si256(v, _mm256_set1_epi32((int)0xFFFF0000U)));
    }
    const __m256i code =
        _mm256_and_si256(_mm256_srli_epi32(v, (int)(8 * c)), _mm256_set1_epi32(255));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(code, _mm256_set1_epi32(128)));
}

NW_INLINE unsigned columns_of(const format k)
{
    return k == F32 ? 1 : k == BF16 ? 2 : 4;
}

NW_INLINE void add_steps(const uint8_t *const *w, const float *const *a, __m256 *acc, size_t n,
                         const format k, const unsigned nv, const unsigned mr)
{
    for (size_t j = 0; j < n; j++) {
        NW_EACH(c, columns_of(k)) {
            const size_t at = columns_of(k) * j + c;
            __m256 x[8];
            NW_EACH(i, nv * 2) {
                x[i] = decode(w[i / 2] + j * 64, k, i % 2, c);
            }
            NW_EACH(m, mr) {
                const __m256 b = _mm256_broadcast_ss(a[m] + at);
                NW_EACH(i, nv * 2) {
                    acc[m * nv * 2 + i] = _mm256_fmadd_ps(x[i], b, acc[m * nv * 2 + i]);
                }
            }
        }
    }
}

/* The start of each token's values, and zeros. */
NW_INLINE void begin(const nw_tile *t, const float **a, __m256 *acc, const unsigned nv,
                     const unsigned mr)
{
    NW_EACH(m, mr) {
        a[m] = (const float *)(const void *)(t->a + m * t->a_stride);
        NW_EACH(i, nv * 2) {
            acc[m * nv * 2 + i] = _mm256_setzero_ps();
        }
    }
}

NW_INLINE void finish(const nw_tile *t, const __m256 *acc, const format k, const unsigned nv,
                      const unsigned mr)
{
    NW_EACH(i, nv * 2) {
        const uint8_t *scales = t->w + (i / 2) * t->w_stride + (size_t)(i % 2) * 32;
        NW_EACH(m, mr) {
            __m256 x = acc[m * nv * 2 + i];
            x = k == E4M3 ? _mm256_mul_ps(x, _mm256_set1_ps(256)) : x;
            x = k == F32 || k == BF16 ? x
                                      : _mm256_mul_ps(x, _mm256_castsi256_ps(nw_load256(scales)));
            nw_store_half(t->y + m * t->ldy + (i / 2) * 16, nw_left_of(t, i / 2), i % 2, x);
        }
    }
}

NW_INLINE void tile(const nw_tile *t, const format k, const unsigned nv, const unsigned mr)
{
    const uint32_t steps = (t->n_cols + columns_of(k) - 1) / columns_of(k);
    const uint8_t *w[4];
    const float *a[NW_TILE_TOKENS];
    __m256 acc[12];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride + (k == F32 || k == BF16 ? 0 : 64);
    }
    begin(t, a, acc, nv, mr);
    add_steps(w, a, acc, steps, k, nv, mr);
    finish(t, acc, k, nv, mr);
}

/* bf16-12: the steps of the bf16 tile, a few expanded at a time. */
NW_INLINE void tile_12(const nw_tile *t, const unsigned nv, const unsigned mr)
{
    _Alignas(64) uint8_t words[4][EXPAND_QUADS * 128];
    nw_bf16_12_reader reader[4];
    const uint32_t steps = (t->n_cols + 1) / 2;
    const uint8_t *w[4];
    const float *a[NW_TILE_TOKENS];
    __m256 acc[12];

    NW_EACH(v, nv) {
        reader[v] = nw_x86_bf16_12_read(t->type, t->w + v * t->w_stride, t->n_cols);
        w[v] = words[v];
    }
    begin(t, a, acc, nv, mr);
    for (uint32_t s0 = 0; s0 < steps; s0 += 2 * EXPAND_QUADS) {
        const uint32_t n = steps - s0 < 2 * EXPAND_QUADS ? steps - s0 : 2 * EXPAND_QUADS;
        NW_EACH(v, nv) {
            nw_x86_bf16_12_expand(&reader[v], s0 / 2, (n + 1) / 2,
                                  reader[v].quads + EXPAND_QUADS * NW_BF16_12_QUAD, words[v]);
        }
        add_steps(w, a, acc, n, BF16, nv, mr);
        NW_EACH(m, mr) {
            a[m] += (size_t)2 * n;
        }
    }
    finish(t, acc, BF16, nv, mr);
}

NW_INLINE void tiles(const nw_tile *t, const format k, unsigned mr)
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
    case 4:
        tile(t, k, 1, 4);
        return;
    case 5:
        tile(t, k, 1, 5);
        return;
    default:
        tile(t, k, 1, 6);
        return;
    }
}

static void f32(const nw_tile *t, unsigned mr)
{
    tiles(t, F32, mr);
}

static void bf16(const nw_tile *t, unsigned mr)
{
    tiles(t, BF16, mr);
}

static void int8(const nw_tile *t, unsigned mr)
{
    tiles(t, INT8, mr);
}

static void e4m3(const nw_tile *t, unsigned mr)
{
    tiles(t, E4M3, mr);
}

static void e5m2(const nw_tile *t, unsigned mr)
{
    tiles(t, E5M2, mr);
}

static void bf16_12(const nw_tile *t, unsigned mr)
{
    if (t->n_panels == 4) {
        tile_12(t, 4, 1);
    } else if (mr == 1) {
        tile_12(t, 1, 1);
    } else if (mr == 2) {
        tile_12(t, 1, 2);
    } else if (mr == 3) {
        tile_12(t, 1, 3);
    } else {
        tile_12(t, 1, 4);
    }
}

void nw_avx2_linear_f32(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                        float *y, size_t ldy)
{
    static const nw_tile_width widths[NW_PANEL_KINDS][2] = {
        [NW_PANEL_F32] = {{4, 1, f32}, {1, 6, f32}},
        [NW_PANEL_BF16] = {{4, 1, bf16}, {1, 4, bf16}},
        [NW_PANEL_INT8] = {{4, 1, int8}, {1, 4, int8}},
        [NW_PANEL_FP8_E4M3] = {{4, 1, e4m3}, {1, 4, e4m3}},
        [NW_PANEL_FP8_E5M2] = {{4, 1, e5m2}, {1, 4, e5m2}},
        [NW_PANEL_BF16_12] = {{4, 1, bf16_12}, {1, 4, bf16_12}}};
    const nw_tile_width *k = widths[w->type.kind];

    nw_linear_tiled(w, a, panel0, panel1, y, ldy, k, k + 1);
}
