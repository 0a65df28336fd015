/* The body of lanes.h for the instruction set that the including file is compiled for; that file defines
 * NW_LANES_OPS, the name of the table. Lanes go NW_VEC at a time, as many as a register holds: eight sums
 * of them, a row or column of the matrix each, stay in registers whatever the set.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/vec.h"
#include "quant/lanes_ops.h"

/* Rows or columns of a matrix that are read side by side. */
#define BLOCK 8u

/* y[i] -= sum over k < m of a[i * row + k * col] x[k], for i < n. Inlined, so that the stride that is 1
 * is a constant of the loop. */
NW_VEC_INLINE void take_off(const float *a, size_t row, size_t col, uint32_t n, uint32_t m,
                            const float *x, float *y)
{
    uint32_t i = 0;

    for (; i + BLOCK <= n; i += BLOCK) {
        for (uint32_t r = 0; r < NW_LANES; r += NW_VEC) {
            nw_vec s[BLOCK] = {{0}};
            for (uint32_t k = 0; k < m; k++) {
                const nw_vec v = nw_vec_load(x + (size_t)k * NW_LANES + r);
                const float *at = a + i * row + k * col;
#pragma GCC unroll 8
                for (uint32_t j = 0; j < BLOCK; j++) {
                    s[j] += at[j * row] * v;
                }
            }
#pragma GCC unroll 8
            for (uint32_t j = 0; j < BLOCK; j++) {
                float *to = y + (size_t)(i + j) * NW_LANES + r;
                nw_vec_store(to, nw_vec_load(to) - s[j]);
            }
        }
    }
    for (; i < n; i++) {
        for (uint32_t r = 0; r < NW_LANES; r += NW_VEC) {
            float *to = y + (size_t)i * NW_LANES + r;
            nw_vec s = {0};
            for (uint32_t k = 0; k < m; k++) {
                s += a[i * row + k * col] * nw_vec_load(x + (size_t)k * NW_LANES + r);
            }
            nw_vec_store(to, nw_vec_load(to) - s);
        }
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
