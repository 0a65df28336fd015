/* Pareto dominance under uncertainty: the share of bootstrap draws in which one candidate dominates
 * another. Two points are ranked only where that share reaches .95; elsewhere they are "not
 * distinguishable".
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STATS_DOMINANCE_H
#define NW_STATS_DOMINANCE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    size_t n_draws, n_points, n_objectives;
    const double *values; /* [n_draws][n_points][n_objectives]; no NaN */
    const bool *higher;   /* [n_objectives] true: more is better */
    const double *eps;    /* [n_objectives] differences up to it do not count; relative: share of
                           * the larger of the two magnitudes */
    const bool *relative; /* [n_objectives] */
} nw_dominance_input;

/* i dominates j when it is nowhere worse by more than eps and somewhere better by more than eps.
 *   p_dominates [n_points][n_points]  P(row dominates column)
 *   p_frontier  [n_points]            P(no point dominates it) */
void nw_dominance(const nw_dominance_input *in, double *p_dominates, double *p_frontier);

#endif
