/* Panels of F32 and BF16: packers and span decoders (layout in panel.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "formats/panel_parts.h"

void nw_panel_pack_f32(const float *w, size_t ld, uint32_t n_rows, uint32_t n_cols, uint8_t *panel)
{
    assert(n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, nw_panel_size((nw_panel_type){.kind = NW_PANEL_F32}, n_cols));
    for (uint32_t c = 0; c < n_cols; c++) {
        for (uint32_t r = 0; r < n_rows; r++) {
            memcpy(panel + ((size_t)c * 16 + r) * sizeof *w, &w[r * ld + c], sizeof *w);
        }
    }
}

static size_t pair_at(uint32_t c, uint32_t r)
{
    return (size_t)(c / 2) * 64 + r * 4 + (c % 2) * 2;
}

void nw_panel_pack_bf16(const uint16_t *w, size_t ld, uint32_t n_rows, uint32_t n_cols,
                        uint8_t *panel)
{
    assert(n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, nw_panel_size((nw_panel_type){.kind = NW_PANEL_BF16}, n_cols));
    for (uint32_t c = 0; c + 1 < n_cols; c += 2) {
        for (uint32_t r = 0; r < n_rows; r++) {
            memcpy(panel + pair_at(c, r), &w[r * ld + c], 2 * sizeof *w);
        }
    }
    for (uint32_t r = 0; n_cols % 2 != 0 && r < n_rows; r++) {
        memcpy(panel + pair_at(n_cols - 1, r), &w[r * ld + n_cols - 1], sizeof *w);
    }
}

void nw_panel_span_f32(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&out[i], p->panel + ((size_t)(c0 + i) * 16 + p->r) * sizeof *out, sizeof *out);
    }
}

void nw_panel_span_bf16(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t h = 0;
        memcpy(&h, p->panel + pair_at(c0 + i, p->r), sizeof h);
        out[i] = nw_bf16_to_f32(h);
    }
}
