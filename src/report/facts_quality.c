/* Quality from rows: perplexity and divergence token by token, tasks item by item, each paired with
 * the baseline. Intervals are percentiles of a cluster bootstrap with the draws that decide uses.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/facts.h"
#include "stats/bootstrap.h"
#include "stats/summary.h"

#define TWO_SIDED 0.025 /* each side of a 95% interval */

/* Sums over a window of text, the cluster of the bootstrap. */
typedef struct {
    int64_t window;
    double nll, kl, top1;
    double n, n_kl, n_top1;
} window_sum;

typedef struct {
    nw_facts *f;
    window_sum *w; /* [n] ascending, as the tokens come */
    size_t n, cap;
    double *kl;
    size_t n_kl, kl_cap;
} token_reader;

static nw_status read_token(void *ctx, const nw_rec_token *t, nw_error *err)
{
    token_reader *r = ctx;

    if (r->n == 0 || r->w[r->n - 1].window != t->window) {
        r->w = nw_facts_grow(r->f, r->w, r->n, &r->cap, sizeof *r->w);
        if (r->w == NULL) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu windows", r->n);
        }
        r->w[r->n++] = (window_sum){.window = t->window};
    }
    window_sum *w = &r->w[r->n - 1];
    w->nll += t->nll;
    w->n += 1;
    if (t->top1 >= 0) {
        w->top1 += t->top1;
        w->n_top1 += 1;
    }
    if (isfinite(t->kl)) {
        r->kl = nw_facts_grow(r->f, r->kl, r->n_kl, &r->kl_cap, sizeof *r->kl);
        if (r->kl == NULL) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu tokens", r->n_kl);
        }
        r->kl[r->n_kl++] = t->kl;
        w->kl += t->kl;
        w->n_kl += 1;
    }
    return NW_OK;
}

/* Interval of (sum a - sum b) / sum n over clusters given as rows of three columns; estimate as well. */
static nw_status ratio_interval(const double *rows, size_t n, nw_estimate *out, nw_error *err)
{
    double *draws = malloc(NW_BOOT_DRAWS * 3 * sizeof *draws);
    double *values = malloc(NW_BOOT_DRAWS * sizeof *values);
    double sum[3] = {0, 0, 0};
    size_t n_values = 0;

    if (draws == NULL || values == NULL) {
        free(draws);
        free(values);
        return nw_fail(err, NW_E_NOMEM, "no memory for %d bootstrap draws", NW_BOOT_DRAWS);
    }
    for (size_t i = 0; i < n * 3; i++) {
        sum[i % 3] += rows[i];
    }
    *out = (nw_estimate){(double)NAN, (double)NAN, (double)NAN};
    if (sum[2] > 0) {
        out->value = (sum[0] - sum[1]) / sum[2];
    }
    if (sum[2] > 0 && n >= 2) {
        nw_boot_totals(rows, n, 3, NW_BOOT_SEED, NW_BOOT_DRAWS, draws);
        for (size_t b = 0; b < NW_BOOT_DRAWS; b++) {
            const double *d = draws + b * 3;
            if (d[2] > 0) {
                values[n_values++] = (d[0] - d[1]) / d[2];
            }
        }
        const nw_interval i = nw_boot_bounds(values, n_values, TWO_SIDED);
        out->lo = i.lo;
        out->hi = i.hi;
    }
    free(draws);
    free(values);
    return NW_OK;
}

/* Which column of a window is estimated. */
typedef enum { COL_NLL, COL_KL, COL_TOP1 } column;

static void put_row(const window_sum *w, const window_sum *base, column col, double *row)
{
    switch (col) {
    case COL_NLL:
        row[0] = w->nll;
        row[1] = base != NULL ? base->nll : 0;
        row[2] = w->n;
        break;
    case COL_KL:
        row[0] = w->kl;
        row[2] = w->n_kl;
        break;
    case COL_TOP1:
        row[0] = w->top1;
        row[2] = w->n_top1;
        break;
    }
}

/* base NULL: not paired. Otherwise over the windows that both have with equally many tokens. */
static nw_status window_estimate(const token_reader *t, const token_reader *base, column col,
                                 nw_estimate *out, nw_error *err)
{
    double *rows = calloc(t->n * 3 + 1, sizeof *rows);
    size_t n = 0;

    if (rows == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu windows", t->n);
    }
    for (size_t i = 0, j = 0; i < t->n; i++) {
        if (base == NULL) {
            put_row(&t->w[i], NULL, col, rows + 3 * n++);
            continue;
        }
        while (j < base->n && base->w[j].window < t->w[i].window) {
            j++;
        }
        if (j < base->n && base->w[j].window == t->w[i].window && base->w[j].n == t->w[i].n) {
            put_row(&t->w[i], &base->w[j], col, rows + 3 * n++);
        }
    }
    const nw_status st = ratio_interval(rows, n, out, err);
    free(rows);
    return st;
}

static nw_status load_text(nw_record *r, nw_facts *f, nw_facts_candidate *c,
                           const token_reader *base, token_reader *t, nw_error *err)
{
    const nw_rec_run *run = nw_facts_run(f, c->row.name, "quality", "perplexity");
    nw_text_quality *q = &c->text;

    *t = (token_reader){.f = f};
    if (run == NULL) {
        return NW_OK;
    }
    nw_status st = nw_record_tokens(r, run->id, read_token, t, err);
    if (st == NW_OK) {
        st = window_estimate(t, NULL, COL_NLL, &q->ppl, err);
    }
    q->ppl = (nw_estimate){exp(q->ppl.value), exp(q->ppl.lo), exp(q->ppl.hi)};
    if (st == NW_OK && base != NULL) {
        st = window_estimate(t, base, COL_NLL, &q->ln_ratio, err);
    }
    if (st == NW_OK && !c->baseline) {
        st = window_estimate(t, NULL, COL_KL, &q->kl_mean, err);
        st = st == NW_OK ? window_estimate(t, NULL, COL_TOP1, &q->top1, err) : st;
    }
    st = st == NW_OK ? nw_record_metric(r, run->id, "bits_per_byte", &q->bits_per_byte, err) : st;
    q->run = run->id;
    q->n_windows = t->n;
    for (size_t i = 0; i < t->n; i++) {
        q->n_tokens += (size_t)t->w[i].n;
    }
    q->kl = t->kl;
    q->n_kl = c->baseline ? 0 : t->n_kl;
    nw_sort(q->kl, q->n_kl);
    return st;
}

typedef struct {
    nw_facts *f;
    nw_task *task;
    size_t cap;
} item_reader;

static const char *keep(nw_facts *f, const char *s)
{
    return s == NULL ? NULL : nw_arena_strndup(&f->arena, s, strlen(s));
}

static nw_status read_item(void *ctx, const nw_rec_item *row, nw_error *err)
{
    item_reader *r = ctx;
    nw_task *t = r->task;

    if (row->sample != 0) {
        return NW_OK; /* the first sample stands for the item on the page */
    }
    t->items = nw_facts_grow(r->f, t->items, t->n, &r->cap, sizeof *t->items);
    if (t->items == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu items", t->n);
    }
    t->items[t->n++] =
        (nw_task_item){.item_id = keep(r->f, row->item_id),
                       .cluster = keep(r->f, row->cluster != NULL ? row->cluster : row->item_id),
                       .score = row->score,
                       .n_output = row->n_output,
                       .finish = keep(r->f, row->finish),
                       .output = keep(r->f, row->output),
                       .expected = keep(r->f, row->expected)};
    return NW_OK;
}

/* Row of one item: its cluster, and what is summed. */
typedef struct {
    const char *cluster;
    double score, base, n;
} cluster_row;

static int by_cluster(const void *a, const void *b)
{
    return strcmp(((const cluster_row *)a)->cluster, ((const cluster_row *)b)->cluster);
}

/* Sums equal clusters, then the interval. */
static nw_status cluster_estimate(cluster_row *rows, size_t n, nw_estimate *out, nw_error *err)
{
    double *sums = calloc(n * 3 + 1, sizeof *sums);
    size_t k = 0;

    if (sums == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu items", n);
    }
    qsort(rows, n, sizeof *rows, by_cluster);
    for (size_t i = 0; i < n; i++) {
        k += i > 0 && strcmp(rows[i].cluster, rows[i - 1].cluster) != 0 ? 1 : 0;
        sums[3 * k] += rows[i].score;
        sums[3 * k + 1] += rows[i].base;
        sums[3 * k + 2] += rows[i].n;
    }
    const nw_status st = ratio_interval(sums, n == 0 ? 0 : k + 1, out, err);
    free(sums);
    return st;
}

/* The item of the same id, looked for from *j on: both lists are in order of id. NULL: none scored. */
static const nw_task_item *partner(const nw_task *base, size_t *j, const nw_task_item *it)
{
    while (*j < base->n && strcmp(base->items[*j].item_id, it->item_id) < 0) {
        (*j)++;
    }
    if (*j == base->n || strcmp(base->items[*j].item_id, it->item_id) != 0 ||
        isnan(base->items[*j].score)) {
        return NULL;
    }
    return &base->items[*j];
}

static nw_status score_estimate(nw_task *t, nw_error *err)
{
    cluster_row *rows = calloc(t->n + 1, sizeof *rows);

    if (rows == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu items", t->n);
    }
    for (size_t i = 0; i < t->n; i++) {
        const nw_task_item *it = &t->items[i];
        if (!isnan(it->score)) {
            rows[t->n_scored++] = (cluster_row){it->cluster, it->score, 0, 1};
        }
    }
    const nw_status st = cluster_estimate(rows, t->n_scored, &t->score, err);
    free(rows);
    return st;
}

static nw_status change_estimate(nw_task *t, const nw_task *base, nw_error *err)
{
    cluster_row *rows = calloc(t->n + 1, sizeof *rows);

    if (rows == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu items", t->n);
    }
    for (size_t i = 0, j = 0; i < t->n; i++) {
        const nw_task_item *it = &t->items[i];
        const nw_task_item *other = partner(base, &j, it);
        if (other != NULL && !isnan(it->score)) {
            rows[t->n_pairs++] = (cluster_row){it->cluster, it->score, other->score, 1};
            t->gain += it->score > other->score ? 1 : 0;
            t->loss += it->score < other->score ? 1 : 0;
        }
    }
    const nw_status st = cluster_estimate(rows, t->n_pairs, &t->change, err);
    free(rows);
    return st;
}

static void count_outputs(nw_task *t)
{
    double tokens = 0;
    size_t n = 0;
    size_t n_stop = 0;
    size_t n_finish = 0;

    for (size_t i = 0; i < t->n; i++) {
        if (t->items[i].n_output >= 0) {
            tokens += (double)t->items[i].n_output;
            n++;
        }
        if (t->items[i].finish != NULL) {
            n_stop += strcmp(t->items[i].finish, "stop") == 0 ? 1 : 0;
            n_finish++;
        }
    }
    t->mean_output = n > 0 ? tokens / (double)n : (double)NAN;
    t->stop_share = n_finish > 0 ? (double)n_stop / (double)n_finish : (double)NAN;
}

static const nw_task *task_of(const nw_facts_candidate *c, const char *suite)
{
    for (size_t i = 0; i < c->n_tasks; i++) {
        if (strcmp(c->tasks[i].suite, suite) == 0) {
            return &c->tasks[i];
        }
    }
    return NULL;
}

static nw_status load_task(nw_record *r, nw_facts *f, nw_facts_candidate *c, const nw_rec_run *run,
                           nw_error *err)
{
    const nw_task *base = c->baseline ? NULL : task_of(&f->c[0], run->suite);
    nw_task *t = &c->tasks[c->n_tasks];
    item_reader reader = {.f = f, .task = t};

    *t = (nw_task){
        .run = run->id, .suite = run->suite, .change = {(double)NAN, (double)NAN, (double)NAN}};
    nw_status st = nw_record_items(r, run->id, read_item, &reader, err);
    st = st == NW_OK ? score_estimate(t, err) : st;
    if (st == NW_OK && base != NULL) {
        st = change_estimate(t, base, err);
    }
    count_outputs(t);
    c->n_tasks += t->n > 0 ? 1 : 0;
    return st;
}

/* Tasks in the order of their first run in the record, each by its newest run. */
static nw_status load_tasks(nw_record *r, nw_facts *f, nw_facts_candidate *c, nw_error *err)
{
    nw_status st = NW_OK;

    c->tasks = nw_arena_array(&f->arena, f->n_runs + 1, sizeof *c->tasks);
    if (c->tasks == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu runs", f->n_runs);
    }
    for (size_t i = 0; i < f->n_runs && st == NW_OK; i++) {
        const nw_rec_run *run = &f->runs[i];
        if (strcmp(run->candidate, c->row.name) == 0 && strcmp(run->stage, "quality") == 0 &&
            strcmp(run->suite, "perplexity") != 0 && task_of(c, run->suite) == NULL) {
            const nw_rec_run *newest = nw_facts_run(f, c->row.name, "quality", run->suite);
            st = newest != NULL ? load_task(r, f, c, newest, err) : NW_OK;
        }
    }
    return st;
}

nw_status nw_facts_quality(nw_record *r, nw_facts *f, nw_error *err)
{
    token_reader base = {.f = f};
    nw_status st = NW_OK;

    for (size_t i = 0; i < f->n && st == NW_OK; i++) {
        token_reader t;
        st = load_text(r, f, &f->c[i], i > 0 && f->c[0].baseline ? &base : NULL, &t, err);
        st = st == NW_OK ? load_tasks(r, f, &f->c[i], err) : st;
        base = i == 0 ? t : base;
    }
    return st;
}
