/* Draw b comes from a stream of its own, so that draws need no order and no stored indices.
 * SPDX-License-Identifier: Apache-2.0 */
#include "stats/bootstrap.h"

#include <assert.h>
#include <string.h>

#include "base/rng.h"
#include "stats/summary.h"

void nw_boot_indices(uint64_t seed, uint64_t draw, size_t n, uint32_t *idx)
{
    nw_rng rng = nw_rng_stream(seed, draw);

    assert(n > 0 && n <= UINT32_MAX);
    for (size_t i = 0; i < n; i++) {
        idx[i] = (uint32_t)nw_rng_below(&rng, n);
    }
}

void nw_boot_totals(const double *sums, size_t n_units, size_t n_columns, uint64_t seed,
                    size_t n_draws, double *out)
{
    assert(n_units > 0 && n_units <= UINT32_MAX && n_columns > 0);
    memset(out, 0, n_draws * n_columns * sizeof *out);
    for (size_t b = 0; b < n_draws; b++) {
        nw_rng rng = nw_rng_stream(seed, b); /* the same sequence as nw_boot_indices */
        double *total = out + b * n_columns;
        for (size_t i = 0; i < n_units; i++) {
            const double *unit = sums + nw_rng_below(&rng, n_units) * n_columns;
            for (size_t k = 0; k < n_columns; k++) {
                total[k] += unit[k];
            }
        }
    }
}

nw_interval nw_boot_bounds(double *draws, size_t n_draws, double alpha)
{
    assert(n_draws > 1 && alpha > 0 && alpha < 0.5);
    nw_sort(draws, n_draws);
    const size_t rank = (size_t)(alpha * (double)n_draws);
    return (nw_interval){.lo = draws[rank], .hi = draws[n_draws - 1 - rank]};
}

double nw_boot_p_below(const double *draws, size_t n_draws, double limit)
{
    size_t below = 0;

    for (size_t i = 0; i < n_draws; i++) {
        below += draws[i] <= limit;
    }
    return (1 + (double)below) / (1 + (double)n_draws);
}

double nw_boot_p_above(const double *draws, size_t n_draws, double limit)
{
    size_t above = 0;

    for (size_t i = 0; i < n_draws; i++) {
        above += draws[i] >= limit;
    }
    return (1 + (double)above) / (1 + (double)n_draws);
}
