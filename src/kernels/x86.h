/* What x86 tiers share: decoding that stands beside the products and is no faster in wider
 * registers. Compiled for AVX2, FMA and F16C, which every processor of either tier has.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_X86_H
#define NW_KERNELS_X86_H

#include "formats/bf16_12.h"
#include "kernels/group.h"
#include "kernels/kernels.h"

/* Scales and minima of groups [g0, g0 + n) of a panel, n <= NW_CHUNK. Stored zero points become
 * minima, min = -scale * zero, exactly. */
void nw_x86_scales(nw_panel_type type, const nw_groups *g, const uint8_t *panel, uint32_t g0,
                   uint32_t n, nw_chunk *out);

/* act_pack of AVX2 and AVX-VNNI. */
void nw_avx2_act_pack(nw_act_kind kind, const float *x, size_t ldx, uint32_t t0, uint32_t t1,
                      uint32_t n_cols, void *dst);

/* One bf16-12 panel, read from left to right. */
typedef struct {
    const uint8_t *quads;
    const nw_bf16_escape *escape, *end;
    uint8_t exponents[16];
} nw_bf16_12_reader;

nw_bf16_12_reader nw_x86_bf16_12_read(nw_panel_type type, const uint8_t *panel, uint32_t n_cols);
/* The next n quads as a bf16 panel of 128 n bytes, out 64-byte aligned; quad0: how many were read.
 * Meanwhile fetches 96 n bytes at `next` into the cache. */
void nw_x86_bf16_12_expand(nw_bf16_12_reader *r, uint32_t quad0, uint32_t n, const uint8_t *next,
                           uint8_t *out);

#endif
