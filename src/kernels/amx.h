/* What the files of the AMX tier share: tiles, and how a linear layer is walked with them. The panels of
 * formats/panel.h are AMX's own order of weights: 16 steps of 64 bytes are a tile as they stand. Included by
 * those files only: they alone are compiled for these instructions, and for those of the AVX-512 tier.
 * Source: Intel SDM vol. 1 ch. 18 (AMX), vol. 2 (TDPBSUD, TDPBF16PS).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AMX_H
#define NW_KERNELS_AMX_H

#include "kernels/avx512.h"
#include "kernels/tiers.h"

#define NW_AMX_ROWS  16u   /* tokens of a tile of activations or sums, steps of one of weights */
#define NW_AMX_BYTES 1024u /* of a whole tile */
#define NW_AMX_SUMS  256u  /* of a whole tile */
/* Tokens that pass a pair of panels together, so that what is made of its weights serves them all. */
#define NW_AMX_TOKENS 64u
#define NW_AMX_TILES  (NW_AMX_TOKENS / NW_AMX_ROWS)

/* Bytes ahead of their use that the weights of one token are asked for: the prefetchers of the processors that have AMX
 * read one stream at half of what memory gives (docs/speed.md). */
#define NW_AMX_FAR 16384u

/* Tile registers, by number, as the instructions have them in their text: 0 and 1 are the sums of the first tile
 * of tokens (or plane of bytes) with the first and the second panel, 2 and 3 those of the second; 4 and 5
 * the activations; 6 and 7 the weights of the two panels. The memory clobbers keep the compiler from moving
 * what it stores past a load that it knows nothing of. stride: bytes from a row to the next, a size_t. */
#define NW_AMX_STEP    ((size_t)64)
#define NW_AMX_ZERO(c) __asm__ volatile("tilezero %%tmm" #c ::)
#define NW_AMX_LOAD(t, at, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(at), "r"(stride) : "memory")
#define NW_AMX_STORE(t, at) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(at), "r"(NW_AMX_STEP) : "memory")
/* c += s8(activations a) * u8(weights w), or u8 * s8, sums of 4; c += bf16 * bf16, sums of 2. */
#define NW_AMX_S8U8(c, a, w) __asm__ volatile("tdpbsud %%tmm" #w ", %%tmm" #a ", %%tmm" #c ::)
#define NW_AMX_U8S8(c, a, w) __asm__ volatile("tdpbusd %%tmm" #w ", %%tmm" #a ", %%tmm" #c ::)
#define NW_AMX_BF16(c, a, w) __asm__ volatile("tdpbf16ps %%tmm" #w ", %%tmm" #a ", %%tmm" #c ::)

/* Gives the tile registers their shapes: n_tokens rows of sums and activations, `steps` of weights. Until
 * nw_amx_end(), on this thread. */
NW_INLINE void nw_amx_begin(uint32_t n_tokens, uint32_t steps)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16]; /* of a row */
        uint8_t rows[16];
    } shape = {.palette = 1};

    for (unsigned i = 0; i < 8; i++) {
        shape.bytes[i] = (uint16_t)(i == 4 || i == 5 ? steps * 4 : 64);
        shape.rows[i] = (uint8_t)(i < 6 ? n_tokens : steps);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
}

NW_INLINE void nw_amx_end(void)
{
    __asm__ volatile("tilerelease" ::);
}

/* Sums [n_tiles][n_panels] (1 or 2 each) begin at 0, or as they stand in memory. */
typedef float
    nw_amx_sums[2][NW_AMX_SUMS]; /* of a tile with both panels; int32 where integers are summed */

NW_INLINE void nw_amx_zero(const unsigned n_tiles, const unsigned n_panels)
{
    NW_AMX_ZERO(0);
    if (n_panels == 2) {
        NW_AMX_ZERO(1);
    }
    if (n_tiles == 2) {
        NW_AMX_ZERO(2);
    }
    if (n_tiles == 2 && n_panels == 2) {
        NW_AMX_ZERO(3);
    }
}

NW_INLINE void nw_amx_load(nw_amx_sums *from, const unsigned n_tiles, const unsigned n_panels)
{
    NW_AMX_LOAD(0, from[0][0], NW_AMX_STEP);
    if (n_panels == 2) {
        NW_AMX_LOAD(1, from[0][1], NW_AMX_STEP);
    }
    if (n_tiles == 2) {
        NW_AMX_LOAD(2, from[1][0], NW_AMX_STEP);
    }
    if (n_tiles == 2 && n_panels == 2) {
        NW_AMX_LOAD(3, from[1][1], NW_AMX_STEP);
    }
}

NW_INLINE void nw_amx_store(nw_amx_sums *to, const unsigned n_tiles, const unsigned n_panels)
{
    NW_AMX_STORE(0, to[0][0]);
    if (n_panels == 2) {
        NW_AMX_STORE(1, to[0][1]);
    }
    if (n_tiles == 2) {
        NW_AMX_STORE(2, to[1][0]);
    }
    if (n_tiles == 2 && n_panels == 2) {
        NW_AMX_STORE(3, to[1][1]);
    }
}

/* The operands of sums: activations a [n_tiles] with a row every a_stride bytes, weights w [n_panels]. */
NW_INLINE void nw_amx_operands(const uint8_t *const *a, size_t a_stride, const uint8_t *const *w,
                               const unsigned n_tiles, const unsigned n_panels)
{
    NW_AMX_LOAD(4, a[0], a_stride);
    NW_AMX_LOAD(6, w[0], NW_AMX_STEP);
    if (n_panels == 2) {
        NW_AMX_LOAD(7, w[1], NW_AMX_STEP);
    }
    if (n_tiles == 2) {
        NW_AMX_LOAD(5, a[1], a_stride);
    }
}

/* Sums += the products of the operands. */
NW_INLINE void nw_amx_add_ints(const unsigned n_tiles, const unsigned n_panels)
{
    NW_AMX_S8U8(0, 4, 6);
    if (n_panels == 2) {
        NW_AMX_S8U8(1, 4, 7);
    }
    if (n_tiles == 2) {
        NW_AMX_S8U8(2, 5, 6);
    }
    if (n_tiles == 2 && n_panels == 2) {
        NW_AMX_S8U8(3, 5, 7);
    }
}

NW_INLINE void nw_amx_add_bf16(const unsigned n_tiles, const unsigned n_panels)
{
    NW_AMX_BF16(0, 4, 6);
    if (n_panels == 2) {
        NW_AMX_BF16(1, 4, 7);
    }
    if (n_tiles == 2) {
        NW_AMX_BF16(2, 5, 6);
    }
    if (n_tiles == 2 && n_panels == 2) {
        NW_AMX_BF16(3, 5, 7);
    }
}

/* A run of at most NW_AMX_TOKENS tokens past one or two panels. Tiles of tokens have `rows` each; the last
 * one begins earlier where they do not divide the run, and gives some tokens' results once more. */
typedef struct {
    nw_tile t; /* a and y at the first token; n_panels 1 or 2 */
    uint32_t n_tokens, rows, n_tiles;
} nw_amx_run;

/* The first token of tile i. */
NW_INLINE uint32_t nw_amx_first(const nw_amx_run *r, uint32_t i)
{
    const uint32_t last = r->n_tokens - r->rows;
    return i * NW_AMX_ROWS < last ? i * NW_AMX_ROWS : last;
}

typedef void nw_amx_run_fn(const nw_amx_run *r);

/* linear, as runs. steps: of the weights that a tile holds. */
void nw_amx_linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy, uint32_t steps, nw_amx_run_fn *run);

/* INT8 with a scale a row x INT8; BF16, BF16-12 and FP8 x BF16; INT4 and INT8 in groups of 32 and more x INT8 and
 * INT16, and INT8 with a scale a row x INT16. */
void nw_amx_attend(const nw_attn *a);
nw_linear_fn nw_amx_linear_row_a8, nw_amx_linear_a16, nw_amx_linear_group;

#endif
