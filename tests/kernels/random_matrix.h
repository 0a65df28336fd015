/* Random weights in panels of any type, for the tests and the timings of the linear kernels. Scales,
 * zero points and minima differ from row to row and group to group.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_KERNELS_RANDOM_MATRIX_H
#define NW_TESTS_KERNELS_RANDOM_MATRIX_H

#include "base/rng.h"
#include "formats/panel.h"

/* CORNERS: codes at both ends of their range. TINY: scales (bf16, f32: values) that are subnormal
 * where they are stored. WILD: exponents that differ much, so that bf16-12 has escapes. FULL: every code
 * of a row at the same end of the range, so that nothing cancels in its sums. */
typedef enum { NW_NORMAL, NW_CORNERS, NW_TINY, NW_WILD, NW_FULL } nw_content;

typedef struct {
    nw_panel_type type; /* with the room for escapes that the values need */
    nw_content content;
    uint32_t n_rows, n_cols;
    uint64_t seed;
    uint8_t exponents[16]; /* bf16-12 */
} nw_random_matrix;

/* A matrix is its seed: panels may be made in any order, each the same whenever it is made. bf16 and
 * bf16-12 of one seed have the same values. */
nw_random_matrix nw_random_matrix_of(nw_panel_type type, nw_content content, uint32_t n_rows,
                                     uint32_t n_cols, uint64_t seed);
/* Writes panel p: nw_panel_bytes of them. */
void nw_random_panel(const nw_random_matrix *m, uint32_t p, uint8_t *panel);

#endif
