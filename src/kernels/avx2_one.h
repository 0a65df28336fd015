/* linear of one token, or of each of a few: memory bounds it, so a panel is read as one stream from front to back, scales where
 * they stand (those of INT8 with groups and of the -k layouts 128 columns ahead), and codes are widened
 * in registers. What follows is asked for: the hardware alone does not keep ahead of so much arithmetic. The sums are those of avx2_many.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX2_ONE_H
#define NW_KERNELS_AVX2_ONE_H

#include "kernels/avx2_int.h"
#include "kernels/x86.h"

/* Nibbles by where their scales and minima come from: the panel, or for -k layouts a chunk. */
typedef enum {
    NW_ONE_INT4,
    NW_ONE_ZERO,
    NW_ONE_MIN,
    NW_ONE_K,
    NW_ONE_MXFP4,
    NW_ONE_NVFP4
} nw_one_kind;

/* What is constant in a function: kind, bytes of an activation, 64-byte steps of a group. */
typedef struct {
    nw_one_kind k;
    unsigned np, steps;
} nw_one_form;

#define NW_ONE_TOKENS 8u    /* the most of a call */
#define NW_ONE_AHEAD  1536u /* bytes from what is read to what is asked for */
#define NW_ONE_SCALES 128u  /* columns whose scales are decoded at a time, where they are */

/* A token: what is the same for all panels of a call. */
typedef struct {
    nw_panel_type type;
    nw_groups g;
    nw_int_end end;
    const nw_act *a;
    const uint8_t *row; /* the packed token */
    const uint8_t *codes, *sums,
        *low; /* of it: codes (high bytes), sums of a scale's columns, low bytes */
    uint32_t n_cols;
} nw_one;

/* So many tokens are faster one after the other, each past a panel that is in the nearest cache, than in
 * a tile whose weights have to be widened first; measured for AVX2. */
NW_INLINE uint32_t nw_one_tokens(nw_panel_type type)
{
    if (NW_INT_VNNI || type.kind == NW_PANEL_INT8) {
        return 4;
    }
    return type.kind == NW_PANEL_INT4 ? NW_ONE_TOKENS : 6;
}

NW_INLINE bool nw_one_is_fp4(const nw_one_form f)
{
    return f.k == NW_ONE_MXFP4 || f.k == NW_ONE_NVFP4;
}

NW_INLINE bool nw_one_has_min(const nw_one_form f)
{
    return f.k == NW_ONE_ZERO || f.k == NW_ONE_MIN || f.k == NW_ONE_K;
}

/* Asks for what will be read later than the `bytes` bytes at p, in AVX2: 1.1 to 1.3 times as fast on Zen 3. */
NW_INLINE void nw_one_ask(const uint8_t *p, const unsigned bytes)
{
    NW_EACH(i, NW_INT_VNNI ? 0 : (bytes + 63) / 64) {
        _mm_prefetch((const char *)p + NW_ONE_AHEAD + (size_t)i * 64, _MM_HINT_T0);
    }
}

/* 64 bytes of nibbles into sums of low and of high ones, [plane][v]; a, b: activations of the low ones and
 * of the high ones, a plane each. Sums of INT4 hold both. */
NW_INLINE void nw_one_step(const uint8_t *w, const uint8_t *const a[2], const uint8_t *const b[2],
                           __m256i *low, __m256i *high, const bool first, const nw_one_form f)
{
    const __m256i mask = _mm256_set1_epi8(0x0F);
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

    NW_EACH(v, 2) {
        __m256i x = nw_int_load(w + v * 32);
        __asm__("" : "+x"(x)); /* loaded once: gcc would read it again for the high nibbles */
        __m256i x0 = _mm256_and_si256(x, mask);
        __m256i x1 = _mm256_and_si256(_mm256_srli_epi16(x, 4), mask);
        if (nw_one_is_fp4(f)) {
            x0 = _mm256_shuffle_epi8(table, x0);
            x1 = _mm256_shuffle_epi8(table, x1);
        }
        NW_EACH(p, f.np) {
            const __m256i at = nw_int_spread(a[p]);
            const __m256i bt = nw_int_spread(b[p]);
            const unsigned q = p * 2 + v;
            low[q] = first ? nw_int_first(x0, at) : nw_int_dot(low[q], x0, at);
            if (nw_one_is_fp4(f)) {
                high[q] = first ? nw_int_first(x1, bt) : nw_int_dot(high[q], x1, bt);
            } else {
                low[q] = nw_int_dot(low[q], x1, bt);
            }
        }
    }
}

/* The exact sums of all planes added to s; c: [plane][v], low bytes first where there are two. */
NW_INLINE __m256i nw_one_join(__m256i s, const __m256i *c, unsigned v, const nw_one_form f)
{
    s = _mm256_add_epi32(s, nw_int_dot_sum(c[v], 0));
    return f.np == 1 ? s : _mm256_add_epi32(s, nw_int_dot_sum(c[2 + v], 8));
}

/* A group of nibbles: sums [half][v], of NVFP4 those of its halves, otherwise of all in the first. */
NW_INLINE void nw_one_nibbles(const uint8_t *w, const uint8_t *const a[2], __m256i sum[2][2],
                              const nw_one_form f)
{
    const uint8_t *at[2] = {a[0], f.np == 2 ? a[1] : a[0]};
    const size_t half = f.steps * (size_t)4;
    const unsigned at_once =
        f.steps < 4 ? f.steps : 4; /* no more fit in the sums of nw_int_dot() */

    NW_EACH(v, 2) {
        sum[0][v] = sum[1][v] = _mm256_setzero_si256();
    }
    for (unsigned j = f.steps; j > 0; j -= at_once, w += 256) {
        __m256i low[4];
        __m256i high[4];
        NW_EACH(i, at_once) {
            const uint8_t *const low_at[2] = {at[0] + i * 4, at[1] + i * 4};
            const uint8_t *const high_at[2] = {at[0] + half + i * 4, at[1] + half + i * 4};
            nw_one_step(w + i * 64, low_at, high_at, low, high, i == 0, f);
        }
        NW_EACH(v, 2) {
            sum[0][v] = nw_one_join(sum[0][v], low, v, f);
            if (nw_one_is_fp4(f)) {
                const unsigned h = f.k == NW_ONE_NVFP4 ? 1 : 0;
                sum[h][v] = nw_one_join(sum[h][v], high, v, f);
            }
        }
        NW_EACH(q, 2) {
            at[q] += 16;
        }
    }
}

/* Scales of NVFP4 are taken 2^-8 times: what is left of their exponents as halves (x86_scales.c). A power
 * of two changes no digit of a sum and may wait for its end. */
NW_INLINE __m256 nw_one_left(const nw_one_form f)
{
    return _mm256_set1_ps(f.k == NW_ONE_NVFP4 ? 256 : 1);
}

/* Scales of rows 8 v to 8 v + 7 of a group, or of half h of it (NVFP4: 2^-8 times). */
NW_INLINE void nw_one_scale(const uint8_t *group, const nw_chunk *chunk, uint32_t i, unsigned h,
                            __m256 scale[2], const nw_one_form f)
{
    if (f.k == NW_ONE_NVFP4) {
        const __m128i *at = (const __m128i *)(const void *)(group + (size_t)h * 16);
        const __m256i x = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(at)), 7);
        const __m256i h16 = _mm256_and_si256(x, _mm256_set1_epi16((short)0xBFFF));
        scale[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h16));
        scale[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h16, 1));
        return;
    }
    NW_EACH(v, 2) {
        if (f.k == NW_ONE_K) {
            scale[v] = _mm256_load_ps(chunk->scale[i % NW_CHUNK] + v * 8);
        } else if (f.k == NW_ONE_MXFP4) {
            const __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)(group + v * 8));
            scale[v] = _mm256_castsi256_ps(_mm256_max_epu32(
                _mm256_slli_epi32(_mm256_cvtepu8_epi32(codes), 23), _mm256_set1_epi32(0x00400000)));
        } else {
            scale[v] =
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(group + v * 16)));
        }
    }
}

NW_INLINE __m256 nw_one_min(const uint8_t *group, const nw_chunk *chunk, uint32_t i, __m256 scale,
                            unsigned v, const nw_one_form f)
{
    const uint8_t *at = group + 32;

    if (f.k == NW_ONE_K) {
        return _mm256_load_ps(chunk->min[i % NW_CHUNK] + v * 8);
    }
    if (f.k == NW_ONE_MIN) {
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(at + v * 16)));
    }
    const __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)(at + v * 8));
    const __m256 zero = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes));
    return _mm256_xor_ps(_mm256_mul_ps(scale, zero), _mm256_set1_ps(-0.0F));
}

/* y += sum * scale [+ minimum * act_sum], x is y or the sums of 128 columns. */
NW_INLINE __m256 nw_one_add(__m256 x, __m256i sum, __m256 scale, float act, const nw_int_end end)
{
    __m256 s = _mm256_cvtepi32_ps(sum);
    if (end == NW_END_PRODUCT) {
        s = _mm256_mul_ps(s, _mm256_set1_ps(act));
    }
    return _mm256_fmadd_ps(s, scale, x);
}

/* Group i: the number of its first scale is i * halves. */
NW_INLINE void nw_one_group(const nw_one *o, const uint8_t *group, const nw_chunk *chunk,
                            uint32_t i, __m256 *y, const nw_int_end end, const nw_one_form f)
{
    const unsigned halves = f.k == NW_ONE_NVFP4 ? 2 : 1;
    const uint32_t col = i * f.steps * 8;
    const uint8_t *const a[2] = {f.np == 2 ? o->low + col : o->codes + col, o->codes + col};
    const uint8_t *codes = f.k == NW_ONE_K ? group : group + o->g.codes_at;
    const float act = end == NW_END_PRODUCT ? nw_int_act_scale(o->a, o->row, col) : 1;
    const int32_t zero = nw_one_is_fp4(f) ? 12 : nw_one_has_min(f) ? 0 : 8;
    __m256i sum[2][2];

    nw_one_nibbles(codes, a, sum, f);
    NW_EACH(h, halves) {
        const __m256i n = nw_int_spread(o->sums + (i * halves + h) * sizeof(int32_t));
        const __m256i start = _mm256_mullo_epi32(n, _mm256_set1_epi32(-zero));
        __m256 scale[2];
        nw_one_scale(group, chunk, i, h, scale, f);
        NW_EACH(v, 2) {
            const __m256i s = zero == 0 ? sum[h][v] : _mm256_add_epi32(sum[h][v], start);
            y[v] = nw_one_add(y[v], s, scale[v], act, end);
            if (nw_one_has_min(f)) {
                y[v] = _mm256_fmadd_ps(nw_one_min(group, chunk, i, scale[v], v, f),
                                       _mm256_cvtepi32_ps(n), y[v]);
            }
        }
    }
}

/* y += p * left * the scale of the INT16 activations of columns `col` and on; left is a power of two. */
NW_INLINE void nw_one_fold(const nw_one *o, uint32_t col, __m256 left, __m256 *p, __m256 *y)
{
    const __m256 s = _mm256_set1_ps(nw_int_act_scale(o->a, o->row, col));

    NW_EACH(v, 2) {
        p[v] = _mm256_mul_ps(p[v], left);
        y[v] = _mm256_fmadd_ps(p[v], s, y[v]);
        p[v] = _mm256_setzero_ps();
    }
}

/* A panel of nibbles. */
NW_INLINE void nw_one_panel(const nw_one *o, const uint8_t *panel, __m256 *y, const nw_int_end end,
                            const nw_one_form f)
{
    const uint32_t folds = NW_ACT_COLS / (f.steps * 8);
    const uint32_t n = o->g.n_groups;
    const uint8_t *w = panel + o->g.first;
    __m256 p[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    nw_chunk chunk;

    for (uint32_t i = 0; i < n; i++) {
        nw_one_ask(w, f.steps * 64 + 32);
        if (f.k == NW_ONE_K && i % NW_CHUNK == 0) {
            nw_x86_scales(o->type, &o->g, panel, i, n - i < NW_CHUNK ? n - i : NW_CHUNK, &chunk);
        }
        if (f.k == NW_ONE_K) {
            w = panel + nw_block_at(&o->g, i) + (i % o->g.per_block == 0 ? o->g.codes_at : 0);
        }
        nw_one_group(o, w, &chunk, i, end == NW_END_FOLD ? p : y, end, f);
        w += o->g.block_bytes;
        if (end == NW_END_FOLD && ((i + 1) % folds == 0 || i + 1 == n)) {
            nw_one_fold(o, i * f.steps * 8, nw_one_left(f), p, y);
        }
    }
    if (end != NW_END_FOLD) {
        y[0] = _mm256_mul_ps(y[0], nw_one_left(f));
        y[1] = _mm256_mul_ps(y[1], nw_one_left(f));
    }
}

/* ---- INT8 ---- */

#define NW_ONE_COLS 2048u /* of activations that are widened at a time */

/* n quads of columns into the sums c [2][v], whose rows are to be added: of words, or where dpbusd is, of
 * bytes. Codes are 128 more. */
NW_INLINE void nw_one_quads(const uint8_t *w, const uint8_t *a, uint32_t n, __m256i *c,
                            const bool bytes)
{
    for (uint32_t j = 0; j < n; j++, w += 64, a += bytes ? 4 : 8) {
        nw_one_ask(w, 64);
        NW_EACH(v, 2) {
            const __m256i x = nw_int_load(w + v * 32);
            if (bytes) {
                c[v] = nw_int_dot(c[v], x, nw_int_spread(a));
                continue;
            }
            const __m256i even = _mm256_and_si256(x, _mm256_set1_epi16(0xFF));
            c[v] = nw_int_pair(c[v], even, nw_int_spread(a));
            c[2 + v] = nw_int_pair(c[2 + v], _mm256_srli_epi16(x, 8), nw_int_spread(a + 4));
        }
    }
}

/* Group i of a panel, whose words (or bytes) are a. */
NW_INLINE void nw_one_byte_group(const nw_one *o, const uint8_t *codes, const nw_chunk *chunk,
                                 uint32_t i, const uint8_t *a, __m256 *y, const bool bytes)
{
    const uint32_t k = i & (NW_ONE_SCALES / o->g.cols - 1);
    const __m256i n = nw_int_spread(o->sums + i * sizeof(int32_t));
    const __m256i start = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_setzero_si256(), n), 7);
    __m256i c[4] = {start, start, _mm256_setzero_si256(), _mm256_setzero_si256()};

    nw_one_quads(codes, a, o->g.steps, c, bytes);
    NW_EACH(v, 2) {
        const __m256 x = _mm256_cvtepi32_ps(_mm256_add_epi32(c[v], c[2 + v]));
        y[v] = _mm256_fmadd_ps(x, _mm256_load_ps(chunk->scale[k] + v * 8), y[v]);
        if (o->g.min) {
            y[v] =
                _mm256_fmadd_ps(_mm256_load_ps(chunk->min[k] + v * 8), _mm256_cvtepi32_ps(n), y[v]);
        }
    }
}

/* Columns [c0, c0 + n) of a panel with groups. */
NW_INLINE void nw_one_byte_groups(const nw_one *o, const uint8_t *panel, uint32_t c0, uint32_t n,
                                  const uint8_t *a, __m256 *y, const bool bytes)
{
    const uint32_t end = (c0 + n + o->g.cols - 1) / o->g.cols;
    const uint32_t folds = NW_ACT_COLS / o->g.cols;
    const uint32_t at_once = NW_ONE_SCALES / o->g.cols; /* a power of 2, at most NW_CHUNK */
    const bool fold = o->end == NW_END_FOLD;
    __m256 p[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    nw_chunk chunk;

    for (uint32_t i = c0 / o->g.cols; i < end; i++, a += o->g.cols * (bytes ? 1U : 2U)) {
        const uint8_t *codes =
            panel + nw_block_at(&o->g, i) + (i % o->g.per_block == 0 ? o->g.codes_at : 0);
        if ((i & (at_once - 1)) == 0) {
            const uint32_t left = o->g.n_groups - i;
            nw_x86_scales(o->type, &o->g, panel, i, left < at_once ? left : at_once, &chunk);
        }
        nw_one_byte_group(o, codes, &chunk, i, a, fold ? p : y, bytes);
        if (fold && (((i + 1) & (folds - 1)) == 0 || i + 1 == o->g.n_groups)) {
            nw_one_fold(o, i * o->g.cols, _mm256_set1_ps(1), p, y);
        }
    }
}

/* Columns [c0, c0 + n) of a panel of rows with one scale: y are exact sums of INT8 activations. */
NW_INLINE void nw_one_rows(const nw_one *o, const uint8_t *panel, uint32_t c0, uint32_t n,
                           const uint8_t *a, __m256 *y, const bool bytes)
{
    const uint8_t *w = panel + o->g.first + (size_t)c0 * NW_PANEL_ROWS;
    const uint32_t step = o->end == NW_END_ROW8 ? n : NW_ACT_COLS;

    for (uint32_t at = 0; at < n; at += step) {
        const uint32_t left = n - at < step ? n - at : step;
        const __m256i zero = _mm256_setzero_si256();
        __m256i c[4] = {zero, zero, zero, zero};
        if (o->end == NW_END_ROW16) {
            const __m256i sum = nw_int_spread(o->sums + (c0 + at) / NW_ACT_COLS * sizeof(int32_t));
            c[0] = c[1] = _mm256_slli_epi32(_mm256_sub_epi32(zero, sum), 7);
        }
        nw_one_quads(w + (size_t)at * NW_PANEL_ROWS, a + (size_t)at * (bytes ? 1 : 2),
                     (left + 3) / 4, c, bytes);
        NW_EACH(v, 2) {
            const __m256i s = _mm256_add_epi32(c[v], c[2 + v]);
            if (o->end == NW_END_ROW8) {
                y[v] = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y[v]), s));
                continue;
            }
            y[v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s),
                                   _mm256_set1_ps(nw_int_act_scale(o->a, o->row, c0 + at)), y[v]);
        }
    }
}

/* The words of a row that is short are those of the panel before. */
NW_INLINE void nw_one_bytes_panel(const nw_one *o, const uint8_t *panel, int16_t *words, bool ready,
                                  __m256 *y)
{
    const bool bytes = NW_INT_VNNI && o->a->kind == NW_ACT_INT8;

    if (o->end == NW_END_ROW8) {
        nw_act_head head;
        memcpy(&head, o->row, sizeof head);
        y[0] = y[1] = _mm256_castsi256_ps(_mm256_set1_epi32(-128 * head.sum));
    }
    for (uint32_t c0 = 0; c0 < o->n_cols; c0 += NW_ONE_COLS) {
        const uint32_t n = o->n_cols - c0 < NW_ONE_COLS ? o->n_cols - c0 : NW_ONE_COLS;
        const uint8_t *a = bytes ? o->codes + c0 : (const uint8_t *)words;
        if (!bytes && !(ready && o->n_cols <= NW_ONE_COLS)) {
            nw_avx2_act_even_odd(o->a->kind, o->row, o->n_cols, c0, nw_act_cols(n), words);
        }
        if (nw_has_groups(o->type)) {
            nw_one_byte_groups(o, panel, c0, n, a, y, bytes);
        } else {
            nw_one_rows(o, panel, c0, n, a, y, bytes);
        }
    }
}

/* ---- instances ---- */

#define NW_ONE_PANEL(name, kind, np, steps, end)                        \
    static void name(const nw_one *o, const uint8_t *panel, __m256 *y)  \
    {                                                                   \
        __m256 x[2] = {y[0], y[1]}; /* in registers */                  \
        nw_one_panel(o, panel, x, end, (nw_one_form){kind, np, steps}); \
        y[0] = x[0];                                                    \
        y[1] = x[1];                                                    \
    }
NW_ONE_PANEL(nw_one_int4_16_a8, NW_ONE_INT4, 1, 2, NW_END_GROUP)
NW_ONE_PANEL(nw_one_int4_16_a16, NW_ONE_INT4, 2, 2, NW_END_FOLD)
NW_ONE_PANEL(nw_one_zero_16_a8, NW_ONE_ZERO, 1, 2, NW_END_GROUP)
NW_ONE_PANEL(nw_one_zero_16_a16, NW_ONE_ZERO, 2, 2, NW_END_FOLD)
NW_ONE_PANEL(nw_one_min_16_a8, NW_ONE_MIN, 1, 2, NW_END_GROUP)
NW_ONE_PANEL(nw_one_min_16_a16, NW_ONE_MIN, 2, 2, NW_END_FOLD)
NW_ONE_PANEL(nw_one_int4_32_a8, NW_ONE_INT4, 1, 4, NW_END_GROUP)
NW_ONE_PANEL(nw_one_int4_32_a16, NW_ONE_INT4, 2, 4, NW_END_FOLD)
NW_ONE_PANEL(nw_one_int4_64_a8, NW_ONE_INT4, 1, 8, NW_END_GROUP)
NW_ONE_PANEL(nw_one_int4_64_a16, NW_ONE_INT4, 2, 8, NW_END_FOLD)
NW_ONE_PANEL(nw_one_int4_128_a8, NW_ONE_INT4, 1, 16, NW_END_GROUP)
NW_ONE_PANEL(nw_one_int4_128_a16, NW_ONE_INT4, 2, 16, NW_END_FOLD)
NW_ONE_PANEL(nw_one_zero_32_a8, NW_ONE_ZERO, 1, 4, NW_END_GROUP)
NW_ONE_PANEL(nw_one_zero_32_a16, NW_ONE_ZERO, 2, 4, NW_END_FOLD)
NW_ONE_PANEL(nw_one_zero_64_a8, NW_ONE_ZERO, 1, 8, NW_END_GROUP)
NW_ONE_PANEL(nw_one_zero_64_a16, NW_ONE_ZERO, 2, 8, NW_END_FOLD)
NW_ONE_PANEL(nw_one_zero_128_a8, NW_ONE_ZERO, 1, 16, NW_END_GROUP)
NW_ONE_PANEL(nw_one_zero_128_a16, NW_ONE_ZERO, 2, 16, NW_END_FOLD)
NW_ONE_PANEL(nw_one_min_32_a8, NW_ONE_MIN, 1, 4, NW_END_GROUP)
NW_ONE_PANEL(nw_one_min_32_a16, NW_ONE_MIN, 2, 4, NW_END_FOLD)
NW_ONE_PANEL(nw_one_min_64_a8, NW_ONE_MIN, 1, 8, NW_END_GROUP)
NW_ONE_PANEL(nw_one_min_64_a16, NW_ONE_MIN, 2, 8, NW_END_FOLD)
NW_ONE_PANEL(nw_one_min_128_a8, NW_ONE_MIN, 1, 16, NW_END_GROUP)
NW_ONE_PANEL(nw_one_min_128_a16, NW_ONE_MIN, 2, 16, NW_END_FOLD)
NW_ONE_PANEL(nw_one_k_a8, NW_ONE_K, 1, 4, NW_END_GROUP)
NW_ONE_PANEL(nw_one_k_a16, NW_ONE_K, 2, 4, NW_END_FOLD)
NW_ONE_PANEL(nw_one_mxfp4_a8, NW_ONE_MXFP4, 1, 4, NW_END_GROUP)
NW_ONE_PANEL(nw_one_mxfp4_a16, NW_ONE_MXFP4, 2, 4, NW_END_PRODUCT)
NW_ONE_PANEL(nw_one_nvfp4_a8, NW_ONE_NVFP4, 1, 4, NW_END_GROUP)
NW_ONE_PANEL(nw_one_nvfp4_a16, NW_ONE_NVFP4, 2, 4, NW_END_FOLD)

typedef void nw_one_fn(const nw_one *o, const uint8_t *panel, __m256 *y);

static nw_one_fn *nw_one_fn_of(nw_panel_type type, bool a16)
{
    static nw_one_fn *const int4_16[3][2] = {{nw_one_int4_16_a8, nw_one_int4_16_a16},
                                             {nw_one_zero_16_a8, nw_one_zero_16_a16},
                                             {nw_one_min_16_a8, nw_one_min_16_a16}};
    static nw_one_fn *const int4[3][3][2] = {{{nw_one_int4_32_a8, nw_one_int4_32_a16},
                                              {nw_one_int4_64_a8, nw_one_int4_64_a16},
                                              {nw_one_int4_128_a8, nw_one_int4_128_a16}},
                                             {{nw_one_zero_32_a8, nw_one_zero_32_a16},
                                              {nw_one_zero_64_a8, nw_one_zero_64_a16},
                                              {nw_one_zero_128_a8, nw_one_zero_128_a16}},
                                             {{nw_one_min_32_a8, nw_one_min_32_a16},
                                              {nw_one_min_64_a8, nw_one_min_64_a16},
                                              {nw_one_min_128_a8, nw_one_min_128_a16}}};
    static nw_one_fn *const others[3][2] = {{nw_one_k_a8, nw_one_k_a16},
                                            {nw_one_mxfp4_a8, nw_one_mxfp4_a16},
                                            {nw_one_nvfp4_a8, nw_one_nvfp4_a16}};
    const unsigned minima = type.zero_point ? 1 : type.min ? 2 : 0;

    if (type.kind == NW_PANEL_INT4 && !type.two_level) {
        return type.group == 16 ? int4_16[minima][a16] : int4[minima][type.group / 64][a16];
    }
    return others[type.kind == NW_PANEL_MXFP4 ? 1 : type.kind == NW_PANEL_NVFP4 ? 2 : 0][a16];
}

static nw_one nw_one_of(const nw_weight *w, const nw_act *a, uint32_t token)
{
    nw_one o = {.type = w->type,
                .g = nw_groups_or_row(w->type, w->n_cols),
                .end = nw_int_end_of(w->type, a->kind),
                .a = a,
                .row = nw_act_row(a, token),
                .n_cols = w->n_cols};

    o.codes = o.row + nw_act_codes_at(a->kind, w->n_cols);
    o.low = o.codes + nw_act_cols(w->n_cols);
    o.sums = o.row + nw_act_sums_at(a->kind, w->n_cols) +
             nw_act_level_at(w->n_cols, o.g.cols / o.g.n_scales);
    return o;
}

/* Each of the tokens, NW_ONE_TOKENS at most, takes a panel before the next panel is read. */
static void nw_one_linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                          float *y, size_t ldy)
{
    nw_one_fn *const nibbles =
        w->type.kind != NW_PANEL_INT8 ? nw_one_fn_of(w->type, a->kind == NW_ACT_INT16) : NULL;
    _Alignas(32) int16_t words[NW_ONE_COLS];
    nw_one o[NW_ONE_TOKENS];
    size_t bytes = 0;
    const bool fits = nw_panel_bytes(w->type, w->n_cols, &bytes);

    assert(fits && a->n_cols == w->n_cols && a->n_tokens <= NW_ONE_TOKENS);
    (void)fits;
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        o[t] = nw_one_of(w, a, t);
    }
    for (size_t at = (size_t)panel0 * a->n_tokens; at < (size_t)panel1 * a->n_tokens; at++) {
        const uint32_t p = (uint32_t)(at / a->n_tokens);
        const uint32_t t = (uint32_t)(at % a->n_tokens);
        const uint8_t *panel = w->data + p * bytes;
        __m256 x[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        if (w->type.kind == NW_PANEL_INT8) {
            nw_one_bytes_panel(&o[t], panel, words, a->n_tokens == 1 && p > panel0, x);
        } else {
            nibbles(&o[t], panel, x);
        }
        nw_int_finish(w->type, panel, o[t].end, nw_int_act_scale(a, o[t].row, 0), x);
        nw_int_store(y + t * ldy + (size_t)p * NW_PANEL_ROWS, w->n_rows - p * NW_PANEL_ROWS, x);
    }
}

#endif
