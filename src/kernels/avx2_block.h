/* Weights of a few panels and columns as the products of the AVX2 tier take them: codes widened once
 * for all the tokens of a call, scales and minima of groups in f32. What widening costs is then shared by
 * the tokens, and a tile has registers for its sums alone. On the stack of who multiplies.
 *
 *   bytes   a panel, up to 1024 columns, for products with INT8 activations (vpmaddubsw): unsigned codes,
 *           64 bytes a quad of columns, byte [r * 4 + t] = code of column t of row r
 *   words   up to 4 panels, 512 columns each, for vpmaddwd: signed codes, 128 bytes a quad of columns,
 *           64 of its columns 0 and 1, then 64 of 2 and 3; word [r * 2 + t]
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX2_BLOCK_H
#define NW_KERNELS_AVX2_BLOCK_H

#include "kernels/act.h"
#include "kernels/group.h"

#define NW_BLOCK_COLS   1024u /* of bytes */
#define NW_BLOCK_PANELS 4u    /* of words */
#define NW_WORDS_COLS   512u  /* of words, a panel */
#define NW_BLOCK_SCALES 128u  /* groups of all panels: 1024 columns / 16, or 4 panels x 512 / 16 */

#define NW_BLOCK_AHEAD 2048u /* bytes of codes from what is widened to what is asked for */

#define NW_WORDS_BYTES  (NW_WORDS_COLS * NW_PANEL_ROWS * 2u) /* codes of a panel of words */
#define NW_WORDS_SCALES (NW_BLOCK_SCALES / NW_BLOCK_PANELS)  /* groups of it */

typedef struct {
    _Alignas(64) uint8_t codes[NW_BLOCK_PANELS * NW_WORDS_BYTES];
    _Alignas(64) float scale[NW_BLOCK_SCALES][NW_PANEL_ROWS];
    _Alignas(64) float min[NW_BLOCK_SCALES][NW_PANEL_ROWS]; /* where nw_groups.min */
} nw_block;

/* Bytes of a panel before group i (or behind the last group). */
size_t nw_block_at(const nw_groups *g, uint32_t i);
/* Bytes of a panel before the codes of group i. */
static inline size_t nw_block_codes_at(const nw_groups *g, uint32_t i)
{
    return g->first + (size_t)(i / g->per_block) * g->block_bytes + g->codes_at +
           (size_t)(i % g->per_block) * g->steps * 64;
}

/* Decoded scales [n * n_scales] of groups [g0, g0 + n) of a panel, and minima [n] where nw_groups.min. */
void nw_avx2_block_scales(nw_panel_type type, const nw_groups *g, const uint8_t *panel, uint32_t g0,
                          uint32_t n, float (*scale)[NW_PANEL_ROWS], float (*min)[NW_PANEL_ROWS]);
/* Groups [g0, g0 + n) of a panel, n * cols <= NW_BLOCK_COLS; quads: of rows without groups, the quads of
 * columns that are there. E2M1 codes are twice the value and 12 more, bytes of INT8 128 more. */
void nw_avx2_block_bytes(nw_panel_type type, const nw_groups *g, const uint8_t *panel, uint32_t g0,
                         uint32_t n, uint32_t quads, nw_block *out);
/* Groups [g0, g0 + n) of a panel, n * cols <= NW_WORDS_COLS, as panel `at` of the block. E2M1 codes are
 * twice the value. */
void nw_avx2_block_words(nw_panel_type type, const nw_groups *g, const uint8_t *panel, uint32_t g0,
                         uint32_t n, uint32_t quads, unsigned at, nw_block *out);
/* Columns [c0, c0 + n) of a packed token as words, c0 a multiple of 32; out is written in steps of 64 bytes.
 * kind: NW_ACT_INT8 or NW_ACT_INT16. */
void nw_avx2_act_words(nw_act_kind kind, const uint8_t *row, uint32_t n_cols, uint32_t c0,
                       uint32_t n, int16_t *out);
/* The same, of each quad columns 0, 2, 1, 3: what codes of INT8 are as words by a mask and a shift; n and c0
 * multiples of 4, out is written in steps of 32 bytes. */
void nw_avx2_act_even_odd(nw_act_kind kind, const uint8_t *row, uint32_t n_cols, uint32_t c0,
                          uint32_t n, int16_t *out);

#endif
