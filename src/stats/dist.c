/* Normal quantile: M. J. Wichura, Algorithm AS 241, Applied Statistics 37 (1988) 477-484, routine
 * PPND16, followed by nothing: it holds 1e-16. Incomplete beta: the continued fraction 8.17.22 of the
 * NIST Digital Library of Mathematical Functions by the modified Lentz method, times a front factor
 * in C. Loader's saddle-point form (Fast and Accurate Computation of Binomial Probabilities, 2000),
 * since a difference of lgamma values loses ten digits at n = 10^6.
 * SPDX-License-Identifier: Apache-2.0 */
#include "stats/dist.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#define SQRT_HALF 0.70710678118654752440
#define TWO_PI    6.28318530717958647693

double nw_normal_cdf(double z)
{
    return 0.5 * erfc(-z * SQRT_HALF);
}

double nw_normal_sf(double z)
{
    return 0.5 * erfc(z * SQRT_HALF);
}

/* c[0] + c[1] x + ... + c[7] x^7 */
static double poly7(const double c[8], double x)
{
    double sum = c[7];
    for (int i = 6; i >= 0; i--) {
        sum = sum * x + c[i];
    }
    return sum;
}

double nw_normal_quantile(double p)
{
    static const double a[8] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                1.9715909503065514427e3, 1.3731693765509461125e4,
                                4.5921953931549871457e4, 6.7265770927008700853e4,
                                3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double b[8] = {1.0,
                                4.2313330701600911252e1,
                                6.8718700749205790830e2,
                                5.3941960214247511077e3,
                                2.1213794301586595867e4,
                                3.9307895800092710610e4,
                                2.8729085735721942674e4,
                                5.2264952788528545610e3};
    static const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                5.76949722146069140550e0,  3.64784832476320460504e0,
                                1.27045825245236838258e0,  2.41780725177450611770e-1,
                                2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[8] = {1.0,
                                2.05319162663775882187e0,
                                1.67638483018380384940e0,
                                6.89767334985100004550e-1,
                                1.48103976427480074590e-1,
                                1.51986665636164571966e-2,
                                5.47593808499534494600e-4,
                                1.05075007164441684324e-9};
    static const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                1.78482653991729133580e0,  2.96560571828504891230e-1,
                                2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[8] = {1.0,
                                5.99832206555887937690e-1,
                                1.36929880922735805310e-1,
                                1.48753612908506148525e-2,
                                7.86869131145613259100e-4,
                                1.84631831751005468180e-5,
                                1.42151175831644588870e-7,
                                2.04426310338993978564e-15};

    assert(p > 0 && p < 1);
    const double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * poly7(a, r) / poly7(b, r);
    }
    const double r = sqrt(-log(q < 0 ? p : 1 - p));
    const double z =
        r <= 5 ? poly7(c, r - 1.6) / poly7(d, r - 1.6) : poly7(e, r - 5) / poly7(f, r - 5);
    return q < 0 ? -z : z;
}

/* ln n! - ((n + 1/2) ln n - n + ln(2 pi)/2), n > 0: what Stirling's formula lacks. The series is the
 * asymptotic one (DLMF 5.11.1); from n = 16 its seven terms are good to 1e-17. */
static double stirling_error(double n)
{
    if (n < 16) {
        return lgamma(n + 1) - (n + 0.5) * log(n) + n - 0.5 * log(TWO_PI);
    }
    const double nn = n * n;
    const double tail = 1.0 / 1188 - (691.0 / 360360 - (1.0 / 156) / nn) / nn;
    return (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - (1.0 / 1680 - tail / nn) / nn) / nn) / nn) / n;
}

/* Loader's deviance x ln(x/m) + m - x, by its series where x is near m. */
static double deviance(double x, double m)
{
    if (fabs(x - m) >= 0.1 * (x + m)) {
        return x * log(x / m) + m - x;
    }
    const double v = (x - m) / (x + m);
    double sum = (x - m) * v;
    double term = 2 * x * v;
    for (int i = 1; i < 1000; i++) {
        term *= v * v;
        const double next = sum + term / (2 * i + 1);
        if (next == sum) {
            break;
        }
        sum = next;
    }
    return sum;
}

/* x^a (1-x)^b Gamma(a+b) / (Gamma(a) Gamma(b)), 0 < x < 1 */
static double beta_front(double x, double a, double b)
{
    const double n = a + b;
    const double lc = stirling_error(n) - stirling_error(a) - stirling_error(b) -
                      deviance(a, n * x) - deviance(b, n * (1 - x));
    return exp(lc) * sqrt(n / (TWO_PI * a * b)) * (a * b / n);
}

/* Continued fraction of I_x(a, b) without its front; converges fast for x < (a+1)/(a+b+2), in about
 * sqrt(max(a, b)) steps. */
static double beta_fraction(double x, double a, double b)
{
    const double tiny = 1e-300;
    double c = 1;
    double d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double h = d;

    for (int m = 1; m < 200000; m++) {
        const double k = m;
        const double even = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k));
        d = 1 + even * d;
        c = 1 + even / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        h *= d * c;
        const double odd = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1));
        d = 1 + odd * d;
        c = 1 + odd / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-16) {
            break;
        }
    }
    return h;
}

double nw_beta_cdf(double x, double a, double b)
{
    assert(a > 0 && b > 0 && x >= 0 && x <= 1);
    if (x <= 0 || x >= 1) {
        return x <= 0 ? 0 : 1;
    }
    const double front = beta_front(x, a, b);
    if (x < (a + 1) / (a + b + 2)) {
        return fmin(1, front * beta_fraction(x, a, b) / a);
    }
    return fmax(0, 1 - front * beta_fraction(1 - x, b, a) / b);
}

double nw_t_cdf(double t, double df)
{
    assert(df > 0);
    const double tt = t * t;
    /* the tail by the smaller of its two arguments, so that 1 - x does not cancel */
    const double tail = tt < df ? 0.5 * (1 - nw_beta_cdf(tt / (df + tt), 0.5, df / 2))
                                : 0.5 * nw_beta_cdf(df / (df + tt), df / 2, 0.5);
    return t > 0 ? 1 - tail : tail;
}

double nw_t_quantile(double p, double df)
{
    assert(p > 0 && p < 1 && df > 0);
    if (p > 0.5) {
        return -nw_t_quantile(1 - p, df);
    }
    double lo = -1;
    while (nw_t_cdf(lo, df) > p && lo > -1e300) {
        lo *= 2;
    }
    double hi = 0;
    for (int i = 0; i < 200 && hi - lo > 0; i++) {
        const double mid = lo + (hi - lo) / 2;
        if (mid <= lo || mid >= hi) {
            break;
        }
        if (nw_t_cdf(mid, df) < p) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo + (hi - lo) / 2;
}

double nw_binomial_cdf(uint64_t k, uint64_t n, double p)
{
    assert(k <= n && p >= 0 && p <= 1);
    if (k == n) {
        return 1;
    }
    return nw_beta_cdf(1 - p, (double)(n - k), (double)k + 1);
}

double nw_binomial_sf(uint64_t k, uint64_t n, double p)
{
    assert(k <= n && p >= 0 && p <= 1);
    if (k == 0) {
        return 1;
    }
    return nw_beta_cdf(p, (double)k, (double)(n - k) + 1);
}
