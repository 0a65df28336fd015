/* What the gates promise, checked where it can be: sizes and coverage by summing over all outcomes
 * where that is possible, by simulation with a fixed seed where it is not. A simulated share of s in
 * r runs may be off by 3 sqrt(s (1 - s)/r); each tolerance below is that, written out.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "stats/dist.h"
#include "stats/interval.h"
#include "stats/noninferiority.h"
#include "stats/power.h"
#include "table.h"

#define Z90 1.6448536269514722
#define Z95 1.959963984540054

/* ln P(b gains, c losses of n pairs) */
static double ln_trinomial(double n, double b, double c, double gain, double loss)
{
    return lgamma(n + 1) - lgamma(b + 1) - lgamma(c + 1) - lgamma(n - b - c + 1) + b * log(gain) +
           c * log(loss) + (n - b - c) * log1p(-gain - loss);
}

typedef bool (*gate_fn)(const nw_paired_table *t, double margin);

static bool tango_passes(const nw_paired_table *t, double margin)
{
    return nw_tango_z(t, -margin) > Z90;
}

static bool wald_passes(const nw_paired_table *t, double margin)
{
    const double n = (double)t->n;
    const double d = ((double)t->gain - (double)t->loss) / n;
    const double var = ((double)(t->gain + t->loss) / n - d * d) / n;
    return d - Z90 * sqrt(var) > -margin;
}

/* Chance that the gate passes: over all outcomes of any weight. */
static double p_pass(size_t n, double gain, double loss, double margin, gate_fn passes)
{
    double sum = 0;

    for (size_t b = 0; b <= n; b++) {
        for (size_t c = 0; b + c <= n; c++) {
            const double ln = ln_trinomial((double)n, (double)b, (double)c, gain, loss);
            const nw_paired_table t = {.n = n, .gain = b, .loss = c};
            if (ln > -35) {
                sum += passes(&t, margin) ? exp(ln) : 0;
            } else if ((double)c > (double)n * loss) {
                break;
            }
        }
        if ((double)b > (double)n * gain &&
            ln_trinomial((double)n, (double)b, floor((double)n * loss), gain, loss) < -40) {
            break;
        }
    }
    return sum;
}

/* MEASURES section 0: at a true loss of exactly the margin Tango's gate passes in at most 6.1% of
 * cases in all 63 cells (nominal 5%). */
static void tango_gate_holds_its_size_in_63_cells(void **state)
{
    (void)state;
    static const size_t n[] = {10, 20, 50, 100, 164, 500, 1000};
    static const double rho[] = {0.02, 0.05, 0.10};
    static const double margin[] = {0.005, 0.01, 0.0199};
    double worst = 0;
    for (size_t i = 0; i < 7; i++) {
        for (size_t r = 0; r < 3; r++) {
            for (size_t m = 0; m < 3; m++) {
                const double p = p_pass(n[i], (rho[r] - margin[m]) / 2, (rho[r] + margin[m]) / 2,
                                        margin[m], tango_passes);
                worst = fmax(worst, p);
            }
        }
    }
    (void)printf("worst false PASS of Tango's gate: %.4f\n", worst);
    assert_true(worst <= 0.0615);
    assert_true(worst > 0.03); /* it is a test at 5%, not one that never passes */
}

static void walds_gate_does_not(void **state)
{
    (void)state;
    /* no flip at all, .98^10 = .817, already passes it */
    assert_true(p_pass(10, 0.0075, 0.0125, 0.005, wald_passes) > 0.81);
    assert_true(p_pass(164, 0.0075, 0.0125, 0.005, wald_passes) > 0.10);
}

/* The table of n is for a power of .8: with no true loss, by the exact sum. */
static void table_of_n_has_its_power(void **state)
{
    (void)state;
    static const double rho[] = {0.05, 0.10};
    for (size_t r = 0; r < 2; r++) {
        const size_t n = nw_ni_sample_size(rho[r], 0.02, 0.05, 0.8);
        const double p = p_pass(n, rho[r] / 2, rho[r] / 2, 0.02, tango_passes);
        (void)printf("n %zu, rho %.2f, margin 2 pp: power %.3f\n", n, rho[r], p);
        assert_true(p > 0.76 && p < 0.84); /* .8 by the normal approximation */
    }
}

static void wilson_covers_95_percent_on_the_mean(void **state)
{
    (void)state;
    static const size_t n[] = {20, 50, 100};
    for (size_t i = 0; i < 3; i++) {
        double mean = 0;
        for (size_t g = 1; g < 200; g++) {
            const double p = (double)g / 200;
            for (size_t k = 0; k <= n[i]; k++) {
                const nw_interval ci = nw_wilson(k, n[i], Z95);
                if (ci.lo <= p && p <= ci.hi) {
                    mean += exp(ln_trinomial((double)n[i], (double)k, 0, p, 1e-300)) / 199;
                }
            }
        }
        (void)printf("Wilson, n %zu: mean coverage %.4f\n", n[i], mean);
        assert_true(mean > 0.945 && mean < 0.96); /* Brown, Cai and DasGupta, fig. 5 */
    }
}

/* The p99 gate, when exactly 1% of requests are over the limit: never more than 5%. */
static void p99_gate_holds_its_size(void **state)
{
    (void)state;
    for (size_t n = 299; n < 5000; n += 97) {
        size_t t = 0;
        while (nw_tail_gate(t, n, 0.99, 0.05).verdict == NW_VERDICT_PASS) {
            t++;
        }
        assert_true(t > 0);
        assert_true(nw_binomial_cdf(t - 1, n, 0.01) <= 0.05);
        assert_true(nw_binomial_cdf(t, n, 0.01) > 0.05); /* and no stricter than it must be */
    }
}

static void t_bounds_miss_one_in_twenty(void **state)
{
    (void)state;
    enum { RUNS = 20000 };
    nw_rng rng = nw_rng_seed(1);
    size_t miss = 0;
    for (size_t r = 0; r < RUNS; r++) {
        double x[5];
        for (size_t i = 0; i < 5; i++) {
            x[i] = nw_rng_normal(&rng);
        }
        miss += nw_t_bounds(x, 5, 0.05).lo > 0;
    }
    assert_true(fabs((double)miss / RUNS - 0.05) < 3 * sqrt(0.05 * 0.95 / RUNS));
}

/* Paired ratio at its margin: P(base) .6, P(cand) .57, a twentieth of the pairs gained. */
static void ratio_score_holds_its_size(void **state)
{
    (void)state;
    enum { RUNS = 4000 };
    static const size_t n[] = {100, 400};
    for (size_t k = 0; k < 2; k++) {
        nw_rng rng = nw_rng_seed(2 + k);
        size_t pass = 0;
        for (size_t r = 0; r < RUNS; r++) {
            nw_paired_table t = {.n = n[k]};
            for (size_t i = 0; i < n[k]; i++) {
                const double u = nw_rng_unit(&rng);
                t.both += u < 0.52;
                t.gain += u >= 0.52 && u < 0.57;
                t.loss += u >= 0.57 && u < 0.65;
            }
            pass += nw_paired_ratio_z(&t, 0.95) > Z90;
        }
        const double share = (double)pass / RUNS;
        (void)printf("paired ratio, n %zu: false PASS %.4f\n", n[k], share);
        assert_true(share < 0.06 + 3 * sqrt(0.06 * 0.94 / RUNS)); /* as Tango's 6.1% */
    }
}

/* 24 documents of 12 items that share luck: half of the flips come by document. */
static void cluster_gate_holds_its_size_with_few_clusters(void **state)
{
    (void)state;
    enum { RUNS = 800, DOCS = 24, ITEMS = 12, N = DOCS * ITEMS };
    static double base[N], cand[N];
    static uint32_t cluster[N];
    nw_ni_options opt = nw_ni_defaults();
    nw_rng rng = nw_rng_seed(5);
    size_t pass = 0;
    opt.n_draws = 400;
    for (size_t r = 0; r < RUNS; r++) {
        for (size_t d = 0; d < DOCS; d++) {
            const double mood = nw_rng_unit(&rng);
            for (size_t i = 0; i < ITEMS; i++) {
                /* P(gain) = .05, P(loss) = .10: a true loss of 5 points, the margin */
                const double u = nw_rng_unit(&rng) < 0.5 ? mood : nw_rng_unit(&rng);
                const size_t at = d * ITEMS + i;
                base[at] = u < 0.5 ? 1 : 0;
                cand[at] = u < 0.10 ? 0 : u >= 0.95 ? 1 : base[at];
                cluster[at] = (uint32_t)d;
            }
        }
        const nw_pairs p = {N, DOCS, base, cand, cluster};
        nw_ni_result out;
        nw_error err = {0};
        assert_int_equal(nw_ni_difference(&p, 0.05, &opt, &out, &err), NW_OK);
        pass += out.verdict == NW_VERDICT_PASS;
    }
    const double share = (double)pass / RUNS;
    (void)printf("clustered gate, 24 clusters: false PASS %.4f\n", share);
    assert_true(share < 0.06 + 3 * sqrt(0.06 * 0.94 / RUNS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tango_gate_holds_its_size_in_63_cells),
        cmocka_unit_test(walds_gate_does_not),
        cmocka_unit_test(table_of_n_has_its_power),
        cmocka_unit_test(wilson_covers_95_percent_on_the_mean),
        cmocka_unit_test(p99_gate_holds_its_size),
        cmocka_unit_test(t_bounds_miss_one_in_twenty),
        cmocka_unit_test(ratio_score_holds_its_size),
        cmocka_unit_test(cluster_gate_holds_its_size_with_few_clusters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
