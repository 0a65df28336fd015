/* Gates: is a candidate at most a margin worse than its baseline? Three answers. PASS: the one-sided
 * 95% bound on the loss lies inside the margin. FAIL: the other bound lies outside. INCONCLUSIVE: the
 * data cannot tell, and how many items could.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STATS_NONINFERIORITY_H
#define NW_STATS_NONINFERIORITY_H

#include "base/status.h"

typedef enum { NW_VERDICT_PASS, NW_VERDICT_FAIL, NW_VERDICT_INCONCLUSIVE } nw_verdict;
const char *nw_verdict_name(nw_verdict v); /* "PASS" "FAIL" "INCONCLUSIVE" */

/* Paired scores of one slice, higher is better, in [0, 1].
 *   base, cand  [n]
 *   cluster     [n]  in [0, n_clusters); every cluster has an item. Items of a cluster are drawn
 *                    together (same document, template, conversation) */
typedef struct {
    size_t n, n_clusters;
    const double *base, *cand;
    const uint32_t *cluster;
} nw_pairs;

typedef struct {
    double alpha; /* one-sided; .05 */
    double power; /* for n_needed; .8 */
    uint64_t seed;
    size_t n_draws; /* 10,000 */
} nw_ni_options;
nw_ni_options nw_ni_defaults(void);

typedef struct {
    nw_verdict verdict;
    bool binary;       /* all scores 0 or 1: Tango or the paired ratio score counts as well */
    bool one_cluster;  /* no variance between clusters: never better than INCONCLUSIVE */
    double estimate;   /* difference, or ratio - 1 */
    double lo, hi;     /* one-sided bounds of 1 - alpha each */
    double p;          /* one-sided p of H0 "worse by the margin or more": small for a PASS */
    double p_fail;     /* one-sided p of H0 "not worse by more than the margin": small for a FAIL */
    double base, cand; /* means */
    double rho;        /* share of pairs that differ; the variance of d where not binary */
    double design_effect; /* variance of the clustered mean over that of independent items */
    uint64_t gain, loss;
    size_t n, n_clusters;
    size_t n_needed; /* items for power .8 with no true loss, clusters as they are */
    size_t
        n_at_estimate; /* items for power .8 if what was measured is the truth; SIZE_MAX: none do */
} nw_ni_result;

/* Margin on the difference of means, in the unit of the scores (.005 is half a point).
 * Errors: NW_E_NOMEM. Cost: n_draws * n_clusters steps. */
NW_MUST_USE nw_status nw_ni_difference(const nw_pairs *pairs, double margin,
                                       const nw_ni_options *opt, nw_ni_result *out, nw_error *err);

/* Margin on the ratio of means: .02 lets the candidate keep 98% of the baseline's score. The mean of
 * the baseline must be above 0. */
NW_MUST_USE nw_status nw_ni_ratio(const nw_pairs *pairs, double margin, const nw_ni_options *opt,
                                  nw_ni_result *out, nw_error *err);

/* Sums over clusters of an additive loss (nats), lower is better: perplexity by windows.
 *   base, cand [n_clusters] summed loss, count [n_clusters] tokens
 * Gate on the mean difference cand - base, which is ln(PPL_cand/PPL_base): at most `margin`. */
NW_MUST_USE nw_status nw_ni_loss(const double *base, const double *cand, const double *count,
                                 size_t n_clusters, double margin, const nw_ni_options *opt,
                                 nw_ni_result *out, nw_error *err);

/* A gate "the q-th percentile lies under a limit" is a test of a share: `over` of n values lie above
 * it. PASS iff P(Bin(n, 1-q) <= over) <= alpha (n = 1000, q = .99: over <= 4), FAIL iff
 * P(Bin(n, 1-q) >= over) <= alpha. n_needed: the fewest values that could pass (299), or at the
 * share seen. */
typedef struct {
    nw_verdict verdict;
    double p;
    size_t n_needed; /* SIZE_MAX: no n at this share */
} nw_tail_result;
nw_tail_result nw_tail_gate(size_t over, size_t n, double q, double alpha);

/* PASS iff lo > -margin, FAIL iff hi < -margin. */
nw_verdict nw_ni_decide(double lo, double hi, double margin);

#endif
