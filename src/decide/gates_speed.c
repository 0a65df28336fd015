/* Speed gates, of every candidate and of the baseline too: an answer must be fast enough in itself,
 * not only beside another. A percentile under a limit is a test of a share; a request that failed is
 * over every limit.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "decide/gates.h"
#include "stats/dist.h"
#include "stats/interval.h"
#include "stats/summary.h"

typedef struct {
    nw_record *rec;
    nw_decision *d;
    const nw_gate *g;
    size_t candidate;
    const nw_rec_run *operating; /* of the baseline; NULL: nothing of this regime in the record */
    nw_error *err;
} speed_gate;

static nw_status no_memory(nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "no memory for the gates");
}

/* Values of the requests that were answered; the rest count as over. */
static nw_status tail(const speed_gate *s, const nw_dec_speed *speed, nw_dec_verdict *v)
{
    const double alpha = s->d->policy->alpha;
    double *x = nw_arena_array(&s->d->arena, speed->n + 1, sizeof *x);
    size_t n = 0;
    size_t failed = 0;
    size_t over = 0;

    if (x == NULL) {
        return no_memory(s->err);
    }
    for (size_t i = 0; i < speed->n; i++) {
        const nw_dec_request *q = &speed->requests[i];
        const double ms = s->g->kind == NW_GATE_TTFT ? q->ttft_ms : q->tpot_ms;
        if (!q->ok) {
            failed++;
        } else if (!isnan(ms)) {
            x[n++] = ms;
            over += ms > s->g->limit_ms;
        }
    }
    if (n + failed == 0) {
        nw_gates_set(s->d, v, NW_VERDICT_FAIL, "missing: no request has a %s",
                     nw_gate_kind_name(s->g->kind));
        return NW_OK;
    }
    const nw_tail_result r = nw_tail_gate(over + failed, n + failed, s->g->q, alpha);
    nw_sort(x, n);
    v->row.n = (int64_t)(n + failed);
    v->row.margin = s->g->limit_ms;
    v->row.p = r.p;
    const size_t least = nw_quantile_min_n(s->g->q, alpha);
    if (n >= least) {
        const nw_ranks ranks = nw_quantile_ranks(n, s->g->q, alpha);
        v->row.estimate = nw_percentile(x, n, s->g->q);
        v->row.lo = ranks.lo > 0 ? x[ranks.lo - 1] : (double)NAN;
        v->row.hi = ranks.hi > 0 ? x[ranks.hi - 1] : (double)NAN;
        v->headroom = fmin(1, 1 - v->row.estimate / s->g->limit_ms);
    }
    char lack[96] = "";
    if (r.verdict == NW_VERDICT_INCONCLUSIVE && r.n_needed != SIZE_MAX) {
        v->row.n_needed = (int64_t)r.n_needed;
        if (r.n_needed > n + failed) {
            (void)snprintf(lack, sizeof lack, "; %zu more requests needed (%zu in all)",
                           r.n_needed - n - failed, r.n_needed);
        }
    }
    nw_gates_set(s->d, v, r.verdict, "%zu of %zu requests over %g ms (%zu failed)%s", over + failed,
                 n + failed, s->g->limit_ms, failed, lack);
    return NW_OK;
}

static void attainment(const speed_gate *s, const nw_dec_speed *speed, nw_dec_verdict *v)
{
    const nw_regime_rule *slo = &s->d->policy->regimes[s->g->regime];
    const double z = nw_normal_quantile(1 - s->d->policy->alpha);
    uint64_t good = 0;

    if (speed->n == 0) {
        nw_gates_set(s->d, v, NW_VERDICT_FAIL, "missing: no request in the window");
        return;
    }
    for (size_t i = 0; i < speed->n; i++) {
        good += nw_request_good(&speed->requests[i], slo);
    }
    const nw_interval ci = nw_wilson(good, speed->n, z);
    const double share = (double)good / (double)speed->n;
    const nw_verdict verdict = ci.lo >= s->g->min  ? NW_VERDICT_PASS
                               : ci.hi < s->g->min ? NW_VERDICT_FAIL
                                                   : NW_VERDICT_INCONCLUSIVE;
    v->row.estimate = 100 * share;
    v->row.lo = 100 * ci.lo;
    v->row.hi = 100 * ci.hi;
    v->row.margin = 100 * s->g->min;
    v->row.n = (int64_t)speed->n;
    /* the score test of "share <= min" at its edge */
    v->row.p = nw_normal_sf((share - s->g->min) * sqrt((double)speed->n) /
                            sqrt(s->g->min * (1 - s->g->min)));
    v->headroom = fmin(1, (ci.lo - s->g->min) / (1 - s->g->min));
    const double gap = share - s->g->min;
    char lack[96] = "";
    if (verdict == NW_VERDICT_INCONCLUSIVE && gap > 0) {
        const double need = z * z * share * (1 - share) / (gap * gap);
        v->row.n_needed = (int64_t)fmin(ceil(fmax(need, (double)speed->n + 1)), 1e15);
        (void)snprintf(lack, sizeof lack, "; about %.0f requests needed at this share",
                       (double)v->row.n_needed);
    }
    nw_gates_set(s->d, v, verdict, "%llu of %zu requests inside TTFT %g ms, TPOT %g ms%s",
                 (unsigned long long)good, speed->n, slo->ttft_ms, slo->tpot_ms, lack);
}

static nw_status scalar(const speed_gate *s, const nw_rec_run *run, nw_dec_verdict *v)
{
    double x = (double)NAN;

    if (nw_record_metric(s->rec, run->id, s->g->metric, &x, s->err) != NW_OK) {
        return s->err->code;
    }
    if (isnan(x)) {
        nw_gates_set(s->d, v, NW_VERDICT_FAIL, "missing: no metric %s in its run", s->g->metric);
        return NW_OK;
    }
    const bool low = !isnan(s->g->min) && x < s->g->min;
    const bool high = !isnan(s->g->max) && x > s->g->max;
    v->row.estimate = x;
    v->row.margin = isnan(s->g->min) ? s->g->max : s->g->min;
    v->row.p = low || high ? 1 : 0;
    nw_gates_set(s->d, v, low || high ? NW_VERDICT_FAIL : NW_VERDICT_PASS,
                 "%s %g, allowed %s %g; one figure, no interval", s->g->metric, x,
                 isnan(s->g->min) ? "at most" : "at least", v->row.margin);
    return NW_OK;
}

static nw_status evaluate(const speed_gate *s)
{
    nw_decision *d = s->d;
    nw_dec_verdict *v =
        nw_gates_add(d, s->candidate, s->g, s->operating ? s->operating->suite : "no run");
    nw_dec_speed speed;

    if (v == NULL) {
        return no_memory(s->err);
    }
    if (s->operating == NULL) {
        nw_gates_set(d, v, NW_VERDICT_INCONCLUSIVE, "not measured yet: no %s run in the record",
                     nw_regime_name(s->g->regime));
        return NW_OK;
    }
    const nw_rec_run *run = nw_gates_same_load(d, s->candidate, s->operating);
    if (nw_gates_other_machine(d, s->candidate, s->operating)) {
        nw_gates_set(d, v, NW_VERDICT_INCONCLUSIVE,
                     "refused: measured on another machine than the baseline's run");
        return NW_OK;
    }
    if (run == NULL) {
        nw_gates_set(d, v, NW_VERDICT_FAIL, "missing: no run over the baseline's workload");
        return NW_OK;
    }
    if (s->g->kind == NW_GATE_SCALAR) {
        return scalar(s, run, v);
    }
    if (nw_data_speed(s->rec, run, &d->arena, &speed, s->err) != NW_OK) {
        return s->err->code;
    }
    if (s->g->kind == NW_GATE_ATTAINMENT) {
        attainment(s, &speed, v);
        return NW_OK;
    }
    return tail(s, &speed, v);
}

nw_status nw_gates_speed(nw_record *rec, nw_decision *d, nw_error *err)
{
    const nw_rec_run *operating[NW_REGIME_COUNT] = {NULL};

    for (int r = 0; r < NW_REGIME_COUNT; r++) {
        if (nw_gates_operating(rec, d, (nw_regime)r, &operating[r], err) != NW_OK) {
            return err->code;
        }
    }
    for (size_t c = 0; c < d->n_candidates; c++) {
        for (size_t i = 0; i < d->policy->n_gates; i++) {
            const nw_gate *g = &d->policy->gates[i];
            if (!nw_gate_is_speed(g->kind)) {
                continue;
            }
            const speed_gate s = {rec, d, g, c, operating[g->regime], err};
            if (evaluate(&s) != NW_OK) {
                return nw_context(err, "gate '%s' of '%s'", g->name, d->candidates[c].name);
            }
        }
    }
    return NW_OK;
}
