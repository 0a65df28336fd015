/* Decoders and plain encoders of the registry's floating-point rows, and the blocks of four-bit floats
 * that GGUF has: see block.h for layouts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clones.h"
#include "formats/block.h"
#include "formats/block_parts.h"
#include "formats/fp4.h"
#include "formats/fp8.h"

const int8_t nw_fp4_halves[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void nw_decode_f32(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = nw_f32_from_bits(nw_le32(src + 4 * i));
    }
}

void nw_decode_f16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = nw_half_at(src + 2 * i);
    }
}

NW_CLONES void nw_decode_bf16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* bytes that make vectors: nw_le16 does not */
        uint16_t h = 0;
        memcpy(&h, src + 2 * i, sizeof h);
        dst[i] = nw_bf16_to_f32(h);
    }
}

void nw_decode_f8_e4m3(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = nw_e4m3_to_f32(src[i]);
    }
}

void nw_decode_f8_e5m2(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = nw_e5m2_to_f32(src[i]);
    }
}

void nw_decode_f8_e8m0(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = nw_e8m0_to_f32(src[i]);
    }
}

void nw_decode_f4(const uint8_t *src, float *dst, size_t n_pairs)
{
    for (size_t i = 0; i < n_pairs; i++) {
        dst[2 * i] = nw_e2m1_to_f32(src[i] & 15U);
        dst[2 * i + 1] = nw_e2m1_to_f32(src[i] >> 4);
    }
}

void nw_decode_mxfp4(const uint8_t *src, float *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += 17, dst += NW_BLOCK) {
        /* half the scale, for values counted in halves: 2^(e - 128) is finite for every e */
        const float d = nw_f32_from_bits(src[0] < 2 ? 0x00200000U << src[0] : (src[0] - 1U) << 23);
        nw_nibbles(src + 1, q);
        for (int j = 0; j < NW_BLOCK; j++) {
            dst[j] = d * (float)nw_fp4_halves[q[j]];
        }
    }
}

float nw_ggml_ue4m3(uint8_t code)
{
    if (code == 0x7F) {
        return 0;
    }
    return code == 0xFF ? 480.0F : nw_e4m3_to_f32(code & 0x7FU);
}

void nw_decode_nvfp4(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 36, dst += NW_NVFP4_BLOCK) {
        for (int e = 0; e < NW_NVFP4_BLOCK; e++) {
            const int s = e / NW_NVFP4_GROUP;
            const int j = e % NW_NVFP4_GROUP;
            const uint8_t pair = src[4 + 8 * s + j % 8];
            const uint8_t code = j < 8 ? pair & 15U : pair >> 4;
            dst[e] = nw_ggml_ue4m3(src[s]) / 2 * (float)nw_fp4_halves[code];
        }
    }
}

void nw_encode_f32(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        nw_put32(dst + 4 * i, nw_f32_bits(src[i]));
    }
}

void nw_encode_f16(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        nw_put16(dst + 2 * i, nw_f16_from_f32(src[i]));
    }
}

void nw_encode_bf16(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        nw_put16(dst + 2 * i, nw_bf16_from_f32(src[i]));
    }
}

void nw_encode_f8_e4m3(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = nw_e4m3_from_f32(src[i]);
    }
}

void nw_encode_f8_e5m2(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = nw_e5m2_from_f32(src[i]);
    }
}

void nw_encode_f4(const float *src, uint8_t *dst, size_t n_pairs)
{
    for (size_t i = 0; i < n_pairs; i++) {
        const unsigned low = nw_e2m1_from_f32(src[2 * i]);
        const unsigned high = nw_e2m1_from_f32(src[2 * i + 1]);
        dst[i] = (uint8_t)(low | high << 4);
    }
}
