/* The kinds of panels: names, sizes, and the reference decode through one row a kind. The packers and
 * decoders of a kind are in panel_float.c, panel_int.c, panel_fp.c and bf16_12.c. Plain loops: a
 * packer runs once when an artifact is written or a checkpoint is opened, and the decode is what
 * every fast kernel is tested against.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/panel.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/bf16_12.h"
#include "formats/panel_parts.h"

/* A unit of 0 columns is the type's group, or its block of 256. */
static const struct {
    nw_panel_span_fn span;
    unsigned code_bits;
    nw_panel_shape shape; /* without what the type adds: groups, escapes */
} kinds[NW_PANEL_KINDS] = {
    [NW_PANEL_F32] = {nw_panel_span_f32, 32, {0, 1, 64, 0}},
    [NW_PANEL_BF16] = {nw_panel_span_bf16, 16, {0, 2, 64, 0}},
    [NW_PANEL_INT8] = {nw_panel_span_int, 8, {64, 4, 64, 0}},
    [NW_PANEL_INT4] = {nw_panel_span_int, 4, {0, 0, 0, 0}},
    [NW_PANEL_FP8_E4M3] = {nw_panel_span_fp8, 8, {64, 4, 64, 0}},
    [NW_PANEL_FP8_E5M2] = {nw_panel_span_fp8, 8, {64, 4, 64, 0}},
    [NW_PANEL_NVFP4] = {nw_panel_span_fp4, 4, {64, 32, 32 + 4 * 64, 0}},
    [NW_PANEL_MXFP4] = {nw_panel_span_fp4, 4, {0, 32, 16 + 4 * 64, 0}},
    [NW_PANEL_BF16_12] = {nw_panel_span_bf16_12, 12, {NW_BF16_12_HEAD, 4, NW_BF16_12_QUAD, 0}},
};

/* What spans more than a group, in groups of 128, 64 and 32. */
#define SPAN(stem, end, ...)                                                                \
    {stem end, {.group = 128, __VA_ARGS__}}, {stem "-g64" end, {.group = 64, __VA_ARGS__}}, \
    {                                                                                       \
        stem "-g32" end,                                                                    \
        {                                                                                   \
            .group = 32, __VA_ARGS__                                                        \
        }                                                                                   \
    }

/* The names an artifact and a recipe use; the only list of what can be packed. */
static const struct {
    const char *name;
    nw_panel_type type;
} panel_names[] = {
    {"f32", {.kind = NW_PANEL_F32}},
    {"bf16", {.kind = NW_PANEL_BF16}},
    {"bf16-12", {.kind = NW_PANEL_BF16_12}},
    {"bf16-packed", {.kind = NW_PANEL_BF16_12, .packed = true}},
    {"bf16-packed-wide", {.kind = NW_PANEL_BF16, .packed = true}},
    {"int8", {.kind = NW_PANEL_INT8}},
    {"int8-g16", {.kind = NW_PANEL_INT8, .group = 16}},
    {"int8-g32", {.kind = NW_PANEL_INT8, .group = 32}},
    {"int8-g64", {.kind = NW_PANEL_INT8, .group = 64}},
    {"int8-g128", {.kind = NW_PANEL_INT8, .group = 128}},
    {"int8-g16-min", {.kind = NW_PANEL_INT8, .group = 16, .min = true}},
    {"int8-g32-min", {.kind = NW_PANEL_INT8, .group = 32, .min = true}},
    {"int8-g64-min", {.kind = NW_PANEL_INT8, .group = 64, .min = true}},
    {"int8-g128-min", {.kind = NW_PANEL_INT8, .group = 128, .min = true}},
    {"int8-g16-zp", {.kind = NW_PANEL_INT8, .group = 16, .zero_point = true}},
    {"int8-g32-zp", {.kind = NW_PANEL_INT8, .group = 32, .zero_point = true}},
    {"int8-g64-zp", {.kind = NW_PANEL_INT8, .group = 64, .zero_point = true}},
    {"int8-g128-zp", {.kind = NW_PANEL_INT8, .group = 128, .zero_point = true}},
    {"int8-g256", {.kind = NW_PANEL_INT8, .group = 128, .span = 256}},
    {"int8-g256-zp", {.kind = NW_PANEL_INT8, .group = 128, .span = 256, .zero_point = true}},
    SPAN("int8-row", "-zp", .kind = NW_PANEL_INT8, .span = NW_SPAN_ROW, .zero_point = true),
    SPAN("int8-tensor", "-zp", .kind = NW_PANEL_INT8, .span = NW_SPAN_TENSOR, .zero_point = true),
    {"int8-g16-k", {.kind = NW_PANEL_INT8, .group = 16, .two_level = true}},
    {"int8-g32-k", {.kind = NW_PANEL_INT8, .group = 32, .min = true, .two_level = true}},
    {"int4-g16", {.kind = NW_PANEL_INT4, .group = 16}},
    {"int4-g32", {.kind = NW_PANEL_INT4, .group = 32}},
    {"int4-g64", {.kind = NW_PANEL_INT4, .group = 64}},
    {"int4-g128", {.kind = NW_PANEL_INT4, .group = 128}},
    {"int4-g256", {.kind = NW_PANEL_INT4, .group = 128, .span = 256}},
    SPAN("int4-row", "", .kind = NW_PANEL_INT4, .span = NW_SPAN_ROW),
    SPAN("int4-tensor", "", .kind = NW_PANEL_INT4, .span = NW_SPAN_TENSOR),
    {"int4-g16-zp", {.kind = NW_PANEL_INT4, .group = 16, .zero_point = true}},
    {"int4-g32-zp", {.kind = NW_PANEL_INT4, .group = 32, .zero_point = true}},
    {"int4-g64-zp", {.kind = NW_PANEL_INT4, .group = 64, .zero_point = true}},
    {"int4-g128-zp", {.kind = NW_PANEL_INT4, .group = 128, .zero_point = true}},
    {"int4-g256-zp", {.kind = NW_PANEL_INT4, .group = 128, .span = 256, .zero_point = true}},
    SPAN("int4-row", "-zp", .kind = NW_PANEL_INT4, .span = NW_SPAN_ROW, .zero_point = true),
    SPAN("int4-tensor", "-zp", .kind = NW_PANEL_INT4, .span = NW_SPAN_TENSOR, .zero_point = true),
    {"int4-g16-min", {.kind = NW_PANEL_INT4, .group = 16, .min = true}},
    {"int4-g32-min", {.kind = NW_PANEL_INT4, .group = 32, .min = true}},
    {"int4-g64-min", {.kind = NW_PANEL_INT4, .group = 64, .min = true}},
    {"int4-g128-min", {.kind = NW_PANEL_INT4, .group = 128, .min = true}},
    {"int4-g32-k", {.kind = NW_PANEL_INT4, .group = 32, .min = true, .two_level = true}},
    {"fp8-e4m3", {.kind = NW_PANEL_FP8_E4M3}},
    {"fp8-e5m2", {.kind = NW_PANEL_FP8_E5M2}},
    {"nvfp4", {.kind = NW_PANEL_NVFP4, .group = 16}},
    {"mxfp4", {.kind = NW_PANEL_MXFP4, .group = 32}},
};

/* and how many, 1 to 65535 */
#define ESCAPES        "bf16-12-e"
#define PACKED_ESCAPES "bf16-packed-e"

bool nw_panel_same(nw_panel_type a, nw_panel_type b)
{
    return a.kind == b.kind && a.group == b.group && a.span == b.span &&
           a.zero_point == b.zero_point && a.min == b.min && a.two_level == b.two_level;
}

static bool same_layout(nw_panel_type a, nw_panel_type b)
{
    return nw_panel_same(a, b) && a.packed == b.packed;
}

const char *nw_panel_name(nw_panel_type type, char buf[32])
{
    (void)snprintf(buf, 32, "unknown-%d-g%u", (int)type.kind, type.group);
    if (type.kind == NW_PANEL_BF16_12 && type.escapes > 0) {
        (void)snprintf(buf, 32, "%s%u", type.packed ? PACKED_ESCAPES : ESCAPES, type.escapes);
        return buf;
    }
    for (size_t i = 0; i < NW_COUNT(panel_names); i++) {
        if (same_layout(panel_names[i].type, type)) {
            (void)snprintf(buf, 32, "%s", panel_names[i].name);
        }
    }
    return buf;
}

/* A number without sign, space or leading zero that fits a uint16_t. */
static bool parse_escapes(const char *digits, bool packed, nw_panel_type *out)
{
    uint32_t n = 0;

    if (*digits < '1' || *digits > '9') {
        return false;
    }
    for (; *digits >= '0' && *digits <= '9' && n <= UINT16_MAX; digits++) {
        n = n * 10 + (uint32_t)(*digits - '0');
    }
    if (*digits != '\0' || n > UINT16_MAX) {
        return false;
    }
    *out = (nw_panel_type){.kind = NW_PANEL_BF16_12, .escapes = (uint16_t)n, .packed = packed};
    return true;
}

bool nw_panel_parse(const char *name, nw_panel_type *out)
{
    for (size_t i = 0; i < NW_COUNT(panel_names); i++) {
        if (strcmp(panel_names[i].name, name) == 0) {
            *out = panel_names[i].type;
            return true;
        }
    }
    if (strncmp(name, PACKED_ESCAPES, sizeof PACKED_ESCAPES - 1) == 0) {
        return parse_escapes(name + sizeof PACKED_ESCAPES - 1, true, out);
    }
    return strncmp(name, ESCAPES, sizeof ESCAPES - 1) == 0 &&
           parse_escapes(name + sizeof ESCAPES - 1, false, out);
}

unsigned nw_panel_code_bits(nw_panel_type type)
{
    return kinds[type.kind].code_bits;
}

nw_panel_shape nw_panel_shape_of(nw_panel_type type)
{
    nw_panel_shape s = kinds[type.kind].shape;
    const bool integer = type.kind == NW_PANEL_INT8 || type.kind == NW_PANEL_INT4;

    if (integer && type.group > 0) {
        const uint32_t cols = type.two_level ? NW_PANEL_K_COLS : type.group;
        const uint32_t codes = cols * 16U * kinds[type.kind].code_bits / 8U;
        const uint32_t per_group = 16U * (type.min ? 2U : 1U); /* bytes of -k scales and minima */
        const uint32_t scales = type.two_level ? 64U + cols / type.group * per_group
                                               : 2U * per_group + (type.zero_point ? 16U : 0U);
        s = (nw_panel_shape){.unit_cols = cols, .unit_bytes = scales + codes};
    }
    if (type.kind == NW_PANEL_BF16_12 && type.escapes != NW_BF16_12_FEW) {
        s.tail = (type.escapes + 1U) * (uint32_t)sizeof(nw_bf16_escape);
    }
    return s;
}

uint32_t nw_panel_cols(nw_panel_type type, uint32_t n_cols)
{
    const uint32_t unit = nw_panel_shape_of(type).unit_cols;
    return (n_cols + unit - 1) / unit * unit;
}

uint32_t nw_panel_groups(nw_panel_type type, uint32_t n_cols)
{
    return type.group == 0 ? 1 : nw_panel_cols(type, n_cols) / type.group;
}

uint32_t nw_panel_scale_cols(nw_panel_type type, uint32_t n_cols)
{
    if (type.span >= NW_SPAN_TENSOR) {
        return n_cols;
    }
    return type.span > 0 ? type.span : type.group > 0 ? type.group : n_cols;
}

uint32_t nw_panel_scales(nw_panel_type type, uint32_t n_cols)
{
    const uint32_t cols = nw_panel_scale_cols(type, n_cols);
    return type.span == 0 ? nw_panel_groups(type, n_cols) : n_cols / cols + (n_cols % cols != 0);
}

bool nw_panel_join_groups(nw_panel_type type, uint32_t n_cols, float *scales, int8_t *zeros)
{
    const uint32_t n_groups = nw_panel_groups(type, n_cols);
    const uint32_t cols = nw_panel_scale_cols(type, n_cols);
    bool same = true;

    for (uint32_t g = 0; type.span > 0 && g < n_groups; g++) {
        const uint32_t to = g * type.group / cols;
        if (g * type.group % cols == 0) {
            scales[to] = scales[g];
            if (zeros != NULL) {
                zeros[to] = zeros[g];
            }
        }
        same = same && !(scales[g] < scales[to]) && !(scales[g] > scales[to]) &&
               (zeros == NULL || zeros[g] == zeros[to]);
    }
    return same;
}

nw_panel_type nw_panel_for_columns(nw_panel_type type, uint32_t n_cols)
{
    nw_panel_type out = type;

    if (type.span >= NW_SPAN_TENSOR) {
        for (out.group = 128; out.group > 32 && n_cols % out.group != 0; out.group /= 2) {
        }
    }
    return out;
}

bool nw_panel_bytes(nw_panel_type type, uint32_t n_cols, size_t *out)
{
    const nw_panel_shape s = nw_panel_shape_of(type);
    size_t n = 0;

    if (n_cols > UINT32_MAX - NW_PANEL_PAD || (type.two_level && n_cols % NW_PANEL_K_COLS != 0) ||
        !nw_size_mul((n_cols + s.unit_cols - 1) / s.unit_cols, s.unit_bytes, &n) ||
        !nw_size_add(n, (size_t)s.head + s.tail + 63, &n)) {
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

size_t nw_panel_size(nw_panel_type type, uint32_t n_cols)
{
    size_t n = 0;
    const bool fits = nw_panel_bytes(type, n_cols, &n);
    assert(fits);
    (void)fits;
    return n;
}

nw_panel_row nw_panel_row_of(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols,
                             uint32_t row)
{
    return (nw_panel_row){.type = type,
                          .panel = tensor + row / NW_PANEL_ROWS * nw_panel_size(type, n_cols),
                          .n_cols = n_cols,
                          .r = row % NW_PANEL_ROWS};
}

void nw_panel_unpack_span(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                          uint32_t col0, uint32_t n, float *out)
{
    const nw_panel_row p = nw_panel_row_of(type, tensor, n_cols, row);
    kinds[type.kind].span(&p, col0, n, out);
}

void nw_panel_unpack_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                         float *out)
{
    nw_panel_unpack_span(type, tensor, n_cols, row, 0, n_cols, out);
}

void nw_panel_codes_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                        int8_t *codes, float *scales, int8_t *zeros)
{
    const nw_panel_row p = nw_panel_row_of(type, tensor, n_cols, row);
    const bool integer = type.kind == NW_PANEL_INT8 || type.kind == NW_PANEL_INT4;
    const uint32_t n_groups = nw_panel_groups(type, n_cols);

    assert(kinds[type.kind].code_bits <= 8);
    for (uint32_t c = 0; c < n_cols; c++) {
        codes[c] = integer ? nw_panel_int_code(&p, c) : (int8_t)nw_panel_fp_code(&p, c);
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        const nw_panel_group group =
            integer ? nw_panel_int_group(&p, g)
                    : (nw_panel_group){.scale = nw_panel_fp_scale(&p, g), .zero = 8};
        scales[g] = group.scale;
        if (zeros != NULL) {
            zeros[g] = group.zero;
        }
    }
}

void nw_panel_mins_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                       float *mins)
{
    const nw_panel_row p = nw_panel_row_of(type, tensor, n_cols, row);
    const uint32_t n_groups = nw_panel_groups(type, n_cols);

    assert(kinds[type.kind].code_bits <= 8);
    for (uint32_t g = 0; g < n_groups; g++) {
        mins[g] = type.min ? nw_panel_int_group(&p, g).min : 0;
    }
}

float nw_panel_tensor_scale(nw_panel_type type, const uint8_t *panel)
{
    float scale = 1;

    if (type.kind == NW_PANEL_NVFP4) {
        memcpy(&scale, panel, sizeof scale);
    }
    return scale;
}

void nw_panel_set_tensor_scale(nw_panel_type type, uint8_t *panel, float scale)
{
    assert(type.kind == NW_PANEL_NVFP4);
    (void)type;
    memcpy(panel, &scale, sizeof scale);
}
