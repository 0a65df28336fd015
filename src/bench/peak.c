/* Peak of multiply-adds: see peak.h. Ten chains hide a latency of four or five cycles at two
 * instructions a cycle. The probe is assembly, because a compiler would fold the chains.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/peak.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/cpu.h"

#define LOOPS  40000L /* below a millisecond */
#define ROUNDS 8
#define CHAINS 10

const char *nw_peak_name(nw_peak_kind kind)
{
    static const char *const names[] = {
#define NW_PEAK_TEXT(name, text) text,
        NW_PEAK_MAP(NW_PEAK_TEXT)
#undef NW_PEAK_TEXT
    };
    return names[kind];
}

typedef struct {
    const char *name;
    uint32_t need; /* nw_cpu_feature bits */
    unsigned macs; /* of one instruction */
    void (*run)(long loops);
} probe;

#if defined(__x86_64__)
#define CHAIN(op, r) op " %%" r "14,%%" r "15,%%" r
#define TEN(op, r)                                                                                 \
    "1:\n" CHAIN(op, r) "0\n" CHAIN(op, r) "1\n" CHAIN(op, r) "2\n" CHAIN(op, r) "3\n" CHAIN(      \
        op,                                                                                        \
        r) "4\n" CHAIN(op,                                                                         \
                       r) "5\n" CHAIN(op,                                                          \
                                      r) "6\n" CHAIN(op,                                           \
                                                     r) "7\n" CHAIN(op,                            \
                                                                    r) "8\n" CHAIN(op,             \
                                                                                   r) "9\ndec "    \
                                                                                      "%0\njnz "   \
                                                                                      "1b\nvzerou" \
                                                                                      "pper\n"
#define CLOBBERS \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9"

static void fma_zmm(long n)
{
    __asm__ volatile(TEN("vfmadd231ps", "zmm") : "+r"(n)::CLOBBERS);
}

static void fma_ymm(long n)
{
    __asm__ volatile(TEN("vfmadd231ps", "ymm") : "+r"(n)::CLOBBERS);
}

static void bf16_zmm(long n)
{
    __asm__ volatile(TEN("vdpbf16ps", "zmm") : "+r"(n)::CLOBBERS);
}

static void int8_zmm(long n)
{
    __asm__ volatile(TEN("vpdpbusd", "zmm") : "+r"(n)::CLOBBERS);
}

static void int8_ymm(long n)
{
    __asm__ volatile(TEN("%{vex%} vpdpbusd", "ymm") : "+r"(n)::CLOBBERS);
}

static void pairs_ymm(long n)
{
    __asm__ volatile(TEN("vpmaddubsw", "ymm") : "+r"(n)::CLOBBERS);
}

/* The first that the processor has. */
static const probe probes[NW_PEAK_COUNT][3] = {
    [NW_PEAK_F32] = {{"vfmadd231ps zmm", NW_CPU_AVX512, 16, fma_zmm},
                     {"vfmadd231ps ymm", NW_CPU_AVX2, 8, fma_ymm}},
    [NW_PEAK_BF16] = {{"vdpbf16ps zmm", NW_CPU_AVX512 | NW_CPU_AVX512BF16, 32, bf16_zmm}},
    [NW_PEAK_INT8] = {{"vpdpbusd zmm", NW_CPU_AVX512 | NW_CPU_AVX512VNNI, 64, int8_zmm},
                      {"vpdpbusd ymm", NW_CPU_AVXVNNI, 32, int8_ymm},
                      {"vpmaddubsw ymm", NW_CPU_AVX2, 32, pairs_ymm}},
};
#else
static const probe probes[NW_PEAK_COUNT][3];
#endif

static const probe *find(nw_peak_kind kind)
{
    const uint32_t have = nw_cpu_features();

    for (const probe *p = probes[kind]; p < probes[kind] + 3 && p->run != NULL; p++) {
        if ((p->need & have) == p->need) {
            return p;
        }
    }
    return NULL;
}

const char *nw_peak_instruction(nw_peak_kind kind)
{
    const probe *p = find(kind);
    return p != NULL ? p->name : NULL;
}

double nw_peak_thread(nw_peak_kind kind)
{
    const probe *p = find(kind);
    double best = 0;

    for (int i = 0; p != NULL && i < ROUNDS; i++) {
        const double start = nw_thread_cpu_s();
        p->run(LOOPS);
        const double rate = (double)LOOPS * CHAINS * p->macs / (nw_thread_cpu_s() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

typedef struct {
    nw_peak_kind kind;
    double *rate;
} job;

static void measure_item(void *ctx, size_t item, unsigned worker)
{
    const job *j = ctx;
    (void)worker;
    j->rate[item] = nw_peak_thread(j->kind);
}

double nw_peak_pool(nw_pool *pool, nw_peak_kind kind)
{
    double rate[64] = {0};
    const unsigned all = nw_pool_threads(pool);
    const unsigned n = all < 64 ? all : 64;
    double sum = 0;
    job j = {kind, rate};

    nw_pool_run(pool, n, measure_item, &j);
    for (unsigned i = 0; i < n; i++) {
        sum += rate[i];
    }
    return sum * all / n;
}
