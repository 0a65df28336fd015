/* Panels of FP8, NVFP4 and MXFP4: packers and span decoders (layout in panel.h). NVFP4 and MXFP4 place
 * their codes as INT4 in groups of 32 does; only the scales differ.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "formats/fp4.h"
#include "formats/fp8.h"
#include "formats/panel_parts.h"

#define UNIT 32u /* columns of a unit of NVFP4 and MXFP4 */

void nw_panel_pack_fp8(nw_panel_type type, const uint8_t *codes, size_t ld, const float *scales,
                       uint32_t n_rows, uint32_t n_cols, uint8_t *panel)
{
    assert(type.kind == NW_PANEL_FP8_E4M3 || type.kind == NW_PANEL_FP8_E5M2);
    assert(n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, nw_panel_size(type, n_cols));
    memcpy(panel, scales, n_rows * sizeof *scales);
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t c = 0; c < n_cols; c += 4) {
            const uint32_t v = nw_panel_quad(codes + r * ld, n_cols, c, 0);
            uint8_t *dst = panel + 64 + nw_panel_split_at(c, r);
            memcpy(dst, &v, 2);
            memcpy(dst + 8, (const uint8_t *)&v + 2, 2);
        }
    }
}

/* Scale `b` of each row; zero for the rows that are missing. */
static void put_scales(const uint8_t *scales, size_t lds, uint32_t b, uint32_t n_rows, uint8_t *dst)
{
    memset(dst, 0, 16);
    for (uint32_t r = 0; r < n_rows; r++) {
        dst[r] = scales[r * lds + b];
    }
}

void nw_panel_pack_nvfp4(const uint8_t *codes, size_t ld, const uint8_t *scales, size_t lds,
                         float tensor_scale, uint32_t n_rows, uint32_t n_cols, uint8_t *panel)
{
    static const nw_panel_type type = {.kind = NW_PANEL_NVFP4, .group = 16};
    static const uint8_t pad[16] = {0};
    const uint32_t n_blocks = (n_cols + 15) / 16; /* that have a scale */

    assert(n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, nw_panel_size(type, n_cols));
    memcpy(panel, &tensor_scale, sizeof tensor_scale);
    panel += 64;
    for (uint32_t c = 0; c < n_cols; c += UNIT, panel += 32 + UNIT * 8) {
        const uint32_t b = c / 16;
        put_scales(scales, lds, b, n_rows, panel);
        if (b + 1 < n_blocks) {
            put_scales(scales, lds, b + 1, n_rows, panel + 16);
        }
        nw_panel_put_nibbles(UNIT, codes + c, ld, pad, n_rows, n_cols - c, panel + 32);
    }
}

void nw_panel_pack_mxfp4(const uint8_t *codes, size_t ld, const uint8_t *scales, size_t lds,
                         uint32_t n_rows, uint32_t n_cols, uint8_t *panel)
{
    static const nw_panel_type type = {.kind = NW_PANEL_MXFP4, .group = UNIT};
    static const uint8_t pad[16] = {0};

    assert(n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, nw_panel_size(type, n_cols));
    for (uint32_t c = 0; c < n_cols; c += UNIT, panel += 16 + UNIT * 8) {
        put_scales(scales, lds, c / UNIT, n_rows, panel);
        nw_panel_put_nibbles(UNIT, codes + c, ld, pad, n_rows, n_cols - c, panel + 16);
    }
}

/* Where the unit of column c begins. */
static const uint8_t *unit_of(const nw_panel_row *p, uint32_t c)
{
    const nw_panel_shape s = nw_panel_shape_of(p->type);
    return p->panel + s.head + (size_t)(c / UNIT) * s.unit_bytes;
}

uint8_t nw_panel_fp_scale_code(const nw_panel_row *p, uint32_t g)
{
    return p->type.kind == NW_PANEL_NVFP4 ? unit_of(p, g * 16)[g % 2 * 16 + p->r]
                                          : unit_of(p, g * UNIT)[p->r];
}

float nw_panel_fp_scale(const nw_panel_row *p, uint32_t g)
{
    float scale = 0;

    if (p->type.kind == NW_PANEL_NVFP4) {
        return nw_e4m3_to_f32(nw_panel_fp_scale_code(p, g));
    }
    if (p->type.kind == NW_PANEL_MXFP4) {
        return nw_e8m0_to_f32(nw_panel_fp_scale_code(p, g));
    }
    memcpy(&scale, p->panel + p->r * sizeof scale, sizeof scale);
    return scale;
}

uint8_t nw_panel_fp_code(const nw_panel_row *p, uint32_t c)
{
    const uint32_t scales = p->type.kind == NW_PANEL_NVFP4 ? 32 : 16; /* bytes before the codes */
    unsigned shift = 0;

    if (p->type.group == 0) {
        return p->panel[64 + nw_panel_split_at(c, p->r)];
    }
    const size_t at = nw_panel_nibble_at(UNIT, c % UNIT, p->r, &shift);
    return (uint8_t)((unsigned)unit_of(p, c)[scales + at] >> shift & 15U);
}

void nw_panel_span_fp8(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out)
{
    const float scale = nw_panel_fp_scale(p, 0);
    const bool e4m3 = p->type.kind == NW_PANEL_FP8_E4M3;

    for (uint32_t i = 0; i < n; i++) {
        const uint8_t code = nw_panel_fp_code(p, c0 + i);
        out[i] = scale * (e4m3 ? nw_e4m3_to_f32(code) : nw_e5m2_to_f32(code));
    }
}

void nw_panel_span_fp4(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out)
{
    const float tensor = nw_panel_tensor_scale(p->type, p->panel);
    const uint32_t group = p->type.group;
    float scale = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t c = c0 + i;
        if (i == 0 || c % group == 0) {
            scale = nw_panel_fp_scale(p, c / group);
        }
        out[i] = tensor * (nw_e2m1_to_f32(nw_panel_fp_code(p, c)) * scale);
    }
}
