/* Decoders and encoders of the registry's rows: see format.h for the contract.
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
 *   IQ4_NL 18/32  d | qs[16]                                              d * level[q]
 *   MXFP4 17/32   E8M0 e | qs[16]                                         2^(e-127) * E2M1(q)
 *   NVFP4 36/64   E4M3 s[4] | qs[32], 8 bytes per 16 elements:            s * E2M1(q)
 *                 byte j = q[j] | q[j+8] << 4
 *   F4     1/2    E2M1, the even element in the low nibble
 *   F8_*   1/1    one value a byte: formats/fp8.h
 *
 * Products are rounded to float32 one by one, left to right, as gguf-py does. MXFP4 and NVFP4 are read
 * as the reference decoders of GGUF read them: e = 255 is 2^128, not NaN (so that codes above 0.5
 * overflow), s = 0x7F is 0.
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
void nw_decode_iq4_nl(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_mxfp4(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_nvfp4(const uint8_t *src, float *dst, size_t n_blocks);
void nw_decode_f8_e4m3(const uint8_t *src, float *dst, size_t n);
void nw_decode_f8_e5m2(const uint8_t *src, float *dst, size_t n);
void nw_decode_f8_e8m0(const uint8_t *src, float *dst, size_t n);
void nw_decode_f4(const uint8_t *src, float *dst, size_t n_pairs);

void nw_encode_f32(const float *src, uint8_t *dst, size_t n);
void nw_encode_f16(const float *src, uint8_t *dst, size_t n);
void nw_encode_bf16(const float *src, uint8_t *dst, size_t n);
void nw_encode_f8_e4m3(const float *src, uint8_t *dst, size_t n);
void nw_encode_f8_e5m2(const float *src, uint8_t *dst, size_t n);
void nw_encode_f4(const float *src, uint8_t *dst, size_t n_pairs);

#endif
