/* What the files of the AVX-512 tier (F BW VL DQ VNNI VBMI BF16) share. Included by them only: they
 * alone are compiled for these instructions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_H
#define NW_KERNELS_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "kernels/tile.h"

/* c += the sum over 4 of u8(w) * s8(a) in each lane. gcc 12 copies and spills accumulators around
 * the intrinsic (45 % of the instruction's peak against 98 %). */
NW_INLINE __m512i nw_dpbusd(__m512i c, __m512i w, __m512i a)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(w), "v"(a));
    return c;
}

/* c += the sum over 2 of bf16(w) * bf16(a) in each lane. */
NW_INLINE __m512 nw_dpbf16(__m512 c, __m512i w, __m512i a)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(w), "v"(a));
    return c;
}

/* The same with the 4 bytes at p for every lane: one instruction where a vector loaded first is two,
 * which take a place more among those that a core looks at ahead of time. */
NW_INLINE __m512i nw_dpbusd_at(__m512i c, __m512i w, const uint8_t *p)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(c)
            : "v"(w), "m"(*(const int32_t *)(const void *)p));
    return c;
}

NW_INLINE __m512 nw_dpbf16_at(__m512 c, __m512i w, const uint8_t *p)
{
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0"
            : "+v"(c)
            : "v"(w), "m"(*(const int32_t *)(const void *)p));
    return c;
}

/* The 4 bytes at p in every lane. */
NW_INLINE __m512i nw_spread(const uint8_t *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}

/* The 64 bytes at p, high nibbles down. Read from memory again rather than kept from the low nibbles:
 * registers are what the tiles are short of. */
NW_INLINE __m512i nw_load_shifted(const uint8_t *p)
{
    __m512i x;
    __asm__("vpsrlw $4, %1, %0" : "=v"(x) : "m"(*(const __m512i_u *)(const void *)p));
    return x;
}

/* Asks for `lines` lines from `next` on; returns what follows them. */
NW_INLINE const uint8_t *nw_prefetch(const uint8_t *next, uint32_t lines)
{
    for (; lines > 0; lines--, next += 64) {
        _mm_prefetch((const char *)next, _MM_HINT_T1);
    }
    return next;
}

/* Asks for `lines` lines (a constant) that stand `far` bytes behind p. */
NW_INLINE void nw_ask_far(const uint8_t *p, uint32_t far, const unsigned lines)
{
    if (far > 0) {
        NW_EACH(i, lines) {
            _mm_prefetch((const char *)p + far + (size_t)i * 64, _MM_HINT_T1);
        }
    }
}

/* Rows of one panel; `left` rows of the matrix begin here. */
NW_INLINE __mmask16 nw_row_mask(uint32_t left)
{
    return (__mmask16)(left >= NW_PANEL_ROWS ? 0xFFFFU : (1U << left) - 1);
}

NW_INLINE void nw_store_rows(float *y, uint32_t left, __m512 x)
{
    if (left >= NW_PANEL_ROWS) {
        _mm512_storeu_ps(y, x);
    } else {
        _mm512_mask_storeu_ps(y, nw_row_mask(left), x);
    }
}

NW_INLINE uint32_t nw_rows_left(const nw_tile *t, unsigned panel)
{
    const uint32_t before = panel * NW_PANEL_ROWS;
    return t->n_rows > before ? t->n_rows - before : 0;
}

/* Whether one token takes a panel at a time: one stream is read best, unless the activations, two bytes
 * each, have left the nearest cache when the next panel wants them. Then 4 panels share them, and are
 * long enough to be read as four streams (docs/speed.md; 32 KiB hold the measured limit). */
#define NW_ONE_STREAM_COLS 2560u
NW_INLINE bool nw_one_stream(const nw_act *a)
{
    return a->kind == NW_ACT_INT8 || a->n_cols <= NW_ONE_STREAM_COLS;
}

/* Nibbles with one level of scales; INT4 in groups of 16 is multiplied as the -k layouts are. */
NW_INLINE bool nw_is_plain_nibble(nw_panel_type type)
{
    return type.kind == NW_PANEL_NVFP4 || type.kind == NW_PANEL_MXFP4 ||
           (type.kind == NW_PANEL_INT4 && !type.two_level && type.group > 16);
}

/* The linear of each pair of weights and activations. */
typedef void nw_avx512_linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                              float *y, size_t ldy);
nw_avx512_linear nw_avx512_linear_f32;
nw_avx512_linear nw_avx512_linear_bf16;
/* BF16 activations: fp8, bf16-12; both widened as they are read. */
nw_avx512_linear nw_avx512_linear_row_a16;
nw_avx512_linear nw_avx512_linear_bf16_12;
/* INT8 and INT16 activations for INT4 with one level of scales, NVFP4 and MXFP4. */
nw_avx512_linear nw_avx512_linear_nibble;
/* INT8 and INT16 activations for other integer codes; int8 with a scale a row x INT8. */
nw_avx512_linear nw_avx512_linear_group_a8;
nw_avx512_linear nw_avx512_linear_int_a16;
nw_avx512_linear nw_avx512_linear_row_a8;

/* Of one token and one panel, where there is a function that reads it as one stream, for nw_linear_far(); else NULL:
 * nibbles, and int8 with a scale a row. */
nw_tile_fn nw_avx512_stream(nw_panel_type type, nw_act_kind act);
nw_tile_fn nw_avx512_nibble_one(nw_panel_type type, unsigned np);
void nw_avx512_row_a8_one(const nw_tile *t, unsigned mr);
void nw_avx512_row_a16_one(const nw_tile *t, unsigned mr);

#endif
