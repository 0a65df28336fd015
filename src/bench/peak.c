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

/* Four sums of 16 x 16; an eighth of the loops, as one of these takes the time of some eight others. */
#define TILE_LOOPS 8
#define FOUR(op)                                                                              \
    op " %%tmm6,%%tmm4,%%tmm0\n" op " %%tmm7,%%tmm4,%%tmm1\n" op " %%tmm6,%%tmm5,%%tmm2\n" op \
       " %%tmm7,%%tmm5,%%tmm3\n"
#define TILES(op)                                            \
    "1:\n" FOUR(op) FOUR(op) op " %%tmm6,%%tmm4,%%tmm0\n" op \
                                " %%tmm7,%%tmm4,%%tmm1\ndec %0\njnz 1b\n"

static void open_tiles(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};

    for (unsigned i = 0; i < 8; i++) {
        shape.bytes[i] = 64;
        shape.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shape)); /* all tiles are 0 */
}

static void int8_tile(long n)
{
    open_tiles();
    n /= TILE_LOOPS;
    __asm__ volatile(TILES("tdpbsud") "tilerelease\n" : "+r"(n)::"cc");
}

static void bf16_tile(long n)
{
    open_tiles();
    n /= TILE_LOOPS;
    __asm__ volatile(TILES("tdpbf16ps") "tilerelease\n" : "+r"(n)::"cc");
}

/* The first that the processor has. */
static const probe probes[NW_PEAK_COUNT][4] = {
    [NW_PEAK_F32] = {{"vfmadd231ps zmm", NW_CPU_AVX512, 16, fma_zmm},
                     {"vfmadd231ps ymm", NW_CPU_AVX2, 8, fma_ymm}},
    [NW_PEAK_BF16] = {{"tdpbf16ps", NW_CPU_AMX, 8192 / TILE_LOOPS, bf16_tile},
                      {"vdpbf16ps zmm", NW_CPU_AVX512 | NW_CPU_AVX512BF16, 32, bf16_zmm}},
    [NW_PEAK_INT8] = {{"tdpbsud", NW_CPU_AMX, 16384 / TILE_LOOPS, int8_tile},
                      {"vpdpbusd zmm", NW_CPU_AVX512 | NW_CPU_AVX512VNNI, 64, int8_zmm},
                      {"vpdpbusd ymm", NW_CPU_AVXVNNI, 32, int8_ymm},
                      {"vpmaddubsw ymm", NW_CPU_AVX2, 32, pairs_ymm}},
};
#else
static const probe probes[NW_PEAK_COUNT][4];
#endif

static const probe *find(nw_peak_kind kind)
{
    const uint32_t have = nw_cpu_features();

    for (const probe *p = probes[kind]; p < probes[kind] + 4 && p->run != NULL; p++) {
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
