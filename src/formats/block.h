/* Decoders (and the plain encoders) of the registry's rows: see format.h for the contract.
 * d, m: little-endian binary16 scales and minima.
 *
 *   Q4_0  18/32   d | qs[16]: q[j] | q[j+16] << 4                         d * (q - 8)
 *   Q4_1  20/32   d | m | qs[16]                                          d * q + m
 *   Q5_0  22/32   d | qh u32: bit j = fifth bit of q[j] | qs[16]          d * (q - 16)
 *   Q5_1  24/32   d | m | qh | qs[16]                                     d * q + m
 *   Q8_0  34/32   d | int8[32]                                            d * q
 *   Q4_K 144/256  d | dmin | scales[12] | qs[128]                         d*sc * q - dmin*m
 *   Q5_K 176/256  d | dmin | scales[12] | qh[32] | qs[128]                d*sc * q - dmin*m
 *   Q6_K 210/256  ql[128] | qh[64] | int8 sc[16] | d                      d*sc * (q - 32)
 *
 * Products are rounded to float32 one by one, left to right, as gguf-py does.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_BLOCK_H
#define NW_FORMATS_BLOCK_H

#include <stddef.h>
#include <stdint.h>

void nw_decode_f32(const uint8_t *src, float *dst, size_t n);
void nw_decode_f16(const uint8_t *src, float *dst, size_t n);
void nw_decode_bf16(const uint8_t *src, float *dst, size_t n);
void nw_decode_q4_0(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_q4_1(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_q5_0(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_q5_1(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_q8_0(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_q4_k(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_q5_k(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_q6_k(const uint8_t *src, float *dst, size_t n_blocks);

void nw_encode_f32(const float *src, uint8_t *dst, size_t n);
void nw_encode_f16(const float *src, uint8_t *dst, size_t n);
void nw_encode_bf16(const float *src, uint8_t *dst, size_t n);

#endif
