/* Summaries for the terminal. Means over tokens are ratios of sums over windows: the interval is
 * Student's t over the windows' linearized contributions v_w = m + (S_w - m N_w) / mean(N), with S_w
 * and N_w the window's sum and count (Cochran, Sampling Techniques, 1977, 6.4), since tokens of one
 * window are not independent.
 * SPDX-License-Identifier: Apache-2.0 */
#include "eval/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stats/interval.h"
#include "stats/summary.h"

#define Z95 1.959963984540054

typedef struct {
    double mean, lo, hi; /* lo, hi NaN with fewer than two windows */
} estimate;

/* Sums of one measure in each window. */
typedef struct {
    double *sum, *count; /* [n] */
    size_t n;
} window_sums;

static double value_nll(const nw_rec_token *t, double nll_base)
{
    (void)nll_base;
    return t->nll;
}

static double value_base(const nw_rec_token *t, double nll_base)
{
    (void)t;
    return nll_base;
}

static double value_ratio(const nw_rec_token *t, double nll_base)
{
    return t->nll - nll_base;
}

static double value_kl(const nw_rec_token *t, double nll_base)
{
    (void)nll_base;
    return t->kl;
}

static double value_top1(const nw_rec_token *t, double nll_base)
{
    (void)nll_base;
    return t->top1;
}

static estimate estimate_of(window_sums *w, const nw_rec_token *rows, const double *nll_base,
                            size_t n, double (*value)(const nw_rec_token *, double))
{
    double total = 0;
    estimate e = {.lo = (double)NAN, .hi = (double)NAN};

    memset(w->sum, 0, w->n * sizeof *w->sum);
    memset(w->count, 0, w->n * sizeof *w->count);
    for (size_t i = 0; i < n; i++) {
        const double v = value(&rows[i], nll_base[i]);
        w->sum[rows[i].window] += v;
        w->count[rows[i].window] += 1;
        total += v;
    }
    e.mean = total / (double)n;
    for (size_t k = 0; k < w->n; k++) {
        w->sum[k] = e.mean + (w->sum[k] - e.mean * w->count[k]) * (double)w->n / (double)n;
    }
    if (w->n >= 2) {
        const nw_interval t = nw_t_bounds(w->sum, w->n, 0.025);
        e.lo = t.lo;
        e.hi = t.hi;
    }
    return e;
}

static double same(double x)
{
    return x;
}

/* key, key_lo, key_hi, each through f (exp for perplexity). */
static void put(json_t *out, const char *key, estimate e, double (*f)(double))
{
    char name[64];

    (void)json_object_set_new(out, key, json_real(f(e.mean)));
    if (isfinite(e.lo) && isfinite(e.hi)) {
        (void)snprintf(name, sizeof name, "%s_lo", key);
        (void)json_object_set_new(out, name, json_real(f(e.lo)));
        (void)snprintf(name, sizeof name, "%s_hi", key);
        (void)json_object_set_new(out, name, json_real(f(e.hi)));
    }
}

static void put_kl_quantiles(json_t *out, const nw_rec_token *rows, size_t n, double *scratch)
{
    for (size_t i = 0; i < n; i++) {
        scratch[i] = rows[i].kl;
    }
    const nw_summary s = nw_summarize(scratch, n);
    (void)json_object_set_new(out, "kl_median", json_real(s.p50));
    (void)json_object_set_new(out, "kl_max", json_real(s.max));
    if (!isnan(s.p99)) {
        (void)json_object_set_new(out, "kl_p99", json_real(s.p99));
    }
}

nw_status nw_summary_tokens(const nw_rec_token *rows, const double *nll_base, size_t n, json_t *out,
                            nw_error *err)
{
    const size_t n_windows = (size_t)rows[n - 1].window + 1;
    window_sums w = {.sum = calloc(n_windows, sizeof *w.sum),
                     .count = calloc(n_windows, sizeof *w.count),
                     .n = n_windows};
    double *scratch = calloc(n, sizeof *scratch);
    nw_status st = NW_OK;

    if (w.sum == NULL || w.count == NULL || scratch == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for the summary of %zu tokens", n);
    } else {
        put(out, "perplexity", estimate_of(&w, rows, nll_base, n, value_nll), exp);
    }
    if (st == NW_OK && !isnan(nll_base[0])) {
        put(out, "perplexity_base", estimate_of(&w, rows, nll_base, n, value_base), exp);
        put(out, "ln_ratio", estimate_of(&w, rows, nll_base, n, value_ratio), same);
        put(out, "kl_mean", estimate_of(&w, rows, nll_base, n, value_kl), same);
        put(out, "top1", estimate_of(&w, rows, nll_base, n, value_top1), same);
        put_kl_quantiles(out, rows, n, scratch);
    }
    free(w.sum);
    free(w.count);
    free(scratch);
    return st;
}

static void put_lengths(const nw_rec_item *rows, size_t n, json_t *out)
{
    json_t *finish = json_object();
    double tokens = 0;
    size_t counted = 0;

    for (size_t i = 0; i < n; i++) {
        if (rows[i].finish != NULL) {
            const json_int_t before = json_integer_value(json_object_get(finish, rows[i].finish));
            (void)json_object_set_new(finish, rows[i].finish, json_integer(before + 1));
        }
        if (rows[i].n_output >= 0) {
            tokens += (double)rows[i].n_output;
            counted++;
        }
    }
    if (counted > 0) {
        (void)json_object_set_new(out, "mean_output_tokens", json_real(tokens / (double)counted));
        (void)json_object_set(out, "finish", finish);
    }
    json_decref(finish);
}

void nw_summary_items(const nw_rec_item *rows, size_t n, json_t *out)
{
    uint64_t right = 0;
    uint64_t scored = 0;

    for (size_t i = 0; i < n; i++) {
        scored += rows[i].correct >= 0;
        right += rows[i].correct == 1;
    }
    (void)json_object_set_new(out, "scored", json_integer((json_int_t)scored));
    if (scored > 0) {
        const nw_interval w = nw_wilson(right, scored, Z95);
        put(out, "accuracy",
            (estimate){.mean = (double)right / (double)scored, .lo = w.lo, .hi = w.hi}, same);
    }
    put_lengths(rows, n, out);
}
