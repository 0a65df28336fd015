/* linear of weights of 4 bits x INT8 activations for more tokens than avx2_one.h takes, AVX2 without VNNI.
 * vpmaddubsw multiplies unsigned bytes by signed ones: here the activations are the unsigned ones, 128 more
 * than their codes, and weights are signed, so that what the 128 add, 128 times a row's weights, is known
 * before any token: sums start at its negative, in the same int16 lanes that products are added to, and
 * groups need no correction. Lanes wrap around on the way; what they end at fits (see `part_quads`).
 *
 * A block of a few panels x 1024 columns is widened once for all the tokens of a call, and the tokens of a
 * tile once for its panels; a tile is a panel x up to 6 tokens, whose 12 sums stay in registers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_int.h"
#include "kernels/tiers.h"
#include "kernels/x86.h"

#define COLS   1024u
#define PANELS 4u
#define GROUPS (COLS / 16)
#define STRIDE (COLS + 64) /* from a token to the next */
#define SUMS   (2 * NW_TILE_TOKENS)

/* Codes as in avx2_block.h, but signed: FP4 twice the value. Groups of one scale; parts of columns whose
 * sums fit in int16, each with what they start at in the order of the products. */
typedef struct {
    _Alignas(64) uint8_t codes[PANELS][COLS * NW_PANEL_ROWS];
    _Alignas(64) uint8_t start[PANELS][GROUPS][64];
    _Alignas(64) float scale[PANELS][GROUPS][NW_PANEL_ROWS];
    _Alignas(64) float min[PANELS][GROUPS][NW_PANEL_ROWS]; /* where nw_groups.min */
} block;

typedef struct {
    _Alignas(64) uint8_t codes[NW_TILE_TOKENS][STRIDE]; /* 128 more */
    _Alignas(32) float sum[NW_TILE_TOKENS][GROUPS];     /* of each group's, for minima */
} tokens;

/* What is the same for all tiles of a call. */
typedef struct {
    const nw_weight *w;
    const nw_act *a;
    nw_groups g;
    uint32_t cols;  /* that share a scale: g.cols, of NVFP4 half as many */
    uint32_t quads; /* of a part */
    size_t panel;   /* bytes */
    float *y;
    size_t ldy;
} call;

/* Groups [g0, g0 + n) of panels [p0, p0 + np). */
typedef struct {
    uint32_t g0, n, p0, np;
} part;

/* A tile: a panel of the block x up to 6 tokens. */
typedef struct {
    const uint8_t *w, *start, *a;
    const float (*scale)[NW_PANEL_ROWS];
    const float (*min)[NW_PANEL_ROWS]; /* NULL: none */
    const tokens *acts;
    uint32_t n;                /* scales */
    float (*y)[NW_PANEL_ROWS]; /* results so far, a token */
} tile;

/* Quads of columns whose sums fit in int16, half of them in a lane: of codes from -8 to 7 16, 8 * 127 * 32 =
 * 32512; of 0 to 15 8, 15 * 127 * 16 = 30480; of FP4, up to 12, 8, or the 4 that share a scale. */
static uint32_t part_quads(const nw_groups *g)
{
    const uint32_t most = g->fp4 || g->zero == 0 ? 8 : 16;
    const uint32_t quads = g->cols / g->n_scales / 4;
    return quads < most ? quads : most;
}

/* ---- a block ---- */

NW_INLINE __m256i code_of(__m256i x, const bool fp4, __m256i zero)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    const __m256i code = _mm256_and_si256(x, _mm256_set1_epi8(0x0F));
    return fp4 ? _mm256_shuffle_epi8(table, code) : _mm256_sub_epi8(code, zero);
}

/* What the sums of a part start at, from its codes added up as bytes: at most 16 of 8 or 8 of 15. */
NW_INLINE void put_start(const __m256i *sum, uint8_t *start)
{
    NW_EACH(v, 2) {
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), sum[v]);
        const __m256i all = _mm256_sub_epi16(_mm256_setzero_si256(), pairs);
        _mm256_store_si256((__m256i *)(void *)(start + v * 32), _mm256_slli_epi16(all, 7));
    }
}

/* The codes of a group, half of whose columns are low nibbles, half high ones, and its parts' starts; returns
 * what is behind them. */
NW_INLINE uint8_t *widen_group(const uint8_t *from, uint32_t steps, uint32_t quads, const bool fp4,
                               __m256i zero, uint8_t *to, uint8_t *start)
{
    const size_t half = steps < quads ? 0 : (size_t)steps / quads * 64;
    const __m256i none = _mm256_setzero_si256();
    __m256i low[2] = {none, none};
    __m256i high[2] = {none, none};

    for (uint32_t j = 1; j <= steps; j++, from += 64, to += 64) {
        _mm_prefetch((const char *)from + NW_BLOCK_AHEAD, _MM_HINT_T0);
        NW_EACH(v, 2) {
            const __m256i x = nw_int_load(from + v * 32);
            const __m256i a = code_of(x, fp4, zero);
            const __m256i b = code_of(_mm256_srli_epi16(x, 4), fp4, zero);
            _mm256_store_si256((__m256i *)(void *)(to + v * 32), a);
            _mm256_store_si256((__m256i *)(void *)(to + (size_t)steps * 64 + v * 32), b);
            low[v] = _mm256_add_epi8(low[v], a);
            high[v] = _mm256_add_epi8(high[v], b);
        }
        if (half > 0 && j % quads == 0) {
            put_start(low, start);
            put_start(high, start + half);
            low[0] = low[1] = high[0] = high[1] = none;
            start += 64;
        }
    }
    if (half > 0) {
        return start + half;
    }
    NW_EACH(v, 2) {
        low[v] = _mm256_add_epi8(low[v], high[v]);
    }
    put_start(low, start);
    return start + 64;
}

static void widen_panel(const call *c, const part *p, uint32_t q, block *b)
{
    const uint8_t *panel = c->w->data + (p->p0 + q) * c->panel;
    const __m256i zero = _mm256_set1_epi8((char)c->g.zero);
    uint8_t *start = b->start[q][0];

    nw_avx2_block_scales(c->w->type, &c->g, panel, p->g0, p->n, b->scale[q], b->min[q]);
    for (uint32_t i = 0; i < p->n; i++) {
        const uint8_t *codes = panel + nw_block_codes_at(&c->g, p->g0 + i);
        uint8_t *to = b->codes[q] + (size_t)i * c->g.cols * NW_PANEL_ROWS;
        if (c->g.fp4) {
            start = widen_group(codes, c->g.steps, c->quads, true, zero, to, start);
        } else {
            start = widen_group(codes, c->g.steps, c->quads, false, zero, to, start);
        }
    }
}

/* ---- a tile ---- */

/* Of a token: c[v] += its columns times x[v]. In assembly for the order (avx2_int.h). */
NW_INLINE void add_products(__m256i *c, const __m256i *x, const uint8_t *a)
{
    __m256i b;
    __m256i t;
    __asm__("vpbroadcastd %6, %2\n\tvpmaddubsw %4, %2, %3\n\tvpmaddubsw %5, %2, %2\n\t"
            "vpaddw %3, %0, %0\n\tvpaddw %2, %1, %1"
            : "+x"(c[0]), "+x"(c[1]), "=&x"(b), "=&x"(t)
            : "x"(x[0]), "x"(x[1]), "m"(*(const int32_t *)(const void *)a));
}

/* The same from what the sums start at. */
NW_INLINE void first_products(__m256i *c, const __m256i *x, const uint8_t *a, const uint8_t *start)
{
    const __m256i *from = (const __m256i *)(const void *)start;
    __asm__("vpbroadcastd %4, %1\n\tvpmaddubsw %2, %1, %0\n\tvpmaddubsw %3, %1, %1\n\t"
            "vpaddw %5, %0, %0\n\tvpaddw %6, %1, %1"
            : "=&x"(c[0]), "=&x"(c[1])
            : "x"(x[0]), "x"(x[1]), "m"(*(const int32_t *)(const void *)a), "m"(from[0]),
              "m"(from[1]));
}

/* The sums of a part, exact int32. */
NW_INLINE void run_part(const uint8_t *w, const uint8_t *a, const uint8_t *start, __m256i *sum,
                        const unsigned quads, const unsigned mr)
{
    __m256i c[SUMS];

    NW_EACH(j, quads) {
        const __m256i x[2] = {nw_int_load(w + j * 64), nw_int_load(w + j * 64 + 32)};
        NW_EACH(m, mr) {
            const uint8_t *at = a + (size_t)m * STRIDE + j * 4;
            if (j == 0) {
                first_products(c + (size_t)m * 2, x, at, start);
            } else {
                add_products(c + (size_t)m * 2, x, at);
            }
        }
    }
    NW_EACH(q, 2 * mr) {
        sum[q] = _mm256_madd_epi16(c[q], _mm256_set1_epi16(1));
    }
}

/* y += sum * scale, rows of a group. */
NW_INLINE void add_sums(float (*y)[NW_PANEL_ROWS], const float *scales, const __m256i *sum,
                        const unsigned mr)
{
    NW_EACH(v, 2) {
        const __m256 scale = _mm256_load_ps(scales + v * 8);
        NW_EACH(m, mr) {
            float *at = y[m] + v * 8;
            const __m256 x = _mm256_cvtepi32_ps(sum[m * 2 + v]);
            _mm256_store_ps(at, _mm256_fmadd_ps(x, scale, _mm256_load_ps(at)));
        }
    }
}

/* y += minimum * the sum of the activations of group i. */
NW_INLINE void add_minima(const tile *t, uint32_t i, float (*y)[NW_PANEL_ROWS], const unsigned mr)
{
    NW_EACH(v, 2) {
        const __m256 min = _mm256_load_ps(t->min[i] + v * 8);
        NW_EACH(m, mr) {
            float *at = y[m] + v * 8;
            const __m256 x = _mm256_set1_ps(t->acts->sum[m][i]);
            _mm256_store_ps(at, _mm256_fmadd_ps(min, x, _mm256_load_ps(at)));
        }
    }
}

NW_INLINE void run_tile(const tile *t, const unsigned quads, const unsigned parts,
                        const unsigned mr)
{
    const uint8_t *w = t->w;
    const uint8_t *a = t->a;
    const uint8_t *start = t->start;
    const float(*scale)[NW_PANEL_ROWS] = t->scale; /* in registers: stores to y might change *t */
    float(*y)[NW_PANEL_ROWS] = t->y;
    const bool has_min = t->min != NULL;
    const uint32_t n = t->n;

    for (uint32_t i = 0; i < n; i++, scale++) {
        __m256i sum[SUMS];
        for (unsigned k = 0; k < parts;
             k++, w += (size_t)quads * 64, a += (size_t)quads * 4, start += 64) {
            __m256i c[SUMS];
            run_part(w, a, start, c, quads, mr);
            NW_EACH(q, 2 * mr) {
                sum[q] = k == 0 ? c[q] : _mm256_add_epi32(sum[q], c[q]);
            }
        }
        add_sums(y, *scale, sum, mr);
        if (has_min) {
            add_minima(t, i, y, mr);
        }
    }
}

/* More than 6 tokens in tiles that are as even as they come: 3 to 6 each. */
#define TILE(name, quads, parts)                \
    static void name(const tile *t, unsigned n) \
    {                                           \
        switch (n) {                            \
        case 3:                                 \
            run_tile(t, quads, parts, 3);       \
            return;                             \
        case 4:                                 \
            run_tile(t, quads, parts, 4);       \
            return;                             \
        case 5:                                 \
            run_tile(t, quads, parts, 5);       \
            return;                             \
        default:                                \
            run_tile(t, quads, parts, 6);       \
            return;                             \
        }                                       \
    }
TILE(tile_4, 4, 1)
TILE(tile_8, 8, 1)
TILE(tile_8x2, 8, 2)
TILE(tile_8x4, 8, 4)
TILE(tile_16, 16, 1)
TILE(tile_16x2, 16, 2)

static void run(const call *c, const tile *t, unsigned n)
{
    if (c->quads == 16) {
        (c->cols == 128 ? tile_16x2 : tile_16)(t, n);
    } else if (c->quads == 4) {
        tile_4(t, n);
    } else {
        (c->cols == 128 ? tile_8x4 : c->cols == 64 ? tile_8x2 : tile_8)(t, n);
    }
}

/* ---- tokens ---- */

/* Tokens [t0, t0 + n) in the columns of a block. */
static void take(const call *c, const part *p, uint32_t t0, uint32_t n, tokens *out)
{
    const uint32_t n_cols = c->a->n_cols;
    const uint32_t col = p->g0 * c->g.cols;
    const uint32_t cols = p->n * c->g.cols;
    const size_t sums = nw_act_sums_at(NW_ACT_INT8, n_cols) + nw_act_level_at(n_cols, c->cols) +
                        (size_t)(col / c->cols) * sizeof(int32_t);
    const __m256i flip = _mm256_set1_epi8((char)0x80);

    for (uint32_t k = 0; k < n; k++) {
        const uint8_t *row = nw_act_row(c->a, t0 + k);
        const uint8_t *codes = row + nw_act_codes_at(NW_ACT_INT8, n_cols) + col;
        for (uint32_t i = 0; i < cols; i += 32) {
            _mm256_store_si256((__m256i *)(void *)(out->codes[k] + i),
                               _mm256_xor_si256(nw_int_load(codes + i), flip));
        }
        for (uint32_t i = 0; c->g.min && i < cols / c->cols; i += 8) { /* codes follow the sums */
            const __m256i x = nw_int_load(row + sums + (size_t)i * sizeof(int32_t));
            _mm256_store_ps(&out->sum[k][i], _mm256_cvtepi32_ps(x));
        }
    }
}

/* A tile's results so far from y, `left` rows of the matrix from there on, or zeros. */
static void open_tile(const part *p, const float *y, size_t ldy, uint32_t left, uint32_t n,
                      float (*out)[NW_PANEL_ROWS])
{
    for (uint32_t k = 0; k < n; k++) {
        __m256 x[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        if (p->g0 > 0) {
            nw_int_rows(y + k * ldy, left, x);
        }
        _mm256_store_ps(out[k], x[0]);
        _mm256_store_ps(out[k] + 8, x[1]);
    }
}

static void run_tokens(const call *c, const part *p, const block *b, uint32_t t0, uint32_t n)
{
    _Alignas(32) float results[NW_TILE_TOKENS][NW_PANEL_ROWS];
    tokens acts;

    take(c, p, t0, n, &acts);
    for (uint32_t q = 0; q < p->np; q++) {
        const uint32_t row = (p->p0 + q) * NW_PANEL_ROWS;
        const uint32_t left = c->w->n_rows - row;
        float *y = c->y + t0 * c->ldy + row;
        const tile t = {.w = b->codes[q],
                        .start = b->start[q][0],
                        .a = acts.codes[0],
                        .scale = b->scale[q],
                        .min = c->g.min ? b->min[q] : NULL,
                        .acts = &acts,
                        .n = p->n * c->g.n_scales,
                        .y = results};
        open_tile(p, y, c->ldy, left, n, results);
        run(c, &t, n);
        for (uint32_t k = 0; k < n; k++) {
            __m256 x[2] = {_mm256_load_ps(results[k]), _mm256_load_ps(results[k] + 8)};
            if (p->g0 + p->n == c->g.n_groups) {
                const float scale = nw_int_act_scale(c->a, nw_act_row(c->a, t0 + k), 0);
                nw_int_finish(c->w->type, c->w->data + (p->p0 + q) * c->panel, NW_END_GROUP, scale,
                              x);
            }
            nw_int_store(y + k * c->ldy, left, x);
        }
    }
}

/* All tokens x a block; the weights that follow are asked for meanwhile. */
static void run_block(const call *c, const part *p)
{
    const bool last = p->g0 + p->n == c->g.n_groups;
    const size_t here = nw_block_at(&c->g, p->g0);
    const size_t end = nw_block_at(&c->g, p->g0 + p->n);
    const uint8_t *next = c->w->data + p->p0 * c->panel + (last ? p->np * c->panel : end);
    const uint32_t n = c->a->n_tokens;
    const uint32_t n_tiles = (n + NW_TILE_TOKENS - 1) / NW_TILE_TOKENS;
    block b;

    for (uint32_t q = 0; q < p->np; q++) {
        widen_panel(c, p, q, &b);
    }
    for (uint32_t i = 0; i < n_tiles; i++) {
        const uint32_t t0 = (uint32_t)((uint64_t)n * i / n_tiles);
        const uint32_t t1 = (uint32_t)((uint64_t)n * (i + 1) / n_tiles);
        const size_t to = (end - here) * (i + 1) / n_tiles;
        for (uint32_t q = 0; q < p->np; q++) {
            for (size_t at = (end - here) * i / n_tiles; at < to; at += 64) {
                _mm_prefetch((const char *)next + q * c->panel + at, _MM_HINT_T1);
            }
        }
        run_tokens(c, p, &b, t0, t1 - t0);
    }
}

void nw_avx2_linear_nibble(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                           float *y, size_t ldy)
{
    call c = {.w = w, .a = a, .g = nw_groups_of(w->type, w->n_cols), .y = y, .ldy = ldy};
    const bool fits = nw_panel_bytes(w->type, w->n_cols, &c.panel);
    const uint32_t step = COLS / c.g.cols;

    assert(fits && a->kind == NW_ACT_INT8 && a->n_cols == w->n_cols);
    (void)fits;
    c.cols = c.g.cols / c.g.n_scales;
    c.quads = part_quads(&c.g);
    for (uint32_t p = panel0; p < panel1; p += PANELS) {
        part at = {.p0 = p, .np = panel1 - p < PANELS ? panel1 - p : PANELS};
        for (; at.g0 < c.g.n_groups; at.g0 += step) {
            at.n = c.g.n_groups - at.g0 < step ? c.g.n_groups - at.g0 : step;
            run_block(&c, &at);
        }
    }
}
