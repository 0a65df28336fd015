/* Sizes, packers and the reference decode of the 16-row panels (layout in panel.h). Plain loops: a
 * packer runs once when an artifact is written or a checkpoint is opened, and the decode is what
 * every fast kernel is tested against.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/panel.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "formats/half.h"

/* The names an artifact and a recipe use; the only list of what can be packed. */
static const struct {
    const char *name;
    nw_panel_type type;
} panel_names[] = {
    {"f32", {NW_PANEL_F32, 0, false}},
    {"bf16", {NW_PANEL_BF16, 0, false}},
    {"int8", {NW_PANEL_INT8, 0, false}},
    {"int4-g32", {NW_PANEL_INT4, 32, false}},
    {"int4-g64", {NW_PANEL_INT4, 64, false}},
    {"int4-g128", {NW_PANEL_INT4, 128, false}},
    {"int4-g32-zp", {NW_PANEL_INT4, 32, true}},
    {"int4-g64-zp", {NW_PANEL_INT4, 64, true}},
    {"int4-g128-zp", {NW_PANEL_INT4, 128, true}},
};

const char *nw_panel_name(nw_panel_type type, char buf[32])
{
    (void)snprintf(buf, 32, "unknown-%d-g%u", (int)type.kind, type.group);
    for (size_t i = 0; i < NW_COUNT(panel_names); i++) {
        const nw_panel_type t = panel_names[i].type;
        if (t.kind == type.kind && t.group == type.group && t.zero_point == type.zero_point) {
            (void)snprintf(buf, 32, "%s", panel_names[i].name);
        }
    }
    return buf;
}

bool nw_panel_parse(const char *name, nw_panel_type *out)
{
    for (size_t i = 0; i < NW_COUNT(panel_names); i++) {
        if (strcmp(panel_names[i].name, name) == 0) {
            *out = panel_names[i].type;
            return true;
        }
    }
    return false;
}

/* Columns that come as one unit: a pair, a quad, a group. */
static uint32_t unit_cols(nw_panel_type type)
{
    switch (type.kind) {
    case NW_PANEL_F32:
        return 1;
    case NW_PANEL_BF16:
        return 2;
    case NW_PANEL_INT8:
        return 4;
    case NW_PANEL_INT4:
        return type.group;
    }
    assert(0 && "panel kind");
    return 1;
}

/* Bytes of 16 rows of one unit, scales included where they belong to the unit. */
static uint32_t unit_bytes(nw_panel_type type)
{
    return type.kind == NW_PANEL_INT4 ? 32U + (type.zero_point ? 16U : 0U) + type.group * 8U : 64U;
}

uint32_t nw_panel_cols(nw_panel_type type, uint32_t n_cols)
{
    const uint32_t unit = unit_cols(type);
    return (n_cols + unit - 1) / unit * unit;
}

uint32_t nw_panel_groups(nw_panel_type type, uint32_t n_cols)
{
    return nw_panel_cols(type, n_cols) / unit_cols(type);
}

bool nw_panel_bytes(nw_panel_type type, uint32_t n_cols, size_t *out)
{
    const size_t head = type.kind == NW_PANEL_INT8 ? 64 : 0;
    size_t n = 0;

    if (n_cols > UINT32_MAX - NW_PANEL_PAD ||
        !nw_size_mul(nw_panel_groups(type, n_cols), unit_bytes(type), &n) ||
        !nw_size_add(n, head + 63, &n)) {
        return false;
    }
    *out = n / 64 * 64;
    return true;
}

bool nw_panel_tensor_bytes(nw_panel_type type, uint32_t n_rows, uint32_t n_cols, size_t *out)
{
    size_t panel = 0;
    return nw_panel_bytes(type, n_cols, &panel) && nw_size_mul(panel, nw_panel_count(n_rows), out);
}

/* For sizes that were checked when the tensor was opened. */
static size_t panel_size(nw_panel_type type, uint32_t n_cols)
{
    size_t n = 0;
    const bool fits = nw_panel_bytes(type, n_cols, &n);
    assert(fits);
    (void)fits;
    return n;
}

void nw_panel_pack_f32(const float *w, size_t ld, uint32_t n_rows, uint32_t n_cols, uint8_t *panel)
{
    assert(n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, panel_size((nw_panel_type){.kind = NW_PANEL_F32}, n_cols));
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t c = 0; c < n_cols; c++) {
            memcpy(panel + ((size_t)c * 16 + r) * sizeof *w, &w[r * ld + c], sizeof *w);
        }
    }
}

void nw_panel_pack_bf16(const uint16_t *w, size_t ld, uint32_t n_rows, uint32_t n_cols,
                        uint8_t *panel)
{
    assert(n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, panel_size((nw_panel_type){.kind = NW_PANEL_BF16}, n_cols));
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t c = 0; c < n_cols; c++) {
            const size_t at = (size_t)(c / 2) * 64 + r * 4 + (c % 2) * 2;
            memcpy(panel + at, &w[r * ld + c], sizeof *w);
        }
    }
}

void nw_panel_pack_int8(const int8_t *codes, size_t ld, const float *scales, uint32_t n_rows,
                        uint32_t n_cols, uint8_t *panel)
{
    const size_t size = panel_size((nw_panel_type){.kind = NW_PANEL_INT8}, n_cols);

    assert(n_rows <= NW_PANEL_ROWS);
    memset(panel, 0, 64);
    memset(panel + 64, 0x80, size - 64);
    memcpy(panel, scales, n_rows * sizeof *scales);
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t c = 0; c < n_cols; c++) {
            const size_t at = 64 + (size_t)(c / 4) * 64 + r * 4 + c % 4;
            panel[at] = (uint8_t)codes[r * ld + c] ^ 0x80U;
        }
    }
}

/* Where the nibble of column c (of its group) and row r stands, from the start of the codes. */
static size_t nibble_at(nw_panel_type type, uint32_t c, uint32_t r, bool *high)
{
    const uint32_t quads = type.group / 8U;
    *high = c / 4 >= quads;
    return (size_t)(c / 4 % quads) * 64 + r * 4 + c % 4;
}

/* One group of 16 rows; `codes` points at its first column. Rows and columns beyond the matrix
 * hold the zero point. */
static void pack_group(nw_panel_type type, const uint8_t *codes, size_t ld, const uint8_t zero[16],
                       uint32_t n_rows, uint32_t n_cols, uint8_t *dst)
{
    memset(dst, 0, type.group * 8U);
    for (uint32_t r = 0; r < NW_PANEL_ROWS; r++) {
        for (uint32_t c = 0; c < type.group; c++) {
            bool high = false;
            const size_t at = nibble_at(type, c, r, &high);
            const unsigned code = r < n_rows && c < n_cols ? codes[r * ld + c] & 15U : zero[r];
            dst[at] = (uint8_t)(dst[at] | code << (high ? 4 : 0));
        }
    }
}

void nw_panel_pack_int4(nw_panel_type type, const uint8_t *codes, size_t ld, const uint16_t *scales,
                        const uint8_t *zeros, size_t lds, uint32_t n_rows, uint32_t n_cols,
                        uint8_t *panel)
{
    const uint32_t n_groups = nw_panel_groups(type, n_cols);

    assert(type.kind == NW_PANEL_INT4 && n_rows <= NW_PANEL_ROWS);
    assert(type.zero_point == (zeros != NULL));
    memset(panel, 0, panel_size(type, n_cols));
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t c0 = g * type.group;
        uint8_t zero[16];
        memset(zero, 8, sizeof zero);
        for (uint32_t r = 0; r < n_rows; r++) {
            memcpy(panel + r * sizeof *scales, &scales[r * lds + g], sizeof *scales);
            if (zeros != NULL) {
                zero[r] = zeros[r * lds + g] & 15U;
            }
        }
        panel += 32;
        if (type.zero_point) {
            memcpy(panel, zero, sizeof zero);
            panel += 16;
        }
        pack_group(type, codes + c0, ld, zero, n_rows, n_cols - c0, panel);
        panel += type.group * 8U;
    }
}

/* What a row and group of an int4 panel holds besides its codes. */
typedef struct {
    const uint8_t *codes;
    float scale;
    uint8_t zero;
} int4_group;

static int4_group group_of(nw_panel_type type, const uint8_t *panel, uint32_t g, uint32_t r)
{
    const uint8_t *p = panel + (size_t)g * unit_bytes(type);
    uint16_t half = 0;

    memcpy(&half, p + r * sizeof half, sizeof half);
    return (int4_group){.codes = p + 32 + (type.zero_point ? 16 : 0),
                        .scale = nw_f16_to_f32(half),
                        .zero = type.zero_point ? p[32 + r] : 8};
}

static uint8_t code_of(nw_panel_type type, const int4_group *g, uint32_t c, uint32_t r)
{
    bool high = false;
    const uint8_t b = g->codes[nibble_at(type, c, r, &high)];
    return high ? b >> 4 : b & 15U;
}

static float value_at(nw_panel_type type, const uint8_t *panel, uint32_t r, uint32_t c)
{
    float f = 0;
    uint16_t h = 0;

    switch (type.kind) {
    case NW_PANEL_F32:
        memcpy(&f, panel + ((size_t)c * 16 + r) * sizeof f, sizeof f);
        return f;
    case NW_PANEL_BF16:
        memcpy(&h, panel + (size_t)(c / 2) * 64 + r * 4 + (c % 2) * 2, sizeof h);
        return nw_bf16_to_f32(h);
    case NW_PANEL_INT8:
        memcpy(&f, panel + r * sizeof f, sizeof f);
        return f * (float)(panel[64 + (size_t)(c / 4) * 64 + r * 4 + c % 4] - 128);
    case NW_PANEL_INT4:
        break;
    }
    const int4_group g = group_of(type, panel, c / type.group, r);
    return g.scale * (float)(code_of(type, &g, c % type.group, r) - g.zero);
}

void nw_panel_unpack_span(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                          uint32_t col0, uint32_t n, float *out)
{
    const uint8_t *panel = tensor + row / NW_PANEL_ROWS * panel_size(type, n_cols);
    for (uint32_t c = 0; c < n; c++) {
        out[c] = value_at(type, panel, row % NW_PANEL_ROWS, col0 + c);
    }
}

void nw_panel_unpack_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                         float *out)
{
    nw_panel_unpack_span(type, tensor, n_cols, row, 0, n_cols, out);
}

void nw_panel_codes_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                        int8_t *codes, float *scales, uint8_t *zeros)
{
    const uint8_t *panel = tensor + row / NW_PANEL_ROWS * panel_size(type, n_cols);
    const uint32_t r = row % NW_PANEL_ROWS;

    assert(type.kind == NW_PANEL_INT8 || type.kind == NW_PANEL_INT4);
    if (type.kind == NW_PANEL_INT8) {
        memcpy(scales, panel + r * sizeof *scales, sizeof *scales);
        for (uint32_t c = 0; c < n_cols; c++) {
            codes[c] = (int8_t)(panel[64 + (size_t)(c / 4) * 64 + r * 4 + c % 4] - 128);
        }
        return;
    }
    for (uint32_t c = 0; c < n_cols; c++) {
        const uint32_t i = c / type.group;
        const int4_group g = group_of(type, panel, i, r);
        codes[c] = (int8_t)code_of(type, &g, c % type.group, r);
        scales[i] = g.scale;
        if (zeros != NULL) {
            zeros[i] = g.zero;
        }
    }
}
