/* The search over exponents: see channel_scales.h. Panels are spread over the pool's threads, each
 * with all candidates; losses are added in the order of the panels, so that the choice does not
 * depend on the threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/channel_scales.h"

#include <cblas.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define N_AWQ      20
#define N_SMOOTH   11
#define MAX_TRIES  20
#define MAX_PANELS 8u /* of a reader: 128 rows */

typedef struct {
    const nw_search_place *p;
    uint32_t n_cols, n_tries;
    const nw_recipe_choice *reader;
    nw_method_job method;
    float *s;       /* [n_tries][n_cols], by the input's channels */
    float *weights; /* [n_tries][n_cols]: importance of the columns W s */
    double *steps;  /* [n_tries]: largest |x / s| over 127; 0 for awq */
    size_t panel_bytes, scratch_bytes, worker_bytes;
    uint8_t *memory;   /* [n_threads][worker_bytes] */
    double *loss;      /* [n_panels][n_tries] */
    float *col_absmax; /* [n_panels][n_cols], of the pass over columns */
    uint32_t n_panels; /* that are looked at */
    atomic_int status;
    nw_error error;
} search;

static void fail(search *j, const nw_error *err)
{
    int none = NW_OK;

    if (atomic_compare_exchange_strong(&j->status, &none, (int)err->code)) {
        j->error = *err;
    }
}

/* Rows of the i-th panel that is looked at. */
static bool read_panel(search *j, size_t item, float *rows, uint32_t *n_rows)
{
    const nw_ckpt_tensor *t = j->reader->tensor;
    const uint32_t all = nw_panel_count(t->n_rows);
    const uint32_t row0 = (uint32_t)(item * all / j->n_panels) * NW_PANEL_ROWS;
    nw_error err = {0};

    *n_rows = t->n_rows - row0 < NW_PANEL_ROWS ? t->n_rows - row0 : NW_PANEL_ROWS;
    if (nw_checkpoint_read_f32(j->p->ckpt, t, row0, *n_rows, rows, &err) != NW_OK) {
        fail(j, &err);
        return false;
    }
    for (size_t i = 0; i < (size_t)*n_rows * t->n_cols; i++) {
        if (!isfinite(rows[i])) {
            (void)nw_fail(&err, NW_E_FORMAT,
                          "tensor '%s' has a value that is not finite in row %zu", t->name,
                          row0 + i / t->n_cols);
            fail(j, &err);
            return false;
        }
    }
    return true;
}

/* ---- the losses of all candidates on one panel ---- */

/* Working memory of a thread; matrices are [n][n_cols]. */
typedef struct {
    float *rows, *scaled;   /* n = 16 */
    float *diffs, *product; /* n = 16 n_tries: errors of all candidates, for one product with H */
    uint8_t *panel, *scratch;
} worker_memory;

static size_t matrix_values(const search *j)
{
    return (size_t)NW_PANEL_ROWS * j->n_cols;
}

static size_t memory_bytes(const search *j)
{
    return 2 * (1 + j->n_tries) * matrix_values(j) * sizeof(float) + j->panel_bytes +
           j->scratch_bytes;
}

static worker_memory memory_of(const search *j, unsigned worker)
{
    const size_t values = matrix_values(j);
    uint8_t *p = j->memory + worker * j->worker_bytes;
    worker_memory m;

    m.rows = (float *)(void *)p;
    m.scaled = m.rows + values;
    m.diffs = m.scaled + values;
    m.product = m.diffs + j->n_tries * values;
    m.panel = (uint8_t *)(m.product + j->n_tries * values);
    m.scratch = m.panel + j->panel_bytes;
    return m;
}

/* Errors of candidate k, divided by s, and what the 8 bits of its input cost; infinite where its scales
 * cannot be stored: not this candidate. */
static double try_candidate(search *j, size_t k, uint32_t n_rows, const worker_memory *m)
{
    const uint32_t n = j->n_cols;
    const float *s = j->s + k * n;
    nw_hessian h = {.n = n, .importance = j->weights + k * n};
    nw_method_job job = j->method;
    nw_output_error unused;
    uint32_t bad_row = 0;
    double power = 0;

    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < n; i++) {
            m->scaled[(size_t)r * n + i] = m->rows[(size_t)r * n + i] * s[i];
        }
    }
    job.h = nw_method_needs_stats(job.method) ? &h : NULL;
    if (!nw_method_pack_panel(&job, m->scaled, n_rows, m->panel, m->scratch, &unused, &bad_row)) {
        return INFINITY;
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        float *d = m->diffs + (k * n_rows + r) * n;
        nw_panel_unpack_row(job.type, m->panel, n, r, d);
        for (uint32_t i = 0; i < n; i++) {
            power += (double)d[i] * (double)d[i];
            d[i] = d[i] / s[i] - m->rows[(size_t)r * n + i];
        }
    }
    return power * j->steps[k] * j->steps[k] / 12;
}

static void try_panel(void *ctx, size_t item, unsigned worker)
{
    search *j = ctx;
    const worker_memory m = memory_of(j, worker);
    double *loss = j->loss + item * j->n_tries;
    uint32_t n_rows = 0;

    if (!read_panel(j, item, m.rows, &n_rows)) {
        return;
    }
    memset(m.diffs, 0, j->n_tries * matrix_values(j) * sizeof *m.diffs);
    for (size_t k = 0; k < j->n_tries; k++) {
        loss[k] = try_candidate(j, k, n_rows, &m);
    }
    const size_t n = j->n_cols;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)(j->n_tries * n_rows), (int)n,
                (int)n, 1.0F, m.diffs, (int)n, j->p->stats->moments, (int)n, 0.0F, m.product,
                (int)n);
    for (size_t k = 0; k < j->n_tries; k++) {
        double sum = 0;
        for (size_t i = k * n_rows * n; i < (k + 1) * n_rows * n; i++) {
            sum += (double)m.diffs[i] * (double)m.product[i];
        }
        loss[k] += fmax(0, sum);
    }
}

static void column_panel(void *ctx, size_t item, unsigned worker)
{
    search *j = ctx;
    const worker_memory m = memory_of(j, worker);
    float *most = j->col_absmax + item * j->n_cols;
    uint32_t n_rows = 0;

    if (!read_panel(j, item, m.rows, &n_rows)) {
        return;
    }
    for (size_t i = 0; i < (size_t)n_rows * j->n_cols; i++) {
        const float a = fabsf(m.rows[i]);
        most[i % j->n_cols] = a > most[i % j->n_cols] ? a : most[i % j->n_cols];
    }
}

/* ---- one reader ---- */

/* Codes by the weighted search where the layout has one: what the recipe's method begins with. */
static nw_method search_method(const nw_search_place *p, nw_panel_type type)
{
    return p->rule == NW_SEARCH_AWQ && nw_method_knows(NW_METHOD_IMATRIX, type) ? NW_METHOD_IMATRIX
                                                                                : NW_METHOD_RTN;
}

static nw_status reader_open(search *j, size_t i, bool columns, nw_pool *pool, nw_error *err)
{
    const nw_recipe_choice *r = j->p->readers[i];
    const uint32_t all = nw_panel_count(r->tensor->n_rows);

    j->reader = r;
    j->n_panels = columns || all < MAX_PANELS ? all : MAX_PANELS;
    j->method = (nw_method_job){.method = search_method(j->p, r->type),
                                .type = r->type,
                                .scales = j->p->scales,
                                .n_cols = j->n_cols};
    if (!nw_panel_bytes(r->type, j->n_cols, &j->panel_bytes)) {
        return nw_fail(err, NW_E_RANGE, "tensor '%s': %u columns are too many", r->tensor->name,
                       j->n_cols);
    }
    j->scratch_bytes = (nw_method_scratch_bytes(&j->method) + 64) / 64 * 64;
    j->worker_bytes = (memory_bytes(j) + 63) / 64 * 64;
    j->memory = calloc(nw_pool_threads(pool), j->worker_bytes);
    j->loss = calloc(j->n_panels, j->n_tries * sizeof *j->loss);
    j->col_absmax = columns ? calloc(j->n_panels, j->n_cols * sizeof *j->col_absmax) : NULL;
    if (j->memory == NULL || j->loss == NULL || (columns && j->col_absmax == NULL)) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory to search channel scales",
                       r->tensor->name);
    }
    return NW_OK;
}

static void reader_close(search *j)
{
    free(j->memory);
    free(j->loss);
    free(j->col_absmax);
    j->memory = NULL;
    j->loss = NULL;
    j->col_absmax = NULL;
}

static nw_status reader_run(search *j, nw_pool *pool, nw_pool_fn fn, nw_error *err)
{
    nw_pool_run(pool, j->n_panels, fn, j);
    if (atomic_load(&j->status) != NW_OK) {
        *err = j->error;
        return err->code;
    }
    return NW_OK;
}

/* Largest |w| of each column over all readers. */
static nw_status columns_absmax(search *j, nw_pool *pool, float *out, nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < j->p->n_readers; i++) {
        st = reader_open(j, i, true, pool, err);
        st = st == NW_OK ? reader_run(j, pool, column_panel, err) : st;
        for (size_t k = 0; st == NW_OK && k < (size_t)j->n_panels * j->n_cols; k++) {
            float *o = &out[k % j->n_cols];
            *o = j->col_absmax[k] > *o ? j->col_absmax[k] : *o;
        }
        reader_close(j);
    }
    return st;
}

static nw_status sum_losses(search *j, nw_pool *pool, double *total, nw_error *err)
{
    nw_status st = NW_OK;

    openblas_set_num_threads(1);
    for (size_t i = 0; st == NW_OK && i < j->p->n_readers; i++) {
        st = reader_open(j, i, false, pool, err);
        st = st == NW_OK ? reader_run(j, pool, try_panel, err) : st;
        for (size_t k = 0; st == NW_OK && k < (size_t)j->n_panels * j->n_tries; k++) {
            const double share = (double)nw_panel_count(j->reader->tensor->n_rows) / j->n_panels;
            total[k % j->n_tries] += share * j->loss[k];
        }
        reader_close(j);
    }
    return st;
}

/* ---- candidates ---- */

static double exponent_of(const nw_search_place *p, size_t k)
{
    if (p->rule == NW_SEARCH_AWQ) {
        return 0.05 * (double)k;
    }
    return k == 0 ? 0 : 0.45 + 0.05 * (double)k;
}

/* Channels of the place from those of the input: the mean of those that share one, or the largest. */
static void gather(const search *j, const float *from, bool mean, double *to)
{
    const nw_model_config *c = nw_checkpoint_config(j->p->ckpt);
    const uint32_t width = nw_place_width(c, j->p->place);

    for (uint32_t i = 0; i < j->n_cols; i++) {
        double *o = &to[nw_place_channel(c, j->p->place, i)];
        *o = mean ? *o + (double)from[i] * width / j->n_cols : fmax(*o, (double)from[i]);
    }
}

/* Divides by sqrt(max min), so that the factors lie around 1. */
static void center(double *s, uint32_t n)
{
    double lo = INFINITY;
    double hi = 0;

    for (uint32_t i = 0; i < n; i++) {
        lo = s[i] > 0 ? fmin(lo, s[i]) : lo;
        hi = fmax(hi, s[i]);
    }
    const double mid = sqrt(lo) * sqrt(hi);
    for (uint32_t i = 0; i < n; i++) {
        const double x = s[i] > 0 && mid > 0 ? s[i] / mid : 1;
        s[i] = isfinite(x) && x > 0x1p-40 && x < 0x1p40 ? x : 1;
    }
}

/* Candidate k by the place's channels: x, w are the sizes of input and columns. */
static void candidate(const nw_search_place *p, size_t k, const double *x, const double *w,
                      uint32_t n, double *s)
{
    const double e = exponent_of(p, k);

    for (uint32_t i = 0; i < n; i++) {
        s[i] = x[i] > 0 ? pow(x[i], e) : 0;
        if (p->rule == NW_SEARCH_SMOOTH) {
            s[i] = x[i] > 0 && w[i] > 0 && k > 0 ? s[i] / pow(w[i], 1 - e) : k == 0 ? 1 : 0;
        }
    }
    center(s, n);
}

typedef struct {
    double *x, *w;      /* [width] */
    double *candidates; /* [n_tries][width] */
    float *columns;     /* [n_cols] */
} sizes;

static void fill_tries(search *j, const sizes *z)
{
    const nw_model_config *c = nw_checkpoint_config(j->p->ckpt);
    const nw_input_stats *st = j->p->stats;
    const uint32_t width = nw_place_width(c, j->p->place);

    for (size_t k = 0; k < j->n_tries; k++) {
        double *s = z->candidates + k * width;
        candidate(j->p, k, z->x, z->w, width, s);
        for (uint32_t i = 0; i < j->n_cols; i++) {
            const float si = (float)s[nw_place_channel(c, j->p->place, i)];
            j->s[k * j->n_cols + i] = si;
            j->weights[k * j->n_cols + i] = fmaxf(st->mean_sq[i], 0x1p-100F) / si / si;
            if (j->p->rule == NW_SEARCH_SMOOTH) {
                j->steps[k] = fmax(j->steps[k], (double)(st->absmax[i] / si) / 127);
            }
        }
    }
}

static nw_status measure_sizes(search *j, nw_pool *pool, const sizes *z, nw_error *err)
{
    const bool awq = j->p->rule == NW_SEARCH_AWQ;
    nw_status st = NW_OK;

    gather(j, awq ? j->p->stats->mean_abs : j->p->stats->absmax, awq, z->x);
    if (!awq) {
        st = columns_absmax(j, pool, z->columns, err);
        gather(j, z->columns, false, z->w);
    }
    return st;
}

static nw_status run_search(search *j, nw_pool *pool, const sizes *z, double *s,
                            nw_search_result *out, nw_error *err)
{
    const uint32_t width = nw_place_width(nw_checkpoint_config(j->p->ckpt), j->p->place);
    double total[MAX_TRIES] = {0};
    size_t best = 0;
    nw_status st = measure_sizes(j, pool, z, err);

    if (st != NW_OK) {
        return st;
    }
    fill_tries(j, z);
    st = sum_losses(j, pool, total, err);
    for (size_t k = 1; st == NW_OK && k < j->n_tries; k++) {
        best = total[k] < total[best] ? k : best;
    }
    if (st == NW_OK) {
        memcpy(s, z->candidates + best * width, width * sizeof *s);
        *out = (nw_search_result){exponent_of(j->p, best), total[0], total[best]};
    }
    return st;
}

nw_status nw_search_channel_scales(const nw_search_place *p, nw_pool *pool, double *s,
                                   nw_search_result *out, nw_error *err)
{
    const uint32_t n_cols = p->stats->n_cols;
    const uint32_t width = nw_place_width(nw_checkpoint_config(p->ckpt), p->place);
    search j = {.p = p, .n_cols = n_cols, .n_tries = p->rule == NW_SEARCH_AWQ ? N_AWQ : N_SMOOTH};
    sizes z = {.x = calloc(width, sizeof *z.x),
               .w = calloc(width, sizeof *z.w),
               .candidates = calloc(j.n_tries, width * sizeof *z.candidates),
               .columns = calloc(n_cols, sizeof *z.columns)};
    nw_status st = NW_OK;

    j.s = calloc(j.n_tries, n_cols * sizeof *j.s);
    j.weights = calloc(j.n_tries, n_cols * sizeof *j.weights);
    j.steps = calloc(j.n_tries, sizeof *j.steps);
    if (z.x == NULL || z.w == NULL || z.candidates == NULL || z.columns == NULL || j.s == NULL ||
        j.weights == NULL || j.steps == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory to search the scales of %u channels", n_cols);
    } else {
        st = run_search(&j, pool, &z, s, out, err);
    }
    free(z.x);
    free(z.w);
    free(z.candidates);
    free(z.columns);
    free(j.s);
    free(j.weights);
    free(j.steps);
    return st;
}
