/* Block decoders of GGUF's integer formats: see block.h for layouts. Written for clarity: they run once
 * a weight, at load.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/block.h"

#include "formats/block_parts.h"

const int8_t nw_iq4_nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

void nw_nibbles(const uint8_t qs[16], uint8_t q[NW_BLOCK])
{
    for (int j = 0; j < NW_HALF; j++) {
        q[j] = qs[j] & 15U;
        q[j + NW_HALF] = qs[j] >> 4;
    }
}

void nw_codes5(const uint8_t *qh, uint8_t q[NW_BLOCK])
{
    const uint32_t high = nw_le32(qh);

    nw_nibbles(qh + 4, q);
    for (int j = 0; j < NW_BLOCK; j++) {
        q[j] = (uint8_t)(q[j] | (high >> j & 1U) << 4);
    }
}

void nw_decode_q4_0(const uint8_t *src, float *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += 18, dst += NW_BLOCK) {
        const float d = nw_half_at(src);
        nw_nibbles(src + 2, q);
        for (int j = 0; j < NW_BLOCK; j++) {
            dst[j] = d * (float)(q[j] - 8);
        }
    }
}

void nw_decode_q4_1(const uint8_t *src, float *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += 20, dst += NW_BLOCK) {
        const float d = nw_half_at(src);
        const float m = nw_half_at(src + 2);
        nw_nibbles(src + 4, q);
        for (int j = 0; j < NW_BLOCK; j++) {
            dst[j] = d * (float)q[j] + m;
        }
    }
}

void nw_decode_q5_0(const uint8_t *src, float *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += 22, dst += NW_BLOCK) {
        const float d = nw_half_at(src);
        nw_codes5(src + 2, q);
        for (int j = 0; j < NW_BLOCK; j++) {
            dst[j] = d * (float)(q[j] - 16);
        }
    }
}

void nw_decode_q5_1(const uint8_t *src, float *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += 24, dst += NW_BLOCK) {
        const float d = nw_half_at(src);
        const float m = nw_half_at(src + 2);
        nw_codes5(src + 4, q);
        for (int j = 0; j < NW_BLOCK; j++) {
            dst[j] = d * (float)q[j] + m;
        }
    }
}

void nw_decode_q8_0(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 34, dst += NW_BLOCK) {
        const float d = nw_half_at(src);
        for (int j = 0; j < NW_BLOCK; j++) {
            dst[j] = d * (float)nw_signed8(src[2 + j]);
        }
    }
}

void nw_decode_iq4_nl(const uint8_t *src, float *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += 18, dst += NW_BLOCK) {
        const float d = nw_half_at(src);
        nw_nibbles(src + 2, q);
        for (int j = 0; j < NW_BLOCK; j++) {
            dst[j] = d * (float)nw_iq4_nl_levels[q[j]];
        }
    }
}

void nw_k_scale(const uint8_t b[12], int j, uint8_t *sc, uint8_t *m)
{
    if (j < 4) {
        *sc = b[j] & 63U;
        *m = b[j + 4] & 63U;
    } else {
        *sc = (uint8_t)((b[j + 4] & 15U) | (unsigned)b[j - 4] >> 6 << 4);
        *m = (uint8_t)((unsigned)b[j + 4] >> 4 | (unsigned)b[j] >> 6 << 4);
    }
}

void nw_k45_codes(const uint8_t *qh, const uint8_t *qs, uint8_t q[NW_SUPER])
{
    for (int s = 0; s < NW_SUPER / NW_BLOCK; s++) {
        const uint8_t *low = qs + NW_BLOCK * (s / 2);
        for (int l = 0; l < NW_BLOCK; l++) {
            const unsigned high = qh != NULL ? (unsigned)qh[l] >> s & 1U : 0;
            const unsigned nibble = s % 2 == 0 ? low[l] & 15U : (unsigned)low[l] >> 4;
            q[NW_BLOCK * s + l] = (uint8_t)(nibble | high << 4);
        }
    }
}

/* Q4_K and Q5_K: qh is NULL for the first. */
static void decode_k45(const uint8_t *src, const uint8_t *qh, const uint8_t *qs, float *dst)
{
    const float d = nw_half_at(src);
    const float dmin = nw_half_at(src + 2);
    uint8_t q[NW_SUPER];

    nw_k45_codes(qh, qs, q);
    for (int s = 0; s < NW_SUPER / NW_BLOCK; s++) {
        uint8_t sc = 0;
        uint8_t m = 0;
        nw_k_scale(src + 4, s, &sc, &m);
        const float scale = d * (float)sc;
        const float min = dmin * (float)m;
        for (int e = NW_BLOCK * s; e < NW_BLOCK * (s + 1); e++) {
            dst[e] = scale * (float)q[e] - min;
        }
    }
}

void nw_decode_q4_k(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 144, dst += NW_SUPER) {
        decode_k45(src, NULL, src + 16, dst);
    }
}

void nw_decode_q5_k(const uint8_t *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 176, dst += NW_SUPER) {
        decode_k45(src, src + 16, src + 48, dst);
    }
}

/* Each half of 128 elements has 64 bytes of ql and 32 of qh. Its quarter g of 32 takes its low nibbles
 * from ql[l + 32 * (g % 2)] (upper nibbles for g >= 2) and its two high bits from qh[l] >> 2g. */
void nw_k6_codes(const uint8_t *ql, const uint8_t *qh, int8_t q[NW_SUPER])
{
    for (int h = 0; h < 2; h++, ql += 64, qh += NW_BLOCK, q += 128) {
        for (int l = 0; l < NW_BLOCK; l++) {
            const int a = ql[l];
            const int b = ql[l + NW_BLOCK];
            const int high = qh[l];
            q[l] = (int8_t)(((a & 15) | (high & 3) << 4) - 32);
            q[l + 32] = (int8_t)(((b & 15) | (high >> 2 & 3) << 4) - 32);
            q[l + 64] = (int8_t)((a >> 4 | (high >> 4 & 3) << 4) - 32);
            q[l + 96] = (int8_t)((b >> 4 | high >> 6 << 4) - 32);
        }
    }
}

void nw_decode_q6_k(const uint8_t *src, float *dst, size_t n_blocks)
{
    int8_t q[NW_SUPER];

    for (size_t b = 0; b < n_blocks; b++, src += 210, dst += NW_SUPER) {
        const float d = nw_half_at(src + 208);
        nw_k6_codes(src, src + 128, q);
        for (int e = 0; e < NW_SUPER; e++) {
            const float scale = d * (float)nw_signed8(src[192 + e / 16]);
            dst[e] = scale * (float)q[e];
        }
    }
}
