/* Packed activations: sizes, and the packer in plain C. Every tier packs the same bytes from the
 * same numbers (tests/kernels), so that only the products differ between tiers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/act.h"

#include <assert.h>
#include <string.h>

#include "formats/half.h"

size_t nw_act_stride(nw_act_kind kind, uint32_t n_cols)
{
    const size_t cols = nw_act_cols(n_cols);
    size_t bytes = 0;

    switch (kind) {
    case NW_ACT_F32:
        bytes = cols * sizeof(float);
        break;
    case NW_ACT_BF16:
        bytes = nw_act_sums_at(kind, n_cols) + cols / NW_ACT_SUM_COLS * sizeof(float);
        break;
    case NW_ACT_INT8:
        bytes = nw_act_codes_at(kind, n_cols) + cols;
        break;
    case NW_ACT_INT16:
        bytes = nw_act_codes_at(kind, n_cols) + 2 * cols;
        break;
    }
    return ((bytes + 63) / 64 | 1) * 64;
}

size_t nw_act_bytes(nw_act_kind kind, uint32_t n_tokens, uint32_t n_cols)
{
    size_t n = 0;
    if (n_cols > UINT32_MAX - NW_ACT_COLS ||
        !nw_size_mul(nw_act_stride(kind, n_cols), n_tokens, &n)) {
        return 0;
    }
    return n;
}

float nw_code_scale(const float *x, uint32_t n, float most, float *inv)
{
    uint32_t top = 0; /* by bits: a NaN or Inf is larger than any number and poisons the scale */

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t u = nw_f32_bits(x[i]) & 0x7FFFFFFFU;
        top = u > top ? u : top;
    }
    *inv = 0;
    if (top >= 0x7F800000U) {
        return NAN;
    }
    const float amax = nw_f32_from_bits(top);
    if (amax < NW_ACT_TINY) {
        return 0;
    }
    *inv = most / amax;
    return amax / most;
}

void nw_act_sum_levels(uint8_t *sums, uint32_t n_cols)
{
    for (uint32_t cols = 2 * NW_ACT_SUM_COLS; cols <= NW_ACT_COLS; cols *= 2) {
        const uint8_t *from = sums + nw_act_level_at(n_cols, cols / 2);
        uint8_t *to = sums + nw_act_level_at(n_cols, cols);
        for (uint32_t i = 0; i < nw_act_cols(n_cols) / cols; i++) {
            const int32_t sum = nw_act_sum_i32(from + (size_t)i * 2 * sizeof sum, 2);
            memcpy(to + i * sizeof sum, &sum, sizeof sum);
        }
    }
}

/* Codes of one row under a scale and its inverse; `limit` holds them where the scale is not the row's. */
static void pack_codes(const float *x, uint32_t n_cols, float scale, float inv, float limit,
                       uint8_t *row)
{
    uint8_t *sums = row + nw_act_sums_at(NW_ACT_INT8, n_cols);
    int8_t *codes = (int8_t *)row + nw_act_codes_at(NW_ACT_INT8, n_cols);
    nw_act_head head = {.scale = scale};

    for (uint32_t c0 = 0; c0 < n_cols; c0 += NW_ACT_SUM_COLS, sums += sizeof(int32_t)) {
        int32_t sum = 0;
        for (uint32_t c = c0; c < n_cols && c < c0 + NW_ACT_SUM_COLS; c++) {
            const float held = x[c] > limit ? limit : x[c] < -limit ? -limit : x[c];
            codes[c] = (int8_t)nw_code(held, inv);
            sum += codes[c];
        }
        memcpy(sums, &sum, sizeof sum);
        head.sum += sum;
    }
    nw_act_sum_levels(row + nw_act_sums_at(NW_ACT_INT8, n_cols), n_cols);
    memcpy(row, &head, sizeof head);
}

static void pack_int8(const float *x, uint32_t n_cols, uint8_t *row)
{
    float inv = 0;
    const float scale = nw_code_scale(x, n_cols, NW_INT8_MOST, &inv);

    pack_codes(x, n_cols, scale, inv, INFINITY, row);
}

void nw_act_pack_fixed(float scale, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                       uint32_t n_cols, void *dst)
{
    const size_t stride = nw_act_stride(NW_ACT_INT8, n_cols);

    for (uint32_t t = t0; t < t1; t++) {
        uint8_t *row = (uint8_t *)dst + t * stride;
        float inv = 0;
        const bool finite = isfinite(nw_code_scale(x + t * ldx, n_cols, NW_INT8_MOST, &inv));
        memset(row, 0, stride);
        pack_codes(x + t * ldx, n_cols, finite ? scale : NAN, finite ? 1 / scale : 0,
                   scale * NW_INT8_MOST, row);
    }
}

static void pack_int16(const float *x, uint32_t n_cols, uint8_t *row)
{
    uint8_t *sums = row + nw_act_sums_at(NW_ACT_INT16, n_cols);
    int8_t *high = (int8_t *)row + nw_act_codes_at(NW_ACT_INT16, n_cols);
    int8_t *low = high + nw_act_cols(n_cols);
    float inv = 0;

    for (uint32_t c = 0; c < n_cols; c++) {
        int32_t sum = 0;
        if (c % NW_ACT_COLS == 0) {
            const uint32_t n = n_cols - c < NW_ACT_COLS ? n_cols - c : NW_ACT_COLS;
            const float scale = nw_code_scale(x + c, n, NW_INT16_MOST, &inv);
            memcpy(row + c / NW_ACT_COLS * sizeof scale, &scale, sizeof scale);
        }
        const int32_t code = (int32_t)nw_code(x[c], inv);
        low[c] = (int8_t)((code & 0xFF) - (code & 0x80) * 2);
        high[c] = (int8_t)((code - low[c]) / 256);
        memcpy(&sum, sums + c / NW_ACT_SUM_COLS * sizeof sum, sizeof sum);
        sum += code;
        memcpy(sums + c / NW_ACT_SUM_COLS * sizeof sum, &sum, sizeof sum);
    }
    nw_act_sum_levels(sums, n_cols);
}

/* The sum of 16 values, halves added to halves: the order of a vector reduction. */
static float sum16(const float x[16])
{
    float h[8];

    for (unsigned i = 0; i < 8; i++) {
        h[i] = x[i] + x[i + 8];
    }
    for (unsigned n = 4; n > 0; n /= 2) {
        for (unsigned i = 0; i < n; i++) {
            h[i] += h[i + n];
        }
    }
    return h[0];
}

static void pack_bf16(const float *x, uint32_t n_cols, uint8_t *row)
{
    uint8_t *sums = row + nw_act_sums_at(NW_ACT_BF16, n_cols);

    for (uint32_t c0 = 0; c0 < n_cols; c0 += NW_ACT_SUM_COLS, sums += sizeof(float)) {
        float part[NW_ACT_SUM_COLS] = {0};
        for (uint32_t c = c0; c < n_cols && c < c0 + NW_ACT_SUM_COLS; c++) {
            const uint16_t h = nw_bf16_from_f32(x[c]);
            memcpy(row + c * sizeof h, &h, sizeof h);
            part[c - c0] = nw_bf16_to_f32(h);
        }
        const float sum = sum16(part);
        memcpy(sums, &sum, sizeof sum);
    }
}

void nw_act_pack_plain(nw_act_kind kind, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                       uint32_t n_cols, void *dst)
{
    const size_t stride = nw_act_stride(kind, n_cols);

    for (uint32_t t = t0; t < t1; t++) {
        const float *src = x + t * ldx;
        uint8_t *row = (uint8_t *)dst + t * stride;
        memset(row, 0, stride);
        switch (kind) {
        case NW_ACT_F32:
            memcpy(row, src, n_cols * sizeof *src);
            break;
        case NW_ACT_BF16:
            pack_bf16(src, n_cols, row);
            break;
        case NW_ACT_INT8:
            pack_int8(src, n_cols, row);
            break;
        case NW_ACT_INT16:
            pack_int16(src, n_cols, row);
            break;
        }
    }
}
