/* The roofs of the machine at this moment, to be measured beside what they bound: reading memory, and
 * the multiply-adds of the dot product instructions. A time is the CPU time of the threads that
 * worked, so that another program on the machine lengthens neither probe nor kernel; memory is
 * shared all the same, which is why both are measured in the same short round.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_PROBE_H
#define NW_BENCH_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

/* Zeroed memory in large pages; ends the program where there is none. */
void *nw_big_new(size_t bytes);
void nw_big_free(void *p, size_t bytes);

/* CPU seconds of a read of `bytes` bytes, spread over the pool's threads. */
double nw_probe_read(nw_pool *pool, const uint8_t *data, size_t bytes);

typedef enum { NW_PEAK_F32, NW_PEAK_BF16, NW_PEAK_INT8 } nw_peak;
/* CPU seconds of a multiply-add on each of the pool's threads, all at once, summed over lanes: 1 /
 * (what one thread can do a second). 0 where no instruction is known for the processor. */
double nw_probe_peak(nw_pool *pool, nw_peak kind);

/* Runs fn(ctx, part, n_parts) on each thread, once for each part, and returns the CPU time of all. */
typedef void (*nw_part_fn)(void *ctx, unsigned part, unsigned n_parts);
double nw_probe_run(nw_pool *pool, nw_part_fn fn, void *ctx);

/* The middle of n values, which are put in order. */
double nw_median(double *x, size_t n);

#endif
