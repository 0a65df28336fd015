/* Streaming reads: see bandwidth.h. Read as well as we know how, since kernels are judged by it: huge
 * pages, four streams a thread, and the widest loads that the processor has, because the fewer
 * instructions a line takes, the more lines a core waits for at once (16-byte loads reach 70 % of
 * what 64-byte loads do). The loads are assembly: nobody needs the values, and a compiler knows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/bandwidth.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/cpu.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define MIN_BYTES   ((uint64_t)256 << 20)
#define MAX_BYTES   ((uint64_t)2 << 30)
#define TIMES_L3    8
#define MAX_PASSES  64
#define MIN_PASSES  3
#define STREAMS     4
#define LINE        64

/* Reads one chunk; what it returns is kept. */
typedef uint64_t (*read_fn)(const uint8_t *p);

typedef struct {
    const uint8_t *data;
    read_fn read;
    uint64_t *sums; /* [n_chunks] */
} job;

static void fill_chunk(void *ctx, size_t item, unsigned worker)
{
    uint8_t *data = ctx;
    (void)worker;
    memset(data + item * CHUNK_BYTES, (int)(item % 255) + 1, CHUNK_BYTES);
}

/* Any processor: words that are summed. */
static uint64_t read_words(const uint8_t *p)
{
    uint64_t sum[LINE / sizeof(uint64_t)] = {0};
    uint64_t v[LINE / sizeof(uint64_t)];

    for (size_t i = 0; i < CHUNK_BYTES / STREAMS; i += LINE) {
        for (size_t k = 0; k < STREAMS; k++) {
            memcpy(v, p + k * (CHUNK_BYTES / STREAMS) + i, sizeof v);
            for (size_t n = 0; n < NW_COUNT(sum); n++) {
                sum[n] += v[n];
            }
        }
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

#if defined(__x86_64__)
static uint64_t read_zmm(const uint8_t *p)
{
    for (size_t i = 0; i < CHUNK_BYTES / STREAMS; i += LINE) {
        for (size_t k = 0; k < STREAMS; k++) {
            const uint8_t *at = p + k * (CHUNK_BYTES / STREAMS) + i;
            __asm__ volatile("vpord (%0), %%zmm0, %%zmm0" ::"r"(at) : "xmm0");
        }
    }
    __asm__ volatile("vzeroupper");
    return 0;
}

static uint64_t read_ymm(const uint8_t *p)
{
    for (size_t i = 0; i < CHUNK_BYTES / STREAMS; i += LINE) {
        for (size_t k = 0; k < STREAMS; k++) {
            const uint8_t *at = p + k * (CHUNK_BYTES / STREAMS) + i;
            __asm__ volatile("vpor (%0), %%ymm0, %%ymm0\nvpor 32(%0), %%ymm1, %%ymm1" ::"r"(at)
                             : "xmm0", "xmm1");
        }
    }
    __asm__ volatile("vzeroupper");
    return 0;
}
#endif

static read_fn pick_read(void)
{
#if defined(__x86_64__)
    if ((nw_cpu_features() & NW_CPU_AVX512) != 0) {
        return read_zmm;
    }
    if ((nw_cpu_features() & NW_CPU_AVX2) != 0) {
        return read_ymm;
    }
#endif
    return read_words;
}

static void read_chunk(void *ctx, size_t item, unsigned worker)
{
    const job *j = ctx;
    (void)worker;
    j->sums[item] = j->read(j->data + item * CHUNK_BYTES);
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
    job j = {data, pick_read(), sums};
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
