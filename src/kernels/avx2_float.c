/* linear with F32 activations for BF16, BF16-12, FP8 and F32 weights, in vectors of 8 (AVX2, FMA, F16C).
 * One accumulator a row and token, columns in order, so that bits depend on neither the tile nor the
 * number of tokens, and BF16-12 gives those of BF16.
 *
 * Several tokens: panels are taken CHUNK columns at a time, past them all tokens in tiles of up to 6;
 * sums wait in y. So a tile's activations stay in the nearest cache for the panels of a block, and the
 * block's weights in the next one for all tiles. BF16-12 and FP8 are expanded to BF16 a chunk at a time,
 * once for all tokens, both exactly. One token: avx2_float_one.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx2_float.h"

#include <assert.h>

#include "kernels/x86.h"

#define CHUNK  256u /* columns: 6 KiB of activations, 8 KiB of BF16 a panel */
#define PANELS 4u   /* of a block */
#define MOST   12u  /* accumulators of a tile */
#define ASKING \
    4u /* tokens from which on what comes next is asked for: fewer leave it to the hardware */

/* What is constant in a function: panels of a tile (of two vectors each) and tokens. */
typedef struct {
    bool bf16;
    unsigned np, mr;
} form;

/* A chunk of columns for one tile. */
typedef struct {
    const uint8_t *w; /* first panel's columns of the chunk */
    size_t w_stride;  /* bytes from a panel to the next */
    const float *a;   /* first token's */
    size_t lda;
    float *y; /* first token, first row */
    size_t ldy;
    ptrdiff_t ahead;         /* from a byte of w to the one to ask for; 0: none */
    uint32_t n_cols, n_rows; /* n_rows: from here to the end of the matrix */
    bool first;              /* chunk: sums begin at 0 */
    const float *
        scales; /* last chunk of FP8: of the first panel's rows, panels `scale_stride` floats apart */
    size_t scale_stride;
    float factor; /* and what all of them are multiplied by before */
} tile;

NW_INLINE __m256 sums_at(const tile *t, unsigned v, unsigned m)
{
    const uint32_t row = v * 8;

    if (t->first || t->n_rows <= row) {
        return _mm256_setzero_ps();
    }
    const float *y = t->y + m * t->ldy + row;
    return t->n_rows >= row + 8 ? _mm256_loadu_ps(y) : nw_lanes_load_n(y, t->n_rows - row);
}

NW_INLINE void put_sums(const tile *t, unsigned v, unsigned m, __m256 x)
{
    const uint32_t row = v * 8;
    float *y = t->y + m * t->ldy + row;

    if (t->scales != NULL) {
        const float *scales = t->scales + v / 2 * t->scale_stride + v % 2 * 8;
        x = _mm256_mul_ps(_mm256_mul_ps(x, _mm256_set1_ps(t->factor)), _mm256_loadu_ps(scales));
    }
    if (t->n_rows >= row + 8) {
        _mm256_storeu_ps(y, x);
    } else if (t->n_rows > row) {
        nw_lanes_store_n(y, t->n_rows - row, x);
    }
}

NW_INLINE void run_form(const tile *t, const form f)
{
    const unsigned nv = 2 * f.np;
    const unsigned columns = f.bf16 ? 2 : 1;
    const uint32_t steps = (t->n_cols + columns - 1) / columns;
    const uint8_t *w = t->w;
    const float *a = t->a;
    __m256 c[MOST];

    NW_EACH(m, f.mr) {
        NW_EACH(v, nv) {
            c[v * f.mr + m] = sums_at(t, v, m);
        }
    }
    for (uint32_t j = 0; j < steps; j++, w += 64, a += columns) {
        NW_EACH(p, f.np) {
            _mm_prefetch((const char *)(w + p * t->w_stride + t->ahead), _MM_HINT_T1);
        }
        NW_EACH(k, columns) {
            __m256 x[4];
            NW_EACH(v, nv) {
                x[v] = nw_avx2_column(w + v / 2 * t->w_stride + v % 2 * 32, k, f.bf16);
            }
            NW_EACH(m, f.mr) {
                nw_avx2_fma_row(c, x, a + m * t->lda + k, m, nv, f.mr);
            }
        }
    }
    NW_EACH(m, f.mr) {
        NW_EACH(v, nv) {
            put_sums(t, v, m, c[v * f.mr + m]);
        }
    }
}

/* Two panels with up to 3 tokens, so that there are enough chains of sums; one with more. */
#define CASES(bf16, np)                       \
    do {                                      \
        switch (mr) {                         \
        case 1:                               \
            run_form(t, (form){bf16, np, 1}); \
            break;                            \
        case 2:                               \
            run_form(t, (form){bf16, np, 2}); \
            break;                            \
        default:                              \
            run_form(t, (form){bf16, np, 3}); \
            break;                            \
        }                                     \
    } while (0)

static void run_bf16(const tile *t, unsigned np, unsigned mr)
{
    if (mr == 6) {
        run_form(t, (form){true, 1, 6});
    } else if (mr == 5) {
        run_form(t, (form){true, 1, 5});
    } else if (mr == 4) {
        run_form(t, (form){true, 1, 4});
    } else if (np == 2) {
        CASES(true, 2);
    } else {
        CASES(true, 1);
    }
}

static void run_f32(const tile *t, unsigned np, unsigned mr)
{
    if (mr == 6) {
        run_form(t, (form){false, 1, 6});
    } else if (mr == 5) {
        run_form(t, (form){false, 1, 5});
    } else if (mr == 4) {
        run_form(t, (form){false, 1, 4});
    } else if (np == 2) {
        CASES(false, 2);
    } else {
        CASES(false, 1);
    }
}

/* All tokens past a chunk of n_panels panels; tiles as even as they come. */
static void run_chunk(const tile *chunk, uint32_t n_panels, uint32_t n_tokens, bool bf16)
{
    const uint32_t n_tiles = (n_tokens + NW_TILE_TOKENS - 1) / NW_TILE_TOKENS;

    for (uint32_t i = 0; i < n_tiles; i++) {
        const uint32_t t0 = (uint32_t)((uint64_t)n_tokens * i / n_tiles);
        const uint32_t mr = (uint32_t)((uint64_t)n_tokens * (i + 1) / n_tiles) - t0;
        const uint32_t most = mr <= 3 ? 2 : 1;
        uint32_t np = 0;
        for (uint32_t p = 0; p < n_panels; p += np) {
            np = n_panels - p < most ? n_panels - p : most;
            tile t = *chunk;
            t.w += p * t.w_stride;
            /* the first tile asks for what comes next: other panels, or their next chunk */
            t.ahead = i > 0 || t.ahead == 0 ? 0
                      : p + 2 * np <= n_panels
                          ? (ptrdiff_t)(np * t.w_stride)
                          : t.ahead - (ptrdiff_t)((n_panels - np) * t.w_stride);
            t.a += t0 * t.lda;
            t.y += t0 * t.ldy + (size_t)p * NW_PANEL_ROWS;
            t.n_rows -= p * NW_PANEL_ROWS;
            t.scales = t.scales != NULL ? t.scales + p * t.scale_stride : NULL;
            (bf16 ? run_bf16 : run_f32)(&t, np, mr);
        }
    }
}

/* ---- chunks of a block ---- */

/* The panels of a block, read from left to right. */
typedef struct {
    const nw_weight *weight;
    const uint8_t *panels;
    size_t panel; /* bytes */
    uint32_t n_panels;
    nw_bf16_12_reader packed[PANELS];
    _Alignas(64) uint8_t wide[PANELS * CHUNK * 2 * NW_PANEL_ROWS]; /* a chunk as BF16 */
} block;

static void begin_block(block *b, uint32_t p, uint32_t n_panels)
{
    b->panels = b->weight->data + p * b->panel;
    b->n_panels = n_panels;
    for (uint32_t i = 0; b->weight->type.kind == NW_PANEL_BF16_12 && i < n_panels; i++) {
        b->packed[i] =
            nw_x86_bf16_12_read(b->weight->type, b->panels + i * b->panel, b->weight->n_cols);
    }
}

static bool as_it_lies(nw_panel_kind kind)
{
    return kind == NW_PANEL_BF16 || kind == NW_PANEL_F32;
}

/* Columns [c0, c0 + n) of the block's panels as what tiles read. */
static void open_chunk(block *b, uint32_t c0, uint32_t n, uint32_t n_tokens, tile *t)
{
    const nw_panel_kind kind = b->weight->type.kind;

    t->n_cols = n;
    if (as_it_lies(kind)) {
        const size_t column = (size_t)NW_PANEL_ROWS * (kind == NW_PANEL_F32 ? 4 : 2);
        t->w = b->panels + c0 * column;
        t->w_stride = b->panel;
        t->ahead = n_tokens >= ASKING ? (ptrdiff_t)(n * column) : 0;
        return;
    }
    t->w = b->wide;
    t->ahead = 0;
    t->w_stride = (size_t)CHUNK * NW_PANEL_ROWS * 2;
    for (uint32_t i = 0; i < b->n_panels; i++) {
        const uint8_t *panel = b->panels + i * b->panel;
        uint8_t *to = b->wide + i * t->w_stride;
        if (kind == NW_PANEL_BF16_12) {
            nw_x86_bf16_12_expand(&b->packed[i], c0 / 4, (n + 3) / 4,
                                  b->packed[i].quads + (size_t)(n + 3) / 4 * NW_BF16_12_QUAD, to);
        } else {
            nw_avx2_widen_fp8(panel + 64 + (size_t)c0 * NW_PANEL_ROWS, (n + 3) / 4,
                              kind == NW_PANEL_FP8_E4M3, to);
        }
    }
}

static void run_block(block *b, const nw_act *a, tile t)
{
    const nw_panel_kind kind = b->weight->type.kind;
    const uint32_t n = b->weight->n_cols;
    const bool fp8 = kind == NW_PANEL_FP8_E4M3 || kind == NW_PANEL_FP8_E5M2;

    t.scale_stride = b->panel / sizeof(float);
    t.factor = kind == NW_PANEL_FP8_E4M3 ? NW_AVX2_E4M3_FACTOR : 1;
    /* one tile has nothing to come back to: longer streams */
    const uint32_t most = as_it_lies(kind) && a->n_tokens <= NW_TILE_TOKENS ? n : CHUNK;
    for (uint32_t c0 = 0; c0 < n; c0 += most) {
        const uint32_t cols = n - c0 < most ? n - c0 : most;
        t.first = c0 == 0;
        t.a = (const float *)a->data + c0;
        if (fp8 && c0 + cols == n) {
            t.scales = (const float *)(const void *)b->panels;
        }
        open_chunk(b, c0, cols, a->n_tokens, &t);
        run_chunk(&t, b->n_panels, a->n_tokens, kind != NW_PANEL_F32);
    }
}

void nw_avx2_linear_float(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                          float *y, size_t ldy)
{
    block b;

    if (a->n_tokens == 1) {
        nw_avx2_linear_float_one(w, a, panel0, panel1, y);
        return;
    }
    b.weight = w;
    const bool fits = nw_panel_bytes(w->type, w->n_cols, &b.panel);
    assert(fits && a->kind == NW_ACT_F32 && a->n_cols == w->n_cols);
    (void)fits;
    for (uint32_t p = panel0; p < panel1 && a->n_tokens > 0; p += PANELS) {
        const tile t = {.lda = nw_act_stride(NW_ACT_F32, a->n_cols) / sizeof(float),
                        .y = y + (size_t)p * NW_PANEL_ROWS,
                        .ldy = ldy,
                        .n_rows = w->n_rows - p * NW_PANEL_ROWS};
        begin_block(&b, p, panel1 - p < PANELS ? panel1 - p : PANELS);
        run_block(&b, a, t);
    }
}
