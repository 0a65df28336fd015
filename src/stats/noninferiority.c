/* The bounds are the widest of what is valid:
 *   - percentile cluster bootstrap (10,000 draws, fixed seed);
 *   - Student's t on the bootstrap's standard error with clusters - 1 degrees of freedom, since the
 *     percentile bootstrap is too narrow for a handful of clusters;
 *   - for scores of 0 and 1, Tango's score bound (or the score bound of the paired ratio): where few
 *     pairs differ the bootstrap sees too little, and with none it has width 0 and would pass any
 *     gate with ten items;
 *   - for other scores in [0, 1], the loss that n items may have missed, z^2/(n + z^2).
 * SPDX-License-Identifier: Apache-2.0 */
#include "stats/noninferiority.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "stats/bootstrap.h"
#include "stats/dist.h"
#include "stats/interval.h"
#include "stats/power.h"
#include "stats/summary.h"

const char *nw_verdict_name(nw_verdict v)
{
    static const char *const names[] = {"PASS", "FAIL", "INCONCLUSIVE"};
    return names[v];
}

nw_ni_options nw_ni_defaults(void)
{
    return (nw_ni_options){
        .alpha = 0.05, .power = 0.8, .seed = NW_BOOT_SEED, .n_draws = NW_BOOT_DRAWS};
}

nw_verdict nw_ni_decide(double lo, double hi, double margin)
{
    if (lo > -margin) {
        return NW_VERDICT_PASS;
    }
    return hi < -margin ? NW_VERDICT_FAIL : NW_VERDICT_INCONCLUSIVE;
}

/* Per cluster: sum of base, sum of cand, number of items. */
enum { COL_BASE, COL_CAND, COL_COUNT, N_COLS };

typedef struct {
    double *sums;  /* [n_clusters][N_COLS] */
    double *draws; /* [n_draws][N_COLS], then the statistic in its first n_draws */
} work;

static nw_status work_open(work *w, size_t n_clusters, size_t n_draws, nw_error *err)
{
    *w = (work){calloc(n_clusters, N_COLS * sizeof(double)),
                calloc(n_draws, N_COLS * sizeof(double))};
    if (w->sums == NULL || w->draws == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a bootstrap of %zu clusters", n_clusters);
    }
    return NW_OK;
}

static void work_close(work *w)
{
    free(w->sums);
    free(w->draws);
}

static void add_pairs(const nw_pairs *p, work *w)
{
    for (size_t i = 0; i < p->n; i++) {
        assert(p->cluster[i] < p->n_clusters);
        double *unit = w->sums + (size_t)p->cluster[i] * N_COLS;
        unit[COL_BASE] += p->base[i];
        unit[COL_CAND] += p->cand[i];
        unit[COL_COUNT] += 1;
    }
}

/* What the gate bounds, from totals over clusters. */
static double statistic(const double *t, bool ratio)
{
    if (ratio) {
        return t[COL_BASE] > 0 ? t[COL_CAND] / t[COL_BASE] - 1 : (double)INFINITY;
    }
    return (t[COL_CAND] - t[COL_BASE]) / t[COL_COUNT];
}

/* Bounds and p by percentile and by t; the standard error of the draws is returned. */
static double bootstrap_bounds(work *w, size_t n_clusters, bool ratio, double margin,
                               const nw_ni_options *opt, nw_ni_result *out)
{
    nw_boot_totals(w->sums, n_clusters, N_COLS, opt->seed, opt->n_draws, w->draws);
    for (size_t b = 0; b < opt->n_draws; b++) {
        w->draws[b] = statistic(w->draws + b * N_COLS, ratio);
    }
    out->p = nw_boot_p_below(w->draws, opt->n_draws, -margin);
    out->p_fail = nw_boot_p_above(w->draws, opt->n_draws, -margin);
    const nw_interval bounds = nw_boot_bounds(w->draws, opt->n_draws, opt->alpha);
    out->lo = bounds.lo;
    out->hi = bounds.hi;
    /* a draw without a right answer of the baseline has no ratio; its place is in the tail */
    size_t finite = opt->n_draws;
    while (finite > 2 && !isfinite(w->draws[finite - 1])) {
        finite--;
    }
    const double c = (double)n_clusters;
    const double se = sqrt(nw_variance(w->draws, finite) * c / fmax(c - 1, 1));
    if (n_clusters > 1 && se > 0) {
        const double half = nw_t_quantile(1 - opt->alpha, c - 1) * se;
        out->lo = fmin(out->lo, out->estimate - half);
        out->hi = fmax(out->hi, out->estimate + half);
        out->p = fmax(out->p, nw_t_cdf((-margin - out->estimate) / se, c - 1));
        out->p_fail = fmax(out->p_fail, nw_t_cdf((margin + out->estimate) / se, c - 1));
    }
    return se;
}

/* p and p_fail are those of the test whose bounds `by` are. */
static void widen(nw_ni_result *out, nw_interval by, double p, double p_fail)
{
    out->lo = fmin(out->lo, by.lo);
    out->hi = fmax(out->hi, by.hi);
    out->p = fmax(out->p, p);
    out->p_fail = fmax(out->p_fail, p_fail);
}

/* By a score statistic that is standard normal at the margin. */
static void widen_by_score(nw_ni_result *out, nw_interval by, double z)
{
    widen(out, by, nw_normal_sf(z), nw_normal_cdf(z));
}

/* Means, flips, variance of the differences, and whether all scores are 0 or 1. */
static void describe(const nw_pairs *p, nw_ni_result *out, nw_paired_table *t)
{
    double sum = 0;
    double square = 0;

    *t = (nw_paired_table){.n = p->n};
    out->binary = true;
    for (size_t i = 0; i < p->n; i++) {
        const double b = p->base[i];
        const double c = p->cand[i];
        out->base += b / (double)p->n;
        out->cand += c / (double)p->n;
        sum += c - b;
        square += (c - b) * (c - b);
        out->binary = out->binary && (b == 0 || b == 1) && (c == 0 || c == 1);
        t->gain += c > b;
        t->loss += c < b;
        t->both += b == 1 && c == 1;
    }
    const double n = (double)p->n;
    out->n = p->n;
    out->n_clusters = p->n_clusters;
    out->gain = t->gain;
    out->loss = t->loss;
    out->rho = out->binary ? (double)(t->gain + t->loss) / n
                           : fmax(0, (square - sum * sum / n) / fmax(n - 1, 1));
}

/* p of an unseen loss of `room` or more: z^2/(n + z^2) = room solved for z. */
static double p_unseen(double n, double room)
{
    return room <= 0 ? 1 : room >= 1 ? 0 : nw_normal_sf(sqrt(n * room / (1 - room)));
}

/* What small samples cannot have seen, which no bootstrap knows. */
static void widen_for_unseen(const nw_paired_table *t, bool ratio, double margin,
                             const nw_ni_options *opt, nw_ni_result *out)
{
    const double z = nw_normal_quantile(1 - opt->alpha);
    const double n = (double)out->n;

    if (!out->binary) {
        const double scale = ratio ? out->base : 1;
        const double unseen = z * z / (n + z * z) / scale;
        const double room = (out->estimate + margin) * scale; /* unseen loss that would not fail */
        widen(out, (nw_interval){out->estimate - unseen, out->estimate + unseen}, p_unseen(n, room),
              p_unseen(n, -room));
    } else if (ratio) {
        const nw_interval r = nw_paired_ratio(t, z);
        widen_by_score(out, (nw_interval){r.lo - 1, r.hi - 1},
                       margin >= 1 ? (double)INFINITY : nw_paired_ratio_z(t, 1 - margin));
    } else {
        widen_by_score(out, nw_tango(t, z),
                       margin >= 1 ? (double)INFINITY : nw_tango_z(t, -margin));
    }
}

static size_t items_needed(const nw_ni_result *r, double margin, const nw_ni_options *opt)
{
    const size_t n =
        nw_ni_sample_size(r->rho * fmax(1, r->design_effect), margin, opt->alpha, opt->power);
    const size_t least = nw_zero_flip_floor(margin, opt->alpha);
    return n > least ? n : least;
}

/* The same where the true change is `estimate`: what is left to the margin, on either side, is told. */
static size_t items_at_estimate(double rho, double estimate, double margin,
                                const nw_ni_options *opt)
{
    const double left = fabs(margin + estimate);
    return left > 0 ? nw_ni_sample_size(rho, left, opt->alpha, opt->power) : SIZE_MAX;
}

static void conclude(nw_ni_result *r, double margin)
{
    if (r->one_cluster) {
        r->p = r->p_fail = 1;
        r->verdict = NW_VERDICT_INCONCLUSIVE;
    } else {
        r->verdict = nw_ni_decide(r->lo, r->hi, margin);
    }
}

static nw_status gate(const nw_pairs *p, bool ratio, double margin, const nw_ni_options *opt,
                      nw_ni_result *out, nw_error *err)
{
    nw_ni_result r = {0};
    nw_paired_table t;
    work w;

    assert(p->n > 0 && p->n_clusters > 0 && p->n_clusters <= p->n && margin > 0);
    if (work_open(&w, p->n_clusters, opt->n_draws, err) != NW_OK) {
        work_close(&w);
        return err->code;
    }
    describe(p, &r, &t);
    add_pairs(p, &w);
    assert(!ratio || r.base > 0);
    r.estimate = ratio ? r.cand / r.base - 1 : r.cand - r.base;
    (void)bootstrap_bounds(&w, p->n_clusters, false, margin, opt, &r);
    const double se_difference = sqrt(nw_variance(w.draws, opt->n_draws));
    if (ratio) {
        (void)bootstrap_bounds(&w, p->n_clusters, true, margin, opt, &r);
    }
    const double n = (double)p->n;
    const double d = r.cand - r.base;
    const double var = r.binary ? r.rho - d * d : r.rho;
    r.design_effect = var > 0 ? se_difference * se_difference * n / var : 1;
    widen_for_unseen(&t, ratio, margin, opt, &r);
    r.one_cluster = p->n_clusters == 1 && p->n > 1;
    conclude(&r, margin);
    const double scale = ratio ? r.base : 1; /* items are counted on the difference of means */
    r.n_needed = items_needed(&r, margin * scale, opt);
    r.n_at_estimate = items_at_estimate(r.rho * fmax(1, r.design_effect), r.estimate * scale,
                                        margin * scale, opt);
    work_close(&w);
    *out = r;
    return NW_OK;
}

nw_status nw_ni_difference(const nw_pairs *pairs, double margin, const nw_ni_options *opt,
                           nw_ni_result *out, nw_error *err)
{
    return gate(pairs, false, margin, opt, out, err);
}

nw_status nw_ni_ratio(const nw_pairs *pairs, double margin, const nw_ni_options *opt,
                      nw_ni_result *out, nw_error *err)
{
    return gate(pairs, true, margin, opt, out, err);
}

nw_status nw_ni_loss(const double *base, const double *cand, const double *count, size_t n_clusters,
                     double margin, const nw_ni_options *opt, nw_ni_result *out, nw_error *err)
{
    nw_ni_result r = {.n_clusters = n_clusters, .design_effect = 1};
    double total[N_COLS] = {0};
    work w;

    assert(n_clusters > 0 && margin > 0);
    if (work_open(&w, n_clusters, opt->n_draws, err) != NW_OK) {
        work_close(&w);
        return err->code;
    }
    for (size_t i = 0; i < n_clusters; i++) {
        /* a loss falls when it gets better: swapped, the same statistic is "higher is better" */
        const double unit[N_COLS] = {cand[i], base[i], count[i]};
        for (size_t k = 0; k < N_COLS; k++) {
            w.sums[i * N_COLS + k] = unit[k];
            total[k] += unit[k];
        }
    }
    r.estimate = statistic(total, false);
    r.base = total[COL_CAND] / total[COL_COUNT];
    r.cand = total[COL_BASE] / total[COL_COUNT];
    const double se = bootstrap_bounds(&w, n_clusters, false, margin, opt, &r);
    r.n = (size_t)total[COL_COUNT];
    r.one_cluster = n_clusters == 1;
    r.rho = se * se * (double)n_clusters; /* variance between clusters; n_needed counts clusters */
    conclude(&r, margin);
    r.n_at_estimate = items_at_estimate(r.rho, r.estimate, margin, opt);
    r.n_needed = nw_ni_sample_size(r.rho, margin, opt->alpha, opt->power);
    r.n_needed = r.n_needed < 2 ? 2 : r.n_needed;
    work_close(&w);
    *out = r;
    return NW_OK;
}

static bool tail_passes(double over, double n, double q, double alpha)
{
    return over <= n && nw_binomial_cdf((uint64_t)over, (uint64_t)n, 1 - q) <= alpha;
}

nw_tail_result nw_tail_gate(size_t over, size_t n, double q, double alpha)
{
    assert(over <= n && q > 0 && q < 1);
    nw_tail_result r = {.verdict = NW_VERDICT_INCONCLUSIVE, .p = 1, .n_needed = SIZE_MAX};

    if (n > 0) {
        r.p = nw_binomial_cdf(over, n, 1 - q);
        if (r.p <= alpha) {
            r.verdict = NW_VERDICT_PASS;
        } else if (nw_binomial_sf(over, n, 1 - q) <= alpha) {
            r.verdict = NW_VERDICT_FAIL;
        }
    }
    /* the same share over a longer run, in steps of 5% */
    const double share = n == 0 ? 0 : (double)over / (double)n;
    for (double m = (double)nw_quantile_min_n(q, alpha); share < 1 - q && m < 1e7;
         m = ceil(m * 1.05)) {
        if (tail_passes(round(share * m), m, q, alpha)) {
            r.n_needed = (size_t)m;
            break;
        }
    }
    return r;
}
