/* Probabilistic dominance after arXiv 1910.08413; the indifference zone eps keeps noise of no
 * consequence from making a frontier of everything.
 * SPDX-License-Identifier: Apache-2.0 */
#include "stats/dominance.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static bool dominates(const nw_dominance_input *in, const double *a, const double *b)
{
    bool better = false;

    for (size_t k = 0; k < in->n_objectives; k++) {
        const double gain = in->higher[k] ? a[k] - b[k] : b[k] - a[k];
        const double eps = in->relative[k] ? in->eps[k] * fmax(fabs(a[k]), fabs(b[k])) : in->eps[k];
        if (gain < -eps) {
            return false;
        }
        better = better || gain > eps;
    }
    return better;
}

void nw_dominance(const nw_dominance_input *in, double *p_dominates, double *p_frontier)
{
    const size_t n = in->n_points;
    const double share = 1 / (double)in->n_draws;

    assert(in->n_draws > 0);
    memset(p_dominates, 0, n * n * sizeof *p_dominates);
    memset(p_frontier, 0, n * sizeof *p_frontier);
    for (size_t b = 0; b < in->n_draws; b++) {
        const double *points = in->values + b * n * in->n_objectives;
        for (size_t j = 0; j < n; j++) {
            bool beaten = false;
            for (size_t i = 0; i < n; i++) {
                if (i != j &&
                    dominates(in, points + i * in->n_objectives, points + j * in->n_objectives)) {
                    p_dominates[i * n + j] += share;
                    beaten = true;
                }
            }
            p_frontier[j] += beaten ? 0 : share;
        }
    }
}
