/* Damping and factoring: see hessian.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/hessian.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void nw_hessian_release(nw_hessian *h)
{
    free((void *)(uintptr_t)h->h);
    free(h->importance);
    free(h->order);
    free(h->u);
    *h = (nw_hessian){0};
}

typedef struct {
    float key;
    uint32_t column;
} ranked;

/* Falling keys; equal ones in the order of the columns. */
static int by_key(const void *a, const void *b)
{
    const ranked *x = a;
    const ranked *y = b;

    if (x->key < y->key || x->key > y->key) {
        return x->key > y->key ? -1 : 1;
    }
    return (x->column > y->column) - (x->column < y->column);
}

static nw_status rank_columns(nw_hessian *h, nw_error *err)
{
    ranked *list = calloc(h->n, sizeof *list);

    if (list == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory to order %u columns", h->n);
    }
    for (uint32_t i = 0; i < h->n; i++) {
        list[i] = (ranked){h->importance[i], i};
    }
    qsort(list, h->n, sizeof *list, by_key);
    for (uint32_t i = 0; i < h->n; i++) {
        h->order[i] = list[i].column;
    }
    free(list);
    return NW_OK;
}

/* J P (H + damp) P^T J into the lower triangle of u (row-major). */
static void gather(const nw_hessian *h, const float *moments, float damp, float *u)
{
    const size_t n = h->n;

    for (size_t i = 0; i < n; i++) {
        const size_t row = h->order[n - 1 - i];
        for (size_t k = 0; k <= i; k++) {
            u[i * n + k] = moments[row * n + h->order[n - 1 - k]];
        }
        u[i * n + i] += damp;
    }
}

/* U = J L^-1 J, from the lower triangle of u to its upper one: turning a square by 180 degrees. */
static void turn(float *u, size_t n)
{
    for (size_t i = 0; i < n * n / 2; i++) {
        const float t = u[i];
        u[i] = u[n * n - 1 - i];
        u[n * n - 1 - i] = t;
    }
}

static bool finite_upper(const float *u, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(u[i * n + i] > 0)) {
            return false;
        }
        for (size_t k = i; k < n; k++) {
            if (!isfinite(u[i * n + k])) {
                return false;
            }
        }
    }
    return true;
}

/* One attempt at a damping. */
static bool factor(const nw_hessian *h, const float *moments, float damp, float *u)
{
    const lapack_int n = (lapack_int)h->n;

    gather(h, moments, damp, u);
    if (LAPACKE_spotrf_work(LAPACK_COL_MAJOR, 'U', n, u, n) != 0 ||
        LAPACKE_strtri_work(LAPACK_COL_MAJOR, 'U', 'N', n, u, n) != 0) {
        return false;
    }
    turn(u, h->n);
    return finite_upper(u, h->n);
}

/* Diagonal as importance: dead channels get the mean of the living. Returns that mean. */
static double fill_importance(nw_hessian *h, float *moments)
{
    double sum = 0;
    uint32_t n_live = 0;

    for (size_t i = 0; i < h->n; i++) {
        const float d = moments[i * h->n + i];
        sum += (double)d;
        n_live += d > 0;
    }
    const double mean = n_live > 0 ? sum / n_live : 1;
    h->n_dead = h->n - n_live;
    for (size_t i = 0; i < h->n; i++) {
        if (!(moments[i * h->n + i] > 0)) {
            moments[i * h->n + i] = (float)mean;
        }
        h->importance[i] = moments[i * h->n + i];
    }
    return mean;
}

/* Raises the damping until a factor comes out; without one, u is NULL and the last damping stays. */
static void factor_damped(nw_hessian *h, const float *moments, double mean)
{
    openblas_set_num_threads(1);
    for (double damp = NW_GPTQ_DAMP; damp <= NW_GPTQ_DAMP_MAX * 1.001; damp *= 10) {
        h->damp = damp;
        h->n_tries++;
        if (factor(h, moments, (float)(damp * mean), h->u)) {
            return;
        }
    }
    free(h->u);
    h->u = NULL;
}

nw_status nw_hessian_make(nw_input_stats *s, bool with_factor, nw_hessian *out, nw_error *err)
{
    nw_hessian h = {.n = s->n_cols, .damp = NW_GPTQ_DAMP};
    float *moments = s->moments;

    h.h = moments;
    s->moments = NULL;
    h.importance = calloc(h.n, sizeof *h.importance);
    h.order = calloc(h.n, sizeof *h.order);
    h.u = with_factor ? calloc(h.n, h.n * sizeof *h.u) : NULL;
    if (h.importance == NULL || h.order == NULL || (with_factor && h.u == NULL)) {
        nw_hessian_release(&h);
        return nw_fail(err, NW_E_NOMEM, "no memory for a Hessian of %u columns", h.n);
    }
    const double mean = fill_importance(&h, moments);
    if (rank_columns(&h, err) != NW_OK) {
        nw_hessian_release(&h);
        return err->code;
    }
    if (with_factor) {
        factor_damped(&h, moments, mean);
    }
    for (size_t i = 0; i < h.n; i++) {
        moments[i * h.n + i] += (float)(h.damp * mean);
    }
    *out = h;
    return NW_OK;
}
