/* Orthogonal matrices that turn a vector at the cost of a few passes over it:
 *
 *   Q = diag(sign) (O_m x H_n)     width = m n, n the largest power of two that divides it
 *
 * H_n is the normalized Hadamard matrix, O_m a random orthogonal matrix of the odd rest (1 where the
 * width is a power of two) and sign random: 576 = 9 x 64, 1536 = 3 x 512. Sources: S. Ashkboos et
 * al., QuaRot (arXiv 2404.00456); F. Mezzadri, Notices AMS 54 (2007) 592, for O_m.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_ORTHOGONAL_H
#define NW_QUANT_ORTHOGONAL_H

#include "base/status.h"

typedef struct {
    uint32_t width, m, n;
    double *o;    /* [m][m]; NULL: the identity, each block of n is turned alone */
    double *sign; /* [width]; NULL: all 1 */
} nw_orthogonal;

/* The odd part of a width that Q mixes by a dense matrix: beyond this, blocks alone are turned. */
#define NW_ORTHOGONAL_MAX_ODD 1024u

NW_MUST_USE nw_status nw_orthogonal_new(uint32_t width, uint64_t seed, uint64_t key,
                                        nw_orthogonal *out, nw_error *err);
/* Hadamard blocks alone, without signs: symmetric, its own inverse; what the engine turns the input of
 * down by at run time. */
nw_orthogonal nw_orthogonal_blocks(uint32_t width);
void nw_orthogonal_release(nw_orthogonal *q); /* takes a zero object */

/* x [width][lanes] becomes Q^T x for each lane, that is, a row vector x becomes x Q.
 * work [m][lanes], for one caller at a time. */
void nw_orthogonal_turn(const nw_orthogonal *q, uint32_t lanes, double *x, double *work);

#endif
