/* The plan of a 12-bit tensor: see lossless.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/lossless.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/half.h"

/* One pass over a tensor; items of the pool are panels. */
typedef struct {
    const nw_checkpoint *ckpt;
    const nw_ckpt_tensor *tensor;
    const uint8_t *exponents;   /* NULL: the pass that counts */
    float *rows;                /* [n_threads][16][n_cols] */
    uint16_t *half;             /* the same */
    nw_exponent_counts *counts; /* [n_threads] */
    uint32_t *most;             /* [n_threads]: the most escapes of a panel */
    atomic_int status;          /* the first failure, an nw_status */
    nw_error error;             /* of the thread that set it */
} scan;

static void to_half(const float *rows, size_t n, uint16_t *half)
{
    for (size_t i = 0; i < n; i++) {
        half[i] = nw_bf16_from_f32(rows[i]);
    }
}

static void scan_panel(void *ctx, size_t item, unsigned worker)
{
    scan *s = ctx;
    const nw_ckpt_tensor *t = s->tensor;
    const size_t n_values = (size_t)NW_PANEL_ROWS * t->n_cols;
    const uint32_t row0 = (uint32_t)item * NW_PANEL_ROWS;
    const uint32_t left = t->n_rows - row0;
    const uint32_t n_rows = left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS;
    float *rows = s->rows + worker * n_values;
    uint16_t *half = s->half + worker * n_values;
    nw_error err = {0};
    int none = NW_OK;

    if (nw_checkpoint_read_f32(s->ckpt, t, row0, n_rows, rows, &err) != NW_OK) {
        if (atomic_compare_exchange_strong(&s->status, &none, (int)err.code)) {
            s->error = err;
        }
        return;
    }
    to_half(rows, (size_t)n_rows * t->n_cols, half);
    if (s->exponents == NULL) {
        nw_exponent_count(&s->counts[worker], half, (size_t)n_rows * t->n_cols);
        return;
    }
    const uint32_t n = nw_bf16_12_count(s->exponents, half, t->n_cols, n_rows, t->n_cols);
    s->most[worker] = n > s->most[worker] ? n : s->most[worker];
}

static nw_status scan_tensor(scan *s, nw_pool *pool, nw_error *err)
{
    nw_pool_run(pool, nw_panel_count(s->tensor->n_rows), scan_panel, s);
    if (atomic_load(&s->status) != NW_OK) {
        *err = s->error;
        return err->code;
    }
    return NW_OK;
}

/* Both passes; memory of `s` is there. */
static nw_status plan(scan *s, nw_pool *pool, uint8_t exponents[16], nw_panel_type *type,
                      nw_error *err)
{
    const unsigned n_threads = nw_pool_threads(pool);
    nw_exponent_counts sum = {{0}};
    uint32_t most = 0;
    nw_status st = scan_tensor(s, pool, err);

    if (st != NW_OK) {
        return st;
    }
    for (unsigned i = 0; i < n_threads; i++) {
        for (size_t e = 0; e < NW_COUNT(sum.n); e++) {
            sum.n[e] += s->counts[i].n[e];
        }
    }
    nw_bf16_12_table(&sum, exponents);
    s->exponents = exponents;
    st = scan_tensor(s, pool, err);
    for (unsigned i = 0; st == NW_OK && i < n_threads; i++) {
        most = s->most[i] > most ? s->most[i] : most;
    }
    if (st == NW_OK && !nw_bf16_12_type(most, s->tensor->n_cols, type)) {
        *type = (nw_panel_type){.kind = NW_PANEL_BF16};
    }
    return st;
}

nw_status nw_lossless_plan(const nw_checkpoint *c, const nw_ckpt_tensor *t, nw_pool *pool,
                           uint8_t exponents[16], nw_panel_type *type, nw_error *err)
{
    const size_t n_threads = nw_pool_threads(pool);
    const size_t n = n_threads * NW_PANEL_ROWS * t->n_cols;
    scan s = {.ckpt = c, .tensor = t};
    nw_status st = NW_OK;

    s.rows = calloc(n, sizeof *s.rows);
    s.half = calloc(n, sizeof *s.half);
    s.counts = calloc(n_threads, sizeof *s.counts);
    s.most = calloc(n_threads, sizeof *s.most);
    if (s.rows == NULL || s.half == NULL || s.counts == NULL || s.most == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory to count its exponents", t->name);
    } else {
        st = plan(&s, pool, exponents, type, err);
    }
    free(s.rows);
    free(s.half);
    free(s.counts);
    free(s.most);
    return st;
}

bool nw_lossless_pack_panel(nw_panel_type type, const uint8_t exponents[16], const float *rows,
                            uint32_t n_rows, uint32_t n_cols, uint16_t *half, uint8_t *panel)
{
    to_half(rows, (size_t)n_rows * n_cols, half);
    if (type.kind == NW_PANEL_BF16) {
        nw_panel_pack_bf16(half, n_cols, n_rows, n_cols, panel);
        return true;
    }
    return nw_panel_pack_bf16_12(type, exponents, half, n_cols, n_rows, n_cols, panel);
}
