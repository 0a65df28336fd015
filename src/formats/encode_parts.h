/* What writes blocks: encode.c (blocks of 32), encode_k.c (K-quants), unpack_blocks.c (from panels).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_ENCODE_PARTS_H
#define NW_FORMATS_ENCODE_PARTS_H

#include "formats/block_parts.h"
#include "formats/encode.h"

void nw_put_scale(uint8_t *p, float scale); /* binary16, the largest finite one beyond it */
void nw_put_nibbles(const uint8_t q[NW_BLOCK], uint8_t qs[NW_HALF]);
void nw_put_codes5(const uint8_t q[NW_BLOCK], uint8_t *qh); /* qh u32, then qs: 0..31 */
/* Inverses of nw_k_scale, nw_k45_codes (qh NULL: Q4_K) and nw_k6_codes. */
void nw_put_k_scales(const int8_t sc[8], const int8_t m[8], uint8_t b[12]);
void nw_put_k45_codes(const int8_t q[NW_SUPER], uint8_t *qh, uint8_t *qs);
void nw_put_k6_codes(const int8_t q[NW_SUPER], uint8_t *ql, uint8_t *qh);

/* The weights of block b of n values; all 1 (written to ones [n]) where there are none, or all are 0. */
const float *nw_weights_at(const float *weights, size_t b, size_t n, float *ones);

void nw_search_q4_k(const float *src, const float *weights, uint8_t *dst, size_t n_blocks);
void nw_search_q5_k(const float *src, const float *weights, uint8_t *dst, size_t n_blocks);
void nw_search_q6_k(const float *src, const float *weights, uint8_t *dst, size_t n_blocks);

#endif
