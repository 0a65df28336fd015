/* Items pair by id; clusters are numbered in the order of their names, so that the draws of the
 * bootstrap are the same for every candidate and every order of the rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "decide/pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decide/gates.h"
#include "stats/bootstrap.h"

static nw_status no_memory(nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "no memory for the pairs of two runs");
}

double nw_item_score(const nw_dec_item *it)
{
    return it->score;
}

double nw_item_tokens(const nw_dec_item *it)
{
    return it->n_output;
}

double nw_item_bytes(const nw_dec_item *it)
{
    return it->n_bytes;
}

double nw_item_stop(const nw_dec_item *it)
{
    return it->stop;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names to dense numbers, in the order of the names, so that the draws do not depend on the order of
 * the items. */
static bool number_clusters(const char **names, nw_paired_items *p, nw_arena *arena)
{
    const size_t n = p->pairs.n;
    const char **sorted = nw_arena_array(arena, n + 1, sizeof *sorted);
    size_t unique = 0;

    if (sorted == NULL) {
        return false;
    }
    memcpy(sorted, names, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(sorted[i], sorted[unique - 1]) != 0) {
            sorted[unique++] = sorted[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        const char **at = bsearch(&names[i], sorted, unique, sizeof *sorted, by_text);
        p->cluster[i] = (uint32_t)(at - sorted);
    }
    p->pairs.n_clusters = unique;
    return true;
}

static bool room(nw_paired_items *p, size_t n, nw_arena *arena)
{
    p->base = nw_arena_array(arena, n, sizeof *p->base);
    p->cand = nw_arena_array(arena, n, sizeof *p->cand);
    p->chance = nw_arena_array(arena, n, sizeof *p->chance);
    p->cluster = nw_arena_array(arena, n, sizeof *p->cluster);
    p->pairs.base = p->base;
    p->pairs.cand = p->cand;
    p->pairs.cluster = p->cluster;
    return p->base != NULL && p->cand != NULL && p->chance != NULL && p->cluster != NULL;
}

/* Which side alone has the item that comes next: -1 the baseline, 1 the candidate, 0 both. */
static int side(const nw_dec_items *b, const nw_dec_items *c, size_t i)
{
    if (i >= b->n || i >= c->n) {
        return i >= b->n ? 1 : -1;
    }
    return strcmp(b->items[i].id, c->items[i].id);
}

nw_status nw_pair_items(nw_record *rec, const nw_rec_run *base, const nw_rec_run *cand,
                        nw_item_value value, nw_arena *arena, nw_paired_items *p, nw_error *err)
{
    nw_dec_items b;
    nw_dec_items c;

    *p = (nw_paired_items){0};
    if (nw_data_items(rec, base->id, arena, &b, err) != NW_OK ||
        nw_data_items(rec, cand->id, arena, &c, err) != NW_OK) {
        return err->code;
    }
    const char **names = nw_arena_array(arena, b.n + 1, sizeof *names);
    if (names == NULL || !room(p, b.n + 1, arena)) {
        return no_memory(err);
    }
    for (size_t i = 0; i < b.n || i < c.n; i++) {
        const int order = side(&b, &c, i);
        if (order != 0) { /* both are sorted: the first that differs is in one only */
            p->differs = order < 0 ? b.items[i].id : c.items[i].id;
            return NW_OK;
        }
        const double x = value(&b.items[i]);
        const double y = value(&c.items[i]);
        if (isnan(x) || isnan(y)) {
            p->n_left_out++;
            continue;
        }
        const size_t at = p->pairs.n++;
        p->base[at] = x;
        p->cand[at] = y;
        p->chance[at] = b.items[i].chance;
        names[at] = b.items[i].cluster;
    }
    return number_clusters(names, p, arena) ? NW_OK : no_memory(err);
}

/* ---- the quality of a point of the frontier ---- */

/* Ratio - 1 of one slice, over all items and in each draw, kept where it is worse than what `value` and
 * `out` hold. */
static nw_status worst_of_slice(const nw_paired_items *p, uint64_t seed, size_t n_draws,
                                double *out, double *value, nw_error *err)
{
    enum { BASE, CAND, COLUMNS };
    double total[COLUMNS] = {0};
    double *sums = calloc(p->pairs.n_clusters, COLUMNS * sizeof *sums);
    double *draws = calloc(n_draws, COLUMNS * sizeof *draws);
    nw_status st = NW_OK;

    if (sums == NULL || draws == NULL) {
        st = no_memory(err);
    } else {
        for (size_t i = 0; i < p->pairs.n; i++) {
            sums[p->cluster[i] * COLUMNS + BASE] += p->base[i];
            sums[p->cluster[i] * COLUMNS + CAND] += p->cand[i];
            total[BASE] += p->base[i];
            total[CAND] += p->cand[i];
        }
        if (total[BASE] > 0) {
            *value = fmin(*value, total[CAND] / total[BASE] - 1); /* the first is beside NaN */
        }
        nw_boot_totals(sums, p->pairs.n_clusters, COLUMNS, seed, n_draws, draws);
        for (size_t b = 0; b < n_draws; b++) {
            const double *t = draws + b * COLUMNS;
            out[b] = t[BASE] > 0 ? fmin(out[b], t[CAND] / t[BASE] - 1) : out[b];
        }
    }
    free(sums);
    free(draws);
    return st;
}

nw_status nw_gates_quality_draws(nw_record *rec, nw_decision *d, size_t candidate, size_t n_draws,
                                 double *out, double *value, nw_error *err)
{
    const nw_policy *p = d->policy;

    *value = (double)NAN;
    for (size_t b = 0; b < n_draws; b++) {
        out[b] = (double)INFINITY;
    }
    for (size_t i = 0; i < d->n_verdicts; i++) {
        const nw_dec_verdict *v = &d->verdicts[i];
        const bool task = v->gate->kind == NW_GATE_ACCURACY || v->gate->kind == NW_GATE_RELATIVE;
        if (!task || v->row.advisory || isnan(v->row.estimate) ||
            strcmp(v->row.candidate, d->candidates[candidate].name) != 0) {
            continue;
        }
        const nw_rec_run *base = nw_gates_run(d, 0, "quality", v->row.slice);
        const nw_rec_run *cand = nw_gates_run(d, candidate, "quality", v->row.slice);
        nw_paired_items pair;
        if (nw_pair_items(rec, base, cand, nw_item_score, &d->arena, &pair, err) != NW_OK ||
            worst_of_slice(&pair, p->seed, n_draws, out, value, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

/* ---- success of generated tasks ---- */

enum { SUM, COUNT, TASK_COLUMNS };

/* Adds one suite's score and number of items, in each draw of its clusters, to `totals`; row n_draws
 * holds all items as they are. */
static nw_status add_suite(nw_record *rec, const nw_rec_run *run, const nw_policy *policy,
                           size_t n_draws, nw_arena *arena, double *totals, nw_error *err)
{
    nw_dec_items items;
    nw_paired_items p = {0};

    if (nw_data_items(rec, run->id, arena, &items, err) != NW_OK) {
        return err->code;
    }
    const char **names = nw_arena_array(arena, items.n + 1, sizeof *names);
    if (names == NULL || !room(&p, items.n + 1, arena)) {
        return no_memory(err);
    }
    for (size_t i = 0; i < items.n; i++) {
        if (!isnan(items.items[i].score)) {
            p.cand[p.pairs.n] = items.items[i].score;
            names[p.pairs.n++] = items.items[i].cluster;
        }
    }
    if (p.pairs.n == 0) {
        return NW_OK;
    }
    if (!number_clusters(names, &p, arena)) {
        return no_memory(err);
    }
    double *sums = calloc(p.pairs.n_clusters, TASK_COLUMNS * sizeof *sums);
    double *draws = calloc(n_draws, TASK_COLUMNS * sizeof *draws);
    const bool ok = sums != NULL && draws != NULL;
    if (ok) {
        for (size_t i = 0; i < p.pairs.n; i++) {
            sums[p.cluster[i] * TASK_COLUMNS + SUM] += p.cand[i];
            sums[p.cluster[i] * TASK_COLUMNS + COUNT] += 1;
            totals[n_draws * TASK_COLUMNS + SUM] += p.cand[i];
            totals[n_draws * TASK_COLUMNS + COUNT] += 1;
        }
        nw_boot_totals(sums, p.pairs.n_clusters, TASK_COLUMNS, policy->seed, n_draws, draws);
        for (size_t k = 0; k < n_draws * TASK_COLUMNS; k++) {
            totals[k] += draws[k];
        }
    }
    free(sums);
    free(draws);
    return ok ? NW_OK : no_memory(err);
}

static double success(const double *total)
{
    return total[COUNT] > 0 ? total[SUM] / total[COUNT] : 1;
}

nw_status nw_gates_success_draws(nw_record *rec, nw_decision *d, size_t candidate, size_t n_draws,
                                 double *out, double *value, nw_error *err)
{
    double *totals = calloc(n_draws + 1, TASK_COLUMNS * sizeof *totals);
    nw_status st = totals == NULL ? no_memory(err) : NW_OK;

    for (size_t i = 0; st == NW_OK && i < d->n_runs; i++) {
        const nw_rec_run *r = &d->runs[i];
        if (strcmp(r->candidate, d->candidates[candidate].name) == 0 &&
            nw_glob_match("generate:*", r->suite) &&
            nw_gates_run(d, candidate, "quality", r->suite) == r) {
            st = add_suite(rec, r, d->policy, n_draws, &d->arena, totals, err);
        }
    }
    for (size_t b = 0; st == NW_OK && b < n_draws; b++) {
        out[b * d->n_candidates] = success(totals + b * TASK_COLUMNS);
    }
    if (st == NW_OK) {
        *value = success(totals + n_draws * TASK_COLUMNS);
    }
    free(totals);
    return st;
}
