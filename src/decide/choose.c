/* The choice of a regime. Only candidates that pass are ranked. The cheapest wins if it is cheaper in
 * 95% of the draws; what cannot be told from it is a tie, settled by a declared rule: more headroom
 * at the gates, then the simpler format (more bits). When nothing passes the answer is the baseline,
 * and what would have to be measured. No weighted score anywhere.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decide/frontier.h"
#include "decide/gates.h"
#include "stats/dominance.h"

#define HEADROOM_EPS 0.05

static nw_status no_memory(nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "no memory for a recommendation");
}

bool nw_decision_eligible(const nw_decision *d, nw_regime r, size_t candidate)
{
    return d->regimes[r].points != NULL && d->regimes[r].points[candidate].measured &&
           d->quality[candidate] == NW_VERDICT_PASS && d->speed[r][candidate] == NW_VERDICT_PASS;
}

static const char *keep(nw_decision *d, const char *text)
{
    const char *s = nw_arena_strndup(&d->arena, text, strlen(text));
    return s == NULL ? "" : s;
}

/* ---- kernels that were not the intended ones ---- */

typedef struct {
    double matrix_ns, fallback_ns;
    char ops[160];
} ledger;

static nw_status add_kernel(void *ctx, const nw_rec_kernel *row, nw_error *err)
{
    ledger *l = ctx;

    (void)err;
    if (row->op == NULL || nw_glob_match("embed*,*norm*,rope*,attention*,*_pack", row->op)) {
        return NW_OK;
    }
    l->matrix_ns += (double)row->ns;
    if (row->used != NULL && row->intended != NULL && strcmp(row->used, row->intended) != 0) {
        l->fallback_ns += (double)row->ns;
        const size_t n = strlen(l->ops);
        if (strstr(l->ops, row->op) == NULL) {
            (void)snprintf(l->ops + n, sizeof l->ops - n, "%s%s by %s", n > 0 ? ", " : "", row->op,
                           row->used);
        }
    }
    return NW_OK;
}

static nw_status read_ledger(nw_record *rec, nw_decision *d, nw_regime r, size_t candidate,
                             const nw_rec_run *operating, nw_error *err)
{
    const nw_rec_run *run = nw_gates_same_load(d, candidate, operating);
    nw_dec_point *p = &d->regimes[r].points[candidate];
    ledger l = {0};

    if (run == NULL || nw_record_kernels(rec, run->id, add_kernel, &l, err) != NW_OK) {
        return run == NULL ? NW_OK : err->code;
    }
    if (l.matrix_ns > 0) {
        p->fallback_share = l.fallback_ns / l.matrix_ns;
        p->fallback = keep(d, l.ops);
    }
    return NW_OK;
}

/* ---- dominance among the eligible ---- */

/* The eligible points' share of the draws: [n_draws][n][n_objectives], or NULL. */
static double *values_of(const nw_dec_draws *w, size_t m, size_t k, const size_t *who, size_t n)
{
    double *values = calloc(w->n_draws, n * k * sizeof *values);

    for (size_t b = 0; values != NULL && b < w->n_draws; b++) {
        for (size_t i = 0; i < n; i++) {
            memcpy(values + (b * n + i) * k, w->values + (b * m + who[i]) * k, k * sizeof *values);
        }
    }
    return values;
}

static void note_ranks(nw_decision *d, nw_dec_frontier *f, const size_t *who, size_t n,
                       const double *p_dom, const double *p_front)
{
    for (size_t j = 0; j < n; j++) {
        nw_dec_point *p = &f->points[who[j]];
        p->p_frontier = p_front[j];
        for (size_t i = 0; i < n; i++) {
            if (p_dom[i * n + j] >= d->policy->dominated && p_dom[i * n + j] > p->p_dominated) {
                p->p_dominated = p_dom[i * n + j];
                p->dominated_by = who[i];
            }
        }
    }
}

static nw_status rank(nw_decision *d, nw_regime r, const nw_dec_draws *w, nw_error *err)
{
    nw_dec_frontier *f = &d->regimes[r];
    const size_t m = d->n_candidates;
    const size_t k = f->n_objectives;
    const double eps = d->policy->regimes[r].eps;
    size_t *who = nw_arena_array(&d->arena, m, sizeof *who);
    double *p_dom = nw_arena_array(&d->arena, m * m, sizeof *p_dom);
    double *p_front = nw_arena_array(&d->arena, m, sizeof *p_front);
    size_t n = 0;
    bool higher[NW_DEC_MAX_OBJECTIVES];
    double zone[NW_DEC_MAX_OBJECTIVES];
    bool relative[NW_DEC_MAX_OBJECTIVES];

    for (size_t i = 0; who != NULL && i < m; i++) {
        if (nw_decision_eligible(d, r, i)) {
            who[n++] = i;
        }
    }
    if (who == NULL || n == 0) {
        return who == NULL ? no_memory(err) : NW_OK;
    }
    double *values = values_of(w, m, k, who, n);
    if (values == NULL || p_dom == NULL || p_front == NULL) {
        free(values);
        return no_memory(err);
    }
    for (size_t j = 0; j < k; j++) {
        const nw_dec_objective *o = &f->points[who[0]].objectives[j];
        higher[j] = o->higher;
        relative[j] = strcmp(o->unit, "%") != 0;
        zone[j] = relative[j] ? eps : 100 * eps; /* percent are differences already */
    }
    const nw_dominance_input in = {w->n_draws, n, k, values, higher, zone, relative};
    nw_dominance(&in, p_dom, p_front);
    free(values);
    note_ranks(d, f, who, n, p_dom, p_front);
    return NW_OK;
}

/* ---- the cheapest, and ties ---- */

/* Share of draws in which i is cheaper than j by more than eps. */
static double p_cheaper(const nw_decision *d, nw_regime r, const nw_dec_draws *w, size_t i,
                        size_t j)
{
    const double eps = d->policy->regimes[r].eps;
    const size_t m = d->n_candidates;
    size_t n = 0;

    for (size_t b = 0; b < w->n_draws; b++) {
        n += w->cost[b * m + i] < w->cost[b * m + j] * (1 - eps);
    }
    return (double)n / (double)w->n_draws;
}

/* Least headroom over the gates that decide: 1 for the baseline, which loses nothing. */
static double headroom(const nw_decision *d, size_t candidate)
{
    double least = 1;

    for (size_t i = 0; i < d->n_verdicts; i++) {
        const nw_dec_verdict *v = &d->verdicts[i];
        if (!v->row.advisory && !nw_gate_is_speed(v->gate->kind) && !isnan(v->headroom) &&
            strcmp(v->row.candidate, d->candidates[candidate].name) == 0) {
            least = fmin(least, v->headroom);
        }
    }
    return least;
}

static double bits(const nw_decision *d, size_t candidate)
{
    const double b = d->candidates[candidate].effective_bits;
    return isnan(b) ? 16 : b;
}

/* Declared rule for candidates whose costs cannot be told apart: among those within HEADROOM_EPS of the
 * most headroom, the most bits. tied [n]; the answer does not depend on its order but for equals. */
static size_t settle_tie(const nw_decision *d, const size_t *tied, size_t n)
{
    double most = -(double)INFINITY;
    size_t best = SIZE_MAX;

    for (size_t k = 0; k < n; k++) {
        most = fmax(most, headroom(d, tied[k]));
    }
    for (size_t k = 0; k < n; k++) {
        if (headroom(d, tied[k]) >= most - HEADROOM_EPS &&
            (best == SIZE_MAX || bits(d, tied[k]) > bits(d, best))) {
            best = tied[k];
        }
    }
    return best;
}

typedef struct {
    size_t chosen, cheapest, n_eligible, n_tied;
    double p_over_baseline; /* chosen cheaper than the baseline; NaN: not compared */
} choice;

/* tied is scratch of n_candidates. */
static choice choose(const nw_decision *d, nw_regime r, const nw_dec_draws *w, size_t *tied)
{
    const nw_dec_point *points = d->regimes[r].points;
    choice c = {SIZE_MAX, SIZE_MAX, 0, 0, (double)NAN};

    for (size_t i = 0; i < d->n_candidates; i++) {
        if (nw_decision_eligible(d, r, i)) {
            c.n_eligible++;
            if (c.cheapest == SIZE_MAX || points[i].cost < points[c.cheapest].cost) {
                c.cheapest = i;
            }
        }
    }
    size_t n = 0;
    for (size_t i = 0; c.cheapest != SIZE_MAX && i < d->n_candidates; i++) {
        if (i == c.cheapest || (nw_decision_eligible(d, r, i) &&
                                p_cheaper(d, r, w, c.cheapest, i) < d->policy->dominated)) {
            tied[n++] = i;
        }
    }
    c.n_tied = n > 0 ? n - 1 : 0;
    c.chosen = settle_tie(d, tied, n);
    if (c.chosen != SIZE_MAX && c.chosen != 0 && points[0].measured) {
        c.p_over_baseline = p_cheaper(d, r, w, c.chosen, 0);
    }
    return c;
}

/* ---- words ---- */

static void explain(nw_decision *d, nw_dec_frontier *f, const choice *c)
{
    const nw_dec_point *p = &f->points[c->chosen];
    const nw_dec_point *b = &f->points[0];
    char text[768];
    size_t n = 0;

    if (c->chosen == 0) {
        const bool alone = c->n_eligible == 1;
        (void)snprintf(text, sizeof text, "%s",
                       alone ? "no candidate passes its gates: the baseline stays"
                             : "no candidate that passes is measurably cheaper than the baseline "
                               "(P below the limit, or within the indifference zone): do nothing");
        f->fallback = alone && d->n_candidates > 1;
    } else {
        n = (size_t)snprintf(text, sizeof text, "passes every gate and costs %.4g %s a request",
                             p->cost, f->cost_unit);
        if (!isnan(c->p_over_baseline) && n < sizeof text) {
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  " against %.4g %s of %s (cheaper in %.0f%% of draws)", b->cost,
                                  f->cost_unit, d->candidates[0].name, 100 * c->p_over_baseline);
        }
        if (n < sizeof text && c->n_tied > 0) {
            (void)snprintf(text + n, sizeof text - n,
                           "; not distinguishable in cost from %zu other%s: taken for %s",
                           c->n_tied, c->n_tied == 1 ? "" : "s",
                           "more headroom at the gates, then the simpler format");
        }
    }
    f->why = keep(d, text);
}

/* Objectives of a point that words are made of; the first is end-to-end time, or goodput. */
enum { FIRST, TTFT, TPOT };

static double ratio_to_base(const nw_dec_frontier *f, size_t i, size_t objective)
{
    return f->points[i].objectives[objective].value / f->points[0].objectives[objective].value;
}

/* "0.68", or that one of the two has no such time: no request was answered, or by one token each. */
static const char *ratio_words(const nw_dec_frontier *f, size_t i, size_t objective, char buf[16])
{
    const double ratio = ratio_to_base(f, i, objective);

    if (!isfinite(ratio)) {
        return "not measured";
    }
    (void)snprintf(buf, 16, "%.2f", ratio);
    return buf;
}

/* Useful goodput is goodput times the share of right answers, so a baseline can have none. */
static void goodput_words(const nw_dec_frontier *f, size_t i, char *buf, size_t n)
{
    const double base = f->points[0].objectives[FIRST].value;

    if (!isfinite(ratio_to_base(f, i, FIRST)) && base > 0) {
        (void)snprintf(buf, n, "no figure of goodput");
    } else if (base > 0) {
        (void)snprintf(buf, n, "%.3g of the baseline's goodput", ratio_to_base(f, i, FIRST));
    } else {
        (void)snprintf(buf, n, "%.3g useful requests/s, where the baseline has none",
                       f->points[i].objectives[FIRST].value);
    }
}

static void fallback_words(const nw_decision *d, const nw_dec_point *p, char *buf, size_t n)
{
    (void)d;
    if (isnan(p->fallback_share)) {
        (void)snprintf(buf, n, "kernels: no ledger in the record");
    } else if (p->fallback_share > 0) {
        (void)snprintf(buf, n, "fallback: %s, %.0f%% of the time in matrix kernels", p->fallback,
                       100 * p->fallback_share);
    } else {
        (void)snprintf(buf, n, "every matrix kernel ran as intended");
    }
}

static void weight_words(const nw_rec_candidate *c, const nw_rec_candidate *b, char *buf, size_t n)
{
    if (c->weight_bytes <= 0 || b->weight_bytes <= 0) {
        (void)snprintf(buf, n, "bytes of the weights of %s are not known",
                       c->weight_bytes <= 0 ? c->name : b->name);
        return;
    }
    (void)snprintf(buf, n,
                   "%s holds %.1f MB (%.2f bits a weight) against %.1f MB of %s, a factor "
                   "of %.2f",
                   c->name, (double)c->weight_bytes / 1e6, c->effective_bits,
                   (double)b->weight_bytes / 1e6, b->name,
                   (double)c->weight_bytes / (double)b->weight_bytes);
}

/* Why it is faster, from the data: bytes at batch 1, everything else under load. */
static void mechanism(nw_decision *d, nw_dec_frontier *f)
{
    /* about the chosen one, or about the cheapest candidate that was measured when it is the baseline */
    size_t i = f->chosen;
    for (size_t k = 1; f->chosen == 0 && k < d->n_candidates; k++) {
        if (f->points[k].measured && (i == 0 || f->points[k].cost < f->points[i].cost)) {
            i = k;
        }
    }
    if (i == 0 || !f->points[0].measured || !f->points[i].measured) {
        f->mechanism = "nothing beside the baseline was measured in this regime";
        return;
    }
    const nw_rec_candidate *c = &d->candidates[i];
    const nw_rec_candidate *b = &d->candidates[0];
    char kernels[256];
    char weights[256];
    char text[1024];
    char tpot[16];
    char ttft[16];
    fallback_words(d, &f->points[i], kernels, sizeof kernels);
    weight_words(c, b, weights, sizeof weights);
    if (f->regime == NW_REGIME_BATCH1) {
        (void)snprintf(
            text, sizeof text,
            "at batch 1 every token reads all weights: %s; beside the baseline's, TPOT is "
            "%s and TTFT %s (what is left is launch, unpacking and compute); "
            "%s",
            weights, ratio_words(f, i, TPOT, tpot), ratio_words(f, i, TTFT, ttft), kernels);
    } else {
        char goodput[64];
        goodput_words(f, i, goodput, sizeof goodput);
        (void)snprintf(text, sizeof text,
                       "under load one read of the weights serves many requests, so compute and KV "
                       "decide rather than weight bytes (%s): %s reaches %s "
                       "(activations %s, KV %s), TPOT %s, TTFT %s; %s",
                       weights, c->name, goodput, c->act ? c->act : "not stated",
                       c->kv ? c->kv : "not stated", ratio_words(f, i, TPOT, tpot),
                       ratio_words(f, i, TTFT, ttft), kernels);
    }
    f->mechanism = keep(d, text);
}

/* What would decide an open gate, or which run is not there. */
static void list_missing(nw_decision *d, nw_dec_frontier *f)
{
    char text[768];

    if (!f->points[0].measured) {
        (void)snprintf(text, sizeof text, "no %s run of the baseline", nw_regime_name(f->regime));
        (void)json_array_append_new(f->missing, json_string(text));
    }
    for (size_t i = 1; i < d->n_candidates && f->points[0].measured; i++) {
        if (!f->points[i].measured) {
            (void)snprintf(text, sizeof text,
                           "%s: no %s run over the baseline's workload on its machine",
                           d->candidates[i].name, nw_regime_name(f->regime));
            (void)json_array_append_new(f->missing, json_string(text));
        }
    }
    for (size_t i = 0; i < d->n_verdicts; i++) {
        const nw_dec_verdict *v = &d->verdicts[i];
        const bool here = !nw_gate_is_speed(v->gate->kind) || v->gate->regime == f->regime;
        if (here && !v->row.advisory && v->verdict == NW_VERDICT_INCONCLUSIVE) {
            (void)snprintf(text, sizeof text, "%s, %s on %s: %s", v->row.candidate, v->row.gate,
                           v->row.slice, v->row.why);
            (void)json_array_append_new(f->missing, json_string(text));
        }
    }
}

nw_status nw_frontier_choose(nw_record *rec, nw_decision *d, nw_regime r, const nw_dec_draws *draws,
                             nw_error *err)
{
    nw_dec_frontier *f = &d->regimes[r];
    const nw_rec_run *operating = NULL;
    nw_status st = nw_gates_operating(rec, d, r, &operating, err);

    for (size_t i = 0; st == NW_OK && operating != NULL && i < d->n_candidates; i++) {
        st = read_ledger(rec, d, r, i, operating, err);
    }
    st = st == NW_OK ? rank(d, r, draws, err) : st;
    if (st != NW_OK) {
        return st;
    }
    size_t *tied = nw_arena_array(&d->arena, d->n_candidates, sizeof *tied);
    if (tied == NULL) {
        return no_memory(err);
    }
    const choice c = choose(d, r, draws, tied);
    f->chosen = c.chosen == SIZE_MAX ? 0 : c.chosen;
    if (c.chosen == SIZE_MAX) {
        f->fallback = true;
        f->why = f->points[0].measured
                     ? "nothing passes in this regime, the baseline's own service level included; "
                       "fallback: baseline"
                     : "this regime was not measured; fallback: baseline";
    } else {
        explain(d, f, &c);
    }
    mechanism(d, f);
    list_missing(d, f);
    return NW_OK;
}
