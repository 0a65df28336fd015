/* Rounding with compensation and polishing: see gptq.h. The sums of a
 * row run in an order of their own, so that its bits depend on nothing but its panel.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/gptq.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "quant/lanes.h"

#define BLOCK 64u /* columns whose updates of later ones are delayed into one product */

/* Columns of the largest group that polishing changes as one. */
#define MAX_GROUP NW_GRID_FULL

static const nw_grid_fit *fit_at(const nw_gptq_rows *rows, uint32_t column)
{
    return &rows->fits[column / rows->grid->group];
}

/* y[k] -= x * a[k] for k < n, y [n][16], x [16]. */
NW_INLINE void take_off(const float *a, uint32_t n, const float *x, float *y)
{
    float held[NW_LANES];

    memcpy(held, x, sizeof held);
    for (uint32_t k = 0; k < n; k++) {
        const float ak = a[k];
        for (uint32_t r = 0; r < NW_LANES; r++) {
            y[(size_t)k * NW_LANES + r] -= held[r] * ak;
        }
    }
}

NW_CLONES void nw_gptq_round(const nw_hessian *h, const nw_gptq_rows *rows)
{
    const uint32_t n = rows->n_cols;
    float errors[BLOCK * NW_LANES];
    float *w = rows->work; /* in the order of the steps */

    for (uint32_t j = 0; j < n; j++) {
        memcpy(w + (size_t)j * NW_LANES, rows->w + (size_t)h->order[j] * NW_LANES,
               NW_LANES * sizeof *w);
    }
    for (uint32_t j0 = 0; j0 < n; j0 += BLOCK) {
        const uint32_t j1 = j0 + BLOCK < n ? j0 + BLOCK : n;
        for (uint32_t j = j0; j < j1; j++) {
            const uint32_t c = h->order[j];
            const float *u = h->u + (size_t)j * n;
            float *wj = w + (size_t)j * NW_LANES;
            float *e = errors + (size_t)(j - j0) * NW_LANES;
            float *value = rows->value + (size_t)c * NW_LANES;
            nw_grid_encode(rows->grid, fit_at(rows, c), wj, rows->code + (size_t)c * NW_LANES,
                           value);
            for (uint32_t r = 0; r < NW_LANES; r++) {
                e[r] = (wj[r] - value[r]) / u[j];
            }
            take_off(u + j + 1, j1 - j - 1, e, wj + NW_LANES);
        }
        if (j1 < n) {
            nw_lanes_take_off_t(h->u + (size_t)j0 * n + j1, n, n - j1, j1 - j0, errors,
                                w + (size_t)j1 * NW_LANES);
        }
    }
}

/* ---- polishing ---- */

/* One group while it is being changed: columns [c0, c0 + n). */
typedef struct {
    const nw_hessian *h;
    const nw_gptq_rows *rows;
    uint32_t c0, n;
    nw_grid_fit *fit;
    float g[MAX_GROUP * NW_LANES];     /* G of its columns, kept up to date */
    float moved[MAX_GROUP * NW_LANES]; /* change of its values since the group began */
} group_state;

static float *value_at(const group_state *s, uint32_t k)
{
    return s->rows->value + (size_t)(s->c0 + k) * NW_LANES;
}

static float *code_at(const group_state *s, uint32_t k)
{
    return s->rows->code + (size_t)(s->c0 + k) * NW_LANES;
}

/* H between columns k and 0.. of the group. */
static const float *h_row(const group_state *s, uint32_t k)
{
    return s->h->h + (size_t)(s->c0 + k) * s->h->n + s->c0;
}

/* Each code of the group in turn to its best, the others as they are. */
NW_CLONES static bool move_codes(group_state *s)
{
    bool any = false;

    for (uint32_t k = 0; k < s->n; k++) {
        float *value = value_at(s, k);
        float *g = s->g + (size_t)k * NW_LANES;
        const float inv = 1 / h_row(s, k)[k];
        float want[NW_LANES];
        float code[NW_LANES];
        float next[NW_LANES];
        float d[NW_LANES];
        float most = 0;
        for (uint32_t r = 0; r < NW_LANES; r++) {
            want[r] = value[r] + g[r] * inv;
        }
        nw_grid_encode(s->rows->grid, s->fit, want, code, next);
        for (uint32_t r = 0; r < NW_LANES; r++) {
            d[r] = next[r] - value[r];
            most = fabsf(d[r]) > most ? fabsf(d[r]) : most;
        }
        if (!(most > 0)) {
            continue;
        }
        any = true;
        for (uint32_t r = 0; r < NW_LANES; r++) {
            value[r] = next[r];
            s->moved[(size_t)k * NW_LANES + r] += d[r];
        }
        memcpy(code_at(s, k), code, sizeof code);
        take_off(h_row(s, k), s->n, d, s->g);
    }
    return any;
}

/* Quadratic form of a step ds u + dm 1 of the group's values: gradient (gu, g1) and curvature. */
typedef struct {
    float gu[NW_LANES], g1[NW_LANES], huu[NW_LANES], hu1[NW_LANES], h11;
} step_form;

NW_CLONES static void form_step(const group_state *s, float *u, float *hu, step_form *f)
{
    memset(f, 0, sizeof *f);
    for (uint32_t k = 0; k < s->n; k++) {
        for (uint32_t r = 0; r < NW_LANES; r++) {
            u[(size_t)k * NW_LANES + r] = code_at(s, k)[r] - s->fit->zero[r];
        }
    }
    memset(hu, 0, (size_t)s->n * NW_LANES * sizeof *hu);
    nw_lanes_take_off(h_row(s, 0), s->h->n, s->n, s->n, u, hu); /* -H u */
    for (uint32_t k = 0; k < s->n; k++) {
        for (uint32_t l = 0; l < s->n; l++) {
            f->h11 += h_row(s, k)[l];
        }
        for (uint32_t r = 0; r < NW_LANES; r++) {
            const size_t at = (size_t)k * NW_LANES + r;
            f->gu[r] += u[at] * s->g[at];
            f->g1[r] += s->g[at];
            f->huu[r] -= u[at] * hu[at];
            f->hu1[r] -= hu[at];
        }
    }
}

/* The scale and offset that minimize the form; as they were where it says nothing. */
static void solve_step(const group_state *s, const step_form *f, nw_grid_fit *next)
{
    const bool both = s->rows->grid->kind == NW_GRID_MIN;
    float scale[NW_LANES];
    float offset[NW_LANES];

    for (uint32_t r = 0; r < NW_LANES; r++) {
        const float det = f->huu[r] * f->h11 - f->hu1[r] * f->hu1[r];
        float ds = f->gu[r] / f->huu[r];
        float dm = 0;
        bool ok = f->huu[r] > 0;
        if (both && det > 1e-5F * f->huu[r] * f->h11) {
            ds = (f->gu[r] * f->h11 - f->g1[r] * f->hu1[r]) / det;
        } else if (both) {
            ds = 0; /* the codes are all the same: only the minimum can move */
            ok = true;
        }
        ok = ok && isfinite(ds);
        scale[r] = s->fit->scale[r] + (ok ? ds : 0);
        if (both) { /* the best minimum for the scale as it will be stored */
            const float stored = nw_grid_store_scale(s->rows->grid, scale[r]);
            dm = (f->g1[r] - (stored - s->fit->scale[r]) * f->hu1[r]) / f->h11;
        }
        offset[r] = s->fit->offset[r] + (isfinite(dm) ? dm : 0);
    }
    *next = *s->fit;
    nw_grid_store(s->rows->grid, scale, offset, next);
}

/* Scale and offset of the group to their best for its codes; lanes that would get worse by the
 * rounding of the stored scale stay. */
NW_CLONES static void move_fit(group_state *s)
{
    float u[MAX_GROUP * NW_LANES];
    float hu[MAX_GROUP * NW_LANES];
    step_form f;
    nw_grid_fit next;

    form_step(s, u, hu, &f);
    solve_step(s, &f, &next);
    for (uint32_t r = 0; r < NW_LANES; r++) {
        const float ds = next.scale[r] - s->fit->scale[r];
        const float dm =
            s->rows->grid->kind == NW_GRID_MIN ? next.offset[r] - s->fit->offset[r] : 0;
        const float gain = 2 * (ds * f.gu[r] + dm * f.g1[r]) - ds * ds * f.huu[r] -
                           2 * ds * dm * f.hu1[r] - dm * dm * f.h11;
        if (!(gain > 0) || !isfinite(next.scale[r])) {
            next.scale[r] = s->fit->scale[r];
            next.offset[r] = s->fit->offset[r];
        }
    }
    for (uint32_t k = 0; k < s->n; k++) {
        float *value = value_at(s, k);
        float *d = u + (size_t)k * NW_LANES; /* the step: codes are not needed any more */
        for (uint32_t r = 0; r < NW_LANES; r++) {
            const float v = next.scale[r] * code_at(s, k)[r] + next.offset[r];
            d[r] = v - value[r];
            value[r] = v;
            s->moved[(size_t)k * NW_LANES + r] += d[r];
        }
    }
    nw_lanes_take_off(h_row(s, 0), s->h->n, s->n, s->n, u, s->g);
    *s->fit = next;
}

static bool stays(const float *moved)
{
    float most = 0;

    for (uint32_t r = 0; r < NW_LANES; r++) {
        most = fabsf(moved[r]) > most ? fabsf(moved[r]) : most;
    }
    return most == 0;
}

/* Codes alone where a group is too wide to be changed as one. */
static bool fits_move(const nw_gptq_rows *rows)
{
    return rows->grid->group <= MAX_GROUP;
}

/* G of all columns behind a group that moved; of its columns, those that did not at either end are left out. */
static void spread(const group_state *s, float *g)
{
    const uint32_t n = s->h->n;
    uint32_t first = 0;
    uint32_t end = s->n;

    while (end > first && stays(s->moved + (size_t)(end - 1) * NW_LANES)) {
        end--;
    }
    while (first < end && stays(s->moved + (size_t)first * NW_LANES)) {
        first++;
    }
    nw_lanes_take_off_t(h_row(s, first) - s->c0, n, n, end - first,
                        s->moved + (size_t)first * NW_LANES, g);
}

/* One pass over all groups; returns whether any code changed. */
static bool sweep(const nw_hessian *h, const nw_gptq_rows *rows)
{
    const uint32_t n = rows->n_cols;
    const uint32_t width = fits_move(rows) ? rows->grid->group : BLOCK;
    float *g = rows->work; /* [n][16] */
    group_state s = {.h = h, .rows = rows};
    bool any = false;

    for (s.c0 = 0; s.c0 < n; s.c0 += width) {
        s.n = n - s.c0 < width ? n - s.c0 : width;
        s.fit = &rows->fits[s.c0 / rows->grid->group];
        memcpy(s.g, g + (size_t)s.c0 * NW_LANES, (size_t)s.n * NW_LANES * sizeof *g);
        memset(s.moved, 0, (size_t)s.n * NW_LANES * sizeof *g);
        any |= move_codes(&s);
        if (fits_move(rows)) {
            move_fit(&s);
            any |= move_codes(&s);
        }
        spread(&s, g);
    }
    return any;
}

/* G = (W - W') H into rows->work. */
static void residual(const nw_hessian *h, const nw_gptq_rows *rows)
{
    const uint32_t n = rows->n_cols;
    float diff[BLOCK * NW_LANES];

    memset(rows->work, 0, (size_t)n * NW_LANES * sizeof *rows->work);
    for (uint32_t c0 = 0; c0 < n; c0 += BLOCK) {
        const uint32_t m = n - c0 < BLOCK ? n - c0 : BLOCK;
        for (size_t i = 0; i < (size_t)m * NW_LANES; i++) {
            const size_t at = (size_t)c0 * NW_LANES + i;
            diff[i] = rows->value[at] - rows->w[at];
        }
        nw_lanes_take_off_t(h->h + (size_t)c0 * n, n, n, m, diff, rows->work);
    }
}

void nw_gptq_polish(const nw_hessian *h, const nw_gptq_rows *rows, unsigned n_sweeps)
{
    bool any = true;

    residual(h, rows);
    for (unsigned i = 0; any && i < n_sweeps; i++) {
        any = sweep(h, rows);
    }
}

/* D H D^T of the first n_rows lanes, D = W - W', or W where there are no values. */
static double form(const nw_hessian *h, const nw_gptq_rows *rows, const float *value,
                   uint32_t n_rows)
{
    float lanes[NW_LANES];
    double sum = 0;

    for (size_t i = 0; i < (size_t)rows->n_cols * NW_LANES; i++) {
        rows->work[i] = rows->w[i] - (value != NULL ? value[i] : 0);
    }
    nw_lanes_form(h->h, rows->n_cols, rows->n_cols, rows->work, lanes);
    for (uint32_t r = 0; r < n_rows; r++) {
        sum += (double)lanes[r];
    }
    return fmax(0, sum);
}

void nw_gptq_error(const nw_hessian *h, const nw_gptq_rows *rows, uint32_t n_rows, double *err,
                   double *power)
{
    *err = form(h, rows, rows->value, n_rows);
    *power = form(h, rows, NULL, n_rows);
}
