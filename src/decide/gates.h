/* Inside decide: evaluating gates. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_DECIDE_GATES_H
#define NW_DECIDE_GATES_H

#include "decide/data.h"
#include "decide/decide.h"

/* The newest done run of (candidate, stage, suite), or NULL. */
const nw_rec_run *nw_gates_run(const nw_decision *d, size_t candidate, const char *stage,
                               const char *suite);

/* The run of this regime that all candidates are compared on: for batch 1 the newest, under load the
 * highest rate at which the baseline still meets its service level. NULL: none. */
NW_MUST_USE nw_status nw_gates_operating(nw_record *rec, nw_decision *d, nw_regime r,
                                         const nw_rec_run **out, nw_error *err);
/* The run of `candidate` over the same workload as `base`, on the same machine, or NULL. */
const nw_rec_run *nw_gates_same_load(const nw_decision *d, size_t candidate,
                                     const nw_rec_run *base);
/* There is such a run, but of another machine only: its times mean nothing beside those of `base`. */
bool nw_gates_other_machine(const nw_decision *d, size_t candidate, const nw_rec_run *base);

/* Every gate of the policy for every candidate it concerns: appends to d->verdicts. */
NW_MUST_USE nw_status nw_gates_quality(nw_record *rec, nw_decision *d, nw_error *err);
NW_MUST_USE nw_status nw_gates_speed(nw_record *rec, nw_decision *d, nw_error *err);

/* Worst slice of the gates that decide, candidate over baseline - 1: *value over all items, out
 * [n_draws] in each draw of the clusters (the same draws for all candidates). *value NaN: no slice. */
NW_MUST_USE nw_status nw_gates_quality_draws(nw_record *rec, nw_decision *d, size_t candidate,
                                             size_t n_draws, double *out, double *value,
                                             nw_error *err);

/* Mean score over all generated suites, which stands for the grade of requests that carry none: *value
 * over all items, out[b * n_candidates] in draw b of the clusters. 1 where there is no such suite. */
NW_MUST_USE nw_status nw_gates_success_draws(nw_record *rec, nw_decision *d, size_t candidate,
                                             size_t n_draws, double *out, double *value,
                                             nw_error *err);

/* A verdict about (candidate, gate, slice), filled with what is common to all; NULL: no memory. The
 * pointer is good until the next call. */
nw_dec_verdict *nw_gates_add(nw_decision *d, size_t candidate, const nw_gate *g, const char *slice);
void nw_gates_set(nw_decision *d, nw_dec_verdict *v, nw_verdict verdict, const char *fmt, ...)
    NW_PRINTF(4, 5);

/* The margin that holds for a candidate: the strictest of its classes; NaN: no such gate. */
double nw_gates_margin(const nw_rec_candidate *c, const double margin[NW_CLASS_COUNT]);

#endif
