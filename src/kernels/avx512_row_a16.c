/* linear for fp8 panels (one scale a row) x BF16 activations: bytes are widened to BF16 as they are
 * read, again for each tile of tokens (docs/speed.md: better than once for all). One accumulator a row and token, columns in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/avx512_bytes.h"

NW_INLINE void tile(const nw_tile *t, const nw_bytes k, const unsigned nv, const unsigned mr)
{
    const uint32_t quads = (t->n_cols + 3) / 4;
    const uint8_t *w[4];
    const uint8_t *a[NW_TILE_TOKENS];
    const nw_byte_tables tables = nw_byte_tables_of(k);
    const uint8_t *next = t->next;
    __m512 c[12];

    NW_EACH(v, nv) {
        w[v] = t->w + v * t->w_stride + 64;
    }
    NW_EACH(m, mr) {
        a[m] = t->a + m * t->a_stride;
        NW_EACH(v, nv) {
            c[m * nv + v] = _mm512_setzero_ps();
        }
    }
    for (size_t j = 0; j < quads; j++) {
        __m512i p01[4];
        __m512i p23[4];
        next = nw_prefetch(next, t->ahead);
        NW_EACH(v, nv) {
            nw_widen_bytes(&tables, _mm512_loadu_si512(w[v] + j * 64), &p01[v], &p23[v]);
        }
        NW_EACH(m, mr) {
            const __m512i b01 = nw_spread(a[m] + j * 8);
            const __m512i b23 = nw_spread(a[m] + j * 8 + 4);
            NW_EACH(v, nv) {
                c[m * nv + v] = nw_dpbf16(c[m * nv + v], p01[v], b01);
                c[m * nv + v] = nw_dpbf16(c[m * nv + v], p23[v], b23);
            }
        }
    }
    NW_EACH(v, nv) {
        const uint32_t left = nw_rows_left(t, v);
        const __m512 s = _mm512_loadu_ps(t->w + v * t->w_stride);
        NW_EACH(m, mr) {
            nw_store_rows(t->y + m * t->ldy + v * 16, left, _mm512_mul_ps(c[m * nv + v], s));
        }
    }
}

NW_INLINE void tokens(const nw_tile *t, const nw_bytes k, const unsigned nv, unsigned mr)
{
    switch (mr) {
    case 1:
        tile(t, k, nv, 1);
        return;
    case 2:
        tile(t, k, nv, 2);
        return;
    case 3:
        tile(t, k, nv, 3);
        return;
    case 4:
        tile(t, k, nv, 4);
        return;
    case 5:
        tile(t, k, nv, 5);
        return;
    default:
        tile(t, k, nv, 6);
        return;
    }
}

NW_INLINE void panels(const nw_tile *t, const nw_bytes k, unsigned mr)
{
    if (t->n_panels == 4) {
        tile(t, k, 4, 1);
    } else if (t->n_panels == 2) {
        tokens(t, k, 2, mr);
    } else {
        tokens(t, k, 1, mr);
    }
}

static void e4m3(const nw_tile *t, unsigned mr)
{
    panels(t, NW_BYTES_E4M3, mr);
}

static void e5m2(const nw_tile *t, unsigned mr)
{
    panels(t, NW_BYTES_E5M2, mr);
}

void nw_avx512_linear_row_a16(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                              float *y, size_t ldy)
{
    static const nw_tile_width widths[2][3] = {{{4, 1, e4m3}, {2, 6, e4m3}, {1, 6, e4m3}},
                                               {{4, 1, e5m2}, {2, 6, e5m2}, {1, 6, e5m2}}};
    const nw_tile_width *k = widths[w->type.kind == NW_PANEL_FP8_E5M2];
    nw_linear_tiled(w, a, panel0, panel1, y, ldy, k, k + 1);
}
