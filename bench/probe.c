/* See probe.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/clock.h"
#include "base/cpu.h"

#define MAX_PARTS 64u

static volatile uint64_t sink; /* keeps the probe from being optimized away */

void *nw_big_new(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(4);
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

void nw_big_free(void *p, size_t bytes)
{
    (void)munmap(p, bytes);
}

typedef struct {
    nw_part_fn fn;
    void *ctx;
    unsigned n_parts;
    double cpu_s[MAX_PARTS];
} parts;

static void run_part(void *ctx, size_t item, unsigned worker)
{
    parts *p = ctx;
    const double begin = nw_thread_cpu_s();

    (void)worker;
    p->fn(p->ctx, (unsigned)item, p->n_parts);
    p->cpu_s[item] = nw_thread_cpu_s() - begin;
}

double nw_probe_run(nw_pool *pool, nw_part_fn fn, void *ctx)
{
    parts p = {.fn = fn, .ctx = ctx, .n_parts = nw_pool_threads(pool)};
    double sum = 0;

    p.n_parts = p.n_parts < MAX_PARTS ? p.n_parts : MAX_PARTS;
    nw_pool_run(pool, p.n_parts, run_part, &p);
    for (unsigned i = 0; i < p.n_parts; i++) {
        sum += p.cpu_s[i];
    }
    return sum;
}

/* ---- memory ---- */

typedef struct {
    const uint8_t *data;
    size_t bytes;
} region;

#if defined(__x86_64__)
/* In the widest loads: with 16-byte ones a core asks for fewer lines at a time. */
__attribute__((target("avx512f"))) static uint64_t read_wide(const uint8_t *p, size_t size)
{
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};

    for (size_t i = 0; i + 256 <= size; i += 256) {
        for (size_t k = 0; k < 4; k++) {
            sum[k] = _mm512_xor_si512(sum[k], _mm512_loadu_si512(p + i + k * 64));
        }
    }
    const __m512i both = _mm512_xor_si512(sum[0], sum[1]);
    return (uint64_t)_mm512_reduce_add_epi64(
        _mm512_xor_si512(both, _mm512_xor_si512(sum[2], sum[3])));
}
#endif

#if defined(__x86_64__)
/* As four streams: on a Zen 3 one reads a fifth less. */
__attribute__((target("avx2"))) static uint64_t read_half(const uint8_t *p, size_t size)
{
    const size_t quarter = size / 4 / 64 * 64;
    __m256i sum[8];

    for (size_t k = 0; k < 8; k++) {
        sum[k] = _mm256_setzero_si256();
    }
    for (size_t i = 0; i < quarter; i += 64) {
        for (size_t k = 0; k < 8; k++) {
            const uint8_t *at = p + k / 2 * quarter + i + k % 2 * 32;
            sum[k] =
                _mm256_xor_si256(sum[k], _mm256_loadu_si256((const __m256i *)(const void *)at));
        }
    }
    for (size_t k = 1; k < 8; k++) {
        sum[0] = _mm256_xor_si256(sum[0], sum[k]);
    }
    return (uint64_t)_mm256_extract_epi64(sum[0], 0);
}
#endif

static uint64_t read_plain(const uint8_t *p, size_t size)
{
    uint64_t sum[8] = {0};

    for (size_t i = 0; i + 64 <= size; i += 64) {
        uint64_t x[8];
        memcpy(x, p + i, sizeof x);
        for (size_t j = 0; j < 8; j++) {
            sum[j] ^= x[j];
        }
    }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

/* Left to the hardware's prefetchers: nothing tried reads faster (docs/speed.md). */
static void read_part(void *ctx, unsigned part, unsigned n_parts)
{
    const region *r = ctx;
    const size_t size = r->bytes / n_parts / 64 * 64;
    const uint8_t *p = r->data + part * size;

#if defined(__x86_64__)
    if ((nw_cpu_features() & NW_CPU_AVX512) != 0) {
        sink ^= read_wide(p, size);
        return;
    }
    if ((nw_cpu_features() & NW_CPU_AVX2) != 0) {
        sink ^= read_half(p, size);
        return;
    }
#endif
    sink ^= read_plain(p, size);
}

double nw_probe_read(nw_pool *pool, const uint8_t *data, size_t bytes)
{
    region r = {data, bytes};
    return nw_probe_run(pool, read_part, &r);
}

/* ---- multiply-adds ---- */

#if defined(__x86_64__)

#define LOOPS 20000L
#define CHAINS(op, r)                                                                             \
    "1:\n" op " %%" r "14,%%" r "15,%%" r "0\n" op " %%" r "14,%%" r "15,%%" r "1\n" op " %%" r   \
    "14,%%" r "15,%%" r "2\n" op " %%" r "14,%%" r "15,%%" r "3\n" op " %%" r "14,%%" r "15,%%" r \
    "4\n" op " %%" r "14,%%" r "15,%%" r "5\n" op " %%" r "14,%%" r "15,%%" r "6\n" op " %%" r    \
    "14,%%" r "15,%%" r "7\n" op " %%" r "14,%%" r "15,%%" r "8\n" op " %%" r "14,%%" r "15,%%" r \
    "9\n" op " %%" r "14,%%" r "15,%%" r "10\n" op " %%" r "14,%%" r "15,%%" r "11\n"             \
    "dec %0\njnz 1b\nvzeroupper\n"
#define CLOBBERS                                                                                   \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11"

static void f32_zmm(long n)
{
    __asm__ volatile(CHAINS("vfmadd231ps", "zmm") : "+r"(n)::CLOBBERS);
}

static void f32_ymm(long n)
{
    __asm__ volatile(CHAINS("vfmadd231ps", "ymm") : "+r"(n)::CLOBBERS);
}

static void bf16_zmm(long n)
{
    __asm__ volatile(CHAINS("vdpbf16ps", "zmm") : "+r"(n)::CLOBBERS);
}

static void int8_zmm(long n)
{
    __asm__ volatile(CHAINS("vpdpbusd", "zmm") : "+r"(n)::CLOBBERS);
}

static void int8_ymm(long n)
{
    __asm__ volatile(CHAINS("%{vex%} vpdpbusd", "ymm") : "+r"(n)::CLOBBERS);
}

static void pairs_ymm(long n)
{
    __asm__ volatile(CHAINS("vpmaddubsw", "ymm") : "+r"(n)::CLOBBERS);
}

/* An instruction and how many products it is; of each kind the first that the processor has. */
typedef struct {
    uint32_t need;
    double lanes;
    void (*run)(long n);
} probe;
static const probe probes[][3] = {
    [NW_PEAK_F32] = {{NW_CPU_AVX512, 16, f32_zmm}, {NW_CPU_AVX2, 8, f32_ymm}},
    [NW_PEAK_BF16] = {{NW_CPU_AVX512BF16, 32, bf16_zmm}},
    [NW_PEAK_INT8] = {{NW_CPU_AVX512VNNI, 64, int8_zmm},
                      {NW_CPU_AVXVNNI, 32, int8_ymm},
                      {NW_CPU_AVX2, 32, pairs_ymm}},
};

static void peak_part(void *ctx, unsigned part, unsigned n_parts)
{
    const probe *p = ctx;

    (void)part;
    (void)n_parts;
    p->run(LOOPS);
}

double nw_probe_peak(nw_pool *pool, nw_peak kind)
{
    for (size_t i = 0; i < 3 && probes[kind][i].run != NULL; i++) {
        probe p = probes[kind][i];
        if ((nw_cpu_features() & p.need) == p.need) {
            return nw_probe_run(pool, peak_part, &p) / (12 * LOOPS * p.lanes) /
                   (double)nw_pool_threads(pool);
        }
    }
    return 0;
}

#else

double nw_probe_peak(nw_pool *pool, nw_peak kind)
{
    (void)pool;
    (void)kind;
    return 0;
}

#endif

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

double nw_median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return x[n / 2];
}
