/* See row_blocks.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/row_blocks.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/signal.h"

/* One block in the making. */
typedef struct {
    const nw_row_blocks *b;
    uint32_t row0, n_rows;
    nw_tensor_error *errors; /* [pieces] */
    atomic_int status;
    nw_error error;
} block;

static void make_piece(void *ctx, size_t piece, unsigned worker)
{
    block *k = ctx;
    const uint32_t at = (uint32_t)piece * k->b->piece_rows;
    const uint32_t left = k->n_rows - at;
    const uint32_t n = left < k->b->piece_rows ? left : k->b->piece_rows;
    nw_error err = {0};
    int none = NW_OK;

    k->errors[piece] = (nw_tensor_error){0};
    const nw_status st =
        k->b->make(k->b->ctx, k->row0 + at, at, n, worker, &k->errors[piece], &err);
    if (st != NW_OK && atomic_compare_exchange_strong(&k->status, &none, (int)st)) {
        k->error = err;
    }
}

static size_t n_pieces(const nw_row_blocks *b, uint32_t n_rows)
{
    return n_rows / b->piece_rows + (n_rows % b->piece_rows != 0);
}

static nw_status run_block(block *k, nw_tensor_error *sum, nw_error *err)
{
    const size_t n = n_pieces(k->b, k->n_rows);

    nw_pool_run(k->b->pool, n, make_piece, k);
    if (atomic_load(&k->status) != NW_OK) {
        *err = k->error;
        return err->code;
    }
    for (size_t i = 0; i < n; i++) {
        nw_tensor_error_add(sum, &k->errors[i]);
    }
    if (nw_stop_requested()) {
        return nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'; nothing was left behind",
                       k->b->tensor);
    }
    return k->b->write(k->b->ctx, k->n_rows, err);
}

uint32_t nw_row_blocks_fit(size_t most, uint32_t values, uint32_t piece_rows, uint32_t n_rows)
{
    const size_t fit = most / values / piece_rows * piece_rows;
    const size_t rows = fit < piece_rows ? piece_rows : fit;

    return rows < n_rows ? (uint32_t)rows : n_rows;
}

nw_status nw_row_blocks_run(const nw_row_blocks *b, nw_tensor_error *sum, nw_error *err)
{
    block k = {.b = b};
    nw_status st = NW_OK;

    k.errors = calloc(n_pieces(b, b->block_rows), sizeof *k.errors);
    if (k.errors == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for the errors of %u rows",
                       b->tensor, (unsigned)b->block_rows);
    }
    for (uint32_t r = 0; st == NW_OK && r < b->n_rows; r += k.n_rows) {
        k.row0 = r;
        k.n_rows = b->n_rows - r < b->block_rows ? b->n_rows - r : b->block_rows;
        st = run_block(&k, sum, err);
    }
    free(k.errors);
    return st;
}
