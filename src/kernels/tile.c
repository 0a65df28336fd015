/* The loops around the tiles: for each block of panels, for each tile of tokens. The block's
 * weights come from memory once and are then in L2; activations stream past them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/tile.h"

#include <assert.h>

/* All the tokens against one block of panels. Tiles are as even as they come (7 tokens are 4 + 3
 * and not 6 + 1). Where `more` follows, the first tiles prefetch the next block between them. */
static void run_block(nw_tile *t, const nw_act *a, const nw_tile_width *width, float *y, bool more)
{
    const uint32_t n = a->n_tokens;
    const uint32_t n_tiles = (n + width->n_tokens - 1) / width->n_tokens;
    const uint32_t ahead = (width->n_panels + n_tiles - 1) / n_tiles;

    for (uint32_t i = 0; i < n_tiles; i++) {
        const uint32_t t0 = (uint32_t)((uint64_t)n * i / n_tiles);
        const uint32_t t1 = (uint32_t)((uint64_t)n * (i + 1) / n_tiles);
        t->a = (const uint8_t *)a->data + t0 * t->a_stride;
        t->y = y + t0 * t->ldy;
        t->ahead = more && i * ahead < width->n_panels ? ahead : 0;
        t->next = t->w + (t->ahead > 0 ? (width->n_panels + i * ahead) * t->w_stride : 0);
        width->run(t, t1 - t0);
    }
}

static void walk(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                 size_t ldy, const nw_tile_width *width, uint32_t far)
{
    size_t panel = 0;
    const bool fits = nw_panel_bytes(w->type, w->n_cols, &panel);
    const uint32_t n_panels =
        nw_panel_count(w->n_rows); /* whoever reads the next block, it helps */
    nw_tile t = {.type = w->type,
                 .n_cols = w->n_cols,
                 .w_stride = panel,
                 .a_stride = nw_act_stride(a->kind, a->n_cols),
                 .far = far,
                 .ldy = ldy};

    assert(fits && a->n_cols == w->n_cols && panel1 <= n_panels);
    (void)fits;
    for (uint32_t p = panel0; p < panel1 && a->n_tokens > 0; p += width->n_panels) {
        while (width->n_panels > panel1 - p) {
            width++;
        }
        t.w = w->data + p * panel;
        t.n_panels = width->n_panels;
        t.n_rows = w->n_rows - p * NW_PANEL_ROWS;
        run_block(&t, a, width, y + (size_t)p * NW_PANEL_ROWS, p + 2 * width->n_panels <= n_panels);
    }
}

void nw_linear_tiled(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                     float *y, size_t ldy, const nw_tile_width *one, const nw_tile_width *many)
{
    walk(w, a, panel0, panel1, y, ldy, a->n_tokens == 1 ? one : many, 0);
}

void nw_linear_far(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy, nw_tile_fn one, uint32_t far)
{
    const nw_tile_width width = {1, 1, one};

    assert(a->n_tokens == 1);
    walk(w, a, panel0, panel1, y, ldy, &width, far);
}
