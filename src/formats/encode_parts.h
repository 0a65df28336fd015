/* What the encoders share: encode.c (blocks of 32), encode_k.c (K-quants).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_ENCODE_PARTS_H
#define NW_FORMATS_ENCODE_PARTS_H

#include "formats/block_parts.h"
#include "formats/encode.h"

void nw_put_scale(uint8_t *p, float scale); /* binary16, the largest finite one beyond it */
void nw_put_nibbles(const uint8_t q[NW_BLOCK], uint8_t qs[NW_HALF]);

/* The weights of block b of n values; all 1 (written to ones [n]) where there are none, or all are 0. */
const float *nw_weights_at(const float *weights, size_t b, size_t n, float *ones);

void nw_search_q4_k(const float *src, const float *weights, uint8_t *dst, size_t n_blocks);
void nw_search_q5_k(const float *src, const float *weights, uint8_t *dst, size_t n_blocks);
void nw_search_q6_k(const float *src, const float *weights, uint8_t *dst, size_t n_blocks);

#endif
