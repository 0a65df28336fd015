/* linear of more tokens than avx2_one.h takes: weights of a block are widened once (avx2_block.h), then tiles of a panel
 * x 2 to 6 tokens, whose 12 sums stay in registers. Results are kept in y between blocks. AVX2 takes 4-bit weights x
 * INT8 activations by avx2_nibble.c instead; bytes here are for AVX-VNNI.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX2_MANY_H
#define NW_KERNELS_AVX2_MANY_H

#include "kernels/avx2_int.h"

#define NW_MANY_SUMS (2 * NW_TILE_TOKENS)

/* What is the same for all tiles of a call. */
typedef struct {
    const nw_weight *w;
    const nw_act *a;
    nw_groups g;
    nw_int_end end;
    bool words;
    uint32_t cols;      /* that share a scale: g.cols, of NVFP4 half as many */
    size_t panel;       /* bytes */
    size_t stride;      /* of packed tokens */
    size_t sums, codes; /* bytes of a token before the sums of `cols` columns each, and the codes */
} nw_many;

/* Of the tokens of a tile: what the sums of bytes start at, the sums of codes for minima, words and their
 * scales (of INT16, 128 columns). */
typedef struct {
    _Alignas(32) int32_t start[NW_TILE_TOKENS][NW_BLOCK_SCALES];
    _Alignas(32) float sum[NW_TILE_TOKENS][NW_BLOCK_SCALES];
    _Alignas(32) int16_t words[NW_TILE_TOKENS][NW_WORDS_COLS];
    float scale[NW_WORDS_COLS / NW_ACT_COLS][NW_TILE_TOKENS];
} nw_many_acts;

/* A tile: a panel of the block x mr tokens. */
typedef struct {
    const uint8_t *w; /* codes of the panel */
    const float (*scale)[NW_PANEL_ROWS];
    const float (*min)[NW_PANEL_ROWS];
    const uint8_t *a; /* codes of the first token: bytes, or words */
    size_t a_stride;
    uint32_t n, cols;    /* groups, each with a scale, and their columns */
    uint32_t last_quads; /* quads of columns of the last group */
    bool has_min;
    nw_int_end end;
    const nw_many_acts *acts;
    float (*y)[NW_PANEL_ROWS]; /* results so far, a token */
} nw_many_tile;

/* `quads` quads of columns of words into the sums c [mr][2]. */
NW_INLINE void nw_many_words(const uint8_t *w, const uint8_t *a, size_t stride, __m256i *c,
                             uint32_t quads, const unsigned mr)
{
    for (uint32_t j = 0; j < quads; j++, w += 128, a += 8) {
        NW_EACH(h, 2) {
            const __m256i x0 = nw_int_load(w + h * 64);
            const __m256i x1 = nw_int_load(w + h * 64 + 32);
            NW_EACH(m, mr) {
                const __m256i b = nw_int_spread(a + m * stride + h * 4);
                nw_int_pairs(c + (size_t)m * 2, x0, x1, b);
            }
        }
    }
}

/* Group i: y, or with INT16 activations the sums of 128 columns, += sums c * scale. */
NW_INLINE void nw_many_scale(const nw_many_tile *t, uint32_t i, const __m256i *c,
                             float (*y)[NW_PANEL_ROWS], const bool product, const unsigned mr)
{
    NW_EACH(v, 2) {
        const __m256 s = _mm256_load_ps(t->scale[i] + v * 8);
        NW_EACH(m, mr) {
            __m256 x = _mm256_cvtepi32_ps(c[m * 2 + v]);
            if (product) {
                x = _mm256_mul_ps(x, _mm256_set1_ps(t->acts->scale[i * t->cols / NW_ACT_COLS][m]));
            }
            _mm256_store_ps(y[m] + v * 8, _mm256_fmadd_ps(x, s, _mm256_load_ps(y[m] + v * 8)));
        }
    }
}

/* The same += minimum * the sum of the activations. */
NW_INLINE void nw_many_minima(const nw_many_tile *t, uint32_t i, float (*y)[NW_PANEL_ROWS],
                              const unsigned mr)
{
    NW_EACH(v, 2) {
        const __m256 min = _mm256_load_ps(t->min[i] + v * 8);
        NW_EACH(m, mr) {
            const __m256 x = _mm256_set1_ps(t->acts->sum[m][i]);
            _mm256_store_ps(y[m] + v * 8, _mm256_fmadd_ps(min, x, _mm256_load_ps(y[m] + v * 8)));
        }
    }
}

/* y += x * scales of the INT16 activations of these 128 columns. */
NW_INLINE void nw_many_fold(const nw_many_tile *t, uint32_t part, float (*x)[NW_PANEL_ROWS],
                            const unsigned mr)
{
    NW_EACH(m, mr) {
        const __m256 s = _mm256_set1_ps(t->acts->scale[part][m]);
        NW_EACH(v, 2) {
            float *at = t->y[m] + v * 8;
            _mm256_store_ps(at,
                            _mm256_fmadd_ps(_mm256_load_ps(x[m] + v * 8), s, _mm256_load_ps(at)));
            _mm256_store_ps(x[m] + v * 8, _mm256_setzero_ps());
        }
    }
}

NW_INLINE void nw_many_load_sums(const nw_many_tile *t, __m256i *c, const unsigned mr)
{
    NW_EACH(q, 2 * mr) {
        c[q] = nw_int_load(t->y[q / 2] + q % 2 * 8);
    }
}

NW_INLINE void nw_many_store_sums(const nw_many_tile *t, const __m256i *c, const unsigned mr)
{
    NW_EACH(q, 2 * mr) {
        _mm256_store_si256((__m256i *)(void *)(t->y[q / 2] + q % 2 * 8), c[q]);
    }
}

#if NW_INT_VNNI
/* `quads` quads of columns of bytes into the sums c [mr][2]. */
NW_INLINE void nw_many_bytes(const uint8_t *w, const uint8_t *a, size_t stride, __m256i *c,
                             const unsigned quads, const unsigned mr)
{
    NW_EACH(j, quads) {
        const __m256i x0 = nw_int_load(w + j * 64);
        const __m256i x1 = nw_int_load(w + j * 64 + 32);
        NW_EACH(m, mr) {
            const __m256i b = nw_int_spread(a + m * stride + j * 4);
            nw_int_dots(c + (size_t)m * 2, x0, x1, b);
        }
    }
}

/* Groups of `parts` times so many quads. */
NW_INLINE void nw_many_tile_bytes(const nw_many_tile *t, const unsigned quads, const unsigned parts,
                                  const unsigned mr)
{
    const uint8_t *w = t->w;
    const uint8_t *a = t->a;

    for (uint32_t i = 0; i < t->n; i++) {
        __m256i c[NW_MANY_SUMS];
        NW_EACH(q, 2 * mr) {
            c[q] = _mm256_set1_epi32(t->acts->start[q / 2][i]);
        }
        for (uint32_t k = 0; k < parts; k++, w += (size_t)quads * 64, a += (size_t)quads * 4) {
            nw_many_bytes(w, a, t->a_stride, c, quads, mr);
        }
        nw_many_scale(t, i, c, t->y, false, mr);
        if (t->has_min) {
            nw_many_minima(t, i, t->y, mr);
        }
    }
}

/* Rows without groups, of bytes. */
NW_INLINE void nw_many_row_bytes(const nw_many_tile *t, const unsigned mr)
{
    __m256i c[NW_MANY_SUMS];

    nw_many_load_sums(t, c, mr);
    for (uint32_t j = 0; j < t->last_quads; j++) {
        nw_many_bytes(t->w + (size_t)j * 64, t->a + (size_t)j * 4, t->a_stride, c, 1, mr);
    }
    nw_many_store_sums(t, c, mr);
}

#endif

/* Words: exact sums of a row are those of one group. */
NW_INLINE void nw_many_tile_words(const nw_many_tile *t, const nw_int_end end, const unsigned mr)
{
    const uint32_t folds = NW_ACT_COLS / t->cols;
    const uint8_t *w = t->w;
    const uint8_t *a = t->a;
    _Alignas(32) float p[NW_TILE_TOKENS][NW_PANEL_ROWS] = {{0}};

    for (uint32_t i = 0; i < t->n; i++, w += t->cols * (size_t)32, a += t->cols * (size_t)2) {
        const bool last = i + 1 == t->n;
        __m256i c[NW_MANY_SUMS];
        NW_EACH(q, 2 * mr) {
            c[q] = _mm256_setzero_si256();
        }
        if (end == NW_END_ROW8) {
            nw_many_load_sums(t, c, mr);
        }
        nw_many_words(w, a, t->a_stride, c, last ? t->last_quads : t->cols / 4, mr);
        if (end == NW_END_ROW8) {
            nw_many_store_sums(t, c, mr);
        } else if (end == NW_END_ROW16) {
            NW_EACH(q, 2 * mr) {
                _mm256_store_ps(p[q / 2] + q % 2 * 8, _mm256_cvtepi32_ps(c[q]));
            }
        } else {
            nw_many_scale(t, i, c, end == NW_END_FOLD ? p : t->y, end == NW_END_PRODUCT, mr);
        }
        if (t->has_min) {
            nw_many_minima(t, i, end == NW_END_FOLD ? p : t->y, mr);
        }
        if ((end == NW_END_ROW16 || end == NW_END_FOLD) && ((i + 1) % folds == 0 || last)) {
            nw_many_fold(t, i / folds, p, mr);
        }
    }
}

#define NW_MANY_TOKENS(name, call)                       \
    static void name(const nw_many_tile *t, unsigned mr) \
    {                                                    \
        switch (mr) {                                    \
        case 1:                                          \
            call(1);                                     \
            return;                                      \
        case 2:                                          \
            call(2);                                     \
            return;                                      \
        case 3:                                          \
            call(3);                                     \
            return;                                      \
        case 4:                                          \
            call(4);                                     \
            return;                                      \
        case 5:                                          \
            call(5);                                     \
            return;                                      \
        default:                                         \
            call(6);                                     \
            return;                                      \
        }                                                \
    }
#define NW_CALL_GROUP(mr)   nw_many_tile_words(t, NW_END_GROUP, mr)
#define NW_CALL_FOLD(mr)    nw_many_tile_words(t, NW_END_FOLD, mr)
#define NW_CALL_PRODUCT(mr) nw_many_tile_words(t, NW_END_PRODUCT, mr)
#define NW_CALL_ROW16(mr)   nw_many_tile_words(t, NW_END_ROW16, mr)
#define NW_CALL_ROW8(mr)    nw_many_tile_words(t, NW_END_ROW8, mr)
NW_MANY_TOKENS(nw_many_group, NW_CALL_GROUP)
NW_MANY_TOKENS(nw_many_folded, NW_CALL_FOLD)
NW_MANY_TOKENS(nw_many_product, NW_CALL_PRODUCT)
NW_MANY_TOKENS(nw_many_row16, NW_CALL_ROW16)
NW_MANY_TOKENS(nw_many_row8, NW_CALL_ROW8)
#if NW_INT_VNNI
#define NW_CALL_32(mr)    nw_many_tile_bytes(t, 8, 1, mr)
#define NW_CALL_64(mr)    nw_many_tile_bytes(t, 8, 2, mr)
#define NW_CALL_128(mr)   nw_many_tile_bytes(t, 8, 4, mr)
#define NW_CALL_16(mr)    nw_many_tile_bytes(t, 4, 1, mr)
#define NW_CALL_MXFP4(mr) nw_many_tile_bytes(t, 4, 2, mr)
#define NW_CALL_ROW(mr)   nw_many_row_bytes(t, mr)
NW_MANY_TOKENS(nw_many_32, NW_CALL_32)
NW_MANY_TOKENS(nw_many_64, NW_CALL_64)
NW_MANY_TOKENS(nw_many_128, NW_CALL_128)
NW_MANY_TOKENS(nw_many_16, NW_CALL_16)
NW_MANY_TOKENS(nw_many_mxfp4, NW_CALL_MXFP4)
NW_MANY_TOKENS(nw_many_row, NW_CALL_ROW)
#endif

/* ---- blocks ---- */

/* Groups [g0, g0 + n) of panels [p0, p0 + np), widened. */
typedef struct {
    uint32_t g0, n, quads; /* quads of columns that are there, of rows without groups */
    uint32_t p0, np;
    const uint8_t *next[NW_BLOCK_PANELS]; /* what follows in each panel, or in the next ones */
    size_t next_bytes;
} nw_many_part;

static void nw_many_widen(const nw_many *m, const nw_many_part *part, nw_block *b)
{
    for (unsigned q = 0; q < part->np; q++) {
        const uint8_t *panel = m->w->data + (part->p0 + q) * m->panel;
        if (m->words) {
            nw_avx2_block_words(m->w->type, &m->g, panel, part->g0, part->n, part->quads, q, b);
        } else {
            nw_avx2_block_bytes(m->w->type, &m->g, panel, part->g0, part->n, part->quads, b);
        }
    }
}

/* Tokens [t0, t0 + n). */
static void nw_many_take(const nw_many *m, const nw_many_part *part, uint32_t t0, uint32_t n,
                         nw_many_acts *out)
{
    const uint32_t col = part->g0 * m->g.cols;
    const uint32_t cols = part->n * m->g.cols;
    const uint32_t n_sums = !m->words || m->g.min ? cols / m->cols : 0;
    const size_t sums_at = m->sums + (size_t)(col / m->cols) * sizeof(int32_t);
    const bool words = m->words;
    const __m256i zero = _mm256_set1_epi32(m->g.fp4 ? -12 : -m->g.zero);

    for (uint32_t k = 0; k < n; k++) {
        const uint8_t *row = (const uint8_t *)m->a->data + (t0 + k) * m->stride;
        for (uint32_t i = 0; i < n_sums; i += 8) { /* codes follow the last sums */
            const __m256i x = nw_int_load(row + sums_at + (size_t)i * sizeof(int32_t));
            _mm256_store_si256((__m256i *)(void *)&out->start[k][i], _mm256_mullo_epi32(x, zero));
            _mm256_store_ps(&out->sum[k][i], _mm256_cvtepi32_ps(x));
        }
        for (uint32_t c = 0; words && c < cols; c += NW_ACT_COLS) {
            out->scale[c / NW_ACT_COLS][k] = nw_int_act_scale(m->a, row, col + c);
        }
        if (words) {
            nw_avx2_act_words(m->a->kind, row, m->w->n_cols, col, cols, out->words[k]);
        }
    }
}

typedef void nw_many_fn(const nw_many_tile *t, unsigned mr);

#if NW_INT_VNNI
static nw_many_fn *nw_many_bytes_fn(const nw_many *m)
{
    if (m->end == NW_END_ROW8) {
        return nw_many_row;
    }
    if (m->cols == 16) {
        return nw_many_16;
    }
    if (m->g.fp4) {
        return nw_many_mxfp4;
    }
    return m->cols == 128 ? nw_many_128 : m->cols == 64 ? nw_many_64 : nw_many_32;
}
#endif

static nw_many_fn *nw_many_fn_of(const nw_many *m)
{
    static nw_many_fn *const words[] = {[NW_END_GROUP] = nw_many_group,
                                        [NW_END_FOLD] = nw_many_folded,
                                        [NW_END_PRODUCT] = nw_many_product,
                                        [NW_END_ROW16] = nw_many_row16,
                                        [NW_END_ROW8] = nw_many_row8};

#if NW_INT_VNNI
    if (!m->words) {
        return nw_many_bytes_fn(m);
    }
#endif
    return words[m->end];
}

/* The results so far of tokens [t0, t0 + n) and 16 rows at y into the tile; at first what they start at:
 * exact sums of bytes, which are code + 128, at -128 times those of the activations. */
static void nw_many_open(const nw_many *m, const nw_many_part *part, uint32_t t0, uint32_t n,
                         const float *y, size_t ldy, uint32_t left, float (*tile)[NW_PANEL_ROWS])
{
    for (uint32_t k = 0; k < n; k++) {
        nw_act_head head = {0};
        if (part->g0 > 0) {
            __m256 x[2];
            nw_int_rows(y + (t0 + k) * ldy, left, x);
            _mm256_store_ps(tile[k], x[0]);
            _mm256_store_ps(tile[k] + 8, x[1]);
            continue;
        }
        if (!m->words && m->end == NW_END_ROW8) {
            memcpy(&head, (const uint8_t *)m->a->data + (t0 + k) * m->stride, sizeof head);
        }
        const __m256i first = _mm256_set1_epi32(-128 * head.sum);
        _mm256_store_si256((__m256i *)(void *)tile[k], first);
        _mm256_store_si256((__m256i *)(void *)(tile[k] + 8), first);
    }
}

static void nw_many_close(const nw_many *m, const nw_many_part *part, uint32_t t0, uint32_t n,
                          const uint8_t *panel, float *y, size_t ldy, uint32_t left,
                          float (*tile)[NW_PANEL_ROWS])
{
    for (uint32_t k = 0; k < n; k++) {
        __m256 x[2] = {_mm256_load_ps(tile[k]), _mm256_load_ps(tile[k] + 8)};
        if (part->g0 + part->n == m->g.n_groups) {
            const uint8_t *row = (const uint8_t *)m->a->data + (t0 + k) * m->stride;
            nw_int_finish(m->w->type, panel, m->end, nw_int_act_scale(m->a, row, 0), x);
        }
        nw_int_store(y + (t0 + k) * ldy, left, x);
    }
}

/* Tokens [t0, t0 + n) x all panels of the block. y: of token 0, row 0. */
static void nw_many_tokens(const nw_many *m, const nw_many_part *part, const nw_block *b,
                           const nw_many_acts *acts, uint32_t t0, uint32_t n, float *y, size_t ldy)
{
    const bool row8 = m->end == NW_END_ROW8;
    const bool rows_alone = row8 || m->end == NW_END_ROW16;
    _Alignas(32) float tile[NW_TILE_TOKENS][NW_PANEL_ROWS];
    nw_many_fn *run = nw_many_fn_of(m);
    nw_many_tile t = {.a = (const uint8_t *)acts->words,
                      .a_stride = sizeof acts->words[0],
                      .n = row8 ? 1 : part->n * (m->g.cols / m->cols),
                      .cols = m->cols,
                      .last_quads = rows_alone ? part->quads : m->cols / 4,
                      .has_min = m->g.min,
                      .end = m->end,
                      .acts = acts,
                      .y = tile};

    if (!m->words) {
        t.a = (const uint8_t *)m->a->data + t0 * m->stride + m->codes + part->g0 * m->g.cols;
        t.a_stride = m->stride;
    } else if (rows_alone && !row8) {
        t.last_quads = part->quads - (part->n - 1) * (NW_ACT_COLS / 4);
    }
    for (unsigned q = 0; q < part->np; q++) {
        const uint32_t row = (part->p0 + q) * NW_PANEL_ROWS;
        const uint32_t left = m->w->n_rows - row;
        t.w = b->codes + (size_t)q * NW_WORDS_BYTES;
        t.scale = b->scale + (size_t)q * NW_WORDS_SCALES;
        t.min = b->min + (size_t)q * NW_WORDS_SCALES;
        nw_many_open(m, part, t0, n, y + row, ldy, left, tile);
        run(&t, n);
        nw_many_close(m, part, t0, n, m->w->data + (part->p0 + q) * m->panel, y + row, ldy, left,
                      tile);
    }
}

/* All tokens x a block, in tiles that are as even as they come; the weights that follow are asked for
 * meanwhile. */
static void nw_many_block(const nw_many *m, const nw_many_part *part, float *y, size_t ldy)
{
    const uint32_t n = m->a->n_tokens;
    const uint32_t n_tiles = (n + NW_TILE_TOKENS - 1) / NW_TILE_TOKENS;
    nw_block b;
    nw_many_acts acts;

    nw_many_widen(m, part, &b);
    for (uint32_t i = 0; i < n_tiles; i++) {
        const uint32_t t0 = (uint32_t)((uint64_t)n * i / n_tiles);
        const uint32_t t1 = (uint32_t)((uint64_t)n * (i + 1) / n_tiles);
        const size_t to = part->next_bytes * (i + 1) / n_tiles;
        for (unsigned q = 0; q < part->np; q++) {
            for (size_t at = part->next_bytes * i / n_tiles; at < to; at += 64) {
                _mm_prefetch((const char *)part->next[q] + at, _MM_HINT_T1);
            }
        }
        nw_many_take(m, part, t0, t1 - t0, &acts);
        nw_many_tokens(m, part, &b, &acts, t0, t1 - t0, y, ldy);
    }
}

static nw_many nw_many_of(const nw_weight *w, const nw_act *a)
{
    nw_many m = {.w = w,
                 .a = a,
                 .g = nw_groups_or_row(w->type, w->n_cols),
                 .end = nw_int_end_of(w->type, a->kind),
                 .stride = nw_act_stride(a->kind, a->n_cols),
                 .codes = nw_act_codes_at(a->kind, a->n_cols)};
    const bool fits = nw_panel_bytes(w->type, w->n_cols, &m.panel);

    assert(fits && a->n_cols == w->n_cols);
    (void)fits;
    m.words = a->kind == NW_ACT_INT16 || !NW_INT_VNNI;
    m.cols = m.g.cols / m.g.n_scales;
    m.sums = nw_act_sums_at(a->kind, a->n_cols) + nw_act_level_at(a->n_cols, m.cols);
    return m;
}

static void nw_many_linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                           float *y, size_t ldy)
{
    const nw_many m = nw_many_of(w, a);
    const uint32_t wide = m.words ? NW_BLOCK_PANELS : 1;
    const uint32_t step = (m.words ? NW_WORDS_COLS : NW_BLOCK_COLS) / m.g.cols;

    for (uint32_t p = panel0; p < panel1; p += wide) {
        nw_many_part part = {.p0 = p, .np = panel1 - p < wide ? panel1 - p : wide};
        for (uint32_t g0 = 0; g0 < m.g.n_groups; g0 += step) {
            const uint32_t end = g0 + step < m.g.n_groups ? g0 + step : m.g.n_groups;
            const uint32_t cols = end * m.g.cols < w->n_cols ? end * m.g.cols : w->n_cols;
            const bool last = end == m.g.n_groups;
            part.g0 = g0;
            part.n = end - g0;
            part.quads = (cols - g0 * m.g.cols + 3) / 4;
            part.next_bytes = nw_block_at(&m.g, end) - nw_block_at(&m.g, g0);
            for (unsigned q = 0; q < part.np; q++) {
                part.next[q] = w->data + (p + q + (last ? part.np : 0)) * m.panel +
                               (last ? 0 : nw_block_at(&m.g, end));
            }
            nw_many_block(&m, &part, y, ldy);
        }
    }
}

#endif
