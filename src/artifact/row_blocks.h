/* The rows of a tensor on their way into a file, in blocks that fit memory: pieces of a block are made on all
 * threads, each with its share of the tensor's error, then the block is written. What every writer of
 * weights does; what a row becomes is the caller's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_ROW_BLOCKS_H
#define NW_ARTIFACT_ROW_BLOCKS_H

#include "artifact/manifest.h"
#include "base/pool.h"

typedef struct {
    const char *tensor; /* its name, for messages */
    uint32_t n_rows;
    uint32_t piece_rows,
        block_rows; /* of an item of the pool; held at one time: whole pieces, or all */
    nw_pool *pool;
    /* Makes rows [row0, row0 + n) of the tensor, which begin at row `at` of the block; *e is zero. On any thread. */
    nw_status (*make)(void *ctx, uint32_t row0, uint32_t at, uint32_t n, unsigned worker,
                      nw_tensor_error *e, nw_error *err);
    /* The first n_rows of the block. */
    nw_status (*write)(void *ctx, uint32_t n_rows, nw_error *err);
    void *ctx;
} nw_row_blocks;

/* How many rows of `values` each make a block of about `most` values: whole pieces, one at least, or all. */
uint32_t nw_row_blocks_fit(size_t most, uint32_t values, uint32_t piece_rows, uint32_t n_rows);

/* Adds the pieces' errors to *sum, in order. The first failure ends it, as does a request to stop
 * (NW_E_CANCELLED). */
NW_MUST_USE nw_status nw_row_blocks_run(const nw_row_blocks *b, nw_tensor_error *sum,
                                        nw_error *err);

#endif
