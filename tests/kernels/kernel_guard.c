/* Holds the speed of the AMX kernels, or of the AVX-512 or AVX2 ones where that is what there is, to the roofs of the machine at the moment: products on one
 * thread as a share of the live peak of their instruction, one token's layer on all threads as a
 * share of the live raw read. A share is the median of many short rounds of probe and kernel in the
 * threads' CPU time. The floors are two thirds of what was measured (docs/speed.md), so that what
 * costs a factor of 1.5 shows: registers spilled, rows of a tile on the same sets of a cache.
 *
 * Noise alone must not fail it: a row below its floor is measured again up to TRIES times and fails
 * only when every time is below; where the roofs themselves vary too much it stays undecided.
 * Skipped, with the reason, on processors without the instructions and in builds not made for speed.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "linear.h"

#define SKIPPED    77
#define TRIES      4
#define ROUNDS     41u
#define MAX_SPREAD 0.30 /* (upper - lower quartile) / median of a roof */

typedef struct {
    nw_linear_kind kind;
    double floor;
} row;

/* Share of the peak with 96 tokens; weights stay in the L2 cache. */
static const row products_avx512[] = {
    {{"bf16", false}, 0.62},      {{"fp8-e4m3", false}, 0.55}, {{"bf16-12", false}, 0.50},
    {{"int8", true}, 0.64},       {{"int8", false}, 0.58},     {{"int4-g128", true}, 0.55},
    {{"int4-g128", false}, 0.58}, {{"int4-g32", true}, 0.54},  {{"int4-g32", false}, 0.56},
    {{"nvfp4", true}, 0.40},      {{"nvfp4", false}, 0.48},    {{"mxfp4", true}, 0.52},
};
static const row products_amx[] = {
    {{"bf16", false}, 0.30}, {{"bf16-12", false}, 0.18},  {{"int8", true}, 0.32},
    {{"int8", false}, 0.20}, {{"int4-g128", true}, 0.18}, {{"int4-g128", false}, 0.18},
};
static const row products_avx2[] = {
    {{"int8", true}, 0.40},       {{"int8", false}, 0.38},    {{"int4-g128", true}, 0.34},
    {{"int4-g128", false}, 0.36}, {{"int4-g32", true}, 0.32}, {{"int4-g32", false}, 0.34},
    {{"nvfp4", true}, 0.22},      {{"nvfp4", false}, 0.28},   {{"mxfp4", true}, 0.27},
};

/* Share of the raw read with one token; weights come from memory. */
static const row streams_avx512[] = {
    {{"bf16", false}, 0.58},     {{"int8", false}, 0.54},      {{"int8", true}, 0.56},
    {{"int4-g32", false}, 0.58}, {{"int4-g128", false}, 0.60}, {{"int4-g32", true}, 0.62},
    {{"fp8-e4m3", false}, 0.52}, {{"nvfp4", false}, 0.54},     {{"mxfp4", false}, 0.56},
};
static const row streams_avx2[] = {
    {{"int8", false}, 0.60},    {{"int8", true}, 0.60},      {{"int4-g32", false}, 0.52},
    {{"int4-g32", true}, 0.60}, {{"int4-g128", true}, 0.60}, {{"mxfp4", true}, 0.56},
};

/* A tier, and processors whose roofs are not those of its instructions. */
static const struct {
    const char *tier;
    uint32_t unless; /* nw_cpu_feature bits */
    const row *products, *streams;
    size_t n_products, n_streams;
} held[] = {
    {"amx", 0, products_amx, streams_avx512, NW_COUNT(products_amx), NW_COUNT(streams_avx512)},
    {"avx512", NW_CPU_AMX, products_avx512, streams_avx512, NW_COUNT(products_avx512),
     NW_COUNT(streams_avx512)},
    {"avx2", NW_CPU_AVX512 | NW_CPU_AVXVNNI, products_avx2, streams_avx2, NW_COUNT(products_avx2),
     NW_COUNT(streams_avx2)},
};

typedef enum { HELD, FELL, UNDECIDED, VERDICTS } verdict;
static const char *const verdicts[VERDICTS] = {"held", "FELL", "undecided"};

typedef struct {
    double share, spread; /* the best share of all tries, the largest spread of the roof */
} tried;

static tried measure(const nw_kernels *k, nw_pool *pool, const row *r, bool memory)
{
    const nw_linear_shape cached = {.n_rows = 256, .n_cols = 2048, .n_tokens = 96, .cached = true};
    const nw_linear_shape large = {.n_rows = 2048, .n_cols = 2048, .n_tokens = 1};
    tried best = {0};
    nw_linear_job j;

    nw_linear_open(&j, k, r->kind, memory ? large : cached);
    for (unsigned i = 0; i < TRIES && best.share < r->floor; i++) {
        const nw_linear_result x = nw_linear_time(&j, pool, ROUNDS);
        best.share = fmax(best.share, memory ? x.of_raw : x.of_peak);
        best.spread = fmax(best.spread, memory ? x.raw_spread : x.peak_spread);
    }
    nw_linear_close(&j);
    return best;
}

static verdict judge(const nw_kernels *k, nw_pool *pool, const row *r, bool memory)
{
    const char *roof = memory ? "raw read" : "peak";
    const tried t = measure(k, pool, r, memory);
    const verdict v = t.share >= r->floor ? HELD : t.spread > MAX_SPREAD ? UNDECIDED : FELL;

    printf("%-9s %-10s %-4s %5.1f %% of the %s, floor %.0f %%", verdicts[v], r->kind.type,
           r->kind.a8 ? "a8" : "a16", 100 * t.share, roof, 100 * r->floor);
    if (v == UNDECIDED) {
        printf("; the %s varied by %.0f %%", roof, 100 * t.spread);
    }
    printf("\n");
    (void)fflush(stdout);
    return v;
}

#ifndef NDEBUG
#define BUILD_REASON "built with assertions, not for speed"
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BUILD_REASON "built with a sanitizer"
#else
#define BUILD_REASON NULL
#endif

/* The row of `held` for this processor, NW_COUNT(held) for none. */
static size_t held_here(void)
{
    size_t i = 0;

    for (; i < NW_COUNT(held); i++) {
        const nw_kernels *k = nw_kernels_by_name(held[i].tier);
        if (k != NULL && (k->need & nw_cpu_features()) == k->need &&
            (held[i].unless & nw_cpu_features()) == 0) {
            break;
        }
    }
    return i;
}

static int judge_all(size_t at, nw_pool *one, nw_pool *all)
{
    const nw_kernels *k = nw_kernels_by_name(held[at].tier);
    unsigned n[VERDICTS] = {0};

    printf("%s\n", k->tier);
    for (size_t i = 0; i < held[at].n_products; i++) {
        n[judge(k, one, &held[at].products[i], false)]++;
    }
    for (size_t i = 0; i < held[at].n_streams; i++) {
        n[judge(k, all, &held[at].streams[i], true)]++;
    }
    printf("%u held, %u fell, %u undecided\n", n[HELD], n[FELL], n[UNDECIDED]);
    if (n[HELD] + n[FELL] == 0) {
        printf("kernel_guard: skipped: the machine is too noisy to tell\n");
        return SKIPPED;
    }
    return n[FELL] > 0 ? 1 : 0;
}

int main(void)
{
    const size_t at = held_here();
    const char *why = at < NW_COUNT(held) ? BUILD_REASON : "no speed is held on this processor";
    nw_pool *one = NULL;
    nw_pool *all = NULL;
    nw_error err = {0};
    int code = SKIPPED;

    if (why == NULL &&
        (nw_pool_open(1, &one, &err) != NW_OK || nw_pool_open(0, &all, &err) != NW_OK)) {
        why = err.message;
    }
    if (why != NULL) {
        printf("kernel_guard: skipped: %s\n", why);
    } else {
        code = judge_all(at, one, all);
    }
    nw_pool_close(one);
    nw_pool_close(all);
    return code;
}
