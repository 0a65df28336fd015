/* Scales by search: the codes of a few values under a scale and a minimum, their weighted squared error,
 * and the scale that makes it least. Used by the searched encoders; every operation is an IEEE one in
 * a fixed order: the same result on every machine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_FIT_H
#define NW_FORMATS_FIT_H

#include <stdint.h>

#define NW_FIT_MAX 32 /* values of one fit */

/* n values x, weights w, and the codes that there are. */
typedef struct {
    const float *x, *w;
    int n, lo, hi;
} nw_fit_block;

/* x' = scale * q + min. */
typedef struct {
    float scale, min;
    float err; /* Σ w (x - x')² */
} nw_fit;

/* A scale as it will be stored. */
typedef float (*nw_store_fn)(float);
float nw_store_half(float x); /* binary16; beyond it the largest finite one */
float nw_store_float(float x);

/* The nearest codes under fit->scale and fit->min into q [n]; sets fit->err. */
void nw_fit_codes(const nw_fit_block *b, nw_fit *fit, int8_t *q);

/* The best found with no minimum, and with one; `min` is at most max_min (0 where a format can only
 * subtract). scale and min are as `store` gives them. */
nw_fit nw_fit_symmetric(const nw_fit_block *b, nw_store_fn store);
nw_fit nw_fit_minimum(const nw_fit_block *b, float max_min, nw_store_fn store);

#endif
