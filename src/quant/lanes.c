/* The three loops: see lanes.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/lanes.h"

#include "base/clones.h"

/* Rows or columns of a matrix that are read side by side. */
#define BLOCK 8u

/* 16 rows as one value, wherever they stand. */
typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));

NW_CLONES void nw_lanes_take_off(const float *a, size_t ld, uint32_t n, uint32_t m, const float *x,
                                 float *y)
{
    const lanes *xs = (const void *)x;
    lanes *ys = (void *)y;
    uint32_t i = 0;

    for (; i + BLOCK <= n; i += BLOCK) {
        const float *row = a + i * ld;
        lanes s[BLOCK] = {{0}};
        for (uint32_t k = 0; k < m; k++) {
            const lanes v = xs[k];
#pragma GCC unroll 8
            for (uint32_t j = 0; j < BLOCK; j++) {
                s[j] += row[j * ld + k] * v;
            }
        }
#pragma GCC unroll 8
        for (uint32_t j = 0; j < BLOCK; j++) {
            ys[i + j] -= s[j];
        }
    }
    for (; i < n; i++) {
        lanes s = {0};
        for (uint32_t k = 0; k < m; k++) {
            s += a[i * ld + k] * xs[k];
        }
        ys[i] -= s;
    }
}

NW_CLONES void nw_lanes_take_off_t(const float *a, size_t ld, uint32_t n, uint32_t m,
                                   const float *x, float *y)
{
    const lanes *xs = (const void *)x;
    lanes *ys = (void *)y;
    uint32_t i = 0;

    for (; i + BLOCK <= n; i += BLOCK) {
        lanes s[BLOCK] = {{0}};
        for (uint32_t k = 0; k < m; k++) {
            const lanes v = xs[k];
            const float *row = a + k * ld + i;
#pragma GCC unroll 8
            for (uint32_t j = 0; j < BLOCK; j++) {
                s[j] += row[j] * v;
            }
        }
#pragma GCC unroll 8
        for (uint32_t j = 0; j < BLOCK; j++) {
            ys[i + j] -= s[j];
        }
    }
    for (; i < n; i++) {
        lanes s = {0};
        for (uint32_t k = 0; k < m; k++) {
            s += a[k * ld + i] * xs[k];
        }
        ys[i] -= s;
    }
}

NW_CLONES void nw_lanes_form(const float *a, size_t ld, uint32_t n, const float *x, float *out)
{
    const lanes *xs = (const void *)x;
    lanes sum = {0};

    for (uint32_t i = 0; i < n; i += BLOCK) {
        const uint32_t n_rows = n - i < BLOCK ? n - i : BLOCK;
        const float *row = a + i * ld;
        lanes s[BLOCK] = {{0}};
        for (uint32_t k = 0; n_rows == BLOCK && k < i; k++) {
            const lanes v = xs[k];
#pragma GCC unroll 8
            for (uint32_t j = 0; j < BLOCK; j++) {
                s[j] += row[j * ld + k] * v;
            }
        }
#pragma GCC unroll 8
        for (uint32_t j = 0; j < BLOCK; j++) {
            if (j < n_rows) {
                const uint32_t at = i + j;
                for (uint32_t k = n_rows == BLOCK ? i : 0; k < at; k++) {
                    s[j] += row[j * ld + k] * xs[k];
                }
                sum += (s[j] + row[j * ld + at] / 2 * xs[at]) * xs[at];
            }
        }
    }
    *(lanes *)(void *)out = sum + sum;
}
