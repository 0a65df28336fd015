/* The pass over values that tensor scales need: see tensor_scale.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/tensor_scale.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/signal.h"
#include "quant/grid.h"

/* Matrices of a fused group stand no further apart in the list. */
#define GROUP_SPAN 8u

/* One tensor; items of the pool are panels. Without a grid the pass finds the extent of the values, with one
 * the squared errors of its candidates. */
typedef struct {
    const nw_checkpoint *ckpt;
    const nw_ckpt_tensor *tensor;
    const nw_grid *grid;
    float lo, hi;        /* of the tensor, zero inside */
    float *rows, *tiles; /* [n_threads][16][n_cols]; tiles [n_cols][16] each */
    float *los, *his;    /* [n_threads] */
    double *errors;      /* [n_panels][candidates] */
    atomic_int status;   /* the first failure, an nw_status */
    nw_error error;
} scan;

static bool needs_scan(nw_scale_rule rule, const nw_recipe_choice *ch)
{
    const bool by_rows = ch->type.group == 0 &&
                         (ch->type.kind == NW_PANEL_INT8 || ch->type.kind == NW_PANEL_FP8_E4M3 ||
                          ch->type.kind == NW_PANEL_FP8_E5M2);
    return ch->type.kind == NW_PANEL_NVFP4 || ch->type.span == NW_SPAN_TENSOR ||
           (rule == NW_SCALE_TENSOR && by_rows);
}

static void find_extent(scan *s, const float *rows, size_t n, unsigned worker)
{
    for (size_t i = 0; i < n; i++) {
        if (isfinite(rows[i])) { /* others are refused when packed */
            s->los[worker] = rows[i] < s->los[worker] ? rows[i] : s->los[worker];
            s->his[worker] = rows[i] > s->his[worker] ? rows[i] : s->his[worker];
        }
    }
}

static void try_candidates(scan *s, const float *rows, uint32_t n_rows, size_t item,
                           unsigned worker)
{
    const uint32_t n_cols = s->tensor->n_cols;
    const int n = nw_grid_n_candidates(s->grid);
    float *tile = s->tiles + (size_t)worker * NW_PANEL_ROWS * n_cols;
    float errors[NW_LANES];
    nw_grid_fit fit;

    for (uint32_t c = 0; c < n_cols; c++) {
        for (uint32_t r = 0; r < NW_LANES; r++) {
            tile[(size_t)c * NW_LANES + r] = r < n_rows ? rows[(size_t)r * n_cols + c] : 0;
        }
    }
    for (int i = 0; i < n; i++) {
        double *sum = &s->errors[item * (size_t)n + (size_t)i];
        nw_grid_candidate(s->grid, s->lo, s->hi, i, &fit);
        nw_grid_errors(s->grid, tile, n_cols, &fit, errors);
        for (uint32_t r = 0; r < n_rows; r++) {
            *sum += (double)errors[r];
        }
    }
}

static void scan_panel(void *ctx, size_t item, unsigned worker)
{
    scan *s = ctx;
    const nw_ckpt_tensor *t = s->tensor;
    const uint32_t row0 = (uint32_t)item * NW_PANEL_ROWS;
    const uint32_t left = t->n_rows - row0;
    const uint32_t n_rows = left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS;
    float *rows = s->rows + (size_t)worker * NW_PANEL_ROWS * t->n_cols;
    nw_error err = {0};
    int none = NW_OK;

    if (nw_checkpoint_read_f32(s->ckpt, t, row0, n_rows, rows, &err) != NW_OK) {
        if (atomic_compare_exchange_strong(&s->status, &none, (int)err.code)) {
            s->error = err;
        }
        return;
    }
    if (s->grid == NULL) {
        find_extent(s, rows, (size_t)n_rows * t->n_cols, worker);
    } else {
        try_candidates(s, rows, n_rows, item, worker);
    }
}

static nw_status scan_open(scan *s, size_t n_threads, nw_error *err)
{
    const nw_ckpt_tensor *t = s->tensor;

    s->rows = calloc(n_threads * NW_PANEL_ROWS, t->n_cols * sizeof *s->rows);
    s->tiles = calloc(n_threads * NW_PANEL_ROWS, t->n_cols * sizeof *s->tiles);
    s->los = calloc(n_threads, sizeof *s->los);
    s->his = calloc(n_threads, sizeof *s->his);
    return s->rows != NULL && s->tiles != NULL && s->los != NULL && s->his != NULL
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory to find its scale", t->name);
}

static void scan_close(scan *s)
{
    free(s->rows);
    free(s->tiles);
    free(s->los);
    free(s->his);
    free(s->errors);
}

static nw_status pass(scan *s, nw_pool *pool, nw_error *err)
{
    nw_pool_run(pool, nw_panel_count(s->tensor->n_rows), scan_panel, s);
    if (atomic_load(&s->status) != NW_OK) {
        *err = s->error;
        return err->code;
    }
    for (size_t i = 0; s->grid == NULL && i < nw_pool_threads(pool); i++) {
        s->lo = s->los[i] < s->lo ? s->los[i] : s->lo;
        s->hi = s->his[i] > s->hi ? s->his[i] : s->hi;
    }
    return NW_OK;
}

/* The candidate of least error over all panels, which are added in their order. */
static nw_status best_candidate(scan *s, const nw_scales *scales, nw_recipe_choice *choice,
                                nw_pool *pool, nw_error *err)
{
    const size_t n_panels = nw_panel_count(s->tensor->n_rows);
    nw_grid grid;
    nw_grid_fit fit;
    double least = INFINITY;

    if (!nw_grid_of(choice->type, scales, s->tensor->n_cols, &grid)) {
        return NW_OK; /* all layouts of one scale a tensor have a grid */
    }
    const size_t n = (size_t)nw_grid_n_candidates(&grid);
    s->errors = calloc(n_panels, n * sizeof *s->errors);
    if (s->errors == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory to find its scale",
                       s->tensor->name);
    }
    s->grid = &grid;
    if (pass(s, pool, err) != NW_OK) {
        return err->code;
    }
    choice->scale = INFINITY; /* no scale that can be stored: packing refuses the first row */
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t p = 0; p < n_panels; p++) {
            sum += s->errors[p * n + i];
        }
        if (sum < least) {
            least = sum;
            nw_grid_candidate(&grid, s->lo, s->hi, (int)i, &fit);
            choice->scale = fit.scale[0];
            choice->zero = fit.zero[0];
        }
    }
    return NW_OK;
}

static nw_status plan_one(const nw_checkpoint *c, const nw_scales *scales, nw_recipe_choice *choice,
                          nw_pool *pool, nw_error *err)
{
    scan s = {.ckpt = c, .tensor = choice->tensor};
    nw_status st = scan_open(&s, nw_pool_threads(pool), err);

    st = st == NW_OK ? pass(&s, pool, err) : st;
    if (st == NW_OK) {
        choice->absmax = fmaxf(-s.lo, s.hi);
    }
    if (st == NW_OK && choice->type.span == NW_SPAN_TENSOR) {
        st = best_candidate(&s, scales, choice, pool, err);
    }
    scan_close(&s);
    return st;
}

/* The first of the roles that a runtime fuses with this one. */
static nw_role fused_with(nw_role role)
{
    switch ((unsigned)role) {
    case NW_ROLE_K:
    case NW_ROLE_V:
        return NW_ROLE_Q;
    case NW_ROLE_UP:
        return NW_ROLE_GATE;
    default:
        return role;
    }
}

/* Every NVFP4 matrix of a fused group gets the largest of their values. */
static void share(nw_recipe_choice *choices, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i > GROUP_SPAN ? i - GROUP_SPAN : 0; k < n && k <= i + GROUP_SPAN; k++) {
            const nw_ckpt_tensor *a = choices[i].tensor;
            const nw_ckpt_tensor *b = choices[k].tensor;
            if (choices[i].type.kind == NW_PANEL_NVFP4 && choices[k].type.kind == NW_PANEL_NVFP4 &&
                a->layer == b->layer && fused_with(a->role) == fused_with(b->role) &&
                choices[k].absmax > choices[i].absmax) {
                choices[i].absmax = choices[k].absmax;
            }
        }
    }
}

nw_status nw_tensor_scale_plan(const nw_checkpoint *c, const nw_scales *scales,
                               nw_recipe_choice *choices, size_t n, nw_pool *pool, nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < n; i++) {
        if (!choices[i].is_vector && needs_scan(scales->rule, &choices[i])) {
            st = plan_one(c, scales, &choices[i], pool, err);
        }
        if (st == NW_OK && nw_stop_requested()) {
            st = nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'", choices[i].tensor->name);
        }
    }
    share(choices, n);
    return st;
}
