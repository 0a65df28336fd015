/* Round to nearest, 16 rows at a time: see rtn.h. Every operation is an IEEE one in a fixed order: the
 * same bytes on every machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/rtn.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "quant/rtn_float.h"
#include "quant/rtn_int4.h"

#define LANES          16
#define TILE_ALIGNMENT 64u

static float lane_max(float a, float b)
{
    return a > b ? a : b;
}

static float lane_min(float a, float b)
{
    return a < b ? a : b;
}

/* x to the nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits behind
 * the point, in the rounding mode that C starts with. */
static float round_even(float x)
{
    const float big = 0x1.8p23F;
    return (x + big) - big;
}

/* 1 / s; 0 where s is 0, or so small that 1 / s overflows: then all values get the code of zero. */
static float inverse(float s)
{
    const float inv = 1 / s;
    return isfinite(inv) ? inv : 0;
}

/* The first multiple of 64 from p on: vectors of a tile then lie in a line of the cache each. */
static float *aligned(void *p)
{
    const uintptr_t past = (uintptr_t)p % TILE_ALIGNMENT;
    return (float *)(void *)((uint8_t *)p + (past == 0 ? 0 : TILE_ALIGNMENT - past));
}

static bool pack_int4(nw_panel_type type, const nw_scales *scales, const float *rows,
                      uint32_t n_rows, uint32_t n_cols, uint8_t *panel, void *scratch,
                      uint32_t *bad_row)
{
    const nw_rtn_int4_fn pack_group = nw_rtn_int4_pick(nw_cpu_features());
    const uint32_t n_groups = nw_panel_groups(type, n_cols);
    const uint32_t group_bytes = nw_rtn_int4_bytes(type);
    const size_t used = (size_t)n_groups * group_bytes;
    size_t n_bytes = 0;
    nw_rtn_group group = {
        .type = type, .scales = scales, .ld = n_cols, .n_rows = n_rows, .tile = aligned(scratch)};

    if (!nw_panel_bytes(type, n_cols, &n_bytes)) {
        return false; /* the caller has a panel of that size */
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t col0 = g * type.group;
        group.rows = rows + col0;
        group.n = n_cols - col0 < type.group ? n_cols - col0 : type.group;
        const uint32_t row = pack_group(&group, panel + (size_t)g * group_bytes);
        if (row != NW_RTN_ALL_FIT) {
            *bad_row = row;
            return false;
        }
    }
    memset(panel + used, 0, n_bytes - used);
    return true;
}

/* Of a row, or of the whole tensor. */
static float row_absmax(const nw_scales *s, const float *w, uint32_t n_cols)
{
    float most = 0;

    if (s->rule == NW_SCALE_TENSOR && s->absmax > 0) {
        return s->absmax;
    }
    for (uint32_t k = 0; k < n_cols; k++) {
        most = lane_max(most, fabsf(w[k]));
    }
    return most;
}

static void pack_int8(const nw_scales *s, const float *rows, uint32_t n_rows, uint32_t n_cols,
                      uint8_t *panel, void *scratch)
{
    int8_t *codes = scratch;
    float scales[LANES] = {0};

    for (uint32_t r = 0; r < n_rows; r++) {
        const float *w = rows + (size_t)r * n_cols;
        const float scale = row_absmax(s, w, n_cols) / 127;
        scales[r] = s->bf16 ? nw_bf16_to_f32(nw_bf16_from_f32(scale)) : scale;
        const float inv = inverse(scales[r]);
        for (uint32_t k = 0; k < n_cols; k++) {
            const float q = round_even(lane_min(lane_max(w[k] * inv, -127), 127));
            codes[(size_t)r * n_cols + k] = (int8_t)q;
        }
    }
    nw_panel_pack_int8(codes, n_cols, scales, n_rows, n_cols, panel);
}

static void pack_bf16(const float *rows, uint32_t n_rows, uint32_t n_cols, uint8_t *panel,
                      void *scratch)
{
    uint16_t *half = scratch;

    for (size_t i = 0; i < (size_t)n_rows * n_cols; i++) {
        half[i] = nw_bf16_from_f32(rows[i]);
    }
    nw_panel_pack_bf16(half, n_cols, n_rows, n_cols, panel);
}

bool nw_rtn_writes(nw_panel_type type)
{
    const bool plain = type.kind <= NW_PANEL_INT4 && !type.min && !type.two_level &&
                       type.span == 0 && (type.kind != NW_PANEL_INT8 || type.group == 0);
    return plain || nw_rtn_float_writes(type);
}

bool nw_rtn_pack_panel(nw_panel_type type, const nw_scales *scales, const float *rows,
                       uint32_t n_rows, uint32_t n_cols, uint8_t *panel, void *scratch,
                       uint32_t *bad_row)
{
    assert(n_rows <= LANES && nw_rtn_writes(type));
    switch (type.kind) {
    case NW_PANEL_F32:
        nw_panel_pack_f32(rows, n_cols, n_rows, n_cols, panel);
        return true;
    case NW_PANEL_BF16:
        pack_bf16(rows, n_rows, n_cols, panel, scratch);
        return true;
    case NW_PANEL_INT8:
        pack_int8(scales, rows, n_rows, n_cols, panel, scratch);
        return true;
    case NW_PANEL_INT4:
        return pack_int4(type, scales, rows, n_rows, n_cols, panel, scratch, bad_row);
    case NW_PANEL_FP8_E4M3:
    case NW_PANEL_FP8_E5M2:
    case NW_PANEL_NVFP4:
    case NW_PANEL_MXFP4:
        return nw_rtn_float_pack(type, scales, rows, n_rows, n_cols, panel, scratch, bad_row);
    case NW_PANEL_BF16_12:
    case NW_PANEL_KINDS:
        break;
    }
    return false;
}

size_t nw_rtn_scratch_bytes(nw_panel_type type, uint32_t n_cols)
{
    const size_t values = (size_t)n_cols * LANES;

    switch (type.kind) {
    case NW_PANEL_F32:
        return 0;
    case NW_PANEL_BF16:
        return values * sizeof(uint16_t);
    case NW_PANEL_INT8:
        return values;
    case NW_PANEL_INT4:
        return (size_t)type.group * LANES * sizeof(float) + TILE_ALIGNMENT;
    case NW_PANEL_FP8_E4M3:
    case NW_PANEL_FP8_E5M2:
    case NW_PANEL_NVFP4:
    case NW_PANEL_MXFP4:
        return nw_rtn_float_scratch_bytes(type, n_cols);
    case NW_PANEL_BF16_12:
    case NW_PANEL_KINDS:
        break;
    }
    return 0;
}

const char *nw_rtn_rule_text(nw_panel_type type, nw_scale_rule rule)
{
    static const char *const symmetric[] = {
        "fp16 scale with the least squared error of signed absmax / -8 and 19 fractions (0.6 to "
        "1.05) of absmax / 8 of either sign",
        "fp16 scale = signed absmax / -8"};
    static const char *const zero_point[] = {
        "fp16 scale with the least squared error of 19 fractions (0.6 to 1.05) of (max - min) / "
        "15, each with three zero points of 4 bits",
        "fp16 scale = (max - min) / 15, zero point of 4 bits"};

    switch (type.kind) {
    case NW_PANEL_F32:
    case NW_PANEL_BF16:
        return "";
    case NW_PANEL_INT8:
        return rule == NW_SCALE_TENSOR ? "f32 scale = absmax / 127 of the tensor"
                                       : "f32 scale = absmax / 127 of each row";
    case NW_PANEL_INT4:
        return type.zero_point ? zero_point[rule != NW_SCALE_SEARCH]
                               : symmetric[rule != NW_SCALE_SEARCH];
    case NW_PANEL_FP8_E4M3:
    case NW_PANEL_FP8_E5M2:
    case NW_PANEL_NVFP4:
    case NW_PANEL_MXFP4:
        return nw_rtn_float_rule_text(type, rule);
    case NW_PANEL_BF16_12:
    case NW_PANEL_KINDS:
        break;
    }
    return "";
}
