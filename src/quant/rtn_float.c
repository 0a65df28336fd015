/* Round to nearest into small floats: see rtn_float.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/rtn_float.h"

#include <math.h>

#include "formats/fp4.h"
#include "formats/fp8.h"

#define LANES       16u
#define NVFP4_BELOW 5 /* codes of E4M3 that the search tries: eight to a power of two */
#define NVFP4_ABOVE 8 /* absmax at code 4 in place of 6 is up to six codes above */
#define E8M0_MAX    254

typedef struct {
    uint8_t *codes;  /* [n_rows][n_cols] */
    uint8_t *blocks; /* [n_rows][n_blocks], scale codes */
} float_scratch;

static uint32_t block_cols(nw_panel_type type)
{
    return type.kind == NW_PANEL_NVFP4 ? 16 : 32;
}

bool nw_rtn_float_writes(nw_panel_type type)
{
    return type.kind == NW_PANEL_FP8_E4M3 || type.kind == NW_PANEL_FP8_E5M2 ||
           type.kind == NW_PANEL_NVFP4 || type.kind == NW_PANEL_MXFP4;
}

/* A block has 16 columns or more; codes come first. */
size_t nw_rtn_float_scratch_bytes(nw_panel_type type, uint32_t n_cols)
{
    (void)type;
    return LANES * ((size_t)n_cols + n_cols / 16 + 2);
}

static float absmax(const float *w, size_t n)
{
    float most = 0;

    for (size_t i = 0; i < n; i++) {
        most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
    }
    return most;
}

/* 1 / s, or 0 where s is 0 or 1 / s overflows: all codes are then 0. */
static float inverse(float s)
{
    const float inv = 1 / s;
    return isfinite(inv) ? inv : 0;
}

static void pack_fp8(nw_panel_type type, const nw_scales *s, const float *rows, uint32_t n_rows,
                     uint32_t n_cols, uint8_t *panel, uint8_t *codes)
{
    const bool e4m3 = type.kind == NW_PANEL_FP8_E4M3;
    float scales[LANES] = {0};

    for (uint32_t r = 0; r < n_rows; r++) {
        const float *w = rows + (size_t)r * n_cols;
        const bool whole = s->rule == NW_SCALE_TENSOR && s->absmax > 0;
        scales[r] = (whole ? s->absmax : absmax(w, n_cols)) / (e4m3 ? NW_E4M3_MAX : NW_E5M2_MAX);
        const float inv = inverse(scales[r]);
        for (uint32_t c = 0; c < n_cols; c++) {
            codes[(size_t)r * n_cols + c] =
                e4m3 ? nw_e4m3_from_f32(w[c] * inv) : nw_e5m2_from_f32(w[c] * inv);
        }
    }
    nw_panel_pack_fp8(type, codes, n_cols, scales, n_rows, n_cols, panel);
}

/* Codes of a block under a scale, and their squared error. */
static double encode_block(const float *w, uint32_t n, float scale, uint8_t *codes)
{
    const float inv = inverse(scale);
    double err = 0;

    for (uint32_t i = 0; i < n; i++) {
        codes[i] = nw_e2m1_from_f32(w[i] * inv);
        const double d = (double)w[i] - (double)(nw_e2m1_to_f32(codes[i]) * scale);
        err += d * d;
    }
    return err;
}

/* The scale codes [first, last] of a block, best one first found; its codes into `out`. */
static uint8_t search_block(nw_panel_type type, const float *w, uint32_t n, float tensor_scale,
                            int first, int last, uint8_t *out)
{
    uint8_t codes[32];
    double best = INFINITY;
    uint8_t at = 0;

    for (int s = first; s <= last; s++) {
        const float scale = type.kind == NW_PANEL_NVFP4 ? nw_e4m3_to_f32((uint8_t)s) * tensor_scale
                                                        : nw_e8m0_to_f32((uint8_t)s);
        const double err = encode_block(w, n, scale, codes);
        if (err < best) {
            best = err;
            at = (uint8_t)s;
            for (uint32_t i = 0; i < n; i++) {
                out[i] = codes[i];
            }
        }
    }
    return at;
}

static int clamp(int x, int hi)
{
    return x < 0 ? 0 : x > hi ? hi : x;
}

static uint8_t pack_block(nw_panel_type type, bool search, const float *w, uint32_t n,
                          float tensor_scale, uint8_t *codes)
{
    const float most = absmax(w, n);
    int first = 0;
    int last = 0;

    if (type.kind == NW_PANEL_NVFP4) {
        const int at = nw_e4m3_from_f32(most / NW_E2M1_MAX * inverse(tensor_scale));
        /* a scale of 0 would make zeros of a block that has values */
        first = clamp(at - (search ? NVFP4_BELOW : 0), NW_E4M3_MAX_BITS);
        first = most > 0 && first == 0 ? 1 : first;
        last = clamp(at + (search ? NVFP4_ABOVE : 0), NW_E4M3_MAX_BITS);
        last = last < first ? first : last;
    } else {
        const int at = (int)nw_e8m0_floor(most) - 2;
        first = clamp(at - (search ? 1 : 0), E8M0_MAX);
        last = clamp(at + (search ? 1 : 0), E8M0_MAX);
    }
    return search_block(type, w, n, tensor_scale, first, last, codes);
}

/* absmax / 2688, as the reciprocal of a number: compressed-tensors keeps that number. */
static float nvfp4_scale(float most)
{
    const float divisor = NW_E2M1_MAX * NW_E4M3_MAX / most;

    return isfinite(divisor) ? 1 / divisor : most / (NW_E2M1_MAX * NW_E4M3_MAX);
}

bool nw_rtn_float_pack(nw_panel_type type, const nw_scales *scales, const float *rows,
                       uint32_t n_rows, uint32_t n_cols, uint8_t *panel, void *scratch,
                       uint32_t *bad_row)
{
    const uint32_t width = block_cols(type);
    const uint32_t n_blocks = (n_cols + width - 1) / width;
    const float_scratch s = {scratch, (uint8_t *)scratch + (size_t)LANES * n_cols};
    const float most = scales->absmax > 0 ? scales->absmax : absmax(rows, (size_t)n_rows * n_cols);
    const float tensor_scale = nvfp4_scale(most);

    (void)bad_row; /* F32 and E8M0 scales hold every finite weight */
    if (type.kind == NW_PANEL_FP8_E4M3 || type.kind == NW_PANEL_FP8_E5M2) {
        pack_fp8(type, scales, rows, n_rows, n_cols, panel, s.codes);
        return true;
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t b = 0; b < n_blocks; b++) {
            const size_t at = (size_t)r * n_cols + (size_t)b * width;
            const uint32_t left = n_cols - b * width;
            s.blocks[(size_t)r * n_blocks + b] =
                pack_block(type, scales->rule == NW_SCALE_SEARCH, rows + at,
                           left < width ? left : width, tensor_scale, s.codes + at);
        }
    }
    if (type.kind == NW_PANEL_NVFP4) {
        nw_panel_pack_nvfp4(s.codes, n_cols, s.blocks, n_blocks, tensor_scale, n_rows, n_cols,
                            panel);
    } else {
        nw_panel_pack_mxfp4(s.codes, n_cols, s.blocks, n_blocks, n_rows, n_cols, panel);
    }
    return true;
}

const char *nw_rtn_float_rule_text(nw_panel_type type, nw_scale_rule rule)
{
    const bool search = rule == NW_SCALE_SEARCH;

    if (type.kind == NW_PANEL_NVFP4) {
        return search ? "one f32 scale a tensor, shared by q, k, v and by gate, up = absmax / "
                        "2688; E4M3 scale of each 16 "
                        "columns with the least squared error of the nearest to absmax / 6, five "
                        "codes below and eight above"
                      : "one f32 scale a tensor, shared by q, k, v and by gate, up = absmax / "
                        "2688; E4M3 scale of each 16 "
                        "columns nearest to absmax / 6";
    }
    if (type.kind == NW_PANEL_MXFP4) {
        return search ? "E8M0 scale of each 32 columns with the least squared error of "
                        "2^(floor(log2 absmax) - 2), its half and its double"
                      : "E8M0 scale of each 32 columns = 2^(floor(log2 absmax) - 2): OCP floor";
    }
    if (rule == NW_SCALE_TENSOR) {
        return type.kind == NW_PANEL_FP8_E4M3 ? "f32 scale = absmax / 448 of the tensor"
                                              : "f32 scale = absmax / 57344 of the tensor";
    }
    return type.kind == NW_PANEL_FP8_E4M3 ? "f32 scale = absmax / 448 of each row"
                                          : "f32 scale = absmax / 57344 of each row";
}
