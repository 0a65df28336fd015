/* Where things stand in a packed activation row (kernels.h): shared by every tier.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_ACT_H
#define NW_KERNELS_ACT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#define NW_ACT_SUM_COLS 16u       /* columns of one partial sum: the smallest group */
#define NW_ACT_TINY     0x1p-100F /* an absmax below this packs as zeros */

/* The first 8 bytes of an int8 row. */
typedef struct {
    float scale;
    int32_t sum;
} nw_act_head;

static inline uint32_t nw_act_cols(uint32_t n_cols)
{
    return (n_cols + NW_ACT_COLS - 1) / NW_ACT_COLS * NW_ACT_COLS;
}

/* Bytes of a row before its partial sums: bf16 has them after its values, the others before them. */
static inline size_t nw_act_sums_at(nw_act_kind kind, uint32_t n_cols)
{
    const size_t cols = nw_act_cols(n_cols);
    if (kind == NW_ACT_INT16) {
        return (cols / NW_ACT_COLS * sizeof(float) + 63) / 64 * 64;
    }
    return kind == NW_ACT_INT8 ? 64 : cols * sizeof(uint16_t);
}

/* Bytes from there to the sums of `cols` columns each, 16, 32, 64 or 128: int8 and int16 rows have all
 * four, one after the other. */
static inline size_t nw_act_level_at(uint32_t n_cols, uint32_t cols)
{
    const size_t n16 = nw_act_cols(n_cols) / NW_ACT_SUM_COLS;
    const size_t before = cols == 16 ? 0 : 2 * n16 - 32 * n16 / cols;
    return before * sizeof(int32_t);
}

/* int8 and int16 rows: bytes before the codes. The low bytes of int16 follow nw_act_cols() later. */
static inline size_t nw_act_codes_at(nw_act_kind kind, uint32_t n_cols)
{
    const size_t sums = nw_act_level_at(n_cols, 2 * NW_ACT_COLS);
    return nw_act_sums_at(kind, n_cols) + (sums + 63) / 64 * 64;
}

/* The sum of `parts` partial sums, in order. Fixed loads: kernels call it between products. */
static inline int32_t nw_act_sum_i32(const uint8_t *sums, uint32_t parts)
{
    int32_t sum = 0;

    for (uint32_t i = 0; i < parts; i++, sums += sizeof sum) {
        int32_t part;
        memcpy(&part, sums, sizeof part);
        sum += part;
    }
    return sum;
}

static inline float nw_act_sum_f32(const uint8_t *sums, uint32_t parts)
{
    float sum = 0;

    for (uint32_t i = 0; i < parts; i++, sums += sizeof sum) {
        float part;
        memcpy(&part, sums, sizeof part);
        sum += part;
    }
    return sum;
}

/* Whether int8 activations exist for weights of this type: their codes are small integers. */
static inline bool nw_has_a8(nw_panel_type type)
{
    return type.kind == NW_PANEL_INT8 || type.kind == NW_PANEL_INT4 ||
           type.kind == NW_PANEL_NVFP4 || type.kind == NW_PANEL_MXFP4;
}

/* Symmetric codes of n values up to `most`: returns the scale, absmax / most, and sets *inv = most /
 * absmax, or 0 where all codes are to be 0 (all below NW_ACT_TINY; a NaN or Inf, whose scale is
 * NaN). */
float nw_code_scale(const float *x, uint32_t n, float most, float *inv);
#define NW_INT8_MOST  127.0F
#define NW_INT16_MOST 32639.0F /* 127 * 256 + 127: both bytes are signed */
static inline float nw_code(float x, float inv)
{
    return inv > 0 ? nearbyintf(x * inv) : 0.0F; /* |x * inv| <= most (1 + 2^-23) */
}

static inline float nw_int8_scale(const float *x, uint32_t n, float *inv)
{
    return nw_code_scale(x, n, NW_INT8_MOST, inv);
}
static inline float nw_int8_code(float x, float inv)
{
    return nw_code(x, inv);
}

/* Fills the sums of 32, 64 and 128 columns from those of 16 at `sums`. */
void nw_act_sum_levels(uint8_t *sums, uint32_t n_cols);

/* INT8 rows under one scale for all tokens: code = nearest-even(x / scale), held to -127..127; a NaN or
 * Inf gives NaN outputs. Otherwise as act_pack. */
void nw_act_pack_fixed(float scale, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                       uint32_t n_cols, void *dst);

/* act_pack in plain C. */
void nw_act_pack_plain(nw_act_kind kind, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                       uint32_t n_cols, void *dst);

static inline const uint8_t *nw_act_row(const nw_act *a, uint32_t t)
{
    return (const uint8_t *)a->data + t * nw_act_stride(a->kind, a->n_cols);
}

#endif
