/* Intervals: the formula, its source and why this one stand above each.
 * SPDX-License-Identifier: Apache-2.0 */
#include "stats/interval.h"

#include <assert.h>
#include <math.h>

#include "stats/dist.h"
#include "stats/summary.h"

/* Wilson score interval for a proportion, k successes in n trials:
 *
 *     ( p + z^2/2n  +-  z sqrt( p(1-p)/n + z^2/4n^2 ) ) / ( 1 + z^2/n ),   p = k/n
 *
 * Source: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209-212. Used in place of p +- z*se since
 * it keeps its coverage near 0 and 1 and for small n (Brown, Cai and DasGupta, Statist. Sci.
 * 16 (2001) 101-133). Tested against the worked examples of Newcombe, Stat. Med. 17 (1998) 857. */
nw_interval nw_wilson(uint64_t k, uint64_t n, double z)
{
    assert(n > 0 && k <= n && z > 0);
    const double trials = (double)n;
    const double p = (double)k / trials;
    const double zz = z * z / trials;
    const double mid = (p + zz / 2) / (1 + zz);
    const double half = z * sqrt(p * (1 - p) / trials + zz / (4 * trials)) / (1 + zz);

    return (nw_interval){.lo = fmax(0, mid - half), .hi = fmin(1, mid + half)};
}

/* Tango's score statistic for a paired difference delta = (gain - loss)/n:
 *
 *     z(delta) = (b - c - n delta) / sqrt( n (2 q + delta (1 - delta)) )
 *
 * with b = gain, c = loss, and q the estimate of P(loss) under the constraint,
 *
 *     q = ( sqrt(B^2 - 8 n C) - B ) / 4n,   B = -b - c + (2n - b + c) delta,   C = -c delta (1 - delta)
 *
 * Source: T. Tango, Stat. Med. 17 (1998) 891-908. Used in place of Wald's since it stays honest when
 * few or no pairs differ: for b = c = 0 the interval is +- z^2/(n + z^2), where Wald's has width 0. */
double nw_tango_z(const nw_paired_table *t, double delta)
{
    assert(t->n > 0 && delta > -1 && delta < 1);
    const double n = (double)t->n;
    const double b = (double)t->gain;
    const double c = (double)t->loss;
    const double bb = -b - c + (2 * n - b + c) * delta;
    const double cc = -c * delta * (1 - delta);
    const double root = sqrt(fmax(0, bb * bb - 8 * n * cc));
    /* the form without cancellation: for bb > 0 the two terms of root - bb nearly agree */
    const double q = bb > 0 ? -2 * cc / (root + bb) : (root - bb) / (4 * n);
    const double var = n * (2 * fmax(q, 0) + delta * (1 - delta));
    const double diff = b - c - n * delta;

    if (var <= 0) {
        return diff == 0 ? 0 : copysign((double)INFINITY, diff);
    }
    return diff / sqrt(var);
}

/* The delta at which the statistic, falling in delta, crosses z. */
static double tango_root(const nw_paired_table *t, double z)
{
    double lo = -1;
    double hi = 1;

    for (int i = 0; i < 100; i++) {
        const double mid = (lo + hi) / 2;
        if (mid <= lo || mid >= hi) {
            break;
        }
        if (nw_tango_z(t, mid) > z) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return (lo + hi) / 2;
}

nw_interval nw_tango(const nw_paired_table *t, double z)
{
    assert(z > 0 && t->both + t->gain + t->loss <= t->n);
    return (nw_interval){.lo = tango_root(t, z), .hi = tango_root(t, -z)};
}

/* Score statistic for the ratio theta of two paired shares. With y_c, y_b the two answers of a pair,
 * H0 says that e = y_c - theta y_b has mean 0. e takes the value g_i in cell i of the 2 x 2 table
 * (gain 1, both 1 - theta, loss -theta, neither 0), and
 *
 *     z(theta) = sum n_i g_i / sqrt( n sum p_i g_i^2 )
 *
 * where p_i are the most likely cell probabilities with sum p_i g_i = 0. By Lagrange p_i =
 * n_i / (n + mu g_i) for a mu with every n + mu g_i >= 0; when the constraint cannot be met by the
 * cells that were seen, the rest goes to the empty one at the edge of mu's range. The test is that
 * of J.-M. Nam and W. C. Blackwelder, Stat. Med. 21 (2002) 689-699. Without flips the lower bound is
 * n_11/(n_11 + z^2), the same shape as Tango's; a bootstrap would give exactly 1. */
typedef struct {
    double n;
    double count[3]; /* gain, both, loss */
    double g[3];
} ratio_cells;

static double constraint(const ratio_cells *c, double mu)
{
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        if (c->count[i] > 0) {
            sum += c->g[i] * c->count[i] / (c->n + mu * c->g[i]);
        }
    }
    return sum;
}

static double ratio_variance(const ratio_cells *c, double theta)
{
    double lo = -c->n;        /* gain: n + mu >= 0; the cell of both is never stricter, */
    double hi = c->n / theta; /* loss: n - mu theta >= 0; since -theta < 1 - theta < 1 */
    for (int i = 0; i < 200; i++) {
        const double mid = (lo + hi) / 2;
        if (constraint(c, mid) > 0) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    const double mu = (lo + hi) / 2;
    double var = 0;
    double rest = 0;
    for (int i = 0; i < 3; i++) {
        if (c->count[i] > 0) {
            const double p = c->count[i] / (c->n + mu * c->g[i]);
            var += p * c->g[i] * c->g[i];
            rest += p * c->g[i];
        }
    }
    /* what is left over sits in the empty gain or loss cell */
    if (rest > 0 && c->count[2] <= 0) {
        var += rest * theta;
    } else if (rest < 0 && c->count[0] <= 0) {
        var -= rest;
    }
    return var;
}

double nw_paired_ratio_z(const nw_paired_table *t, double theta)
{
    assert(t->n > 0 && theta > 0 && t->both + t->gain + t->loss <= t->n);
    const ratio_cells c = {.n = (double)t->n,
                           .count = {(double)t->gain, (double)t->both, (double)t->loss},
                           .g = {1, 1 - theta, -theta}};
    const double sum = c.count[0] + c.count[1] * c.g[1] + c.count[2] * c.g[2];
    const double var = ratio_variance(&c, theta);

    if (var <= 0) {
        return sum == 0 ? 0 : copysign((double)INFINITY, sum);
    }
    return sum / sqrt(c.n * var);
}

/* The ratio at which the statistic, falling in theta, crosses z; searched in the logarithm. */
static double ratio_root(const nw_paired_table *t, double z)
{
    double lo = -40; /* e^-40: below it the bound is 0 for every purpose */
    double hi = 40;

    if (nw_paired_ratio_z(t, exp(hi)) > z) {
        return (double)INFINITY;
    }
    if (nw_paired_ratio_z(t, exp(lo)) <= z) {
        return 0;
    }
    for (int i = 0; i < 100; i++) {
        const double mid = (lo + hi) / 2;
        if (nw_paired_ratio_z(t, exp(mid)) > z) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return exp((lo + hi) / 2);
}

nw_interval nw_paired_ratio(const nw_paired_table *t, double z)
{
    assert(z > 0 && t->both + t->loss > 0);
    return (nw_interval){.lo = ratio_root(t, z), .hi = ratio_root(t, -z)};
}

/* x_(k) <= q_p exactly when at least k of the n values are <= q_p, and their number is Bin(n, p): the
 * lower rank is the largest k with P(Bin >= k) >= 1 - alpha, the upper the smallest with
 * P(Bin <= k - 1) >= 1 - alpha. Source: H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed.,
 * 7.1. */
nw_ranks nw_quantile_ranks(size_t n, double p, double alpha)
{
    assert(n > 0 && p > 0 && p < 1 && alpha > 0 && alpha < 1);
    size_t lo = 0; /* P(Bin >= 0) = 1 */
    size_t hi = n + 1;

    for (size_t a = 1, b = n; a <= b;) {
        const size_t k = a + (b - a) / 2;
        if (nw_binomial_sf(k, n, p) >= 1 - alpha) {
            lo = k;
            a = k + 1;
        } else {
            b = k - 1;
        }
    }
    for (size_t a = 1, b = n; a <= b;) {
        const size_t k = a + (b - a) / 2;
        if (nw_binomial_cdf(k - 1, n, p) >= 1 - alpha) {
            hi = k;
            b = k - 1;
        } else {
            a = k + 1;
        }
    }
    return (nw_ranks){.lo = lo, .hi = hi > n ? 0 : hi};
}

size_t nw_quantile_min_n(double p, double alpha)
{
    assert(p > 0 && p < 1 && alpha > 0 && alpha < 1);
    return (size_t)ceil(log(alpha) / log(p));
}

nw_interval nw_t_bounds(const double *x, size_t n, double alpha)
{
    assert(n >= 2 && alpha > 0 && alpha < 1);
    const double mean = nw_mean(x, n);
    const double half =
        nw_t_quantile(1 - alpha, (double)(n - 1)) * sqrt(nw_variance(x, n) / (double)n);

    return (nw_interval){.lo = mean - half, .hi = mean + half};
}
