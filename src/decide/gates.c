/* What all gates share: which runs belong together, which margin holds for which candidate, and the
 * list of verdicts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "decide/gates.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_VERDICTS 65536

static bool same(const char *a, const char *b)
{
    return strcmp(a == NULL ? "" : a, b == NULL ? "" : b) == 0;
}

const nw_rec_run *nw_gates_run(const nw_decision *d, size_t candidate, const char *stage,
                               const char *suite)
{
    for (size_t i = d->n_runs; i-- > 0;) { /* newest last */
        const nw_rec_run *r = &d->runs[i];
        if (same(r->candidate, d->candidates[candidate].name) && same(r->stage, stage) &&
            (suite == NULL || same(r->suite, suite))) {
            return r;
        }
    }
    return NULL;
}

static bool same_machine(const nw_rec_run *a, const nw_rec_run *b)
{
    return a->machine_hash == NULL || b->machine_hash == NULL ||
           strcmp(a->machine_hash, b->machine_hash) == 0;
}

/* The newest run over the workload of `base`, on its machine or on another. */
static const nw_rec_run *over_workload(const nw_decision *d, size_t candidate,
                                       const nw_rec_run *base, bool its_machine)
{
    for (size_t i = d->n_runs; i-- > 0;) {
        const nw_rec_run *r = &d->runs[i];
        const bool same_data = base->data_hash != NULL
                                   ? same(r->data_hash, base->data_hash)
                                   : same(r->settings_hash, base->settings_hash);
        if (same(r->candidate, d->candidates[candidate].name) && same(r->stage, base->stage) &&
            same(r->suite, base->suite) && same_data && same_machine(r, base) == its_machine) {
            return r;
        }
    }
    return NULL;
}

const nw_rec_run *nw_gates_same_load(const nw_decision *d, size_t candidate, const nw_rec_run *base)
{
    return over_workload(d, candidate, base, true);
}

bool nw_gates_other_machine(const nw_decision *d, size_t candidate, const nw_rec_run *base)
{
    return over_workload(d, candidate, base, true) == NULL &&
           over_workload(d, candidate, base, false) != NULL;
}

/* Share of requests inside the service level. */
static double attainment(const nw_dec_speed *s, const nw_regime_rule *slo)
{
    size_t good = 0;

    for (size_t i = 0; i < s->n; i++) {
        good += nw_request_good(&s->requests[i], slo);
    }
    return s->n == 0 ? 0 : (double)good / (double)s->n;
}

nw_status nw_gates_operating(nw_record *rec, nw_decision *d, nw_regime r, const nw_rec_run **out,
                             nw_error *err)
{
    const nw_regime_rule *slo = &d->policy->regimes[r];
    double best_rate = 0;
    double low_rate = (double)INFINITY;
    const nw_rec_run *lowest = NULL;

    *out = NULL;
    if (r == NW_REGIME_BATCH1) {
        const nw_rec_run *fixed = nw_gates_run(d, 0, "micro", "batch1"); /* equal lengths */
        *out = fixed != NULL ? fixed : nw_gates_run(d, 0, "micro", NULL);
        return NW_OK;
    }
    for (size_t i = 0; i < d->n_runs; i++) {
        const nw_rec_run *run = &d->runs[i];
        nw_dec_speed s;
        if (!same(run->candidate, d->candidates[0].name) || !same(run->stage, "load")) {
            continue;
        }
        if (nw_data_speed(rec, run, &d->arena, &s, err) != NW_OK) {
            return err->code;
        }
        if (attainment(&s, slo) >= slo->attainment && s.offered_rps >= best_rate) {
            best_rate = s.offered_rps;
            *out = run;
        }
        if (s.offered_rps <= low_rate) {
            low_rate = s.offered_rps;
            lowest = run;
        }
    }
    *out = *out != NULL ? *out : lowest;
    return NW_OK;
}

static bool starts(const char *s, const char *with)
{
    return s != NULL && strncmp(s, with, strlen(with)) == 0;
}

/* A format that belongs to no class (BF16 weights under INT8 keys and values) is held to the
 * strictest column. */
double nw_gates_margin(const nw_rec_candidate *c, const double margin[NW_CLASS_COUNT])
{
    const char *kv = c->kv == NULL ? "" : c->kv;
    const bool is[NW_CLASS_COUNT] = {
        [NW_CLASS_INT4] = starts(c->weights, "int4") || starts(c->weights, "q4") ||
                          starts(c->weights, "Q4") || starts(c->weights, "nvfp4") ||
                          starts(c->weights, "mxfp4"),
        [NW_CLASS_W8A8] = starts(c->weights, "int8") || starts(c->weights, "fp8"),
        [NW_CLASS_INT4_KV] = strstr(kv, "int4") != NULL,
    };
    const bool none = !is[NW_CLASS_INT4] && !is[NW_CLASS_W8A8] && !is[NW_CLASS_INT4_KV];
    double least = (double)NAN;

    for (size_t i = 0; i < NW_CLASS_COUNT; i++) {
        const bool holds = is[i] || (none && i != NW_CLASS_INT4_KV);
        if (holds && !isnan(margin[i]) && !(margin[i] >= least)) {
            least = margin[i];
        }
    }
    return least;
}

static bool grow(nw_decision *d)
{
    const size_t cap = d->n_verdicts;

    /* doubled at powers of two, from 16 on */
    if (cap != 0 && (cap < 16 || (cap & (cap - 1)) != 0)) {
        return true;
    }
    const size_t next = cap == 0 ? 16 : cap * 2;
    nw_dec_verdict *more =
        next > MAX_VERDICTS ? NULL : nw_arena_array(&d->arena, next, sizeof *more);
    if (more == NULL) {
        return false;
    }
    if (cap > 0) {
        memcpy(more, d->verdicts, cap * sizeof *more);
    }
    d->verdicts = more;
    return true;
}

nw_dec_verdict *nw_gates_add(nw_decision *d, size_t candidate, const nw_gate *g, const char *slice)
{
    const double none = (double)NAN;

    if (!grow(d)) {
        return NULL;
    }
    nw_dec_verdict *v = &d->verdicts[d->n_verdicts++];
    *v = (nw_dec_verdict){.row = {.policy_hash = d->policy->hash.hex,
                                  .candidate = d->candidates[candidate].name,
                                  .gate = g->name,
                                  .metric = nw_gate_kind_name(g->kind),
                                  .slice = nw_arena_strndup(&d->arena, slice, strlen(slice)),
                                  .advisory = g->advisory,
                                  .unit = nw_gate_unit(g->kind),
                                  .estimate = none,
                                  .lo = none,
                                  .hi = none,
                                  .margin = none,
                                  .p = 1,
                                  .n = -1,
                                  .n_needed = -1},
                          .gate = g,
                          .headroom = none,
                          .p_fail = none};
    return v->row.slice == NULL ? NULL : v;
}

void nw_gates_set(nw_decision *d, nw_dec_verdict *v, nw_verdict verdict, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *why = nw_arena_strndup(&d->arena, text, strlen(text));
    v->verdict = verdict;
    v->row.verdict = nw_verdict_name(verdict);
    v->row.why = why == NULL ? "" : why;
}
