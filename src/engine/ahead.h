/* What each thread reads first in each linear of a decoding step, so that threads that wait for the
 * others can bring it into their cache: memory is then never idle between two ops. Made once at open.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_AHEAD_H
#define NW_ENGINE_AHEAD_H

#include "base/arena.h"
#include "base/pool.h"
#include "engine/ledger.h"
#include "engine/weights.h"

typedef struct {
    uint32_t n_layers;
    unsigned n_threads;
    nw_pool_ahead *reads; /* [n_layers * 4 + 1][n_threads]: qkv, o, gate_up, down; the head last */
} nw_ahead;

/* item_panels, ffn_panels: panels of one work item of a linear, and of gate and up. */
NW_MUST_USE nw_status nw_ahead_open(nw_ahead *a, nw_arena *arena, const nw_weights *w,
                                    uint32_t n_layers, const nw_pool *pool, uint32_t item_panels,
                                    uint32_t ffn_panels, nw_error *err);
/* What follows this op in a step, for nw_pool_run_ahead; NULL where that is no linear. */
const nw_pool_ahead *nw_ahead_after(const nw_ahead *a, nw_op op, int32_t layer);

#endif
