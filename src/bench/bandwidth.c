/* Streaming reads: see bandwidth.h. The sums are kept, or a compiler would leave the reads out. Read
 * as well as we know how, since kernels are judged by it: huge pages, four streams a thread (one
 * leaves memory idle between its misses), and lines asked for well ahead.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/bandwidth.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define MIN_BYTES   ((uint64_t)256 << 20)
#define MAX_BYTES   ((uint64_t)2 << 30)
#define TIMES_L3    8
#define MAX_PASSES  64
#define MIN_PASSES  3
#define N_SUMS      8 /* independent, so that the sum's latency does not limit the loads */
#define STREAMS     4
#define AHEAD_BYTES 2048

typedef struct {
    const uint8_t *data;
    uint64_t *sums; /* [n_chunks] */
} job;

static void fill_chunk(void *ctx, size_t item, unsigned worker)
{
    uint8_t *data = ctx;
    (void)worker;
    memset(data + item * CHUNK_BYTES, (int)(item % 255) + 1, CHUNK_BYTES);
}

static void read_chunk(void *ctx, size_t item, unsigned worker)
{
    const job *j = ctx;
    const uint8_t *p = j->data + item * CHUNK_BYTES;
    const size_t part = CHUNK_BYTES / STREAMS;
    uint64_t sum[N_SUMS] = {0};

    (void)worker;
    for (size_t i = 0; i < part; i += sizeof sum) {
        for (size_t k = 0; k < STREAMS; k++) {
            uint64_t v[N_SUMS];
            memcpy(v, p + k * part + i, sizeof v);
            __builtin_prefetch(p + k * part + i + AHEAD_BYTES);
            for (size_t n = 0; n < N_SUMS; n++) {
                sum[n] += v[n];
            }
        }
    }
    j->sums[item] = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

size_t nw_bandwidth_buffer_bytes(uint64_t l3_bytes, uint64_t available_bytes)
{
    uint64_t n = l3_bytes * TIMES_L3;

    n = n < MIN_BYTES ? MIN_BYTES : n;
    if (available_bytes > 0 && n > available_bytes / 4) {
        n = available_bytes / 4;
    }
    n = n > MAX_BYTES ? MAX_BYTES : n;
    n -= n % CHUNK_BYTES;
    return n < CHUNK_BYTES ? CHUNK_BYTES : (size_t)n;
}

nw_status nw_bandwidth_read(nw_pool *pool, size_t n_bytes, double seconds, nw_bandwidth *out,
                            nw_error *err)
{
    const size_t n_chunks = n_bytes / CHUNK_BYTES;
    double rate[MAX_PASSES];
    unsigned n = 0;

    assert(n_bytes > 0 && n_bytes % CHUNK_BYTES == 0);
    uint64_t *sums = calloc(n_chunks, sizeof *sums);
    uint8_t *data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED || sums == NULL) {
        if (data != MAP_FAILED) {
            (void)munmap(data, n_bytes);
        }
        free(sums);
        return nw_fail(err, NW_E_NOMEM, "bandwidth: no memory for a buffer of %zu bytes", n_bytes);
    }
    (void)madvise(data, n_bytes, MADV_HUGEPAGE); /* only faster */
    job j = {data, sums};
    nw_pool_run(pool, n_chunks, fill_chunk, data);
    nw_pool_run(pool, n_chunks, read_chunk, &j);
    const double start = nw_now_s();
    for (double now = start; n < MAX_PASSES && (n < MIN_PASSES || now - start < seconds); n++) {
        const double begin = now;
        nw_pool_run(pool, n_chunks, read_chunk, &j);
        now = nw_now_s();
        rate[n] = (double)n_bytes / (now - begin);
    }
    (void)munmap(data, n_bytes);
    free(sums);
    qsort(rate, n, sizeof *rate, by_value);
    *out = (nw_bandwidth){.median_bytes_s = rate[n / 2],
                          .best_bytes_s = rate[n - 1],
                          .buffer_bytes = n_bytes,
                          .n_passes = n};
    return NW_OK;
}
