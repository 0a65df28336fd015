/* Panels of INT8 and INT4: packers and the span decoder (layout in panel.h). One view of a group, its
 * codes, scale, zero point and minimum, serves every variant.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "formats/panel_parts.h"

#define HALVES      32u /* bytes of 16 fp16 scales or minima */
#define LOW_NIBBLES 0x0F0F0F0FU
#define SIGN_BIT    0x80U
#define SIGN_BITS   0x80808080U

static const uint8_t no_codes[NW_PANEL_ROWS] = {0};

void nw_panel_put_nibbles(uint32_t group, const uint8_t *codes, size_t ld, const uint8_t pad[16],
                          uint32_t n_rows, uint32_t n_cols, uint8_t *dst)
{
    const uint32_t quads = group / 8U;

    for (uint32_t r = 0; r < NW_PANEL_ROWS; r++) {
        const uint8_t *row = r < n_rows ? codes + r * ld : codes;
        const uint32_t n = r < n_rows ? n_cols : 0;
        for (uint32_t j = 0; j < quads; j++) {
            const uint32_t low = nw_panel_quad(row, n, 4 * j, pad[r]) & LOW_NIBBLES;
            const uint32_t high = nw_panel_quad(row, n, 4 * (j + quads), pad[r]) & LOW_NIBBLES;
            const uint32_t v = low | high << 4;
            memcpy(dst + (size_t)j * 64 + r * 4, &v, sizeof v);
        }
    }
}

/* The eight-bit codes of one group; `pad` [16] as of nibbles. */
static void put_bytes(uint32_t group, const uint8_t *codes, size_t ld, const uint8_t pad[16],
                      uint32_t n_rows, uint32_t n_cols, uint8_t *dst)
{
    for (uint32_t r = 0; r < NW_PANEL_ROWS; r++) {
        const uint8_t *row = r < n_rows ? codes + r * ld : codes;
        const uint32_t n = r < n_rows ? n_cols : 0;
        for (uint32_t c = 0; c < group; c += 4) {
            const uint32_t v = nw_panel_quad(row, n, c, pad[r]) ^ SIGN_BITS;
            memcpy(dst + (size_t)c * 16 + r * 4, &v, sizeof v);
        }
    }
}

void nw_panel_pack_int8(const int8_t *codes, size_t ld, const float *scales, uint32_t n_rows,
                        uint32_t n_cols, uint8_t *panel)
{
    const size_t size = nw_panel_size((nw_panel_type){.kind = NW_PANEL_INT8}, n_cols);

    assert(n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, 64);
    memcpy(panel, scales, n_rows * sizeof *scales);
    put_bytes((uint32_t)(size / 16 - 4), (const uint8_t *)codes, ld, no_codes, n_rows, n_cols,
              panel + 64);
}

/* Half `g` of each row, zero for the rows that are missing; returns the bytes after it. */
static uint8_t *put_halves(const uint16_t *halves, size_t ld, uint32_t g, uint32_t n_rows,
                           uint8_t *dst)
{
    memset(dst, 0, HALVES);
    for (uint32_t r = 0; r < n_rows; r++) {
        memcpy(dst + r * sizeof *halves, &halves[r * ld + g], sizeof *halves);
    }
    return dst + HALVES;
}

void nw_panel_pack_int8_groups(nw_panel_type type, const int8_t *codes, size_t ld,
                               const uint16_t *scales, const uint16_t *mins, const int8_t *zeros,
                               size_t lds, uint32_t n_rows, uint32_t n_cols, uint8_t *panel)
{
    const uint32_t n_groups = nw_panel_groups(type, n_cols);

    assert(type.kind == NW_PANEL_INT8 && type.group > 0 && !type.two_level);
    assert(n_rows <= NW_PANEL_ROWS && type.min == (mins != NULL));
    assert(type.zero_point == (zeros != NULL) && !(type.min && type.zero_point));
    memset(panel, 0, nw_panel_size(type, n_cols));
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t c0 = g * type.group;
        panel = put_halves(scales, lds, g, n_rows, panel);
        if (mins != NULL) {
            panel = put_halves(mins, lds, g, n_rows, panel);
        }
        uint8_t zero[NW_PANEL_ROWS] = {0};
        for (uint32_t r = 0; zeros != NULL && r < NW_PANEL_ROWS; r++) {
            zero[r] = r < n_rows ? (uint8_t)zeros[r * lds + g] : 0;
            *panel++ = zero[r] ^ SIGN_BIT;
        }
        put_bytes(type.group, (const uint8_t *)codes + c0, ld, zero, n_rows, n_cols - c0, panel);
        panel += type.group * 16U;
    }
}

void nw_panel_pack_int4(nw_panel_type type, const uint8_t *codes, size_t ld, const uint16_t *scales,
                        const uint8_t *zeros, size_t lds, uint32_t n_rows, uint32_t n_cols,
                        uint8_t *panel)
{
    const uint32_t n_groups = nw_panel_groups(type, n_cols);

    assert(type.kind == NW_PANEL_INT4 && !type.min && n_rows <= NW_PANEL_ROWS);
    assert(type.zero_point == (zeros != NULL));
    memset(panel, 0, nw_panel_size(type, n_cols));
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t c0 = g * type.group;
        uint8_t zero[16];
        memset(zero, 8, sizeof zero);
        for (uint32_t r = 0; r < n_rows && zeros != NULL; r++) {
            zero[r] = zeros[r * lds + g] & 15U;
        }
        panel = put_halves(scales, lds, g, n_rows, panel);
        if (type.zero_point) {
            memcpy(panel, zero, sizeof zero);
            panel += sizeof zero;
        }
        nw_panel_put_nibbles(type.group, codes + c0, ld, zero, n_rows, n_cols - c0, panel);
        panel += type.group * 8U;
    }
}

void nw_panel_pack_int4_min(nw_panel_type type, const uint8_t *codes, size_t ld,
                            const uint16_t *scales, const uint16_t *mins, size_t lds,
                            uint32_t n_rows, uint32_t n_cols, uint8_t *panel)
{
    const uint32_t n_groups = nw_panel_groups(type, n_cols);

    assert(type.kind == NW_PANEL_INT4 && type.min && !type.two_level && n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, nw_panel_size(type, n_cols));
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t c0 = g * type.group;
        panel = put_halves(scales, lds, g, n_rows, panel);
        panel = put_halves(mins, lds, g, n_rows, panel);
        nw_panel_put_nibbles(type.group, codes + c0, ld, no_codes, n_rows, n_cols - c0, panel);
        panel += type.group * 8U;
    }
}

/* The bytes of one block of 256 columns, b0 its first group. */
static void pack_k_block(nw_panel_type type, const nw_panel_k_rows *k, uint32_t block,
                         uint32_t n_rows, uint8_t *dst)
{
    const uint32_t n_groups = NW_PANEL_K_COLS / type.group;
    const uint32_t code_bytes = type.group * 2U * nw_panel_code_bits(type);
    uint8_t *scales = dst + 2 * HALVES;
    uint8_t *mins = scales + n_groups * 16U;
    uint8_t *codes = mins + (type.min ? n_groups * 16U : 0);

    (void)put_halves(k->d, k->ld_block, block, n_rows, dst);
    if (type.min) {
        (void)put_halves(k->dmin, k->ld_block, block, n_rows, dst + HALVES);
    }
    for (uint32_t i = 0; i < n_groups; i++, codes += code_bytes) {
        const uint32_t g = block * n_groups + i;
        const uint8_t *src = k->codes + (size_t)g * type.group;
        for (uint32_t r = 0; r < n_rows; r++) {
            scales[i * 16U + r] = (uint8_t)k->scales[r * k->lds + g];
            if (type.min) {
                mins[i * 16U + r] = k->mins[r * k->lds + g];
            }
        }
        if (type.kind == NW_PANEL_INT4) {
            nw_panel_put_nibbles(type.group, src, k->ld, no_codes, n_rows, type.group, codes);
        } else {
            put_bytes(type.group, src, k->ld, no_codes, n_rows, type.group, codes);
        }
    }
}

void nw_panel_pack_k(nw_panel_type type, const nw_panel_k_rows *rows, uint32_t n_rows,
                     uint32_t n_cols, uint8_t *panel)
{
    const uint32_t block_bytes = nw_panel_shape_of(type).unit_bytes;

    assert(type.two_level && n_rows <= NW_PANEL_ROWS && n_cols % NW_PANEL_K_COLS == 0);
    memset(panel, 0, nw_panel_size(type, n_cols));
    for (uint32_t b = 0; b < n_cols / NW_PANEL_K_COLS; b++) {
        pack_k_block(type, rows, b, n_rows, panel + (size_t)b * block_bytes);
    }
}

static const uint8_t *k_block(const nw_panel_row *p, uint32_t g)
{
    const uint32_t n_groups = NW_PANEL_K_COLS / p->type.group;
    return p->panel + (size_t)(g / n_groups) * nw_panel_shape_of(p->type).unit_bytes;
}

nw_panel_k_scales nw_panel_k_scales_of(const nw_panel_row *p, uint32_t g)
{
    const uint32_t n_groups = NW_PANEL_K_COLS / p->type.group;
    const size_t at = (size_t)(g % n_groups) * 16U + p->r;
    const uint8_t *block = k_block(p, g);
    const uint8_t *scales = block + 2 * HALVES;

    return (nw_panel_k_scales){.d = nw_panel_half(block, p->r),
                               .dmin = nw_panel_half(block + HALVES, p->r),
                               .scale = (int8_t)scales[at],
                               .min = p->type.min ? scales[n_groups * 16U + at] : 0};
}

/* Group `g` of a -k panel. */
static nw_panel_group k_group(const nw_panel_row *p, uint32_t g)
{
    const nw_panel_type type = p->type;
    const uint32_t n_groups = NW_PANEL_K_COLS / type.group;
    const nw_panel_k_scales k = nw_panel_k_scales_of(p, g);
    const uint8_t *codes = k_block(p, g) + 2 * HALVES + n_groups * (type.min ? 32U : 16U);
    nw_panel_group out = {.codes =
                              codes + g % n_groups * type.group * 2U * nw_panel_code_bits(type)};

    out.scale = nw_f16_to_f32(k.d) * (float)k.scale;
    if (type.min) {
        out.min = -(nw_f16_to_f32(k.dmin) * (float)k.min);
    }
    return out;
}

nw_panel_int_parts nw_panel_int_parts_of(nw_panel_type type, const uint8_t *panel, uint32_t g)
{
    const uint8_t *b = panel + (size_t)g * nw_panel_shape_of(type).unit_bytes;
    nw_panel_int_parts parts = {0};

    if (type.group == 0) {
        parts.codes = panel + 64;
        return parts;
    }
    parts.scale = b;
    b += HALVES;
    if (type.min) {
        parts.min = b;
        b += HALVES;
    }
    if (type.zero_point) {
        parts.zero = b;
        b += 16;
    }
    parts.codes = b;
    return parts;
}

int8_t nw_panel_int_zero(nw_panel_type type, const nw_panel_int_parts *parts, uint32_t r)
{
    if (parts->zero == NULL) {
        return type.kind == NW_PANEL_INT4 && !type.min ? 8 : 0;
    }
    return (int8_t)(type.kind == NW_PANEL_INT8 ? parts->zero[r] ^ SIGN_BIT : parts->zero[r]);
}

nw_panel_group nw_panel_int_group(const nw_panel_row *p, uint32_t g)
{
    const nw_panel_type type = p->type;

    if (type.two_level) {
        return k_group(p, g);
    }
    const nw_panel_int_parts parts = nw_panel_int_parts_of(type, p->panel, g);
    nw_panel_group out = {.codes = parts.codes, .zero = nw_panel_int_zero(type, &parts, p->r)};
    if (parts.scale == NULL) {
        memcpy(&out.scale, p->panel + p->r * sizeof out.scale, sizeof out.scale);
        return out;
    }
    out.scale = nw_f16_to_f32(nw_panel_half(parts.scale, p->r));
    if (parts.min != NULL) {
        out.min = nw_f16_to_f32(nw_panel_half(parts.min, p->r));
    }
    return out;
}

/* The code of column c of the group. */
static int code_in(const nw_panel_row *p, const nw_panel_group *g, uint32_t c)
{
    unsigned shift = 0;

    if (p->type.kind == NW_PANEL_INT8) {
        return g->codes[nw_panel_byte_at(c, p->r)] - 128;
    }
    const size_t at = nw_panel_nibble_at(p->type.group, c, p->r, &shift);
    return g->codes[at] >> shift & 15;
}

int8_t nw_panel_int_code(const nw_panel_row *p, uint32_t c)
{
    const uint32_t group = p->type.group > 0 ? p->type.group : UINT32_MAX;
    const nw_panel_group g = nw_panel_int_group(p, c / group);
    return (int8_t)code_in(p, &g, c % group);
}

void nw_panel_span_int(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out)
{
    const uint32_t group = p->type.group > 0 ? p->type.group : UINT32_MAX;
    nw_panel_group g = {0};

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t c = (c0 + i) % group;
        if (i == 0 || c == 0) {
            g = nw_panel_int_group(p, (c0 + i) / group);
        }
        const float w = g.scale * (float)(code_in(p, &g, c) - g.zero);
        out[i] = p->type.min ? w + g.min : w;
    }
}
