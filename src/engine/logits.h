/* Loops over one row of logits. Vocabularies reach 262,144 entries and every decoded token of every
 * sequence runs them, so they are written in lanes that a compiler turns into vectors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_LOGITS_H
#define NW_ENGINE_LOGITS_H

#include <stdbool.h>
#include <stddef.h>

/* n > 0 in all of these. */
bool nw_all_finite(const float *x, size_t n);
float nw_max(const float *x, size_t n);
size_t nw_argmax(const float *x, size_t n); /* the lowest index among equals */

/* ln sum exp(x[0..n-1]): exp in float (relative error below 2^-22), the sum in double, in a fixed
 * order. The log-probability of i is x[i] minus it. */
double nw_log_sum_exp(const float *x, size_t n);

#endif
