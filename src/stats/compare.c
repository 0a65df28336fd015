/* Given that b + c pairs differ, the number of losses is Bin(b + c, 1/2) when there is no change: Q.
 * McNemar, Psychometrika 12 (1947) 153-157, exact form. The unpaired test on the same answers throws
 * away what the pairs agree on and needs many times the items.
 * SPDX-License-Identifier: Apache-2.0 */
#include "stats/compare.h"

#include <math.h>

#include "stats/dist.h"

double nw_mcnemar(uint64_t gain, uint64_t loss)
{
    const uint64_t less = gain < loss ? gain : loss;
    return fmin(1, 2 * nw_binomial_cdf(less, gain + loss, 0.5));
}

double nw_mcnemar_loss(uint64_t gain, uint64_t loss)
{
    return nw_binomial_sf(loss, gain + loss, 0.5);
}

/* With p_(1) <= ... <= p_(n): adjusted p_(i) = max over j <= i of min(1, (n - j + 1) p_(j)).
 * S. Holm, Scand. J. Statist. 6 (1979) 65-70. */
void nw_holm(const double *p, size_t n, size_t *order, double *adjusted)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && p[order[at - 1]] > p[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    double floor = 0;
    for (size_t i = 0; i < n; i++) {
        floor = fmax(floor, fmin(1, (double)(n - i) * p[order[i]]));
        adjusted[order[i]] = floor;
    }
}
