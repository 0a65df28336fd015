/* Bytes of GGUF's blocks, shared by the decoders, the encoders and the repacking into panels: little
 * endian, read and written one by one, so that alignment and byte order never matter.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_BLOCK_PARTS_H
#define NW_FORMATS_BLOCK_PARTS_H

#include "formats/half.h"

#define NW_BLOCK       32  /* elements of a plain block */
#define NW_SUPER       256 /* elements of a K-quant's super-block */
#define NW_HALF        16  /* a byte of qs holds elements j and j + NW_HALF */
#define NW_NVFP4_BLOCK 64  /* elements of GGUF's NVFP4 block, four scales of 16 each */
#define NW_NVFP4_GROUP 16

static inline uint16_t nw_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (unsigned)p[1] << 8);
}

static inline uint32_t nw_le32(const uint8_t *p)
{
    return nw_le16(p) | (uint32_t)nw_le16(p + 2) << 16;
}

static inline float nw_half_at(const uint8_t *p)
{
    return nw_f16_to_f32(nw_le16(p));
}

static inline void nw_put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v & 0xFFU);
    p[1] = (uint8_t)(v >> 8);
}

static inline void nw_put32(uint8_t *p, uint32_t v)
{
    nw_put16(p, (uint16_t)(v & 0xFFFFU));
    nw_put16(p + 2, (uint16_t)(v >> 16));
}

static inline int nw_signed8(uint8_t byte)
{
    return byte < 128 ? byte : byte - 256;
}

/* The sixteen levels of IQ4_NL, by code. */
extern const int8_t nw_iq4_nl_levels[16];

/* Twice the E2M1 values; GGUF has no negative zero. */
extern const int8_t nw_fp4_halves[16];

/* Codes of one block, element by element. */
void nw_nibbles(const uint8_t qs[16], uint8_t q[NW_BLOCK]); /* 0..15 */
void nw_codes5(const uint8_t *qh, uint8_t q[NW_BLOCK]);     /* qh u32, then qs: 0..31 */
void nw_k45_codes(const uint8_t *qh, const uint8_t *qs, uint8_t q[NW_SUPER]); /* qh NULL: Q4_K */
void nw_k6_codes(const uint8_t *ql, const uint8_t *qh, int8_t q[NW_SUPER]);   /* -32..31 */

/* Six-bit scale and minimum of sub-block j (0..7) out of twelve bytes:
 *   j < 4:  sc = b[j] & 63, m = b[j+4] & 63
 *   j >= 4: low four bits in b[j+4] (scale low nibble, minimum high), top two bits in the upper two
 *           of b[j-4] (scale) and b[j] (minimum) */
void nw_k_scale(const uint8_t b[12], int j, uint8_t *sc, uint8_t *m);

/* GGUF's reading of an NVFP4 scale byte, the sign bit ignored: E4M3 without a sign, but 0x7F stands for
 * 0 and 0xFF for 480, as its reference decoders have it. */
float nw_ggml_ue4m3(uint8_t code);

#endif
