/* The plans of 12-bit and of packed tensors: see lossless.h.
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
    bool own_tables;            /* each panel has its own table of exponents: the only pass */
    const uint8_t *exponents;   /* of all panels; NULL: the pass that counts */
    float *rows;                /* [n_threads][16][n_cols] */
    uint16_t *half;             /* the same */
    nw_exponent_counts *counts; /* [n_threads] */
    uint32_t *most;             /* [n_threads]: the most escapes of a panel */
    nw_packed_plan *packed;     /* the pass that packs for the sizes; NULL else */
    uint8_t *out, *scratch;     /* of that: [n_threads][bound], [n_threads][packed scratch] */
    atomic_int status;          /* the first failure, an nw_status */
    nw_error error;             /* of the thread that set it */
} scan;

static void to_half(const float *rows, size_t n, uint16_t *half)
{
    for (size_t i = 0; i < n; i++) {
        half[i] = nw_bf16_from_f32(rows[i]);
    }
}

/* Of a panel's own values. */
static void table_of(const uint16_t *half, size_t n, uint8_t exponents[16])
{
    nw_exponent_counts counts = {{0}};

    nw_exponent_count(&counts, half, n);
    nw_bf16_12_table(&counts, exponents);
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
    uint8_t own[16];
    nw_error err = {0};
    int none = NW_OK;

    if (nw_checkpoint_read_f32(s->ckpt, t, row0, n_rows, rows, &err) != NW_OK) {
        if (atomic_compare_exchange_strong(&s->status, &none, (int)err.code)) {
            s->error = err;
        }
        return;
    }
    to_half(rows, (size_t)n_rows * t->n_cols, half);
    if (s->packed != NULL) {
        s->packed->sizes[item] =
            (uint32_t)nw_bf16_pack(&s->packed->packer, half, t->n_cols, n_rows, t->n_cols,
                                   s->out + worker * s->packed->bound,
                                   s->scratch + worker * nw_bf16_packed_scratch(t->n_cols));
        return;
    }
    if (s->own_tables) {
        table_of(half, (size_t)n_rows * t->n_cols, own);
    } else if (s->exponents == NULL) {
        nw_exponent_count(&s->counts[worker], half, (size_t)n_rows * t->n_cols);
        return;
    }
    const uint32_t n =
        nw_bf16_12_count(s->own_tables ? own : s->exponents, half, t->n_cols, n_rows, t->n_cols);
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

/* The exponents of the tensor, over all threads. */
static nw_status count_exponents(scan *s, nw_pool *pool, nw_exponent_counts *sum, nw_error *err)
{
    const nw_status st = scan_tensor(s, pool, err);

    for (unsigned i = 0; st == NW_OK && i < nw_pool_threads(pool); i++) {
        for (size_t e = 0; e < NW_COUNT(sum->n); e++) {
            sum->n[e] += s->counts[i].n[e];
        }
    }
    return st;
}

/* One table for all panels. */
static nw_status plan_table(scan *s, nw_pool *pool, uint8_t exponents[16], nw_error *err)
{
    nw_exponent_counts sum = {{0}};
    const nw_status st = count_exponents(s, pool, &sum, err);

    nw_bf16_12_table(&sum, exponents);
    s->exponents = exponents;
    return st;
}

/* All passes; memory of `s` is there. */
static nw_status plan(scan *s, nw_pool *pool, nw_panel_type *type, nw_error *err)
{
    uint8_t exponents[16];
    uint32_t most = 0;

    s->own_tables = !type->packed;
    nw_status st = s->own_tables ? NW_OK : plan_table(s, pool, exponents, err);
    st = st == NW_OK ? scan_tensor(s, pool, err) : st;
    for (unsigned i = 0; st == NW_OK && i < nw_pool_threads(pool); i++) {
        most = s->most[i] > most ? s->most[i] : most;
    }
    if (st == NW_OK && !nw_bf16_12_type(most, s->tensor->n_cols, type)) {
        *type = (nw_panel_type){.kind = NW_PANEL_BF16};
    }
    return st;
}

static nw_status scan_open(scan *s, const nw_checkpoint *c, const nw_ckpt_tensor *t, nw_pool *pool,
                           nw_error *err)
{
    const size_t n_threads = nw_pool_threads(pool);
    const size_t n = n_threads * NW_PANEL_ROWS * t->n_cols;

    *s = (scan){.ckpt = c, .tensor = t};
    s->rows = calloc(n, sizeof *s->rows);
    s->half = calloc(n, sizeof *s->half);
    s->counts = calloc(n_threads, sizeof *s->counts);
    s->most = calloc(n_threads, sizeof *s->most);
    return s->rows != NULL && s->half != NULL && s->counts != NULL && s->most != NULL
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory to count its exponents", t->name);
}

static void scan_close(scan *s)
{
    free(s->rows);
    free(s->half);
    free(s->counts);
    free(s->most);
    free(s->out);
    free(s->scratch);
}

nw_status nw_lossless_plan(const nw_checkpoint *c, const nw_ckpt_tensor *t, nw_pool *pool,
                           nw_panel_type *type, nw_error *err)
{
    scan s;
    nw_status st = scan_open(&s, c, t, pool, err);

    st = st == NW_OK ? plan(&s, pool, type, err) : st;
    scan_close(&s);
    return st;
}

/* The code from the counts, then the size of each panel. */
static nw_status plan_packed(scan *s, nw_pool *pool, nw_panel_type type, nw_packed_plan *p,
                             nw_error *err)
{
    const nw_ckpt_tensor *t = s->tensor;
    const size_t n_threads = nw_pool_threads(pool);
    nw_exponent_counts sum = {{0}};
    nw_status st = count_exponents(s, pool, &sum, err);

    if (st != NW_OK) {
        return st;
    }
    nw_bf16_packed_head_make(&sum, type.kind == NW_PANEL_BF16 ? NW_BF16_12_END : type.escapes,
                             &p->head);
    nw_bf16_packer_init(&p->packer, &p->head);
    if (!nw_bf16_unpacker_init(&p->unpacker, &p->head) ||
        !nw_bf16_packed_bound(t->n_cols, &p->bound)) {
        return nw_fail(err, NW_E_RANGE, "tensor '%s': its exponents make no code", t->name);
    }
    p->sizes = calloc(nw_panel_count(t->n_rows), sizeof *p->sizes);
    s->out = calloc(n_threads, p->bound);
    s->scratch = calloc(n_threads, nw_bf16_packed_scratch(t->n_cols));
    if (p->sizes == NULL || s->out == NULL || s->scratch == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory to pack it", t->name);
    }
    s->packed = p;
    st = scan_tensor(s, pool, err);
    if (st == NW_OK && !nw_bf16_stored_bytes(p->sizes, t->n_rows, &p->n_bytes)) {
        st = nw_fail(err, NW_E_RANGE, "tensor '%s' does not fit an address", t->name);
    }
    return st;
}

nw_status nw_lossless_plan_packed(const nw_checkpoint *c, const nw_ckpt_tensor *t, nw_pool *pool,
                                  nw_panel_type type, nw_packed_plan **out, nw_error *err)
{
    nw_packed_plan *p = calloc(1, sizeof *p);
    scan s;
    nw_status st = scan_open(&s, c, t, pool, err);

    if (st == NW_OK) {
        st = p != NULL ? plan_packed(&s, pool, type, p, err)
                       : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory to pack it", t->name);
    }
    scan_close(&s);
    if (st != NW_OK) {
        nw_packed_plan_free(p);
        return st;
    }
    *out = p;
    return NW_OK;
}

void nw_packed_plan_free(nw_packed_plan *p)
{
    if (p != NULL) {
        free(p->sizes);
        free(p);
    }
}

/* The panel in memory, then symbols, then BF16 values. */
static size_t panel_room(const nw_packed_plan *p, uint32_t n_cols)
{
    size_t n = 0;
    return nw_panel_bytes(nw_bf16_unpacked_type(&p->unpacker), n_cols, &n) ? n : 0;
}

size_t nw_packed_scratch_bytes(const nw_packed_plan *p, uint32_t n_cols)
{
    return panel_room(p, n_cols) + (nw_bf16_packed_scratch(n_cols) + 63) / 64 * 64 +
           (size_t)NW_PANEL_ROWS * n_cols * sizeof(uint16_t);
}

bool nw_lossless_pack_stored(const nw_packed_plan *p, uint32_t i, const float *rows,
                             uint32_t n_rows, uint32_t n_cols, void *scratch, uint8_t *out,
                             const uint8_t **panel)
{
    uint8_t *memory = scratch;
    uint8_t *symbols = memory + panel_room(p, n_cols);
    uint16_t *half =
        (uint16_t *)(void *)(symbols + (nw_bf16_packed_scratch(n_cols) + 63) / 64 * 64);

    to_half(rows, (size_t)n_rows * n_cols, half);
    const size_t size = nw_bf16_pack(&p->packer, half, n_cols, n_rows, n_cols, out, symbols);
    *panel = memory;
    return size == p->sizes[i] && nw_bf16_unpack(&p->unpacker, out, size, n_cols, memory, symbols);
}

bool nw_lossless_pack_panel(nw_panel_type type, const float *rows, uint32_t n_rows, uint32_t n_cols,
                            uint16_t *half, uint8_t *panel)
{
    uint8_t exponents[16];

    to_half(rows, (size_t)n_rows * n_cols, half);
    if (type.kind == NW_PANEL_BF16) {
        nw_panel_pack_bf16(half, n_cols, n_rows, n_cols, panel);
        return true;
    }
    table_of(half, (size_t)n_rows * n_cols, exponents);
    return nw_panel_pack_bf16_12(type, exponents, half, n_cols, n_rows, n_cols, panel);
}
