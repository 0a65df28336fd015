/* How `linear` walks a matrix, for every tier that works in tiles of NV panels x MR tokens. A tile
 * function computes its whole reduction in one order that does not depend on NV or MR, so a
 * token's bits do not depend on how the matrix was cut.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_TILE_H
#define NW_KERNELS_TILE_H

#include "kernels/act.h"

/* Functions that are inlined with constant tile sizes, so that loops over those vanish. */
#define NW_INLINE static inline __attribute__((always_inline))

/* A loop over 0 .. n - 1 that is unrolled whole: n is a constant where the function is inlined. */
#if defined(__clang__)
#define NW_EACH(i, n) _Pragma("unroll") for (unsigned i = 0; i < (n); i++)
#else
#define NW_EACH(i, n) _Pragma("GCC unroll 24") for (unsigned i = 0; i < (n); i++)
#endif

#define NW_TILE_TOKENS 6u /* the most tokens of a tile, but for one panel of bf16-12 */

typedef struct {
    nw_panel_type type;
    uint32_t n_cols;     /* of the matrix, before padding */
    uint32_t n_panels;   /* of this tile: n_panels of its nw_tile_width */
    const uint8_t *w;    /* first panel */
    size_t w_stride;     /* bytes from a panel to the next */
    const uint8_t *a;    /* first packed token */
    size_t a_stride;     /* bytes */
    const uint8_t *next; /* weights of the next block, to be prefetched into L2 while this tile is
                          * computed, `ahead` lines a step of 64 bytes of each panel */
    uint32_t ahead;      /* 0: nothing to prefetch */
    uint32_t far;        /* of one token: see nw_linear_far() */
    float *y;            /* first token, first row */
    size_t ldy;
    uint32_t n_rows; /* rows from here to the end of the matrix: no more are written */
} nw_tile;

typedef void (*nw_tile_fn)(const nw_tile *t, unsigned n_tokens);

/* Tiles of one width. A list is ordered widest first and ends with a width of 1. */
typedef struct {
    uint32_t n_panels, n_tokens; /* n_tokens: the most of a tile */
    nw_tile_fn run;
} nw_tile_width;

/* `one` serves n_tokens == 1 (memory-bound: more panels hide latency), `many` the rest. */
void nw_linear_tiled(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                     float *y, size_t ldy, const nw_tile_width *one, const nw_tile_width *many);

/* linear of one token, a panel at a time, whose weights are asked for into the second cache `far` bytes ahead of their
 * use: for processors that read one stream too slowly when it is left to their own prefetchers. */
void nw_linear_far(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy, nw_tile_fn one, uint32_t far);

#endif
