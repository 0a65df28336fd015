/* The pass over values that tensor scales need: see tensor_scale.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/tensor_scale.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/signal.h"

/* Matrices of a fused group stand no further apart in the list. */
#define GROUP_SPAN 8u

/* One tensor; items of the pool are panels. */
typedef struct {
    const nw_checkpoint *ckpt;
    const nw_ckpt_tensor *tensor;
    float *rows;       /* [n_threads][16][n_cols] */
    float *most;       /* [n_threads] */
    atomic_int status; /* the first failure, an nw_status */
    nw_error error;
} scan;

static bool needs_absmax(nw_scale_rule rule, const nw_recipe_choice *ch)
{
    const bool by_rows = ch->type.group == 0 &&
                         (ch->type.kind == NW_PANEL_INT8 || ch->type.kind == NW_PANEL_FP8_E4M3 ||
                          ch->type.kind == NW_PANEL_FP8_E5M2);
    return ch->type.kind == NW_PANEL_NVFP4 || (rule == NW_SCALE_TENSOR && by_rows);
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
    for (size_t i = 0; i < (size_t)n_rows * t->n_cols; i++) {
        const float a = fabsf(rows[i]); /* values that are not finite are refused when packed */
        s->most[worker] = isfinite(a) && a > s->most[worker] ? a : s->most[worker];
    }
}

static nw_status tensor_absmax(const nw_checkpoint *c, const nw_ckpt_tensor *t, nw_pool *pool,
                               float *out, nw_error *err)
{
    const size_t n_threads = nw_pool_threads(pool);
    scan s = {.ckpt = c, .tensor = t};
    nw_status st = NW_OK;

    s.rows = calloc(n_threads * NW_PANEL_ROWS, t->n_cols * sizeof *s.rows);
    s.most = calloc(n_threads, sizeof *s.most);
    if (s.rows == NULL || s.most == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory to find its largest value", t->name);
    } else {
        nw_pool_run(pool, nw_panel_count(t->n_rows), scan_panel, &s);
        if (atomic_load(&s.status) != NW_OK) {
            *err = s.error;
            st = err->code;
        }
        for (size_t i = 0; i < n_threads; i++) {
            *out = s.most[i] > *out ? s.most[i] : *out;
        }
    }
    free(s.rows);
    free(s.most);
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

nw_status nw_tensor_scale_plan(const nw_checkpoint *c, nw_scale_rule rule,
                               nw_recipe_choice *choices, size_t n, nw_pool *pool, nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < n; i++) {
        if (!choices[i].is_vector && needs_absmax(rule, &choices[i])) {
            st = tensor_absmax(c, choices[i].tensor, pool, &choices[i].absmax, err);
        }
        if (st == NW_OK && nw_stop_requested()) {
            st = nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'", choices[i].tensor->name);
        }
    }
    share(choices, n);
    return st;
}
