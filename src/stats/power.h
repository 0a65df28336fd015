/* How many items a gate needs. Paired non-inferiority with margin m, share rho of pairs that differ,
 * one-sided alpha, and no true loss:  n = (z_(1-alpha) + z_power)^2 rho / m^2  (6.18 rho/m^2 at
 * alpha .05 and power .8), and never fewer than the zero-flip floor.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STATS_POWER_H
#define NW_STATS_POWER_H

#include <stddef.h>

/* Rounded to the nearest whole number; 0 for rho = 0. SIZE_MAX where it does not fit. */
size_t nw_ni_sample_size(double rho, double margin, double alpha, double power);

/* The fewest pairs with which a gate can pass at all: without a single flip the bound on the loss is
 * z^2/(n + z^2), so n > z^2 (1 - m)/m. 539, 268, 133 at m = .005, .01, .02 and alpha .05. */
size_t nw_zero_flip_floor(double margin, double alpha);

/* Chance that the gate passes with n pairs when the true change is `delta` (negative: a loss). */
double nw_ni_power(size_t n, double rho, double margin, double alpha, double delta);

/* The margin that n pairs decide with the given power when there is no true loss. */
double nw_ni_detectable(size_t n, double rho, double alpha, double power);

#endif
