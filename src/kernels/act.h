/* Where things stand in a packed activation row (kernels.h): shared by every tier.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_ACT_H
#define NW_KERNELS_ACT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#define NW_ACT_SUM_COLS 32u       /* columns of one partial sum of int8 codes: the smallest group */
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

/* int8 rows: bytes before the partial sums, and before the codes. */
#define NW_ACT_SUMS_AT 64u
static inline size_t nw_act_codes_at(uint32_t n_cols)
{
    const size_t sums = nw_act_cols(n_cols) / NW_ACT_SUM_COLS * sizeof(int32_t);
    return NW_ACT_SUMS_AT + (sums + 63) / 64 * 64;
}

/* Symmetric int8 of n values: returns the scale, absmax / 127, and sets *inv = 127 / absmax, or 0
 * where all codes are to be 0 (all below NW_ACT_TINY; a NaN or Inf, whose scale is NaN). */
float nw_int8_scale(const float *x, uint32_t n, float *inv);
static inline float nw_int8_code(float x, float inv)
{
    return inv > 0 ? nearbyintf(x * inv) : 0.0F; /* |x * inv| <= 127 (1 + 2^-23) */
}

/* act_pack in plain C. */
void nw_act_pack_plain(nw_act_kind kind, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                       uint32_t n_cols, void *dst);

static inline const uint8_t *nw_act_row(const nw_act *a, uint32_t t)
{
    return (const uint8_t *)a->data + t * nw_act_stride(a->kind, a->n_cols);
}

#endif
