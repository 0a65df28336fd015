/* What one token and tiles of tokens of the AVX2 and AVX-VNNI tiers share for weights of small integers
 * (FP4 doubled) x INT8 or INT16 activations. Included by avx2_many.h and avx2_one.h, which are
 * compiled for each tier. In a group sums are exact int32; then, the same for every tile shape:
 *   INT8 activations    y = sum * scale + y, a group
 *   INT16               p = sum * scale + p, a group;  y = p * (their scale) + y, 128 columns
 *   INT16 x MXFP4       y = (sum * their scale) * scale + y, a group (see avx512_nibble.h)
 *   INT16 x int8 rows   y = sum * their scale + y, 128 columns
 *   INT8 x int8 rows    the sum of the row is exact
 * and with minima, min * (sum of the activations' codes) is added after sum * scale. A zero point is a
 * minimum, -scale * zero, exactly.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX2_INT_H
#define NW_KERNELS_AVX2_INT_H

#include <assert.h>
#include <immintrin.h>

#include "kernels/avx2_block.h"
#include "kernels/tile.h"

/* The activations of both tiers. */
NW_INLINE nw_act_kind nw_int_act_kind(nw_panel_type type, bool a8)
{
    return !nw_has_a8(type) ? NW_ACT_F32 : a8 ? NW_ACT_INT8 : NW_ACT_INT16;
}

typedef enum {
    NW_END_GROUP,   /* INT8 activations */
    NW_END_FOLD,    /* INT16 */
    NW_END_PRODUCT, /* INT16 x MXFP4 */
    NW_END_ROW16,   /* INT16 x int8 rows */
    NW_END_ROW8     /* INT8 x int8 rows */
} nw_int_end;

NW_INLINE nw_int_end nw_int_end_of(nw_panel_type type, nw_act_kind act)
{
    if (!nw_has_groups(type)) {
        return act == NW_ACT_INT8 ? NW_END_ROW8 : NW_END_ROW16;
    }
    return act == NW_ACT_INT8            ? NW_END_GROUP
           : type.kind == NW_PANEL_MXFP4 ? NW_END_PRODUCT
                                         : NW_END_FOLD;
}

NW_INLINE __m256i nw_int_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* The 4 bytes at p in every lane. */
NW_INLINE __m256i nw_int_spread(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

#if defined(NW_VNNI_PLAIN)
#define NW_INT_VNNI 1
/* What vpdpbusd does, for tests on processors without it. */
NW_INLINE __m256i nw_int_dot(__m256i c, __m256i w, __m256i a)
{
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(0xFF)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(a, 8));
    return _mm256_add_epi32(c, _mm256_add_epi32(even, odd));
}

NW_INLINE void nw_int_dots(__m256i *c, __m256i w0, __m256i w1, __m256i a)
{
    c[0] = nw_int_dot(c[0], w0, a);
    c[1] = nw_int_dot(c[1], w1, a);
}
#elif defined(__AVXVNNI__)
#define NW_INT_VNNI 1
/* NW_VNNI_EVEX: in the encoding of AVX-512 VNNI + VL, for tests on processors that have only that. */
#if defined(NW_VNNI_EVEX)
#define NW_INT_DPBUSD "%{evex%} vpdpbusd %2, %1, %0"
#else
#define NW_INT_DPBUSD "%{vex%} vpdpbusd %2, %1, %0"
#endif
/* c += the sum over 4 of u8(w) * s8(a) in each lane; gcc 12 copies accumulators around the intrinsic. */
NW_INLINE __m256i nw_int_dot(__m256i c, __m256i w, __m256i a)
{
    __asm__(NW_INT_DPBUSD : "+x"(c) : "x"(w), "x"(a));
    return c;
}

NW_INLINE void nw_int_dots(__m256i *c, __m256i w0, __m256i w1, __m256i a)
{
    c[0] = nw_int_dot(c[0], w0, a);
    c[1] = nw_int_dot(c[1], w1, a);
}
#else
#define NW_INT_VNNI 0
/* The same in two int16 sums a lane, to be added by nw_int_dot_sum(): exact for up to 16 such products of a
 * code of 15 at most with -128..127 in each (15 * 128 * 16 = 30720), or 8 with a code of 24 (24576). In
 * assembly: gcc 12 adds products to each other first, and spills what waits. */
NW_INLINE __m256i nw_int_dot(__m256i c, __m256i w, __m256i a)
{
    __m256i x;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(c), "=&x"(x) : "x"(w), "x"(a));
    return c;
}

#endif

/* The first dot of a sum. */
NW_INLINE __m256i nw_int_first(__m256i w, __m256i a)
{
    return NW_INT_VNNI ? nw_int_dot(_mm256_setzero_si256(), w, a) : _mm256_maddubs_epi16(w, a);
}

/* 2^shift times the sums, shift at most 14. */
NW_INLINE __m256i nw_int_dot_sum(__m256i c, const int shift)
{
    return NW_INT_VNNI ? _mm256_slli_epi32(c, shift)
                       : _mm256_madd_epi16(c, _mm256_set1_epi16((short)(1 << shift)));
}

/* c += the sum over 2 of s16(w) * s16(a) in each lane. */
NW_INLINE __m256i nw_int_pair(__m256i c, __m256i w, __m256i a)
{
    __m256i x;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(c), "=&x"(x) : "x"(w), "x"(a));
    return c;
}

/* Two of them with the same a: products before sums, 3 % faster here. */
NW_INLINE void nw_int_pairs(__m256i *c, __m256i w0, __m256i w1, __m256i a)
{
    __m256i x;
    __asm__("vpmaddwd %3, %4, %2\n\tvpmaddwd %3, %5, %3\n\t"
            "vpaddd %2, %0, %0\n\tvpaddd %3, %1, %1"
            : "+x"(c[0]), "+x"(c[1]), "=&x"(x), "+x"(a)
            : "x"(w0), "x"(w1));
}

NW_INLINE float nw_int_act_scale(const nw_act *a, const uint8_t *row, uint32_t col)
{
    float scale;
    memcpy(&scale, row + (a->kind == NW_ACT_INT16 ? col / NW_ACT_COLS * sizeof scale : 0),
           sizeof scale);
    return scale;
}

/* 16 results of a token times what remains: of FP4 the unit, half the tensor's scale; of int8 rows their
 * scales; of INT8 activations their scale. Exact sums of a row come as int32. */
NW_INLINE void nw_int_finish(nw_panel_type type, const uint8_t *panel, nw_int_end end,
                             float act_scale, __m256 *y)
{
    NW_EACH(v, 2) {
        __m256 x = end == NW_END_ROW8 ? _mm256_cvtepi32_ps(_mm256_castps_si256(y[v])) : y[v];
        if (end == NW_END_ROW8 || end == NW_END_ROW16) {
            const float *scales = (const float *)(const void *)panel;
            x = _mm256_mul_ps(x, _mm256_loadu_ps(scales + v * 8));
        } else if (type.kind != NW_PANEL_INT8 && type.kind != NW_PANEL_INT4) {
            x = _mm256_mul_ps(x, _mm256_set1_ps(0.5F * nw_panel_tensor_scale(type, panel)));
        }
        if (end == NW_END_ROW8 || end == NW_END_GROUP) {
            x = _mm256_mul_ps(x, _mm256_set1_ps(act_scale));
        }
        y[v] = x;
    }
}

/* The rows that are there of 16, others 0; `left` rows of the matrix begin here. */
NW_INLINE void nw_int_rows(const float *y, uint32_t left, __m256 *x)
{
    _Alignas(32) float rows[NW_PANEL_ROWS] = {0};

    if (left >= NW_PANEL_ROWS) {
        x[0] = _mm256_loadu_ps(y);
        x[1] = _mm256_loadu_ps(y + 8);
        return;
    }
    memcpy(rows, y, left * sizeof *rows);
    x[0] = _mm256_load_ps(rows);
    x[1] = _mm256_load_ps(rows + 8);
}

/* Writes the rows that are there of 16; `left` rows of the matrix begin here. */
NW_INLINE void nw_int_store(float *y, uint32_t left, const __m256 *x)
{
    if (left >= NW_PANEL_ROWS) {
        _mm256_storeu_ps(y, x[0]);
        _mm256_storeu_ps(y + 8, x[1]);
        return;
    }
    _Alignas(32) float rows[NW_PANEL_ROWS];
    _mm256_store_ps(rows, x[0]);
    _mm256_store_ps(rows + 8, x[1]);
    memcpy(y, rows, left * sizeof *rows);
}

#endif
