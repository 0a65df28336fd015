/* Normal approximation of the paired difference; source of the sample size: arXiv 2605.28873,
 * MDE <= (z_(1-alpha) + z_power) sqrt(rho/n), solved for n.
 * SPDX-License-Identifier: Apache-2.0 */
#include "stats/power.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>

#include "stats/dist.h"

static size_t whole(double n)
{
    return n >= 0x1p62 ? SIZE_MAX : (size_t)n;
}

size_t nw_ni_sample_size(double rho, double margin, double alpha, double power)
{
    assert(rho >= 0 && margin > 0);
    const double z = nw_normal_quantile(1 - alpha) + nw_normal_quantile(power);
    return whole(round(z * z * rho / (margin * margin)));
}

size_t nw_zero_flip_floor(double margin, double alpha)
{
    assert(margin > 0);
    if (margin >= 1) {
        return 1;
    }
    const double z = nw_normal_quantile(1 - alpha);
    return whole(floor(z * z * (1 - margin) / margin) + 1);
}

double nw_ni_power(size_t n, double rho, double margin, double alpha, double delta)
{
    assert(n > 0 && rho > 0);
    return nw_normal_cdf((delta + margin) * sqrt((double)n / rho) - nw_normal_quantile(1 - alpha));
}

double nw_ni_detectable(size_t n, double rho, double alpha, double power)
{
    assert(n > 0 && rho >= 0);
    return (nw_normal_quantile(1 - alpha) + nw_normal_quantile(power)) * sqrt(rho / (double)n);
}
