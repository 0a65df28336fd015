/* Random signs, Hadamard blocks and a small dense factor: see orthogonal.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/orthogonal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static double dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Gaussian rows, each freed of the ones before it (twice, for the last bits) and made a unit. */
static void draw_orthogonal(nw_rng *rng, uint32_t m, double *o)
{
    for (uint32_t i = 0; i < m; i++) {
        double *row = o + (size_t)i * m;
        for (uint32_t k = 0; k < m; k++) {
            row[k] = nw_rng_normal(rng);
        }
        for (uint32_t j = 0; j < 2 * i; j++) {
            const double *before = o + (size_t)(j % i) * m;
            const double along = dot(row, before, m);
            for (uint32_t k = 0; k < m; k++) {
                row[k] -= along * before[k];
            }
        }
        const double length = sqrt(dot(row, row, m));
        for (uint32_t k = 0; k < m; k++) {
            row[k] /= length;
        }
    }
}

nw_orthogonal nw_orthogonal_blocks(uint32_t width)
{
    const uint32_t n = width & (~width + 1);
    return (nw_orthogonal){.width = width, .m = width / n, .n = n};
}

nw_status nw_orthogonal_new(uint32_t width, uint64_t seed, uint64_t key, nw_orthogonal *out,
                            nw_error *err)
{
    nw_orthogonal q = nw_orthogonal_blocks(width);
    nw_rng rng = nw_rng_stream(seed, key);
    const bool dense = q.m > 1 && q.m <= NW_ORTHOGONAL_MAX_ODD;

    q.sign = calloc(width, sizeof *q.sign);
    q.o = dense ? calloc(q.m, q.m * sizeof *q.o) : NULL;
    if (q.sign == NULL || (dense && q.o == NULL)) {
        nw_orthogonal_release(&q);
        return nw_fail(err, NW_E_NOMEM, "no memory for a rotation of %u channels", width);
    }
    for (uint32_t i = 0; i < width; i++) {
        q.sign[i] = (nw_rng_u64(&rng) & 1) != 0 ? 1 : -1;
    }
    if (dense) {
        draw_orthogonal(&rng, q.m, q.o);
    }
    *out = q;
    return NW_OK;
}

void nw_orthogonal_release(nw_orthogonal *q)
{
    free(q->o);
    free(q->sign);
    *q = (nw_orthogonal){0};
}

/* The Hadamard matrix over one block of n, by butterflies. */
static void turn_block(uint32_t n, uint32_t lanes, double *x)
{
    for (uint32_t half = 1; half < n; half *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * half) {
            for (size_t j = (size_t)i * lanes; j < (size_t)(i + half) * lanes; j++) {
                const double a = x[j];
                const double b = x[j + (size_t)half * lanes];
                x[j] = a + b;
                x[j + (size_t)half * lanes] = a - b;
            }
        }
    }
    for (size_t j = 0; j < (size_t)n * lanes; j++) {
        x[j] /= sqrt(n);
    }
}

/* Place `at` of every block: out[k] = sum over i of o[i][k] x[i]. */
static void mix_blocks(const nw_orthogonal *q, uint32_t at, uint32_t lanes, double *x, double *work)
{
    memset(work, 0, (size_t)q->m * lanes * sizeof *work);
    for (uint32_t i = 0; i < q->m; i++) {
        const double *from = x + ((size_t)i * q->n + at) * lanes;
        for (uint32_t k = 0; k < q->m; k++) {
            for (uint32_t l = 0; l < lanes; l++) {
                work[(size_t)k * lanes + l] += q->o[(size_t)i * q->m + k] * from[l];
            }
        }
    }
    for (uint32_t k = 0; k < q->m; k++) {
        memcpy(x + ((size_t)k * q->n + at) * lanes, work + (size_t)k * lanes, lanes * sizeof *work);
    }
}

void nw_orthogonal_turn(const nw_orthogonal *q, uint32_t lanes, double *x, double *work)
{
    for (size_t i = 0; q->sign != NULL && i < (size_t)q->width * lanes; i++) {
        x[i] *= q->sign[i / lanes];
    }
    for (uint32_t b = 0; b < q->m; b++) {
        turn_block(q->n, lanes, x + (size_t)b * q->n * lanes);
    }
    for (uint32_t at = 0; q->o != NULL && at < q->n; at++) {
        mix_blocks(q, at, lanes, x, work);
    }
}
