/* The body of lanes.h for the instruction set that the including file is compiled for; that file defines
 * NW_LANES_OPS, the name of the table. Lanes go NW_VEC at a time, as many as a register holds: sums
 * of several rows or columns of the matrix stay in registers whatever the set.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/vec.h"
#include "quant/lanes_ops.h"

/* Rows of half_form that are read side by side. */
#define BLOCK 8u

#define VECS (NW_LANES / NW_VEC)
/* Rows or columns of take_off side by side: with all lanes of each, their sums fill twelve registers. */
#define SIDE (12u / VECS)

/* y[i] -= sum over k < m of a[i * row + k * col] x[k], for n_rows, SIDE or 1, of i. Inlined, so that these
 * and the stride that is 1 are constants of the loop. */
NW_VEC_INLINE void take_off_side(const float *a, size_t row, size_t col, uint32_t n_rows,
                                 uint32_t m, const float *x, float *y)
{
    nw_vec s[SIDE][VECS] = {{{0}}};

    for (uint32_t k = 0; k < m; k++) {
        const float *at = a + k * col;
        nw_vec v[VECS];
        for (uint32_t q = 0; q < VECS; q++) {
            v[q] = nw_vec_load(x + (size_t)k * NW_LANES + (size_t)q * NW_VEC);
        }
#pragma GCC unroll 12
        for (uint32_t j = 0; j < n_rows; j++) {
            for (uint32_t q = 0; q < VECS; q++) {
                s[j][q] += at[j * row] * v[q];
            }
        }
    }
#pragma GCC unroll 12
    for (uint32_t j = 0; j < n_rows; j++) {
        for (uint32_t q = 0; q < VECS; q++) {
            float *to = y + (size_t)j * NW_LANES + (size_t)q * NW_VEC;
            nw_vec_store(to, nw_vec_load(to) - s[j][q]);
        }
    }
}

NW_VEC_INLINE void take_off(const float *a, size_t row, size_t col, uint32_t n, uint32_t m,
                            const float *x, float *y)
{
    uint32_t i = 0;

    for (; i + SIDE <= n; i += SIDE) {
        take_off_side(a + i * row, row, col, SIDE, m, x, y + (size_t)i * NW_LANES);
    }
    for (; i < n; i++) {
        take_off_side(a + i * row, row, col, 1, m, x, y + (size_t)i * NW_LANES);
    }
}

static void take_off_rows(const float *a, size_t ld, uint32_t n, uint32_t m, const float *x,
                          float *y)
{
    take_off(a, ld, 1, n, m, x, y);
}

static void take_off_columns(const float *a, size_t ld, uint32_t n, uint32_t m, const float *x,
                             float *y)
{
    take_off(a, 1, ld, n, m, x, y);
}

/* Half of the form, of NW_VEC lanes. */
NW_VEC_INLINE nw_vec half_form(const float *a, size_t ld, uint32_t n, const float *x)
{
    nw_vec sum = {0};

    for (uint32_t i = 0; i < n; i += BLOCK) {
        const uint32_t n_rows = n - i < BLOCK ? n - i : BLOCK;
        const float *row = a + i * ld;
        nw_vec s[BLOCK] = {{0}};
        for (uint32_t k = 0; n_rows == BLOCK && k < i; k++) {
            const nw_vec v = nw_vec_load(x + (size_t)k * NW_LANES);
#pragma GCC unroll 8
            for (uint32_t j = 0; j < BLOCK; j++) {
                s[j] += row[j * ld + k] * v;
            }
        }
#pragma GCC unroll 8
        for (uint32_t j = 0; j < BLOCK; j++) {
            if (j < n_rows) {
                const uint32_t at = i + j;
                const nw_vec own = nw_vec_load(x + (size_t)at * NW_LANES);
                for (uint32_t k = n_rows == BLOCK ? i : 0; k < at; k++) {
                    s[j] += row[j * ld + k] * nw_vec_load(x + (size_t)k * NW_LANES);
                }
                sum += (s[j] + row[j * ld + at] / 2 * own) * own;
            }
        }
    }
    return sum;
}

static void form(const float *a, size_t ld, uint32_t n, const float *x, float *out)
{
    for (uint32_t r = 0; r < NW_LANES; r += NW_VEC) {
        const nw_vec half = half_form(a, ld, n, x + r);
        nw_vec_store(out + r, half + half);
    }
}

const nw_lanes_ops NW_LANES_OPS = {
    .take_off = take_off_rows, .take_off_t = take_off_columns, .form = form};
