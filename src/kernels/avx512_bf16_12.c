/* linear for bf16-12 panels x BF16 activations: 12 bits become BF16 in registers, and the products are those of
 * the bf16 kernel in the same order, so that the results are the same bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_bf16_12.h"

/* How far ahead a single panel is asked for; 4 side by side are left to the hardware (docs/speed.md). */
#define AHEAD_BYTES 4096

NW_INLINE void tile(const nw_tile *t, const unsigned nv, const unsigned mr)
{
    const uint32_t pairs = (t->n_cols + 1) / 2;
    const uint8_t *w[4];
    __m512i exponents[4];
    nw_rare rare[4];
    __m512 c[12];

    NW_EACH(v, nv) {
        const uint8_t *panel = t->w + v * t->w_stride;
        w[v] = panel + NW_BF16_12_HEAD;
        exponents[v] = nw_exponents_of(panel);
        rare[v] = nw_rare_of(t, panel);
        NW_EACH(m, mr) {
            c[m * nv + v] = _mm512_setzero_ps();
        }
    }
    for (uint32_t j = 0; 2 * j < pairs; j++) {
        const bool second = 2 * j + 1 < pairs; /* bf16 has no pair there either */
        __m512i p01[4];
        __m512i p23[4];
        NW_EACH(v, nv) {
            const uint8_t *quad = w[v] + (size_t)j * NW_BF16_12_QUAD;
            if (nv == 1) {
                _mm_prefetch((const char *)quad + AHEAD_BYTES, _MM_HINT_T0);
                _mm_prefetch((const char *)quad + AHEAD_BYTES + 64, _MM_HINT_T0);
            }
            nw_expand_quad(quad, exponents[v], &rare[v], j, &p01[v], &p23[v]);
        }
        NW_EACH(m, mr) {
            const uint8_t *a = t->a + m * t->a_stride + (size_t)j * 8;
            const __m512i b01 = nw_spread(a);
            NW_EACH(v, nv) {
                c[m * nv + v] = nw_dpbf16(c[m * nv + v], p01[v], b01);
            }
            const __m512i b23 = nw_spread(a + 4);
            if (second) {
                NW_EACH(v, nv) {
                    c[m * nv + v] = nw_dpbf16(c[m * nv + v], p23[v], b23);
                }
            }
        }
    }
    NW_EACH(v, nv) {
        const uint32_t left = nw_rows_left(t, v);
        NW_EACH(m, mr) {
            nw_store_rows(t->y + m * t->ldy + v * 16, left, c[m * nv + v]);
        }
    }
}

#define TILE(mr)                            \
    static void tile_##mr(const nw_tile *t) \
    {                                       \
        tile(t, 1, mr);                     \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)

/* A panel is widened once for all tokens of a tile: the more, the better, as long as their sums are in
 * registers. */
#define MOST_TOKENS 12u

static void run(const nw_tile *t, unsigned mr)
{
    static void (*const tiles[])(const nw_tile *) = {tile_1, tile_2,  tile_3,  tile_4,
                                                     tile_5, tile_6,  tile_7,  tile_8,
                                                     tile_9, tile_10, tile_11, tile_12};
    if (t->n_panels == 4) {
        tile(t, 4, 1);
    } else {
        tiles[mr - 1](t);
    }
}

void nw_avx512_linear_bf16_12(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                              float *y, size_t ldy)
{
    static const nw_tile_width widths[] = {{4, 1, run}, {1, MOST_TOKENS, run}};
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, widths, widths + 1);
}
