/* linear with INT8 activations for INT8 and INT4 panels: exact int32 sums of a row's quads. vpmaddubsw
 * multiplies u8 by s8 and adds pairs in int16, saturating: int4 codes (15 * 127 * 2) are far from
 * that; int8 goes by magnitude, |w| * (a with w's sign), at most 128 * 127 * 2 = 32512.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2.h"

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

NW_INLINE __m256 row_scales(const uint8_t *panel, unsigned half)
{
    return _mm256_castsi256_ps(nw_load256(panel + (size_t)half * 32));
}

NW_INLINE float token_scale(const nw_tile *t, unsigned m)
{
    nw_act_head head;
    memcpy(&head, t->a + m * t->a_stride, sizeof head);
    return head.scale;
}

/* ---- INT8 ---- */

NW_INLINE void int8_tile(const nw_tile *t, const unsigned nv, const unsigned mr)
{
    const uint32_t quads = (t->n_cols + 3) / 4;
    const size_t codes_at = nw_act_codes_at(t->n_cols);
    const __m256i flip = _mm256_set1_epi8((char)0x80);
    __m256i c[12];

    NW_EACH(i, mr * nv * 2) {
        c[i] = _mm256_setzero_si256();
    }
    for (size_t j = 0; j < quads; j++) {
        NW_EACH(i, nv * 2) {
            const uint8_t *p = t->w + (i / 2) * t->w_stride + 64 + j * 64 + (size_t)(i % 2) * 32;
            const __m256i w = _mm256_xor_si256(nw_load256(p), flip);
            const __m256i size = _mm256_abs_epi8(w);
            NW_EACH(m, mr) {
                const __m256i a = spread4(t->a + m * t->a_stride + codes_at + j * 4);
                c[m * nv * 2 + i] = dot4(c[m * nv * 2 + i], size, _mm256_sign_epi8(a, w));
            }
        }
    }
    NW_EACH(i, nv * 2) {
        const __m256 s = row_scales(t->w + (i / 2) * t->w_stride, i % 2);
        NW_EACH(m, mr) {
            const __m256 f = _mm256_mul_ps(_mm256_cvtepi32_ps(c[m * nv * 2 + i]), s);
            nw_store_half(t->y + m * t->ldy + (i / 2) * 16, nw_left_of(t, i / 2), i % 2,
                          _mm256_mul_ps(f, _mm256_set1_ps(token_scale(t, m))));
        }
    }
}

/* ---- INT4 ---- */

NW_INLINE int32_t group_sum(const uint8_t *row, uint32_t group, uint32_t g)
{
    const uint32_t parts = group / NW_ACT_SUM_COLS;
    const uint8_t *p = row + NW_ACT_SUMS_AT + (size_t)g * parts * sizeof(int32_t);
    int32_t sum = 0;

    for (uint32_t i = 0; i < parts; i++, p += sizeof sum) {
        int32_t part;
        memcpy(&part, p, sizeof part);
        sum += part;
    }
    return sum;
}

/* One group of 8 rows: w at its scales, a at the tokens' codes of the group. */
NW_INLINE void int4_group(const nw_tile *t, const uint8_t *w, const uint8_t *a, uint32_t g,
                          const bool zp, unsigned half, __m256 *f, const unsigned mr)
{
    const uint32_t quads = t->type.group / 8;
    const uint8_t *codes = w + (zp ? 48 : 32) + (size_t)half * 32;
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256 s =
        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(w + (size_t)half * 16)));
    __m256i zero = _mm256_set1_epi32(8);
    __m256i c[NW_TILE_TOKENS];

    if (zp) {
        const uint8_t *z = w + 32 + (size_t)half * 8;
        zero = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)z));
    }
    NW_EACH(m, mr) {
        c[m] = _mm256_setzero_si256();
    }
    for (size_t j = 0; j < quads; j++) {
        const __m256i x = nw_load256(codes + j * 64);
        const __m256i low = _mm256_and_si256(x, nibble);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
        NW_EACH(m, mr) {
            const uint8_t *at = a + m * t->a_stride + j * 4;
            c[m] = dot4(c[m], low, spread4(at));
            c[m] = dot4(c[m], high, spread4(at + (size_t)quads * 4));
        }
    }
    NW_EACH(m, mr) {
        const int32_t sum = group_sum(t->a + m * t->a_stride, t->type.group, g);
        const __m256i off = _mm256_mullo_epi32(zero, _mm256_set1_epi32(sum));
        f[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(c[m], off)), s, f[m]);
    }
}

NW_INLINE void int4_tile(const nw_tile *t, const bool zp, const unsigned mr)
{
    const uint32_t group = t->type.group;
    const uint32_t n_groups = (t->n_cols + group - 1) / group;
    const size_t bytes = (zp ? 48 : 32) + group * 8U;
    const uint8_t *codes = t->a + nw_act_codes_at(t->n_cols);

    NW_EACH(half, 2) {
        __m256 f[NW_TILE_TOKENS];
        NW_EACH(m, mr) {
            f[m] = _mm256_setzero_ps();
        }
        for (uint32_t g = 0; g < n_groups; g++) {
            int4_group(t, t->w + g * bytes, codes + (size_t)g * group, g, zp, half, f, mr);
        }
        NW_EACH(m, mr) {
            nw_store_half(t->y + m * t->ldy, t->n_rows, half,
                          _mm256_mul_ps(f[m], _mm256_set1_ps(token_scale(t, m))));
        }
    }
}

/* ---- tiles ---- */

static void int8_1(const nw_tile *t, unsigned mr)
{
    switch (mr) {
    case 1:
        int8_tile(t, 1, 1);
        return;
    case 2:
        int8_tile(t, 1, 2);
        return;
    case 3:
        int8_tile(t, 1, 3);
        return;
    case 4:
        int8_tile(t, 1, 4);
        return;
    case 5:
        int8_tile(t, 1, 5);
        return;
    default:
        int8_tile(t, 1, 6);
        return;
    }
}

static void int8_4(const nw_tile *t, unsigned mr)
{
    (void)mr;
    int8_tile(t, 4, 1);
}

NW_INLINE void int4_tiles(const nw_tile *t, const bool zp, unsigned mr)
{
    switch (mr) {
    case 1:
        int4_tile(t, zp, 1);
        return;
    case 2:
        int4_tile(t, zp, 2);
        return;
    case 3:
        int4_tile(t, zp, 3);
        return;
    case 4:
        int4_tile(t, zp, 4);
        return;
    case 5:
        int4_tile(t, zp, 5);
        return;
    default:
        int4_tile(t, zp, 6);
        return;
    }
}

static void int4_1(const nw_tile *t, unsigned mr)
{
    int4_tiles(t, false, mr);
}

static void int4_zp_1(const nw_tile *t, unsigned mr)
{
    int4_tiles(t, true, mr);
}

void nw_avx2_linear_a8(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                       float *y, size_t ldy)
{
    static const nw_tile_width int8[] = {{4, 1, int8_4}, {1, 6, int8_1}};
    static const nw_tile_width int4[] = {{1, 4, int4_1}};
    static const nw_tile_width int4_zp[] = {{1, 4, int4_zp_1}};
    const nw_tile_width *k = w->type.zero_point ? int4_zp : int4;

    if (w->type.kind == NW_PANEL_INT8) {
        nw_linear_tiled(w, a, panel0, panel1, y, ldy, int8, int8 + 1);
    } else {
        nw_linear_tiled(w, a, panel0, panel1, y, ldy, k, k);
    }
}
