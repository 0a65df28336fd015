/* See divergence.h. With l = logits, Z = sum exp(l - max): ln p(i) = l(i) - max - ln Z, and
 * KL = sum_i p_b(i) (ln p_b(i) - ln p_c(i)). Equal logits give equal terms and a sum of zeros.
 * SPDX-License-Identifier: Apache-2.0 */
#include "eval/divergence.h"

#include <math.h>
#include <stddef.h>

static uint32_t argmax(const float *l, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        best = l[i] > l[best] ? i : best;
    }
    return best;
}

/* max + ln sum exp(l - max). */
static double log_sum_exp(const float *l, uint32_t n, double max)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)l[i] - max);
    }
    return max + log(sum);
}

static double kl_of(const float *base, double base_lse, const float *logits, double lse, uint32_t n)
{
    double kl = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double lp = (double)base[i] - base_lse;
        kl += exp(lp) * (lp - ((double)logits[i] - lse));
    }
    return kl;
}

nw_divergence nw_divergence_of(const float *logits, const float *base, uint32_t n_vocab,
                               int32_t token)
{
    const uint32_t top = argmax(logits, n_vocab);
    const double lse = log_sum_exp(logits, n_vocab, (double)logits[top]);
    nw_divergence d = {.nll = lse - (double)logits[token],
                       .nll_base = (double)NAN,
                       .kl = (double)NAN,
                       .top1 = -1,
                       .rank_base = -1};

    if (base == NULL) {
        return d;
    }
    const uint32_t base_top = argmax(base, n_vocab);
    const double base_lse = log_sum_exp(base, n_vocab, (double)base[base_top]);
    d.nll_base = base_lse - (double)base[token];
    d.kl = fmax(0, kl_of(base, base_lse, logits, lse, n_vocab)); /* rounding may leave -1e-17 */
    d.top1 = top == base_top;
    d.rank_base = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        d.rank_base += logits[i] > logits[base_top];
    }
    return d;
}
