/* A pool of pinned-lifetime threads for fork-join loops. Work is split by the caller into `n` items;
 * each thread begins with a run of neighbouring items of its own, so that it reads memory in one
 * stream, and then takes what others have not begun. Results must not depend on which thread takes
 * which item. Waiting spins for tens of microseconds, then sleeps on a futex, so that a busy
 * neighbour costs its share and no more. One nw_pool_run at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_POOL_H
#define NW_BASE_POOL_H

#include "base/status.h"

typedef struct nw_pool nw_pool;

/* item: index in [0, n); worker: index in [0, n_threads), for per-worker scratch. */
typedef void (*nw_pool_fn)(void *ctx, size_t item, unsigned worker);

/* n_threads includes the calling thread; 0 means nw_cpu_threads(). */
NW_MUST_USE nw_status nw_pool_open(unsigned n_threads, nw_pool **out, nw_error *err);
void nw_pool_close(nw_pool *p);
unsigned nw_pool_threads(const nw_pool *p);

/* Calls fn for each item and returns when all are done; the caller works too. p may be NULL: then
 * the items run one by one on the caller, as worker 0. Allocates nothing. */
void nw_pool_run(nw_pool *p, size_t n, nw_pool_fn fn, void *ctx);

/* Memory that a thread will read first in the next run: n stretches of `bytes` each, `stride` apart. */
typedef struct {
    const uint8_t *begin;
    size_t stride, bytes;
    uint32_t n;
} nw_pool_ahead;

/* The same, and threads that have nothing left to do bring next[worker] into their cache while they
 * wait. next [n_threads] lives, and does not change, as long as the pool; NULL for nothing. */
void nw_pool_run_ahead(nw_pool *p, size_t n, nw_pool_fn fn, void *ctx, const nw_pool_ahead *next);
/* The first item that a worker takes of a run of n. */
size_t nw_pool_first_item(const nw_pool *p, size_t n, unsigned index);

#endif
