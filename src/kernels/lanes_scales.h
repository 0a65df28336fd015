/* Decoding of single values and of the scales of groups in lanes.h vectors, for the layouts of
 * formats/panel.h whose geometry is in group.h. All exact.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_SCALES_H
#define NW_KERNELS_LANES_SCALES_H

#include "kernels/group.h"
#include "kernels/lanes.h"

/* 2^-8 times the values of E4M3 codes, which stand in the high bytes: their bits, moved down by 1 but
 * for the sign, are an fp16 of that, subnormals included. NaN is not stored (formats/panel.h). */
NW_INLINE nw_lanes_f nw_lanes_small_e4m3(nw_lanes_h x)
{
    const nw_lanes_h size = nw_lanes_and_h(nw_lanes_right_h(x, 1), 0x3F80);
    return nw_lanes_from_f16(nw_lanes_or_h(nw_lanes_and_h(x, 0x8000), size));
}

/* 2^(e - 127) is the float with exponent field e; that of e = 0 is subnormal. */
NW_INLINE nw_lanes_f nw_lanes_from_e8m0(nw_lanes_i e)
{
    return nw_lanes_pick(nw_lanes_greater(e, nw_lanes_int(0)),
                         nw_lanes_from_bits(nw_lanes_left(e, 23)), nw_lanes_set(0x1p-127F));
}

/* Byte c of each lane, signed. */
NW_INLINE nw_lanes_i nw_lanes_s8_of(nw_lanes_i x, unsigned c)
{
    return nw_lanes_right_signed(nw_lanes_left(x, 24 - 8 * (int)c), 24);
}

/* Scale, zero point and minimum of the rows of one vector in one group: w = scale * (code - zero) +
 * min, where the code is signed for bytes and twice the value for E2M1. */
typedef struct {
    nw_lanes_f scale, min;
    nw_lanes_i zero;
} nw_lanes_group;

/* Where a group stands in every panel of a tensor. */
typedef struct {
    size_t block, codes; /* bytes from the panel's start */
    uint32_t in_block;
} nw_lanes_place;

NW_INLINE nw_lanes_place nw_lanes_place_of(const nw_groups *g, uint32_t i)
{
    const uint32_t block = i / g->per_block;
    nw_lanes_place p = {.block = g->first + block * g->block_bytes,
                        .in_block = i - block * g->per_block};
    p.codes = p.block + g->codes_at + (size_t)p.in_block * g->steps * 64;
    return p;
}

NW_INLINE nw_lanes_group nw_lanes_two_levels(const nw_groups *g, const uint8_t *block,
                                             uint32_t in_block, size_t row, bool min)
{
    const uint8_t *scales = block + 64 + (size_t)in_block * 16 + row;
    nw_lanes_group out = {.min = nw_lanes_set(0), .zero = nw_lanes_int(0)};

    out.scale = nw_lanes_mul(nw_lanes_f16(block + row * 2),
                             nw_lanes_float(nw_lanes_s8_of(nw_lanes_u8(scales), 0)));
    if (min) {
        const nw_lanes_f m = nw_lanes_float(nw_lanes_u8(scales + (size_t)g->per_block * 16));
        const nw_lanes_f d = nw_lanes_f16(block + 32 + row * 2);
        out.min = nw_lanes_sub(nw_lanes_set(0), nw_lanes_mul(d, m));
    }
    return out;
}

/* For rows from `row` on; `second`: of the high nibbles. */
NW_INLINE nw_lanes_group nw_lanes_group_of(const nw_tile *t, const nw_groups *g,
                                           const uint8_t *panel, const nw_lanes_place *p,
                                           size_t row, const bool second)
{
    const uint8_t *block = panel + p->block;
    nw_lanes_group out = {.min = nw_lanes_set(0), .zero = nw_lanes_int(0)};

    if (t->type.two_level) {
        return nw_lanes_two_levels(g, block, p->in_block, row, t->type.min);
    }
    if (g->fp4) {
        const bool split = g->codes == NW_CODES_SPLIT;
        const uint8_t *at = block + (split && second ? 16 : 0) + row;
        out.scale = split ? nw_lanes_small_e4m3(nw_lanes_left_h(nw_lanes_words_u8(at), 8))
                          : nw_lanes_from_e8m0(nw_lanes_u8(at));
        /* of twice the value */
        out.scale = nw_lanes_mul(out.scale, nw_lanes_set(split ? 128 : 0.5F));
        return out;
    }
    out.scale = nw_lanes_f16(block + row * 2);
    if (t->type.min) {
        out.min = nw_lanes_f16(block + 32 + row * 2);
    } else if (t->type.zero_point) { /* of bytes with the sign bit turned, as their codes */
        out.zero = nw_lanes_u8(block + 32 + row);
        if (g->codes == NW_CODES_BYTE) {
            out.zero = nw_lanes_sub_i(out.zero, nw_lanes_int(128));
        }
    } else {
        out.zero = nw_lanes_int(g->codes == NW_CODES_NIBBLE ? 8 : 0);
    }
    return out;
}

/* 2 x the values of E2M1 codes as bytes, and 12 more so that none is below 0. */
static const uint8_t nw_lanes_e2m1[16] = {0, 1,    2,    3,    4,    6,    8,    12,
                                          0, 0xFF, 0xFE, 0xFD, 0xFC, 0xFA, 0xF8, 0xF4};
static const uint8_t nw_lanes_e2m1_up[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                             12, 11, 10, 9,  8,  6,  4,  0};
#define NW_E2M1_UP 12

#endif
