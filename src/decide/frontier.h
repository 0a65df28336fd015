/* Inside decide: the points of a regime, their draws, who dominates whom, and the choice.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_DECIDE_FRONTIER_H
#define NW_DECIDE_FRONTIER_H

#include "decide/data.h"
#include "decide/decide.h"

/* Draws of a regime: values [n_draws][n_candidates][n_objectives], cost [n_draws][n_candidates]. A
 * candidate that was not measured has no meaning in them. */
typedef struct {
    size_t n_draws;
    double *values, *cost;
} nw_dec_draws;

/* Fills d->regimes[r] but for the choice. d->verdicts and d->quality are there already. */
NW_MUST_USE nw_status nw_frontier_measure(nw_record *rec, nw_decision *d, nw_regime r,
                                          nw_dec_draws *draws, nw_error *err);
void nw_dec_draws_release(nw_dec_draws *draws);

/* Dominance among the eligible, and the recommendation with its reasons. */
NW_MUST_USE nw_status nw_frontier_choose(nw_record *rec, nw_decision *d, nw_regime r,
                                         const nw_dec_draws *draws, nw_error *err);

#endif
