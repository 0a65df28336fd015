/* Speed of attention of the best tier this CPU runs, on one thread: every pair of key and value formats
 * at a depth, decode (one query token) in GB/s of pages beside a raw read of the same bytes, and
 * prefill (16 query tokens) in GMAC/s beside the peak of BF16, or of F32 where
 * there is none. Times are the thread's CPU time, the
 * medians of rounds in which probe and kernel take turns, so that neighbours disturb both alike.
 *
 *   bench_attention [seconds per row, default 0.3] [tier] [d_head, default 64] [query heads, 4]
 *                   [only pairs that begin with this] [a16 | a8: activations] [rows | table]
 *
 * `table` prints the pairs of a depth as the Markdown table of docs/speed.md: time of one query token, its
 * share of the raw read, share of that peak that 16 query tokens reach.
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

/* What one pair at one depth takes. */
typedef struct {
    double bytes, macs;
    double decode_s, raw_s,
        cached_s;             /* one query token: from memory, a raw read, again and again */
    double prefill_s, peak_s; /* 16 query tokens, and as many products at the peak */
} result;

static result run_pair(const nw_kernels *k, nw_kv_type kv, uint32_t n_rep, uint32_t n_ctx)
{
    bench b;
    result r = {.macs = 16.0 * n_rep * kv.d_head * 2 * (n_ctx - 7.5)};
    double raw_s = 0;

    open_bench(&b, k, kv, n_rep, n_ctx, 1);
    r.bytes = (double)b.unit_bytes * (n_ctx / NW_KV_PAGE);
    measure(&b, k, b.n_units, &r.decode_s, &r.raw_s);
    measure(&b, k, 1, &r.cached_s, &raw_s); /* what fits stays in L2 or L3 */
    close_bench(&b);
    open_bench(&b, k, kv, n_rep, n_ctx, 16);
    measure(&b, k, 1, &r.prefill_s, &raw_s);
    r.peak_s = r.macs * nw_probe_peak(one, NW_PEAK_BF16);
    if (r.peak_s <= 0) { /* no such instruction: that of F32 */
        r.peak_s = r.macs * nw_probe_peak(one, NW_PEAK_F32);
    }
    close_bench(&b);
    return r;
}

static void print_row(const nw_kernels *k, const char *name, uint32_t n_ctx, const result *r)
{
    printf("%-7s %-10s %6u %8.1f %8.1f %6.0f%% %8.1f %10.1f %8.1f %6.0f%%\n", k->tier, name, n_ctx,
           r->decode_s * 1e6, r->bytes * 1e-9 / r->decode_s, 100 * r->raw_s / r->decode_s,
           r->bytes * 1e-9 / r->cached_s, r->prefill_s * 1e6, r->macs * 1e-9 / r->prefill_s,
           100 * r->peak_s / r->prefill_s);
}

/* All pairs at a depth, a row of the table for each kind of keys. */
static void run_depth(const nw_kernels *k, uint32_t d_head, uint32_t n_rep, uint32_t n_ctx,
                      bool table)
{
    if (table) {
        printf("\nDepth %u%s\n\n| keys \\ values |", n_ctx, a8 ? ", 8-bit activations" : "");
        for (int v = 0; v < (int)NW_KV_KINDS; v++) {
            printf(" %s |", nw_kv_kind_name((nw_kv_kind)v));
        }
        printf("\n|---|---|---|---|---|---|");
    }
    for (int pair = 0; pair < (int)(NW_KV_KINDS * NW_KV_KINDS); pair++) {
        const nw_kv_kind key = (nw_kv_kind)(pair / (int)NW_KV_KINDS);
        const nw_kv_kind value = (nw_kv_kind)(pair % (int)NW_KV_KINDS);
        char name[32];
        (void)snprintf(name, sizeof name, "%s/%s", nw_kv_kind_name(key), nw_kv_kind_name(value));
        if (strncmp(name, only, strlen(only)) != 0) {
            continue;
        }
        const result r = run_pair(k, nw_kv_type_of(key, value, d_head), n_rep, n_ctx);
        if (!table) {
            print_row(k, name, n_ctx, &r);
        } else {
            if (value == NW_KV_F32) {
                printf("\n| %s |", nw_kv_kind_name(key));
            }
            printf(" %.0f µs, %.0f%%, %.0f%% |", r.decode_s * 1e6, 100 * r.raw_s / r.decode_s,
                   100 * r.peak_s / r.prefill_s);
        }
        (void)fflush(stdout);
    }
    if (table) {
        printf("\n");
    }
}

static void run_depths(const nw_kernels *k, uint32_t d_head, uint32_t n_rep, bool table)
{
    static const uint32_t depths[] = {4096, 16384, 32768};

    if (!table) {
        printf("%-7s %-10s %6s %8s %8s %7s %8s %10s %8s %7s\n", "tier", "keys/vals", "depth", "us",
               "GB/s", "of raw", "cached", "us of 16", "GMAC/s", "of peak");
    }
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        run_depth(k, d_head, n_rep, depths[i], table);
    }
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
    const bool table = argc > 7 && strcmp(argv[7], "table") == 0;
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
    run_depths(k, d_head, n_rep, table);
    nw_pool_close(one);
    return 0;
}
