/* Round to nearest over 16 rows at a time: rows lie in lanes (tile[column][16]), so that the scale
 * search is straight-line arithmetic on 16 values which any compiler turns into vectors. Every
 * operation is an IEEE one in a fixed order: the same bytes on every machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/rtn.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "quant/rtn_float.h"

#define LANES 16

/* The fractions of the absmax scale (of the range, with a zero point) that the search tries: 0.6 to
 * 1.05 in steps of 0.025. Below, clipping costs more than finer steps gain for any group of 32 or
 * more; above, the range is wider than the values. */
#define FRACTION_FIRST 0.6F
#define FRACTION_STEP  0.025F

/* Per-lane working set of one group. */
typedef struct {
    float scale[LANES]; /* as stored, decoded */
    float zero[LANES];  /* zero point as a float, 0..15 */
    float err[LANES];   /* sum of squared errors */
} lane_fit;

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

static float fraction(int i)
{
    return FRACTION_FIRST + FRACTION_STEP * (float)i;
}

/* 1 / s; 0 where s is 0, or so small that 1 / s overflows: then all values get the code of zero. */
static float inverse(float s)
{
    const float inv = 1 / s;
    return isfinite(inv) ? inv : 0;
}

/* Code of w under (s, z), as a float in 0..15. The clamp comes first, so that rounding is exact. */
static float code_of(float w, float inv, float zero)
{
    return round_even(lane_min(lane_max(w * inv + zero, 0), 15));
}

/* Errors of a candidate over the group, tile [n_cols][LANES]. */
static void measure(const float *tile, uint32_t n_cols, lane_fit *fit)
{
    float inv[LANES];
    float sum[LANES] = {0};

    for (int r = 0; r < LANES; r++) {
        inv[r] = inverse(fit->scale[r]);
    }
    for (uint32_t k = 0; k < n_cols; k++) {
        const float *w = tile + (size_t)k * LANES;
        for (int r = 0; r < LANES; r++) {
            const float q = code_of(w[r], inv[r], fit->zero[r]);
            const float d = w[r] - fit->scale[r] * (q - fit->zero[r]);
            sum[r] += d * d;
        }
    }
    memcpy(fit->err, sum, sizeof sum);
}

/* Keeps, lane by lane, the better of two fits; the earlier one on a tie. */
static void keep_better(lane_fit *best, const lane_fit *fit)
{
    for (int r = 0; r < LANES; r++) {
        if (fit->err[r] < best->err[r]) {
            best->scale[r] = fit->scale[r];
            best->zero[r] = fit->zero[r];
            best->err[r] = fit->err[r];
        }
    }
}

/* Smallest and largest value of each lane, zero included; `peak` is the value of the largest
 * magnitude, with its sign. */
static void extent(const float *tile, uint32_t n_cols, float *lo, float *hi, float *peak)
{
    for (int r = 0; r < LANES; r++) {
        lo[r] = hi[r] = 0;
    }
    for (uint32_t k = 0; k < n_cols; k++) {
        const float *w = tile + (size_t)k * LANES;
        for (int r = 0; r < LANES; r++) {
            lo[r] = lane_min(lo[r], w[r]);
            hi[r] = lane_max(hi[r], w[r]);
        }
    }
    for (int r = 0; r < LANES; r++) {
        peak[r] = -lo[r] > hi[r] ? lo[r] : hi[r];
    }
}

/* Symmetric: the peak at code 0 (step peak / -8), then fractions of that step, of either sign. */
static void fit_symmetric(const float *tile, uint32_t n_cols, const float *peak, const nw_scales *s,
                          lane_fit *best)
{
    lane_fit fit;

    for (int r = 0; r < LANES; r++) {
        best->scale[r] = nw_scale_store(peak[r] / -8, s->bf16);
        best->zero[r] = fit.zero[r] = 8;
    }
    measure(tile, n_cols, best);
    for (int i = 0; s->rule == NW_SCALE_SEARCH && i < 2 * NW_RTN_CANDIDATES; i++) {
        const float f = fraction(i / 2) * (i % 2 == 0 ? -1.0F : 1.0F);
        for (int r = 0; r < LANES; r++) {
            fit.scale[r] = nw_scale_store(peak[r] / 8 * f, s->bf16);
        }
        measure(tile, n_cols, &fit);
        keep_better(best, &fit);
    }
}

/* With a zero point: the range [lo, hi] on codes 0..15, then fractions of its step. Each step is
 * tried with the zero point that lo asks for and with its two neighbours, since a shorter range may
 * give up either end. */
static void fit_zero_point(const float *tile, uint32_t n_cols, const float *lo, const float *hi,
                           const nw_scales *s, lane_fit *best)
{
    lane_fit fit;

    for (int r = 0; r < LANES; r++) {
        best->scale[r] = nw_scale_store((hi[r] - lo[r]) / 15, s->bf16);
        best->zero[r] = code_of(-lo[r], inverse(best->scale[r]), 0);
    }
    measure(tile, n_cols, best);
    for (int i = 0; s->rule == NW_SCALE_SEARCH && i < 3 * NW_RTN_CANDIDATES; i++) {
        for (int r = 0; r < LANES; r++) {
            fit.scale[r] = nw_scale_store((hi[r] - lo[r]) / 15 * fraction(i / 3), s->bf16);
            const float mid = code_of(-lo[r] * fraction(i / 3), inverse(fit.scale[r]), 0);
            fit.zero[r] = lane_min(lane_max(mid + (float)(i % 3 - 1), 0), 15);
        }
        measure(tile, n_cols, &fit);
        keep_better(best, &fit);
    }
}

typedef struct {
    float *tile;      /* [group][LANES] */
    uint8_t *codes;   /* [LANES][n_cols] */
    uint16_t *scales; /* [LANES][n_groups] */
    uint8_t *zeros;   /* [LANES][n_groups] */
} int4_scratch;

static int4_scratch int4_layout(nw_panel_type type, uint32_t n_cols, void *scratch)
{
    const size_t groups = nw_panel_groups(type, n_cols);
    uint8_t *p = scratch;
    int4_scratch s;

    s.tile = scratch;
    p += (size_t)type.group * LANES * sizeof *s.tile;
    s.scales = (uint16_t *)(void *)p;
    p += groups * LANES * sizeof *s.scales;
    s.codes = p;
    s.zeros = p + (size_t)n_cols * LANES;
    return s;
}

/* Column k of the group for all 16 rows; rows past n_rows are zero. */
static void fill_tile(const float *rows, uint32_t n_rows, uint32_t n_cols, uint32_t col0,
                      uint32_t n, float *tile)
{
    memset(tile, 0, (size_t)n * LANES * sizeof *tile);
    for (uint32_t r = 0; r < n_rows; r++) {
        const float *w = rows + (size_t)r * n_cols + col0;
        for (uint32_t k = 0; k < n; k++) {
            tile[(size_t)k * LANES + r] = w[k];
        }
    }
}

static bool pack_int4(nw_panel_type type, const nw_scales *scales, const float *rows,
                      uint32_t n_rows, uint32_t n_cols, uint8_t *panel, void *scratch,
                      uint32_t *bad_row)
{
    const uint32_t groups = nw_panel_groups(type, n_cols);
    const int4_scratch s = int4_layout(type, n_cols, scratch);
    float lo[LANES];
    float hi[LANES];
    float peak[LANES];
    lane_fit best;

    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t col0 = g * type.group;
        const uint32_t n = n_cols - col0 < type.group ? n_cols - col0 : type.group;
        fill_tile(rows, n_rows, n_cols, col0, n, s.tile);
        extent(s.tile, n, lo, hi, peak);
        if (type.zero_point) {
            fit_zero_point(s.tile, n, lo, hi, scales, &best);
        } else {
            fit_symmetric(s.tile, n, peak, scales, &best);
        }
        for (uint32_t r = 0; r < n_rows; r++) {
            const float inv = inverse(best.scale[r]);
            if (!isfinite(best.scale[r])) {
                *bad_row = r;
                return false;
            }
            s.scales[(size_t)r * groups + g] = nw_f16_from_f32(best.scale[r]);
            s.zeros[(size_t)r * groups + g] = (uint8_t)best.zero[r];
            for (uint32_t k = 0; k < n; k++) {
                s.codes[(size_t)r * n_cols + col0 + k] =
                    (uint8_t)code_of(s.tile[(size_t)k * LANES + r], inv, best.zero[r]);
            }
        }
    }
    nw_panel_pack_int4(type, s.codes, n_cols, s.scales, type.zero_point ? s.zeros : NULL, groups,
                       n_rows, n_cols, panel);
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
                       (type.kind != NW_PANEL_INT8 || type.group == 0);
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
        return (size_t)type.group * LANES * sizeof(float) + values +
               (size_t)nw_panel_groups(type, n_cols) * LANES * (sizeof(uint16_t) + 1);
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
