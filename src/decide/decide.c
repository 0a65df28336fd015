/* Order: read candidates and done runs, evaluate every gate, correct over candidates (Holm), then
 * each regime's frontier and choice. The policy was read and hashed before any of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "decide/decide.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "decide/frontier.h"
#include "decide/gates.h"
#include "stats/compare.h"

static nw_status no_memory(nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "no memory for a decision");
}

/* Candidates with the one baseline first, runs that are done. */
static nw_status read_record(nw_record *rec, nw_decision *d, nw_error *err)
{
    size_t n_baselines = 0;
    nw_status st = nw_record_candidates(rec, &d->arena, &d->candidates, &d->n_candidates, err);

    st = st == NW_OK
             ? nw_record_runs(rec, NULL, NULL, NULL, "done", &d->arena, &d->runs, &d->n_runs, err)
             : st;
    if (st != NW_OK) {
        return st;
    }
    for (size_t i = 0; i < d->n_candidates; i++) {
        if (d->candidates[i].name == NULL || d->candidates[i].role == NULL) {
            return nw_fail(err, NW_E_FORMAT, "%s: a candidate without name or role",
                           nw_record_path(rec));
        }
        n_baselines += strcmp(d->candidates[i].role, "baseline") == 0;
    }
    for (size_t i = 0; i < d->n_runs; i++) {
        if (!d->runs[i].candidate || !d->runs[i].stage || !d->runs[i].suite) {
            return nw_fail(err, NW_E_FORMAT, "%s: a run without candidate, stage or suite",
                           nw_record_path(rec));
        }
    }
    if (n_baselines != 1) {
        return nw_fail(err, NW_E_FORMAT, "%s: %zu baselines in the record, one is wanted",
                       nw_record_path(rec), n_baselines);
    }
    return NW_OK;
}

static bool about(const nw_decision *d, const nw_dec_verdict *v, size_t candidate)
{
    return strcmp(v->row.candidate, d->candidates[candidate].name) == 0;
}

/* The worst of the verdicts that decide: FAIL before INCONCLUSIVE before PASS. */
static nw_verdict worse(nw_verdict a, nw_verdict b)
{
    if (a == NW_VERDICT_FAIL || b == NW_VERDICT_FAIL) {
        return NW_VERDICT_FAIL;
    }
    return a == NW_VERDICT_INCONCLUSIVE ? a : b;
}

const char *nw_decision_coarse(const nw_policy *p, size_t n, char buf[128])
{
    const double least = (double)n / ((double)p->draws + 1);

    buf[0] = '\0';
    if (least > p->alpha) {
        (void)snprintf(buf, 128, ", and %zu draws allow none below %.2g: at least %.0f are needed",
                       p->draws, least, ceil((double)n / p->alpha) - 1);
    }
    return buf;
}

/* "Regressed on X" is claimed about the worst of several gates and slices: Holm over all of a
 * candidate's that decide. A FAIL that does not survive stands in its row, where its bound says so, but a
 * candidate that has no other is INCONCLUSIVE. */
static void regressions_of(nw_decision *d, size_t candidate, double *p, size_t *order, size_t *at)
{
    size_t n = 0;
    bool certain = false;

    for (size_t k = 0; k < d->n_verdicts; k++) {
        const nw_dec_verdict *v = &d->verdicts[k];
        if (!v->row.advisory && !nw_gate_is_speed(v->gate->kind) && about(d, v, candidate)) {
            p[n] = !isnan(v->p_fail) ? v->p_fail : v->verdict == NW_VERDICT_FAIL ? 0 : 1;
            at[n++] = k;
        }
    }
    nw_holm(p, n, order, p);
    for (size_t i = 0; i < n; i++) {
        nw_dec_verdict *v = &d->verdicts[at[i]];
        v->p_regressed = p[i];
        if (v->verdict != NW_VERDICT_FAIL) {
            continue;
        }
        if (p[i] <= d->policy->alpha) {
            certain = true;
            continue;
        }
        char why[640];
        char coarse[128];
        (void)snprintf(why, sizeof why, "%s; p %.2g after Holm over %zu gates and slices%s",
                       v->row.why, p[i], n, nw_decision_coarse(d->policy, n, coarse));
        const char *kept = nw_arena_strndup(&d->arena, why, strlen(why));
        v->row.why = kept != NULL ? kept : v->row.why;
    }
    if (d->quality[candidate] == NW_VERDICT_FAIL && !certain) {
        d->quality[candidate] = NW_VERDICT_INCONCLUSIVE;
    }
}

static nw_status regressions(nw_decision *d, nw_error *err)
{
    const size_t n = d->n_verdicts + 1;
    double *p = nw_arena_array(&d->arena, n, sizeof *p);
    size_t *order = nw_arena_array(&d->arena, n, sizeof *order);
    size_t *at = nw_arena_array(&d->arena, n, sizeof *at);

    if (p == NULL || order == NULL || at == NULL) {
        return no_memory(err);
    }
    for (size_t i = 1; i < d->n_candidates; i++) {
        regressions_of(d, i, p, order, at);
    }
    return NW_OK;
}

/* A candidate's p is the largest of its gates' (intersection-union: no correction over gates); Holm
 * over candidates guards against one lucky one out of several. */
static nw_status combine(nw_decision *d, nw_error *err)
{
    const size_t m = d->n_candidates;
    double *p = nw_arena_array(&d->arena, m, sizeof *p);
    size_t *order = nw_arena_array(&d->arena, m, sizeof *order);

    if (p == NULL || order == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t k = 0; k < d->n_verdicts; k++) {
            const nw_dec_verdict *v = &d->verdicts[k];
            if (v->row.advisory || !about(d, v, i)) {
                continue;
            }
            if (nw_gate_is_speed(v->gate->kind)) {
                nw_verdict *at = &d->speed[v->gate->regime][i];
                *at = worse(*at, v->verdict);
            } else {
                d->quality[i] = worse(d->quality[i], v->verdict);
                p[i] = fmax(p[i], v->row.p);
            }
        }
    }
    if (m > 1) {
        nw_holm(p + 1, m - 1, order, d->p_holm + 1);
    }
    if (d->policy->holm && regressions(d, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 1; i < m; i++) {
        if (d->policy->holm && d->quality[i] == NW_VERDICT_PASS &&
            d->p_holm[i] > d->policy->alpha) {
            d->quality[i] = NW_VERDICT_INCONCLUSIVE;
        }
    }
    return NW_OK;
}

static bool everything_passes(const nw_decision *d)
{
    for (size_t i = 0; i < d->n_candidates; i++) {
        bool pass = d->quality[i] == NW_VERDICT_PASS;
        for (size_t r = 0; r < NW_REGIME_COUNT; r++) {
            pass = pass && d->speed[r][i] == NW_VERDICT_PASS;
        }
        if (!pass) {
            return false;
        }
    }
    return true;
}

static nw_status decide(nw_record *rec, nw_decision *d, nw_error *err)
{
    nw_status st = read_record(rec, d, err);
    const size_t m = d->n_candidates;

    if (st != NW_OK) {
        return st;
    }
    d->quality = nw_arena_array(&d->arena, m, sizeof *d->quality);
    d->p_holm = nw_arena_array(&d->arena, m, sizeof *d->p_holm);
    bool room = d->quality != NULL && d->p_holm != NULL;
    for (size_t r = 0; r < NW_REGIME_COUNT; r++) {
        d->speed[r] = nw_arena_array(&d->arena, m, sizeof *d->speed[r]);
        room = room && d->speed[r] != NULL;
    }
    if (!room) {
        return no_memory(err);
    }
    st = nw_gates_quality(rec, d, err);
    st = st == NW_OK ? nw_gates_speed(rec, d, err) : st;
    st = st == NW_OK ? combine(d, err) : st;
    for (size_t r = 0; st == NW_OK && r < NW_REGIME_COUNT; r++) {
        nw_dec_draws draws;
        st = nw_frontier_measure(rec, d, (nw_regime)r, &draws, err);
        st = st == NW_OK ? nw_frontier_choose(rec, d, (nw_regime)r, &draws, err) : st;
        nw_dec_draws_release(&draws);
    }
    d->all_pass = st == NW_OK && everything_passes(d);
    return st;
}

nw_status nw_decide(nw_record *rec, const nw_policy *policy, nw_decision *out, nw_error *err)
{
    *out = (nw_decision){.policy = policy};
    const nw_status st = decide(rec, out, err);
    if (st != NW_OK) {
        nw_decision_release(out);
    }
    return st;
}

void nw_decision_release(nw_decision *d)
{
    for (size_t r = 0; r < NW_REGIME_COUNT; r++) {
        json_decref(d->regimes[r].missing);
    }
    nw_arena_release(&d->arena);
    *d = (nw_decision){0};
}

/* ---- storing ---- */

static nw_status store_rows(nw_record *rec, const nw_decision *d, nw_error *err)
{
    char now[21];
    const nw_rec_policy policy = {d->policy->hash.hex, d->policy->name, d->policy->text,
                                  nw_utc_now(now)};
    nw_status st = nw_record_policy_put(rec, &policy, err);

    for (size_t i = 0; st == NW_OK && i < d->n_verdicts; i++) {
        st = nw_record_add_verdicts(rec, &d->verdicts[i].row, 1, err);
    }
    for (size_t r = 0; st == NW_OK && r < NW_REGIME_COUNT; r++) {
        const nw_dec_frontier *f = &d->regimes[r];
        json_t *j = nw_frontier_json(d, f);
        char *text = j == NULL ? NULL : nw_json_canonical(j);
        const nw_rec_decision row = {d->policy->hash.hex, nw_regime_name(f->regime),
                                     d->candidates[f->chosen].name, f->why, text};
        st = text == NULL ? no_memory(err) : nw_record_add_decisions(rec, &row, 1, err);
        json_decref(j);
        free(text);
    }
    return st;
}

nw_status nw_decision_store(nw_record *rec, const nw_decision *d, nw_error *err)
{
    nw_status st = nw_record_begin(rec, err);

    if (st != NW_OK) {
        return st;
    }
    st = store_rows(rec, d, err);
    st = st == NW_OK ? nw_record_commit(rec, err) : st;
    if (st != NW_OK) {
        nw_record_rollback(rec);
    }
    return st;
}
