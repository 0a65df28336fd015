/* linear for bf16-12 x BF16 activations of many tokens: a block of panels is expanded to BF16 a few
 * columns at a time into a buffer that the nearest cache holds, and all the tokens pass it before the
 * next. The products and their order are those of the bf16 kernel (avx512_float.c), so that the results
 * are the same bits. Sums rest in y between chunks, exactly.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512.h"
#include "kernels/x86.h"

#define PANELS 4u  /* of a block */
#define STEPS  64u /* pairs of columns of a chunk: 4 KiB of BF16 a panel */

typedef struct {
    _Alignas(64) uint8_t words[PANELS][STEPS * 64];
    nw_bf16_12_reader reader[PANELS];
} buffer;

typedef struct {
    const uint8_t *words; /* of the buffer */
    const uint8_t *a;     /* first token, first column of the chunk */
    size_t a_stride;
    uint32_t n_steps;
    float *y; /* first token, first row */
    size_t ldy;
    uint32_t n_rows; /* from here to the end of the matrix */
    bool first;      /* sums start at 0 */
} pass;

NW_INLINE uint32_t rows_left(const pass *p, unsigned panel)
{
    const uint32_t before = panel * NW_PANEL_ROWS;
    return p->n_rows > before ? p->n_rows - before : 0;
}

NW_INLINE void run(const pass *p, const unsigned nv, const unsigned mr)
{
    const uint8_t *a[NW_TILE_TOKENS];
    __m512 c[24];

    NW_EACH(m, mr) {
        a[m] = p->a + m * p->a_stride;
        NW_EACH(v, nv) {
            c[m * nv + v] = p->first ? _mm512_setzero_ps()
                                     : _mm512_maskz_loadu_ps(nw_row_mask(rows_left(p, v)),
                                                             p->y + m * p->ldy + v * 16);
        }
    }
    for (size_t j = 0; j < p->n_steps; j++) {
        __m512i x[4];
        NW_EACH(v, nv) {
            x[v] = _mm512_load_si512(p->words + (size_t)v * STEPS * 64 + j * 64);
        }
        NW_EACH(m, mr) {
            const __m512i b = nw_spread(a[m] + j * 4);
            NW_EACH(v, nv) {
                c[m * nv + v] = nw_dpbf16(c[m * nv + v], x[v], b);
            }
        }
    }
    NW_EACH(v, nv) {
        NW_EACH(m, mr) {
            nw_store_rows(p->y + m * p->ldy + v * 16, rows_left(p, v), c[m * nv + v]);
        }
    }
}

NW_INLINE void run_tokens(const pass *p, const unsigned nv, unsigned mr)
{
    switch (mr) {
    case 1:
        run(p, nv, 1);
        return;
    case 2:
        run(p, nv, 2);
        return;
    case 3:
        run(p, nv, 3);
        return;
    case 4:
        run(p, nv, 4);
        return;
    case 5:
        run(p, nv, 5);
        return;
    default:
        run(p, nv, 6);
        return;
    }
}

/* All the tokens past one buffer, in tiles as even as they come. */
static void run_all(pass p, const nw_act *a, size_t column, unsigned nv, float *y)
{
    const uint32_t n_tiles = (a->n_tokens + NW_TILE_TOKENS - 1) / NW_TILE_TOKENS;

    for (uint32_t i = 0; i < n_tiles; i++) {
        const uint32_t t0 = (uint32_t)((uint64_t)a->n_tokens * i / n_tiles);
        const uint32_t t1 = (uint32_t)((uint64_t)a->n_tokens * (i + 1) / n_tiles);
        p.a = (const uint8_t *)a->data + t0 * p.a_stride + column * sizeof(uint16_t);
        p.y = y + t0 * p.ldy;
        if (nv == PANELS) {
            run_tokens(&p, PANELS, t1 - t0);
        } else {
            run_tokens(&p, 1, t1 - t0);
        }
    }
}

/* Where the reading of a panel goes on after quads [.., quad1): in the panel, or in the next block. */
static const uint8_t *continued(const uint8_t *panel, size_t quad1, size_t quads, size_t block)
{
    return panel + (quad1 < quads ? NW_BF16_12_HEAD + quad1 * NW_BF16_12_QUAD : block);
}

static void run_block(const nw_weight *w, const nw_act *a, const uint8_t *panels, size_t stride,
                      unsigned nv, pass p, float *y)
{
    const uint32_t quads = (w->n_cols + 3) / 4;
    const uint32_t steps = (w->n_cols + 1) / 2; /* as many products as bf16 */
    buffer b;

    for (unsigned v = 0; v < nv; v++) {
        b.reader[v] = nw_x86_bf16_12_read(w->type, panels + v * stride, w->n_cols);
    }
    p.words = b.words[0];
    for (uint32_t s0 = 0; s0 < steps; s0 += STEPS) {
        p.n_steps = steps - s0 < STEPS ? steps - s0 : STEPS;
        p.first = s0 == 0;
        const uint32_t quad1 = (s0 + p.n_steps + 1) / 2;
        for (unsigned v = 0; v < nv; v++) {
            const uint8_t *panel = panels + v * stride;
            nw_x86_bf16_12_expand(&b.reader[v], s0 / 2, quad1 - s0 / 2,
                                  continued(panel, quad1, quads, nv * stride), b.words[v]);
        }
        run_all(p, a, (size_t)s0 * 2, nv, y);
    }
}

void nw_avx512_linear_expanded(const nw_weight *w, const nw_act *a, uint32_t panel0,
                               uint32_t panel1, float *y, size_t ldy)
{
    size_t stride = 0;
    const bool fits = nw_panel_bytes(w->type, w->n_cols, &stride);
    pass p = {.a_stride = nw_act_stride(a->kind, a->n_cols), .ldy = ldy};

    (void)fits; /* checked when the tensor was opened */
    for (uint32_t i = panel0; i < panel1 && a->n_tokens > 0;) {
        const unsigned nv = panel1 - i >= PANELS ? PANELS : 1;
        p.n_rows = w->n_rows - i * NW_PANEL_ROWS;
        run_block(w, a, w->data + i * stride, stride, nv, p, y + (size_t)i * NW_PANEL_ROWS);
        i += nv;
    }
}
