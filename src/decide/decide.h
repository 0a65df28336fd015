/* From the record's raw rows and a policy to verdicts, frontiers and one recommendation for each
 * regime. Nothing is run here: another policy over the same record is another decision.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_DECIDE_DECIDE_H
#define NW_DECIDE_DECIDE_H

#include "base/buf.h"
#include "base/json.h"
#include "decide/policy.h"
#include "record/record.h"
#include "stats/noninferiority.h"

typedef struct {
    nw_rec_verdict row;
    const nw_gate *gate;
    nw_verdict verdict;
    double headroom;    /* 1: no loss at the bound, 0: at the margin; NaN unknown */
    double p_fail;      /* one-sided p behind a FAIL; NaN: nothing was tested */
    double p_regressed; /* the same after Holm over the gates and slices of the candidate */
} nw_dec_verdict;

/* An objective of a frontier point, with its 95% interval over the draws. */
typedef struct {
    const char *name, *unit;
    bool higher;
    double value, lo, hi;
} nw_dec_objective;

#define NW_DEC_MAX_OBJECTIVES 6

typedef struct {
    size_t candidate; /* index */
    bool measured;    /* has a run of this regime */
    nw_dec_objective objectives[NW_DEC_MAX_OBJECTIVES];
    double cost, cost_lo, cost_hi; /* in cost_unit of the regime; lower is better */
    double goodput_at_rps;         /* saturated: offered rate of the first objective */
    double p_frontier;             /* NaN: not eligible */
    size_t dominated_by;           /* candidate index; SIZE_MAX: nobody */
    double p_dominated;
    double fallback_share; /* of the time in matrix kernels; NaN: no ledger */
    const char *fallback;  /* which ops, "" none; NULL: no ledger */
} nw_dec_point;

typedef struct {
    nw_regime regime;
    nw_dec_point *points; /* [n_candidates] */
    size_t n_objectives;
    const char *cost_name, *cost_unit;
    const char *operating; /* "load at 2.40 requests/s, 300 requests, 1 arrival file" */
    const char *note;      /* what the intervals leave out, or NULL */
    size_t chosen;         /* candidate index */
    bool fallback;         /* nothing passed, or nothing was measured */
    const char *why, *mechanism;
    json_t *missing; /* list of texts: what would decide it; owned by the decision */
} nw_dec_frontier;

typedef struct {
    const nw_policy *policy;      /* borrowed */
    nw_rec_candidate *candidates; /* [0] is the baseline */
    size_t n_candidates;
    nw_rec_run *runs; /* done ones */
    size_t n_runs;
    nw_dec_verdict *verdicts;
    size_t n_verdicts;
    nw_verdict *quality; /* [n_candidates] of all quality gates, after Holm; baseline PASS */
    double *p_holm;      /* [n_candidates] */
    nw_verdict *speed[NW_REGIME_COUNT]; /* [n_candidates] of the regime's speed gates */
    nw_dec_frontier regimes[NW_REGIME_COUNT];
    bool all_pass; /* every candidate passes every gate that decides */
    nw_arena arena;
} nw_decision;

/* Reads rec only. Errors: NW_E_FORMAT for a record without exactly one baseline. */
NW_MUST_USE nw_status nw_decide(nw_record *rec, const nw_policy *policy, nw_decision *out,
                                nw_error *err);
void nw_decision_release(nw_decision *d); /* takes an all-zero one */

/* Writes policy, verdicts and decisions in one transaction. */
NW_MUST_USE nw_status nw_decision_store(nw_record *rec, const nw_decision *d, nw_error *err);

/* For people: gates, frontiers, recommendations. */
void nw_decision_print(const nw_decision *d, nw_buf *out);
/* The same for machines; NULL when there is no memory. The caller owns it. */
json_t *nw_decision_json(const nw_decision *d);
json_t *nw_frontier_json(const nw_decision *d, const nw_dec_frontier *f);

/* Where the least p that the policy's draws allow, 1/(draws + 1), exceeds alpha after Holm over n: a clause
 * that says so and how many draws would do. "" where it does not. */
const char *nw_decision_coarse(const nw_policy *p, size_t n, char buf[128]);
/* Eligible: all gates that decide in this regime pass. */
bool nw_decision_eligible(const nw_decision *d, nw_regime r, size_t candidate);

#endif
