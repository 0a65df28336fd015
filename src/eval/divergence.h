/* Measures of one next-token distribution against another, from raw logits, in double:
 * negative log-likelihood of the token that came, KL(baseline || candidate), whether the most
 * likely token is the same, and the rank the baseline's choice has in the candidate. Logits are
 * never stored in fewer bits on the way, so KL(model, itself) is exactly 0 (REPORTS H6).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_DIVERGENCE_H
#define NW_EVAL_DIVERGENCE_H

#include <stdint.h>

typedef struct {
    double nll;        /* -ln p(token), nats */
    double nll_base;   /* the same under the baseline; NaN without one */
    double kl;         /* nats; NaN without a baseline */
    int top1;          /* 1 or 0; -1 without a baseline */
    int64_t rank_base; /* 0 first; -1 without a baseline */
} nw_divergence;

/* logits, base: [n_vocab]; base may be NULL. token in [0, n_vocab). Finite logits required: a NaN
 * gives NaN measures, which the caller must refuse. */
nw_divergence nw_divergence_of(const float *logits, const float *base, uint32_t n_vocab,
                               int32_t token);

#endif
