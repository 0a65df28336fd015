/* Packed activations: sizes, and the packer in plain C. Every tier packs the same bytes from the
 * same numbers (tests/kernels), so that only the products differ between tiers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/act.h"

#include <assert.h>
#include <string.h>

#include "formats/half.h"

size_t nw_act_stride(nw_act_kind kind, uint32_t n_cols)
{
    static const size_t width[] = {[NW_ACT_F32] = 4, [NW_ACT_BF16] = 2, [NW_ACT_INT8] = 1};
    const size_t head = kind == NW_ACT_INT8 ? nw_act_codes_at(n_cols) : 0;
    const size_t lines = (head + (size_t)nw_act_cols(n_cols) * width[kind] + 63) / 64;

    return (lines | 1) * 64;
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

float nw_int8_scale(const float *x, uint32_t n, float *inv)
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
    *inv = 127.0F / amax;
    return amax / 127.0F;
}

static void pack_int8(const float *x, uint32_t n_cols, uint8_t *row)
{
    int8_t *codes = (int8_t *)row + nw_act_codes_at(n_cols);
    nw_act_head head = {0};
    float inv = 0;

    head.scale = nw_int8_scale(x, n_cols, &inv);
    for (uint32_t c0 = 0; c0 < n_cols; c0 += NW_ACT_SUM_COLS) {
        int32_t sum = 0;
        for (uint32_t c = c0; c < n_cols && c < c0 + NW_ACT_SUM_COLS; c++) {
            codes[c] = (int8_t)nw_int8_code(x[c], inv);
            sum += codes[c];
        }
        memcpy(row + NW_ACT_SUMS_AT + c0 / NW_ACT_SUM_COLS * sizeof sum, &sum, sizeof sum);
        head.sum += sum;
    }
    memcpy(row, &head, sizeof head);
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
            for (uint32_t c = 0; c < n_cols; c++) {
                const uint16_t h = nw_bf16_from_f32(src[c]);
                memcpy(row + c * sizeof h, &h, sizeof h);
            }
            break;
        case NW_ACT_INT8:
            pack_int8(src, n_cols, row);
            break;
        }
    }
}
