/* Speed of every kernel of every tier this CPU runs. Linear layers, on all processors, beside a raw read
 * of the same bytes and the peak of the instruction, taken in the same short rounds (linear.h): the
 * share of the higher of the two roofs is what a kernel reaches of the machine. Attention and the
 * element-wise ops on one thread, best of many, in the thread's CPU time.
 *
 *   bench_kernels [rounds a row, default 15] [filter on the name: "int4", "nvfp4 a8", "attn"] [tier]
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "linear.h"

static double seconds = 0.3;
static unsigned rounds = 15;
static const char *filter = "";

/* ---- linear ---- */

static const uint32_t tokens[] = {1, 2, 4, 8, 32, 128, 512};

static void table_head(const nw_kernels *k)
{
    printf(
        "\n%s, share of the roof: the slower of reading the weights (%%r) and multiplying (%%p)\n",
        k->tier);
    printf("%-18s", "linear 2048x2048");
    for (size_t i = 0; i < NW_COUNT(tokens); i++) {
        printf(" %7u tok", tokens[i]);
    }
    printf("   1 tok: of raw, GB/s a thread\n");
}

static void bench_linears(const nw_kernels *k, nw_pool *pool)
{
    const bool ref = strcmp(k->tier, "ref") == 0;

    table_head(k);
    for (size_t i = 0; i < n_linear_kinds; i++) {
        char name[32];
        nw_linear_result first = {0};
        (void)snprintf(name, sizeof name, "%s%s", nw_linear_kinds[i].type,
                       nw_linear_kinds[i].a8 ? " a8" : " a16");
        if (strstr(name, filter) == NULL) {
            continue;
        }
        printf("%-18s", name);
        for (size_t t = 0; t < (ref ? 1 : NW_COUNT(tokens)); t++) {
            nw_linear_job j;
            nw_linear_open(
                &j, k, nw_linear_kinds[i],
                (nw_linear_shape){.n_rows = 2048, .n_cols = 2048, .n_tokens = tokens[t]});
            const nw_linear_result r = nw_linear_time(&j, pool, ref ? 3 : rounds);
            first = t == 0 ? r : first;
            printf(" %8.0f%%%s", 100 * r.of_roof, r.of_raw > r.of_peak ? "r " : "p ");
            (void)fflush(stdout);
            nw_linear_close(&j);
        }
        printf("   %5.1f%% %6.1f\n", 100 * first.of_raw, first.bytes_s * 1e-9);
    }
}

/* ---- attention ---- */

/* n_queries queries at the end of n_ctx tokens; 3 query heads of 64, as SmolLM2-135M. */
static void bench_attention(const nw_kernels *k, nw_kv_kind kind, uint32_t n_ctx,
                            uint32_t n_queries)
{
    nw_attn a = {.kv = {kind, kind, 64}, .n_rep = 3, .n_queries = n_queries, .scale = 0.125F};
    const uint32_t n_pages = (n_ctx + NW_KV_PAGE - 1) / NW_KV_PAGE;
    const size_t k_bytes = nw_kv_k_page_bytes(&a.kv);
    const size_t width = 3 * 64;
    uint32_t *table = nw_big_new(n_pages * sizeof *table);
    nw_rng rng = nw_rng_seed(3);
    float kv[2][64];

    a.page_stride = k_bytes + nw_kv_v_page_bytes(&a.kv);
    uint8_t *pool = nw_big_new(n_pages * a.page_stride);
    float *q = nw_big_new(2 * n_queries * width * sizeof *q);
    void *scratch = nw_big_new(nw_attn_scratch_bytes(64));
    for (uint32_t t = 0; t < n_ctx; t++) {
        table[t / NW_KV_PAGE] = t / NW_KV_PAGE;
        for (size_t i = 0; i < 64; i++) {
            kv[0][i] = (float)nw_rng_normal(&rng);
            kv[1][i] = (float)nw_rng_normal(&rng);
        }
        uint8_t *page = pool + t / NW_KV_PAGE * a.page_stride;
        k->kv_put(&a.kv, t % NW_KV_PAGE, kv[0], kv[1], page, page + k_bytes);
    }
    for (size_t i = 0; i < n_queries * width; i++) {
        q[i] = (float)nw_rng_normal(&rng);
    }
    a.q_pos = n_ctx - n_queries;
    a.q = q;
    a.out = q + n_queries * width;
    a.ldq = a.ldo = width;
    a.pages = table;
    a.k_base = pool;
    a.v_base = pool + k_bytes;
    a.scratch = scratch;
    double best = 1e9;
    int group = 1;
    for (const double begin = nw_cpu_s(); nw_cpu_s() - begin < seconds;) {
        double t = nw_cpu_s();
        for (int i = 0; i < group; i++) {
            k->attend(&a);
        }
        t = nw_cpu_s() - t;
        best = fmin(best, t / group);
        group *= t < 1e-3 && group < 1000 ? 2 : 1;
    }
    const double keys = (double)n_queries * ((double)a.q_pos + ((double)n_queries + 1) / 2);
    printf("%-7s %-6s %6u %6u %10.1f %8.1f %8.1f\n", k->tier, nw_kv_kind_name(kind), n_ctx,
           n_queries, best * 1e6, (double)(n_pages * a.page_stride) * 1e-9 / best,
           keys * 3 * 64 * 2 * 1e-9 / best);
    nw_big_free(table, n_pages * sizeof *table);
    nw_big_free(pool, n_pages * a.page_stride);
    nw_big_free(q, 2 * n_queries * width * sizeof *q);
    nw_big_free(scratch, nw_attn_scratch_bytes(64));
}

static void bench_attentions(const nw_kernels *k)
{
    static const nw_kv_kind kinds[] = {NW_KV_BF16, NW_KV_INT8, NW_KV_F32};

    printf("\n%-7s %-6s %6s %6s %10s %8s %8s\n", "tier", "kv", "ctx", "tok", "us", "GB/s",
           "GMAC/s");
    for (size_t i = 0; i < NW_COUNT(kinds); i++) {
        bench_attention(k, kinds[i], 128, 1);
        bench_attention(k, kinds[i], 1024, 1);
        if (strcmp(k->tier, "ref") != 0) {
            bench_attention(k, kinds[i], 4096, 1);
            bench_attention(k, kinds[i], 1024, 1024);
        }
    }
}

/* ---- element-wise ---- */

#define TIME_OP(name, n, call)                                                           \
    do {                                                                                 \
        double best = 1e9;                                                               \
        for (const double begin = nw_cpu_s(); nw_cpu_s() - begin < seconds / 10;) {      \
            const double t = nw_cpu_s();                                                 \
            for (int i = 0; i < 1000; i++) {                                             \
                call;                                                                    \
            }                                                                            \
            best = fmin(best, (nw_cpu_s() - t) / 1000);                                  \
        }                                                                                \
        printf("%-7s %-20s %6u %8.3f us %7.2f ns/value\n", k->tier, name, (unsigned)(n), \
               best * 1e6, best * 1e9 / (n));                                            \
    } while (0)

static void bench_ops(const nw_kernels *k)
{
    static float x[1536];
    static float y[1536];
    static float z[1536];
    static _Alignas(64) uint8_t act[8192];
    static _Alignas(64) uint8_t pages[2][64 * 64 * 4 + 256];
    const nw_kv_type kv = {NW_KV_BF16, NW_KV_BF16, 64};
    const nw_kv_type kv8 = {NW_KV_INT8, NW_KV_INT8, 64};
    nw_rng rng = nw_rng_seed(4);

    for (size_t i = 0; i < 1536; i++) {
        x[i] = (float)nw_rng_normal(&rng);
        y[i] = (float)nw_rng_normal(&rng);
    }
    printf("\n");
    TIME_OP("rmsnorm", 576, k->rmsnorm(x, y, 576, 1e-5F, z));
    TIME_OP("rope", 576, k->rope(x, 9, 64, y, y + 32));
    TIME_OP("silu_mul", 1536, k->silu_mul(x, y, 1536, z));
    TIME_OP("gelu_tanh_mul", 1536, k->gelu_tanh_mul(x, y, 1536, z));
    TIME_OP("add", 576, k->add(x, 576, z));
    TIME_OP("act_pack bf16", 1536, k->act_pack(NW_ACT_BF16, x, 1536, 0, 1, 1536, act));
    TIME_OP("act_pack int8", 1536, k->act_pack(NW_ACT_INT8, x, 1536, 0, 1, 1536, act));
    TIME_OP("kv_put bf16", 128, k->kv_put(&kv, 5, x, y, pages[0], pages[1]));
    TIME_OP("kv_put int8", 128, k->kv_put(&kv8, 5, x, y, pages[0], pages[1]));
}

int main(int argc, char **argv)
{
    size_t n = 0;
    const nw_kernels *const *tiers = nw_kernels_list(&n);

    const char *tier = argc > 3 ? argv[3] : "";
    nw_pool *pool = NULL;
    nw_error err = {0};

    rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : rounds;
    seconds = 0.02 * rounds;
    filter = argc > 2 ? argv[2] : filter;
    if (rounds == 0 || nw_pool_open(0, &pool, &err) != NW_OK) {
        return 2;
    }
    printf("%s, %u threads\n", nw_cpu_describe(), nw_pool_threads(pool));
    for (size_t i = 0; i < n; i++) {
        if ((tiers[i]->need & nw_cpu_features()) == tiers[i]->need &&
            strstr(tiers[i]->tier, tier) != NULL) {
            bench_linears(tiers[i], pool);
            if (filter[0] == '\0' || strcmp(filter, "attn") == 0) {
                bench_attentions(tiers[i]);
                bench_ops(tiers[i]);
            }
        }
    }
    nw_pool_close(pool);
    return 0;
}
