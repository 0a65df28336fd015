/* Streaming read bandwidth: the ceiling of batch-1 decoding, which reads every weight once a token.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_BANDWIDTH_H
#define NW_BENCH_BANDWIDTH_H

#include "base/pool.h"
#include "base/status.h"

typedef struct {
    double median_bytes_s, best_bytes_s; /* over passes; 1 GB/s = 1e9 bytes/s */
    size_t buffer_bytes;
    unsigned n_passes;
} nw_bandwidth;

/* Large enough that little of it stays in the last cache, and at most 2 GiB and a quarter of the memory
 * that is available; 0 for what is unknown. */
size_t nw_bandwidth_buffer_bytes(uint64_t l3_bytes, uint64_t available_bytes);

/* Reads a buffer of n_bytes (a multiple of 1 MiB, at least 1) on all threads of the pool, for about
 * `seconds` and at least 3 passes after a first one that is not counted. */
NW_MUST_USE nw_status nw_bandwidth_read(nw_pool *pool, size_t n_bytes, double seconds,
                                        nw_bandwidth *out, nw_error *err);

#endif
