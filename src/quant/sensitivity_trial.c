/* One trial: a group of matrices from another artifact, and what becomes of the distributions. The
 * second half of each sample is scored, as eval does. The logits of the model itself lie in a mapped
 * file, so that they take no memory of the process.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "quant/logits_probe.h"
#include "quant/sensitivity_parts.h"

#define ROWS 16u /* logits that are compared at one time, shared among threads */

struct nw_trial {
    nw_engine *engine;
    const nw_samples *samples;
    uint32_t n_vocab;
    uint64_t n_tokens; /* scored */
    char *path;
    nw_file base; /* [n_tokens][n_vocab] */
    nw_pool *pool;
    float *rows;     /* [ROWS][n_vocab] */
    double kl[ROWS]; /* of the rows */
    uint32_t n_rows;
    uint64_t at;  /* rows of `base` compared */
    double sum;   /* of the sample in hand */
    FILE *writer; /* of the file, while it is made */
};

static uint32_t first_scored(const nw_samples *s, size_t i)
{
    return (uint32_t)(s->first[i + 1] - s->first[i]) / 2;
}

static void compare_row(void *ctx, size_t item, unsigned worker)
{
    nw_trial *t = ctx;
    const float *base = (const float *)(const void *)t->base.data;

    (void)worker;
    t->kl[item] =
        nw_logits_kl(base + (t->at + item) * t->n_vocab, t->rows + item * t->n_vocab, t->n_vocab);
}

/* Sums in the order of positions, whatever thread compared them. */
static void compare_rows(nw_trial *t)
{
    nw_pool_run(t->pool, t->n_rows, compare_row, t);
    for (uint32_t i = 0; i < t->n_rows; i++) {
        t->sum += t->kl[i];
    }
    t->at += t->n_rows;
    t->n_rows = 0;
}

static bool take_logits(void *ctx, size_t pos, const float *logits)
{
    nw_trial *t = ctx;

    (void)pos;
    memcpy(t->rows + (size_t)t->n_rows++ * t->n_vocab, logits, t->n_vocab * sizeof *logits);
    if (t->n_rows == ROWS) {
        compare_rows(t);
    }
    return true;
}

static bool keep_logits(void *ctx, size_t pos, const float *logits)
{
    nw_trial *t = ctx;

    (void)pos;
    return fwrite(logits, sizeof *logits, t->n_vocab, t->writer) == t->n_vocab;
}

static nw_status score_sample(nw_trial *t, size_t i, nw_logits_fn each, nw_error *err)
{
    const nw_samples *s = t->samples;
    const nw_status st =
        nw_engine_score(t->engine, s->ids + s->first[i], s->first[i + 1] - s->first[i],
                        first_scored(s, i), each, t, err);

    return st == NW_OK ? st : nw_context(err, "sample %zu", i);
}

static nw_status keep_base(nw_trial *t, nw_error *err)
{
    nw_status st = NW_OK;

    t->writer = fopen(t->path, "wb");
    if (t->writer == NULL) {
        return nw_fail(err, NW_E_IO, "%s: cannot be made", t->path);
    }
    for (size_t i = 0; st == NW_OK && i < t->samples->n; i++) {
        st = score_sample(t, i, keep_logits, err);
    }
    if (fclose(t->writer) != 0 && st == NW_OK) {
        st = nw_fail(err, NW_E_IO, "%s: cannot be written", t->path);
    }
    st = st == NW_OK ? nw_file_map(t->path, &t->base, err) : st;
    if (st == NW_OK && t->base.size != t->n_tokens * t->n_vocab * sizeof(float)) {
        st = nw_fail(err, NW_E_IO, "%s: %zu bytes were written", t->path, t->base.size);
    }
    return st;
}

nw_status nw_trial_open(nw_engine *e, const nw_samples *samples, const char *work,
                        unsigned n_threads, nw_trial **out, nw_error *err)
{
    nw_trial *t = calloc(1, sizeof *t);
    nw_status st = NW_OK;

    if (t == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a trial");
    }
    t->engine = e;
    t->samples = samples;
    t->n_vocab = nw_engine_config(e)->n_vocab;
    for (size_t i = 0; i < samples->n; i++) {
        t->n_tokens += samples->first[i + 1] - samples->first[i] - first_scored(samples, i);
    }
    t->rows = calloc(ROWS, t->n_vocab * sizeof *t->rows);
    t->path = nw_path_join(work, "baseline.f32");
    st = t->rows != NULL && t->path != NULL
             ? nw_pool_open(n_threads, &t->pool, err)
             : nw_fail(err, NW_E_NOMEM, "no memory for rows of %u logits", t->n_vocab);
    st = st == NW_OK ? keep_base(t, err) : st;
    if (st != NW_OK) {
        nw_trial_close(t);
        return st;
    }
    *out = t;
    return NW_OK;
}

void nw_trial_close(nw_trial *t)
{
    if (t != NULL) {
        nw_file_unmap(&t->base);
        if (t->path != NULL) {
            (void)remove(t->path);
        }
        nw_pool_close(t->pool);
        free(t->path);
        free(t->rows);
        free(t);
    }
}

uint64_t nw_trial_tokens(const nw_trial *t)
{
    return t->n_tokens;
}

static nw_status swap_group(nw_trial *t, const nw_group *g, const nw_artifact *from, nw_error *err)
{
    nw_status st = NW_OK;

    for (unsigned i = 0; st == NW_OK && i < g->n_roles; i++) {
        st = nw_engine_swap(t->engine, from, (int)g->roles[i], g->layer, err);
    }
    return st;
}

/* Mean over tokens; its error by the samples' linearized contributions, as eval's interval. */
static nw_status run_samples(nw_trial *t, double *kl, double *se, nw_error *err)
{
    const nw_samples *s = t->samples;
    double *sums = calloc(s->n + 1, sizeof *sums);
    double total = 0;
    double square = 0;
    nw_status st = sums != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for a trial");

    t->at = 0;
    for (size_t i = 0; st == NW_OK && i < s->n; i++) {
        t->sum = 0;
        t->n_rows = 0;
        st = score_sample(t, i, take_logits, err);
        if (st == NW_OK) {
            compare_rows(t);
            sums[i] = t->sum;
            total += t->sum;
        }
    }
    if (st == NW_OK && !isfinite(total)) {
        st = nw_fail(err, NW_E_FORMAT, "its logits are not finite");
    }
    const double mean = total / (double)t->n_tokens;
    for (size_t i = 0; st == NW_OK && i < s->n; i++) {
        const double n = (double)(s->first[i + 1] - s->first[i] - first_scored(s, i));
        const double d = sums[i] - mean * n;
        square += d * d;
    }
    *kl = mean;
    *se = s->n > 1 ? sqrt(square * (double)s->n / ((double)s->n - 1)) / (double)t->n_tokens : 0;
    free(sums);
    return st;
}

nw_status nw_trial_run(nw_trial *t, const nw_group *g, const nw_artifact *from, double *kl,
                       double *se, nw_error *err)
{
    nw_error ignored = {0};
    nw_status st = swap_group(t, g, from, err);

    st = st == NW_OK ? run_samples(t, kl, se, err) : st;
    const nw_status back = swap_group(t, g, NULL, &ignored);
    if (st == NW_OK && back != NW_OK) {
        *err = ignored;
        return back;
    }
    return st == NW_OK ? st : nw_context(err, "%s", g->name);
}
