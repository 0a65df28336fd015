/* Panels of one matrix in the making, a block of them at a time: each is filled from its own 16 rows by any
 * thread, measured against the rows it came from, and the block is then handed on in order. The error of
 * each panel is kept apart and added in order, so that no figure depends on the threads.
 *
 *     open, then for each block: set panel0; the pool runs an item a panel (place, fill, measure or fail);
 *     check; close
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_PANEL_BLOCK_H
#define NW_ARTIFACT_PANEL_BLOCK_H

#include <stdatomic.h>

#include "artifact/artifact.h"
#include "formats/panel.h"

typedef struct {
    const char *name; /* of the tensor, borrowed */
    nw_panel_type type;
    uint32_t n_rows, n_cols;           /* of the matrix */
    size_t panel_bytes, scratch_bytes; /* of a panel's place; of a thread */
    uint32_t n_panels;                 /* of a block, at most */
    uint32_t panel0;                   /* first of the block */
    uint8_t *out;                      /* [n_panels][panel_bytes] */
    nw_tensor_error *errors;           /* [n_panels] */
    float *rows;                       /* [n_threads][2][16][n_cols]: values, then decoded ones */
    uint8_t *scratch;                  /* [n_threads][scratch_bytes] */
    atomic_int status;                 /* the first failure, an nw_status */
    nw_error error;
} nw_panel_block;

/* What one worker fills. */
typedef struct {
    uint32_t row0, n_rows; /* of the matrix; n_rows <= 16 */
    float *rows;           /* [n_rows][n_cols], for the values */
    uint8_t *panel, *scratch;
} nw_panel_place;

/* Memory for blocks of `want` panels, or of all there are; name, type, n_rows, n_cols, panel_bytes and
 * scratch_bytes are set by the caller. NW_E_NOMEM. Close it in either case. */
NW_MUST_USE nw_status nw_panel_block_open(nw_panel_block *b, size_t n_threads, size_t want,
                                          nw_error *err);
void nw_panel_block_close(nw_panel_block *b);
nw_panel_place nw_panel_block_place(const nw_panel_block *b, size_t item, unsigned worker);
/* The error of panel `item`, as it will be decoded, against the rows of its place. */
void nw_panel_block_measure(nw_panel_block *b, size_t item, const nw_panel_place *p,
                            const uint8_t *panel);
/* The first failure stays; any thread. */
void nw_panel_block_fail(nw_panel_block *b, const nw_error *err);
/* Of the block that ran. */
NW_MUST_USE nw_status nw_panel_block_check(const nw_panel_block *b, nw_error *err);

#endif
