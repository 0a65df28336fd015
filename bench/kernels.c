/* Speed of every kernel of every tier this CPU runs. Linear layers, on all processors, beside a raw read
 * of the same bytes and the peak of the instruction, taken in the same short rounds (linear.h): the
 * share of the higher of the two roofs is what a kernel reaches of the machine. The element-wise
 * ops on one thread, best of many, in the thread's CPU time.
 *
 *   bench_kernels [rounds a row, default 15] [filter on the name: "int4", "nvfp4 a8", "ops"] [tier]
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
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

/* ---- element-wise ---- */

#define TIME_OP(name, n, call)                                                                    \
    do {                                                                                          \
        double best = 1e9;                                                                        \
        for (const double begin = nw_thread_cpu_s(); nw_thread_cpu_s() - begin < seconds / 10;) { \
            const double t = nw_thread_cpu_s();                                                   \
            for (int i = 0; i < 1000; i++) {                                                      \
                call;                                                                             \
            }                                                                                     \
            best = fmin(best, (nw_thread_cpu_s() - t) / 1000);                                    \
        }                                                                                         \
        printf("%-7s %-20s %6u %8.3f us %7.2f ns/value\n", k->tier, name, (unsigned)(n),          \
               best * 1e6, best * 1e9 / (n));                                                     \
    } while (0)

static void bench_ops(const nw_kernels *k)
{
    static float x[1536];
    static float y[1536];
    static float z[1536];
    static _Alignas(64) uint8_t act[8192];
    static _Alignas(64) uint8_t pages[2][64 * 64 * 4 + 256];
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
    for (int kind = 0; kind < (int)NW_KV_KINDS; kind++) {
        const nw_kv_type kv = nw_kv_type_of((nw_kv_kind)kind, (nw_kv_kind)kind, 64);
        char name[32];
        (void)snprintf(name, sizeof name, "kv_put %s", nw_kv_kind_name(kv.k));
        TIME_OP(name, 128, k->kv_put(&kv, 5, x, y, pages[0], pages[1]));
    }
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
            if (filter[0] == '\0' || strcmp(filter, "ops") == 0) {
                bench_ops(tiers[i]);
            }
        }
    }
    nw_pool_close(pool);
    return 0;
}
