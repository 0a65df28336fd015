/* Block decoders of GGUF's formats: see block.h for layouts. Written for clarity: they run once a
 * weight, at load. Bytes are read one by one, so that alignment and byte order never matter.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/block.h"

#include "formats/half.h"

#define BLOCK    32
#define SUPER    256
#define HALF     16 /* a byte of qs holds elements j and j + HALF */
#define K_SCALES 12 /* bytes of packed 6-bit scales and minima */

static uint16_t le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (unsigned)p[1] << 8);
}

static uint32_t le32(const uint8_t *p)
{
    return le16(p) | (uint32_t)le16(p + 2) << 16;
}

static float half_at(const uint8_t *p)
{
    return nw_f16_to_f32(le16(p));
}

void nw_decode_f32(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = nw_f32_from_bits(le32(src + 4 * i));
    }
}

void nw_decode_f16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = half_at(src + 2 * i);
    }
}

void nw_decode_bf16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = nw_bf16_to_f32(le16(src + 2 * i));
    }
}

void nw_decode_q4_0(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 18, dst += BLOCK) {
        const float d = half_at(src);
        for (int j = 0; j < HALF; j++) {
            dst[j] = d * (float)((src[2 + j] & 15) - 8);
            dst[j + HALF] = d * (float)((src[2 + j] >> 4) - 8);
        }
    }
}

void nw_decode_q4_1(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 20, dst += BLOCK) {
        const float d = half_at(src);
        const float m = half_at(src + 2);
        for (int j = 0; j < HALF; j++) {
            dst[j] = d * (float)(src[4 + j] & 15) + m;
            dst[j + HALF] = d * (float)(src[4 + j] >> 4) + m;
        }
    }
}

/* The 32 five-bit codes of Q5_0 and Q5_1: qh at p, nibbles after it. */
static void codes5(const uint8_t *p, int q[BLOCK])
{
    const uint32_t qh = le32(p);

    for (int j = 0; j < HALF; j++) {
        q[j] = (int)((p[4 + j] & 15U) | (qh >> j & 1U) << 4);
        q[j + HALF] = (int)((unsigned)p[4 + j] >> 4 | (qh >> (j + HALF) & 1U) << 4);
    }
}

void nw_decode_q5_0(const uint8_t *src, float *dst, size_t n_blocks)
{
    int q[BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += 22, dst += BLOCK) {
        const float d = half_at(src);
        codes5(src + 2, q);
        for (int j = 0; j < BLOCK; j++) {
            dst[j] = d * (float)(q[j] - 16);
        }
    }
}

void nw_decode_q5_1(const uint8_t *src, float *dst, size_t n_blocks)
{
    int q[BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += 24, dst += BLOCK) {
        const float d = half_at(src);
        const float m = half_at(src + 2);
        codes5(src + 4, q);
        for (int j = 0; j < BLOCK; j++) {
            dst[j] = d * (float)q[j] + m;
        }
    }
}

static int signed8(uint8_t byte)
{
    return byte < 128 ? byte : byte - 256;
}

void nw_decode_q8_0(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 34, dst += BLOCK) {
        const float d = half_at(src);
        for (int j = 0; j < BLOCK; j++) {
            dst[j] = d * (float)signed8(src[2 + j]);
        }
    }
}

/* Six-bit scale and minimum of sub-block j (0..7) out of twelve bytes:
 *   j < 4:  sc = b[j] & 63, m = b[j+4] & 63
 *   j >= 4: low four bits in b[j+4] (scale low nibble, minimum high), top two bits in the upper two
 *           of b[j-4] (scale) and b[j] (minimum) */
static void k_scale(const uint8_t b[K_SCALES], int j, int *sc, int *m)
{
    if (j < 4) {
        *sc = b[j] & 63;
        *m = b[j + 4] & 63;
    } else {
        *sc = (b[j + 4] & 15) | b[j - 4] >> 6 << 4;
        *m = b[j + 4] >> 4 | b[j] >> 6 << 4;
    }
}

/* Q4_K and Q5_K: qh is NULL for the first. */
static void decode_k45(const uint8_t *src, const uint8_t *qh, const uint8_t *qs, float *dst)
{
    const float d = half_at(src);
    const float dmin = half_at(src + 2);

    for (int s = 0; s < SUPER / BLOCK; s++) {
        int sc = 0;
        int m = 0;
        k_scale(src + 4, s, &sc, &m);
        const float scale = d * (float)sc;
        const float min = dmin * (float)m;
        const uint8_t *low = qs + BLOCK * (s / 2);
        for (int l = 0; l < BLOCK; l++) {
            int q = s % 2 == 0 ? low[l] & 15 : low[l] >> 4;
            q += qh != NULL ? (qh[l] >> s & 1) << 4 : 0;
            dst[BLOCK * s + l] = scale * (float)q - min;
        }
    }
}

void nw_decode_q4_k(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 144, dst += SUPER) {
        decode_k45(src, NULL, src + 16, dst);
    }
}

void nw_decode_q5_k(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 176, dst += SUPER) {
        decode_k45(src, src + 16, src + 48, dst);
    }
}

/* Element e of a super-block lies in half e / 128; within it, quarter g of 32 takes its low nibble
 * from ql[l + 32 * (g % 2)] (upper nibble for g >= 2) and its two high bits from qh[l] >> 2g. */
static int code6(const uint8_t *ql, const uint8_t *qh, int e)
{
    const int h = e / 128;
    const int g = e % 128 / BLOCK;
    const int l = e % BLOCK;
    const int low = ql[64 * h + BLOCK * (g % 2) + l];
    const int high = qh[BLOCK * h + l] >> (2 * g) & 3;

    return (g < 2 ? low & 15 : low >> 4) | high << 4;
}

void nw_decode_q6_k(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 210, dst += SUPER) {
        const float d = half_at(src + 208);
        for (int e = 0; e < SUPER; e++) {
            const float scale = d * (float)signed8(src[192 + e / 16]);
            dst[e] = scale * (float)(code6(src, src + 128, e) - 32);
        }
    }
}

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v & 0xFFU);
    p[1] = (uint8_t)(v >> 8);
}

void nw_encode_f32(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = nw_f32_bits(src[i]);
        put16(dst + 4 * i, (uint16_t)(u & 0xFFFFU));
        put16(dst + 4 * i + 2, (uint16_t)(u >> 16));
    }
}

void nw_encode_f16(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put16(dst + 2 * i, nw_f16_from_f32(src[i]));
    }
}

void nw_encode_bf16(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put16(dst + 2 * i, nw_bf16_from_f32(src[i]));
    }
}
