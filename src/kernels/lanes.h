/* Vectors of NW_LANES 32-bit lanes, so that a kernel is written once and compiled for each
 * instruction set: the flags a file is compiled with choose the header of operations. A panel of 16
 * rows is NW_PARTS vectors, lane i of part p being row p * NW_LANES + i.
 *
 * The operations, besides what their names say; nw_lanes_f are floats, nw_lanes_i int32:
 *   load_n store_n        the first n lanes, 0 < n < NW_LANES; nothing beyond is touched, others are 0
 *   bytes                 4 bytes a lane;  u8, f16: one value a lane, widened
 *   pairs_u8, pairs_s8    two bytes a lane, widened to 16 bits each
 *   table, lookup         16 bytes again and again; each byte of `index`, 0..15, by its byte of them
 *   count                 0, 1, 2, ...
 *   greater               all bits set where a > b;  pick: x where set, else `other`
 *   fma                   a * b + c, rounded once
 *   clamp                 NaN stays NaN
 *   round, whole          to the nearest whole number, ties to even; whole: of a whole number
 *   sum, top              over all lanes; top: the largest
 *   words_u8, split       nw_lanes_h are 16-bit words, one a lane: a byte each, widened; and of fp8 steps
 *                         (formats/panel.h) pair 0 or 1 of the columns, the lower column low
 *   flip                  stored bytes code ^ 0x80 as codes
 *   dot_small             c + the sum over the 4 bytes of a lane of w * a: w 0..24, a -127..127
 *   dot_stored            the same with w = stored ^ 0x80, where c began as dot_start(sum of all a)
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_H
#define NW_KERNELS_LANES_H

#include <string.h>

#include "kernels/tile.h"

#if defined(__aarch64__)
#include "kernels/lanes_neon.h"
#elif defined(__AVX512F__)
#include "kernels/lanes_avx512.h"
#else
#include "kernels/lanes_avx2.h"
#endif

#define NW_PARTS (NW_PANEL_ROWS / NW_LANES)

/* The 4 bytes at p in every lane. */
NW_INLINE nw_lanes_i nw_lanes_spread(const uint8_t *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return nw_lanes_int(x);
}

/* Rows of vector v of a tile (part v % NW_PARTS of panel v / NW_PARTS) for token m: no row beyond
 * the matrix is written. */
NW_INLINE void nw_lanes_put(const nw_tile *t, unsigned m, unsigned v, nw_lanes_f x)
{
    const uint32_t before = v * NW_LANES;
    float *y = t->y + m * t->ldy + before;

    if (t->n_rows >= before + NW_LANES) {
        nw_lanes_store(y, x);
    } else if (t->n_rows > before) {
        nw_lanes_store_n(y, t->n_rows - before, x);
    }
}

/* The tile without its first n tokens. */
NW_INLINE nw_tile nw_lanes_after(const nw_tile *t, uint32_t n)
{
    nw_tile rest = *t;
    rest.a += n * t->a_stride;
    rest.y += n * t->ldy;
    return rest;
}

#endif
