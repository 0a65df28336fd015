/* Speed of attention of the best tier this CPU runs, on one thread: every pair of key and value formats
 * at a depth, decode (one query token) in GB/s of pages beside a raw read of the same bytes, and
 * prefill (16 query tokens) in GMAC/s beside the peak of BF16. Times are the thread's CPU time, the
 * medians of rounds in which probe and kernel take turns, so that neighbours disturb both alike.
 *
 *   bench_attention [seconds per row, default 0.3] [tier] [d_head, default 64] [query heads, 4]
 *                   [only pairs that begin with this]
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "probe.h"

#define MAX_ROUNDS   1000
#define MAX_HEAD     512u
#define MEMORY_BYTES ((size_t)160 << 20) /* beyond any cache here */

static double seconds = 0.3;
static const char *only = "";
static bool a8;
static nw_pool *one; /* thread */

typedef struct {
    nw_attn a;
    uint32_t n_ctx, n_units; /* units: layers and kv heads, side by side in a pool page */
    uint8_t *pool;
    size_t pool_bytes, unit_bytes;
    float *q, *out;
} bench;

/* A page, copied to all places of the pool. */
static void fill(bench *b, const nw_kernels *k)
{
    nw_rng rng = nw_rng_seed(3);
    float kv[2][MAX_HEAD];
    const size_t k_bytes = nw_kv_k_page_bytes(&b->a.kv);

    for (uint32_t t = 0; t < NW_KV_PAGE; t++) {
        for (uint32_t i = 0; i < b->a.kv.d_head; i++) {
            kv[0][i] = (float)nw_rng_normal(&rng);
            kv[1][i] = (float)nw_rng_normal(&rng);
        }
        k->kv_put(&b->a.kv, t, kv[0], kv[1], b->pool, b->pool + k_bytes);
    }
    for (size_t at = b->unit_bytes; at < b->pool_bytes; at += b->unit_bytes) {
        memcpy(b->pool + at, b->pool, b->unit_bytes);
    }
    for (size_t i = 0; i < (size_t)b->a.n_queries * b->a.ldq; i++) {
        b->q[i] = (float)nw_rng_normal(&rng);
    }
}

static void open_bench(bench *b, const nw_kernels *k, nw_kv_type kv, uint32_t n_rep, uint32_t n_ctx,
                       uint32_t n_queries)
{
    const uint32_t n_pages = n_ctx / NW_KV_PAGE;
    uint32_t *table = nw_big_new(n_pages * sizeof *table);

    *b = (bench){.a = {.kv = kv, .n_rep = n_rep, .n_queries = n_queries, .scale = 0.125F, .a8 = a8},
                 .n_ctx = n_ctx};
    b->unit_bytes = nw_kv_k_page_bytes(&kv) + nw_kv_v_page_bytes(&kv);
    b->n_units = (uint32_t)(MEMORY_BYTES / (b->unit_bytes * n_pages)) + 1;
    b->pool_bytes = b->unit_bytes * n_pages * b->n_units;
    b->pool = nw_big_new(b->pool_bytes);
    b->a.ldq = b->a.ldo = (size_t)n_rep * kv.d_head;
    b->q = nw_big_new(n_queries * b->a.ldq * sizeof(float));
    b->out = nw_big_new(n_queries * b->a.ldq * sizeof(float));
    for (uint32_t p = 0; p < n_pages; p++) {
        table[p] = p;
    }
    fill(b, k);
    b->a.q_pos = n_ctx - n_queries;
    b->a.q = b->q;
    b->a.out = b->out;
    b->a.pages = table;
    b->a.page_stride = b->unit_bytes * b->n_units;
    b->a.scratch = nw_big_new(nw_attn_scratch_bytes(kv.d_head));
}

static void close_bench(bench *b)
{
    const size_t rows = b->a.n_queries * b->a.ldq * sizeof(float);
    nw_big_free(b->pool, b->pool_bytes);
    nw_big_free(b->q, rows);
    nw_big_free(b->out, rows);
    nw_big_free(b->a.scratch, nw_attn_scratch_bytes(b->a.kv.d_head));
}

static void attend(bench *b, const nw_kernels *k, uint32_t unit)
{
    b->a.k_base = b->pool + unit * b->unit_bytes;
    b->a.v_base = b->a.k_base + nw_kv_k_page_bytes(&b->a.kv);
    k->attend(&b->a);
}

/* Seconds of one unit: `units` of them a round, from a cold cache where they are many; and of a raw
 * read of the same bytes. */
static void measure(bench *b, const nw_kernels *k, uint32_t units, double *kernel_s, double *raw_s)
{
    static double kernel[MAX_ROUNDS];
    static double raw[MAX_ROUNDS];
    size_t n = 0;

    for (const double begin = nw_thread_cpu_s();
         n < MAX_ROUNDS && (n < 5 || nw_thread_cpu_s() - begin < seconds); n++) {
        double t = nw_thread_cpu_s();
        for (uint32_t u = 0; u < units; u++) {
            attend(b, k, u);
        }
        kernel[n] = (nw_thread_cpu_s() - t) / units;
        raw[n] = nw_probe_read(one, b->pool, b->pool_bytes) / b->n_units;
    }
    *kernel_s = nw_median(kernel, n);
    *raw_s = nw_median(raw, n);
}

static void row(const nw_kernels *k, nw_kv_type kv, uint32_t n_rep, uint32_t n_ctx)
{
    bench b;
    double kernel_s = 0;
    double raw_s = 0;
    char name[32];

    (void)snprintf(name, sizeof name, "%s/%s", nw_kv_kind_name(kv.k), nw_kv_kind_name(kv.v));
    if (strncmp(name, only, strlen(only)) != 0) {
        return;
    }
    open_bench(&b, k, kv, n_rep, n_ctx, 1);
    const double bytes = (double)b.unit_bytes * (n_ctx / NW_KV_PAGE);
    measure(&b, k, b.n_units, &kernel_s, &raw_s);
    printf("%-7s %-10s %6u %8.1f %8.1f %6.0f%%", k->tier, name, n_ctx, kernel_s * 1e6,
           bytes * 1e-9 / kernel_s, 100 * raw_s / kernel_s);
    measure(&b, k, 1, &kernel_s, &raw_s); /* again and again: what fits stays in L2 or L3 */
    printf(" %8.1f", bytes * 1e-9 / kernel_s);
    close_bench(&b);
    open_bench(&b, k, kv, n_rep, n_ctx, 16);
    measure(&b, k, 1, &kernel_s, &raw_s);
    const double macs = 16.0 * n_rep * kv.d_head * 2 * (n_ctx - 7.5);
    printf(" %10.1f %8.1f %6.0f%%\n", kernel_s * 1e6, macs * 1e-9 / kernel_s,
           100 * macs * nw_probe_peak(one, NW_PEAK_BF16) / kernel_s);
    (void)fflush(stdout);
    close_bench(&b);
}

int main(int argc, char **argv)
{
    const nw_kernels *k = nw_kernels_pick(nw_cpu_features());
    const uint32_t d_head = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 64;
    const uint32_t n_rep = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 4;

    nw_error err = {0};

    seconds = argc > 1 ? strtod(argv[1], NULL) : seconds;
    only = argc > 5 ? argv[5] : only;
    a8 = argc > 6 && strcmp(argv[6], "a8") == 0;
    if (argc > 2 && argv[2][0] != '\0') {
        k = nw_kernels_by_name(argv[2]);
    }
    if (k == NULL || d_head < 2 || d_head > MAX_HEAD || n_rep < 1 || n_rep > 64) {
        (void)fprintf(stderr, "bench_attention: no such tier, or a head out of range\n");
        return 2;
    }
    if (nw_pool_open(1, &one, &err) != NW_OK) {
        (void)fprintf(stderr, "bench_attention: %s\n", err.message);
        return 4;
    }
    printf("%s\n%u query heads of %u values share a kv head\n", nw_cpu_describe(), n_rep, d_head);
    printf("%-7s %-10s %6s %8s %8s %7s %8s %10s %8s %7s\n", "tier", "keys/vals", "depth", "us",
           "GB/s", "of raw", "cached", "us of 16", "GMAC/s", "of peak");
    for (uint32_t n_ctx = 4096; n_ctx <= 16384; n_ctx *= 4) {
        for (int pair = 0; pair < (int)(NW_KV_KINDS * NW_KV_KINDS); pair++) {
            const nw_kv_kind key = (nw_kv_kind)(pair / (int)NW_KV_KINDS);
            row(k, nw_kv_type_of(key, (nw_kv_kind)(pair % (int)NW_KV_KINDS), d_head), n_rep, n_ctx);
        }
    }
    nw_pool_close(one);
    return 0;
}
