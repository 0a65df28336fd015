/* Encoders of GGUF's block formats, in two kinds.
 *
 * Plain: round to nearest by the rule of GGUF's reference encoder, so that the bytes are those that its
 * tools write (Q4_0 Q4_1 Q5_0 Q5_1 Q8_0, and MXFP4). Scales are taken before they are rounded to
 * their stored type, as there.
 *
 * Searched: the least weighted squared error, Σ w (x - x')², over a list of scales, each refitted to its
 * codes by least squares; errors are taken with the scales as stored. For K-quants this is the only
 * kind, as it is for NVFP4 (one of 19 scales around absmax / 6).
 *
 * Values are finite. A scale beyond binary16 becomes the largest finite one: such a block cannot be kept
 * well, but it decodes to finite values. A block of zeros gets scale 0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_ENCODE_H
#define NW_FORMATS_ENCODE_H

#include "formats/format.h"

void nw_encode_q4_0(const float *src, uint8_t *dst, size_t n_blocks);
void nw_encode_q4_1(const float *src, uint8_t *dst, size_t n_blocks);
void nw_encode_q5_0(const float *src, uint8_t *dst, size_t n_blocks);
void nw_encode_q5_1(const float *src, uint8_t *dst, size_t n_blocks);
void nw_encode_q8_0(const float *src, uint8_t *dst, size_t n_blocks);
void nw_encode_mxfp4(const float *src, uint8_t *dst, size_t n_blocks);
void nw_encode_nvfp4(const float *src, uint8_t *dst, size_t n_blocks);
void nw_encode_q4_k(const float *src, uint8_t *dst, size_t n_blocks);
void nw_encode_q5_k(const float *src, uint8_t *dst, size_t n_blocks);
void nw_encode_q6_k(const float *src, uint8_t *dst, size_t n_blocks);

/* weights: how much the error of each value counts, [n_blocks * block_elems], each >= 0; NULL: all 1.
 * A block whose weights are all 0 is encoded as if they were 1. */
typedef void (*nw_encode_search_fn)(const float *src, const float *weights, uint8_t *dst,
                                    size_t n_blocks);
/* NULL: the format has no search. */
nw_encode_search_fn nw_encode_search(nw_format_id format);

#endif
