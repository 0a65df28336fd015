/* Distributions over libm: normal, incomplete beta, Student's t, binomial. Relative error below 1e-10
 * against mpmath at 50 digits for the arguments that statistics of up to 10^7 items need
 * (tests/unit/test_dist.c). Values in, values out: no errors, no state; preconditions are asserted.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STATS_DIST_H
#define NW_STATS_DIST_H

#include <stdint.h>

double nw_normal_cdf(double z);
double nw_normal_sf(double z);       /* 1 - cdf, without its cancellation */
double nw_normal_quantile(double p); /* 0 < p < 1 */

/* Regularized incomplete beta I_x(a, b); a, b > 0, 0 <= x <= 1. */
double nw_beta_cdf(double x, double a, double b);

double nw_t_cdf(double t, double df); /* df > 0 */
double nw_t_quantile(double p, double df);

/* X ~ Bin(n, p), k <= n, 0 <= p <= 1. */
double nw_binomial_cdf(uint64_t k, uint64_t n, double p); /* P(X <= k) */
double nw_binomial_sf(uint64_t k, uint64_t n, double p);  /* P(X >= k) */

#endif
