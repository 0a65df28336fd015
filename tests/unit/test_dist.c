/* Distributions against mpmath 1.4 at 25 to 50 digits (incomplete beta at 10^5 and more by quadrature
 * of the density). Relative tolerance 1e-10, that of the header; the median of the symmetric rows and
 * the binomial ones are also exact fractions.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "stats/dist.h"
#include "table.h"

typedef enum { CDF, SF, QUANTILE, BETA, T_CDF, T_QUANTILE, BIN_CDF, BIN_SF } what;

static struct row {
    const char *name;
    what f;
    double x, a, b; /* x, or the count, or the probability; then the parameters in order */
    double want;
} rows[] = {
    {"cdf_0", CDF, 0, 0, 0, 0.5},
    {"cdf_1", CDF, 1, 0, 0, 0.84134474606854295},
    {"cdf_-1.5", CDF, -1.5, 0, 0, 0.066807201268858066},
    {"cdf_-5", CDF, -5, 0, 0, 2.8665157187919391e-7},
    {"cdf_-12", CDF, -12, 0, 0, 1.776482112077679e-33},
    {"sf_12", SF, 12, 0, 0, 1.776482112077679e-33},
    {"quantile_.5", QUANTILE, 0.5, 0, 0, 0},
    {"quantile_.95", QUANTILE, 0.95, 0, 0, 1.6448536269514727},
    {"quantile_.975", QUANTILE, 0.975, 0, 0, 1.9599639845400542},
    {"quantile_.8", QUANTILE, 0.8, 0, 0, 0.84162123357291421},
    {"quantile_.9999", QUANTILE, 0.9999, 0, 0, 3.7190164854556806},
    {"quantile_.3", QUANTILE, 0.3, 0, 0, -0.52440051270804078},
    {"quantile_1e-10", QUANTILE, 1e-10, 0, 0, -6.3613409024040562},
    {"quantile_1e-300", QUANTILE, 1e-300, 0, 0, -37.047096299361199},
    {"beta_2_3", BETA, 0.5, 2, 3, 0.6875},
    {"beta_small_x", BETA, 0.01, 5, 996, 0.97131360000099527},
    {"beta_arcsine", BETA, 0.1, 0.5, 0.5, 0.20483276469913345},
    {"beta_near_1", BETA, 0.99, 30, 1.5, 0.89459704616081021},
    {"beta_half", BETA, 0.3, 0.5, 20, 0.99982620216033029},
    {"beta_symmetric", BETA, 0.5, 5000, 5000, 0.5},
    {"beta_1e5", BETA, 0.501, 50000, 50000, 0.73645506170295837},
    {"beta_1e6", BETA, 0.0101, 10001, 990000, 0.84015325886648332},
    {"beta_1e7", BETA, 0.4998, 5e6, 5e6, 0.10295160196488392},
    {"beta_at_0", BETA, 0, 2, 3, 0},
    {"beta_at_1", BETA, 1, 2, 3, 1},
    {"t_cauchy", T_CDF, 1, 1, 0, 0.75},
    {"t_2_5", T_CDF, 2, 5, 0, 0.94903026058507082},
    {"t_-2.015_5", T_CDF, -2.015, 5, 0, 0.050003086163403176},
    {"t_.1_30", T_CDF, 0.1, 30, 0, 0.53949519410486442},
    {"t_10_3", T_CDF, 10, 3, 0, 0.99893580047079292},
    {"t_1.5_2.5", T_CDF, 1.5, 2.5, 0, 0.87608177345685187},
    {"t_-40_4", T_CDF, -40, 4, 0, 1.1670081613006343e-6},
    {"t_quantile_.975_1", T_QUANTILE, 0.975, 1, 0, 12.706204736174705},
    {"t_quantile_.95_4", T_QUANTILE, 0.95, 4, 0, 2.1318467863266503},
    {"t_quantile_.975_9", T_QUANTILE, 0.975, 9, 0, 2.2621571627982055},
    {"t_quantile_.95_49", T_QUANTILE, 0.95, 49, 0, 1.6765508926168539},
    {"t_quantile_.995_2", T_QUANTILE, 0.995, 2, 0, 9.9248432009182931},
    {"t_quantile_.05_7", T_QUANTILE, 0.05, 7, 0, -1.8945786050900074},
    {"binomial_4_of_1000", BIN_CDF, 4, 1000, 0.01, 0.028686399999004728},
    {"binomial_5_of_1000", BIN_CDF, 5, 1000, 0.01, 0.066139511607251974},
    {"binomial_0_of_299", BIN_CDF, 0, 299, 0.01, 0.049536256637662481},
    {"binomial_0_of_298", BIN_CDF, 0, 298, 0.01, 0.050036622866325738},
    {"binomial_2_of_14", BIN_CDF, 2, 14, 0.5, 106.0 / 16384},
    {"binomial_tail_12_of_14", BIN_SF, 12, 14, 0.5, 106.0 / 16384},
    {"binomial_tail_0", BIN_SF, 0, 14, 0.5, 1},
    {"binomial_all", BIN_CDF, 14, 14, 0.5, 1},
    {"binomial_tail_5_of_1000", BIN_SF, 5, 1000, 0.01, 0.97131360000099527},
    {"binomial_123_of_10000", BIN_CDF, 123, 10000, 0.0125, 0.45200077269997878},
};

static double value(const struct row *r)
{
    switch (r->f) {
    case CDF:
        return nw_normal_cdf(r->x);
    case SF:
        return nw_normal_sf(r->x);
    case QUANTILE:
        return nw_normal_quantile(r->x);
    case BETA:
        return nw_beta_cdf(r->x, r->a, r->b);
    case T_CDF:
        return nw_t_cdf(r->x, r->a);
    case T_QUANTILE:
        return nw_t_quantile(r->x, r->a);
    case BIN_CDF:
        return nw_binomial_cdf((uint64_t)r->x, (uint64_t)r->a, r->b);
    case BIN_SF:
        return nw_binomial_sf((uint64_t)r->x, (uint64_t)r->a, r->b);
    }
    return (double)NAN;
}

static void dist(void **state)
{
    const struct row *r = *state;
    const double got = value(r);
    if (!(fabs(got - r->want) <= 1e-10 * fabs(r->want))) {
        fail_msg("%s: %.17g, want %.17g", r->name, got, r->want);
    }
}

int main(void)
{
    return NW_RUN_TABLE("dist", rows, dist);
}
