/* Speed of every kernel of every tier this CPU runs, on one thread: GB/s of weights or pages beside a
 * raw read of the same bytes, GMAC/s beside the peak of the instruction, and the ratio to the
 * reference. Times are the thread's CPU time, the best of rounds in which probe and kernel take
 * turns, so that neighbours on the machine disturb both alike.
 *
 *   bench_kernels [seconds per row, default 0.3] [filter on the name]
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "formats/half.h"

#define MEMORY_BYTES ((size_t)160 << 20) /* beyond any cache here */
#define MAX_COLS     2048

static volatile uint64_t sink; /* keeps the probe from being optimized away */
static double seconds = 0.3;
static const char *filter = "";

static double cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *pages_new(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(4);
    }
    (void)madvise(p, size, MADV_HUGEPAGE);
    memset(p, 0, size);
    return p;
}

/* ---- probes ---- */

/* Eight streams side by side, as the decode kernels read eight panels: one stream alone leaves
 * memory idle. */
static uint64_t read_all(const uint8_t *p, size_t size)
{
    const size_t part = size / 8 / 64 * 64;
    uint64_t sum[8] = {0};

    for (size_t i = 0; i < part; i += 64) {
        for (size_t k = 0; k < 8; k++) {
            uint64_t x[8];
            memcpy(x, p + k * part + i, sizeof x);
            for (size_t j = 0; j < 8; j++) {
                sum[j] ^= x[j];
            }
        }
    }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

typedef enum { PEAK_F32, PEAK_BF16, PEAK_INT8 } peak_kind;

/* GMAC/s of ten independent chains of the tier's best multiply-add; 0 where none is known. */
static double peak_gmacs(const nw_kernels *tier, peak_kind kind)
{
    double best = 0;
#if defined(__x86_64__)
    static const double macs[] = {[PEAK_F32] = 16, [PEAK_BF16] = 32, [PEAK_INT8] = 64};
    const long loops = 200000;

#define CHAINS(op)                                                                               \
    "1:\n" op " %%zmm14,%%zmm15,%%zmm0\n" op " %%zmm14,%%zmm15,%%zmm1\n" op                      \
    " %%zmm14,%%zmm15,%%zmm2\n" op " %%zmm14,%%zmm15,%%zmm3\n" op " %%zmm14,%%zmm15,%%zmm4\n" op \
    " %%zmm14,%%zmm15,%%zmm5\n" op " %%zmm14,%%zmm15,%%zmm6\n" op " %%zmm14,%%zmm15,%%zmm7\n" op \
    " %%zmm14,%%zmm15,%%zmm8\n" op " %%zmm14,%%zmm15,%%zmm9\n"                                   \
    "dec %0\njnz 1b\n"
#define CLOBBERS \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9"
    for (int i = 0; i < 5 && strcmp(tier->tier, "avx512") == 0; i++) {
        long n = loops;
        const double t = cpu_s();
        if (kind == PEAK_F32) {
            __asm__ volatile(CHAINS("vfmadd231ps") : "+r"(n)::CLOBBERS);
        } else if (kind == PEAK_BF16) {
            __asm__ volatile(CHAINS("vdpbf16ps") : "+r"(n)::CLOBBERS);
        } else {
            __asm__ volatile(CHAINS("vpdpbusd") : "+r"(n)::CLOBBERS);
        }
        best = fmax(best, 10 * (double)loops * macs[kind] * 1e-9 / (cpu_s() - t));
    }
    __asm__ volatile("vzeroupper");
#else
    (void)tier;
    (void)kind;
#endif
    return best;
}

/* ---- linear ---- */

typedef struct {
    const char *name;
    const char *type;
    bool a8;
    peak_kind peak;
} linear_row;

static const linear_row linear_rows[] = {
    {"bf16", "bf16", false, PEAK_BF16},
    {"int8-a8", "int8", true, PEAK_INT8},
    {"int8-a16", "int8", false, PEAK_BF16},
    {"int4-g32-a16", "int4-g32", false, PEAK_BF16},
    {"int4-g64-a16", "int4-g64", false, PEAK_BF16},
    {"int4-g128-a16", "int4-g128", false, PEAK_BF16},
    {"int4-g64-zp-a16", "int4-g64-zp", false, PEAK_BF16},
    {"int4-g32-a8", "int4-g32", true, PEAK_INT8},
    {"int4-g64-a8", "int4-g64", true, PEAK_INT8},
    {"int4-g128-a8", "int4-g128", true, PEAK_INT8},
    {"int4-g64-zp-a8", "int4-g64-zp", true, PEAK_INT8},
    {"f32", "f32", false, PEAK_F32},
};

/* One panel of plausible weights, copied as often as asked for. */
static uint8_t *weights_new(nw_panel_type type, uint32_t n_cols, uint32_t n_panels, size_t *size)
{
    static float f[16][MAX_COLS];
    static uint16_t h[16][MAX_COLS];
    static int8_t i8[16][MAX_COLS];
    static uint8_t u4[16][MAX_COLS];
    static uint16_t half[16][MAX_COLS / 32];
    static uint8_t zeros[16][MAX_COLS / 32];
    static const float scales[16] = {0.01F, 0.02F, 0.03F, 0.04F};
    nw_rng rng = nw_rng_seed(1);
    size_t panel = 0;

    for (uint32_t r = 0; r < 16; r++) {
        for (uint32_t c = 0; c < n_cols; c++) {
            f[r][c] = (float)nw_rng_normal(&rng);
            h[r][c] = nw_bf16_from_f32(f[r][c]);
            i8[r][c] = (int8_t)((int)nw_rng_below(&rng, 255) - 127);
            u4[r][c] = (uint8_t)nw_rng_below(&rng, 16);
            half[r][c / 32] = 0x2000;
            zeros[r][c / 32] = 7;
        }
    }
    if (!nw_panel_bytes(type, n_cols, &panel) || !nw_size_mul(panel, n_panels, size)) {
        exit(2);
    }
    uint8_t *w = pages_new(*size);
    for (uint32_t p = 0; p < n_panels; p++) {
        uint8_t *at = w + p * panel;
        if (p > 0) {
            memcpy(at, w, panel);
        } else if (type.kind == NW_PANEL_F32) {
            nw_panel_pack_f32(f[0], MAX_COLS, 16, n_cols, at);
        } else if (type.kind == NW_PANEL_BF16) {
            nw_panel_pack_bf16(h[0], MAX_COLS, 16, n_cols, at);
        } else if (type.kind == NW_PANEL_INT8) {
            nw_panel_pack_int8(i8[0], MAX_COLS, scales, 16, n_cols, at);
        } else {
            nw_panel_pack_int4(type, u4[0], MAX_COLS, half[0], type.zero_point ? zeros[0] : NULL,
                               MAX_COLS / 32, 16, n_cols, at);
        }
    }
    return w;
}

typedef struct {
    double kernel_s, raw_s; /* best times of one call, and of one raw read of the same bytes */
} timing;

/* w is one matrix of a pool of `size` bytes that is walked through; at least a whole pool, and
 * about a millisecond or more, between two looks at the clock. */
static timing time_linear(const nw_kernels *k, nw_weight w, const nw_act *a, float *y, size_t size)
{
    const uint32_t panels = nw_panel_count(w.n_rows);
    const uint8_t *pool = w.data;
    size_t bytes = 0;
    timing best = {1e9, 1e9};
    const double begin = cpu_s();
    int group = 1;

    if (!nw_panel_tensor_bytes(w.type, w.n_rows, w.n_cols, &bytes)) {
        exit(2);
    }
    const size_t n = size / bytes;
    while (cpu_s() - begin < seconds) {
        double t = cpu_s();
        for (int i = 0; i < group; i++) {
            for (size_t m = 0; m < n; m++) {
                w.data = pool + m * bytes;
                k->linear(&w, a, 0, panels, y, w.n_rows);
            }
        }
        t = cpu_s() - t;
        best.kernel_s = fmin(best.kernel_s, t / group);
        if (t < 1e-3 && group < 1000) {
            group *= 2;
        }
        t = cpu_s();
        sink ^= read_all(pool, size);
        best.raw_s = fmin(best.raw_s, cpu_s() - t);
    }
    return best;
}

/* n_matrices: 0 for as many as make the memory-bound size. */
static void bench_linear(const nw_kernels *k, const linear_row *r, uint32_t n_rows, uint32_t n_cols,
                         uint32_t n_tokens, uint32_t n_matrices)
{
    nw_panel_type type = {0};
    size_t size = 0;
    size_t panel = 0;

    if (!nw_panel_parse(r->type, &type) || !nw_panel_bytes(type, n_cols, &panel)) {
        exit(2);
    }
    if (n_matrices == 0) {
        n_matrices = (uint32_t)(MEMORY_BYTES / (panel * (n_rows / 16)));
    }
    uint8_t *w = weights_new(type, n_cols, n_rows / 16 * n_matrices, &size);
    const nw_act_kind kind = k->act_kind(type, r->a8);
    const size_t act_size = nw_act_bytes(kind, n_tokens, n_cols);
    float *x = pages_new((size_t)n_tokens * n_cols * sizeof *x);
    float *y = pages_new((size_t)n_tokens * n_rows * sizeof *y);
    uint8_t *act = pages_new(act_size);
    nw_rng rng = nw_rng_seed(2);
    for (size_t i = 0; i < (size_t)n_tokens * n_cols; i++) {
        x[i] = (float)nw_rng_normal(&rng);
    }
    k->act_pack(kind, x, n_cols, 0, n_tokens, n_cols, act);
    const nw_weight weight = {type, w, n_rows, n_cols};
    const nw_act a = {kind, n_tokens, n_cols, act};
    const timing t = time_linear(k, weight, &a, y, size);
    const double macs = (double)n_rows * n_cols * n_tokens * n_matrices;
    const double peak = peak_gmacs(k, kind == NW_ACT_F32 ? PEAK_F32 : r->peak);
    printf("%-7s %-16s %5ux%-5u x%-4u %5u %10.1f %7.1f %6.0f%% %8.1f %6.0f%%\n", k->tier, r->name,
           n_rows, n_cols, n_matrices, n_tokens, t.kernel_s * 1e6 / n_matrices,
           (double)size * 1e-9 / t.kernel_s, 100 * t.raw_s / t.kernel_s, macs * 1e-9 / t.kernel_s,
           peak > 0 ? 100 * macs * 1e-9 / t.kernel_s / peak : 0);
    (void)fflush(stdout);
    (void)munmap(w, size);
    (void)munmap(x, (size_t)n_tokens * n_cols * sizeof *x);
    (void)munmap(y, (size_t)n_tokens * n_rows * sizeof *y);
    (void)munmap(act, act_size);
}

static void bench_linears(const nw_kernels *k)
{
    static const uint32_t tokens[] = {1, 4, 6, 24, 256};
    const bool ref = strcmp(k->tier, "ref") == 0;

    printf("\n%-7s %-16s %17s %5s %10s %7s %7s %8s %7s\n", "tier", "linear", "shape", "tok", "us",
           "GB/s", "of raw", "GMAC/s", "of peak");
    for (size_t i = 0; i < NW_COUNT(linear_rows); i++) {
        if (strstr(linear_rows[i].name, filter) == NULL) {
            continue;
        }
        bench_linear(k, &linear_rows[i], 576, 576, 1, 1);
        for (size_t j = 0; !ref && j < NW_COUNT(tokens); j++) { /* the reference is for the ratio */
            bench_linear(k, &linear_rows[i], 1536, 576, tokens[j], 1);
        }
        for (size_t j = 0; !ref && j < NW_COUNT(tokens); j++) {
            bench_linear(k, &linear_rows[i], 1536, 576, tokens[j], 0);
        }
        if (!ref) {
            bench_linear(k, &linear_rows[i], 576, 1536, 1, 0);
            bench_linear(k, &linear_rows[i], 576, 1536, 256, 1);
        }
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
    uint32_t *table = pages_new(n_pages * sizeof *table);
    nw_rng rng = nw_rng_seed(3);
    float kv[2][64];

    a.page_stride = k_bytes + nw_kv_v_page_bytes(&a.kv);
    uint8_t *pool = pages_new(n_pages * a.page_stride);
    float *q = pages_new(2 * n_queries * width * sizeof *q);
    void *scratch = pages_new(nw_attn_scratch_bytes(64));
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
    for (const double begin = cpu_s(); cpu_s() - begin < seconds;) {
        double t = cpu_s();
        for (int i = 0; i < group; i++) {
            k->attend(&a);
        }
        t = cpu_s() - t;
        best = fmin(best, t / group);
        group *= t < 1e-3 && group < 1000 ? 2 : 1;
    }
    const double keys = (double)n_queries * ((double)a.q_pos + ((double)n_queries + 1) / 2);
    printf("%-7s %-6s %6u %6u %10.1f %8.1f %8.1f\n", k->tier, nw_kv_kind_name(kind), n_ctx,
           n_queries, best * 1e6, (double)(n_pages * a.page_stride) * 1e-9 / best,
           keys * 3 * 64 * 2 * 1e-9 / best);
    (void)munmap(table, n_pages * sizeof *table);
    (void)munmap(pool, n_pages * a.page_stride);
    (void)munmap(q, 2 * n_queries * width * sizeof *q);
    (void)munmap(scratch, nw_attn_scratch_bytes(64));
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
        for (const double begin = cpu_s(); cpu_s() - begin < seconds / 10;) {            \
            const double t = cpu_s();                                                    \
            for (int i = 0; i < 1000; i++) {                                             \
                call;                                                                    \
            }                                                                            \
            best = fmin(best, (cpu_s() - t) / 1000);                                     \
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

    seconds = argc > 1 ? strtod(argv[1], NULL) : seconds;
    filter = argc > 2 ? argv[2] : filter;
    printf("%s\n", nw_cpu_describe());
    for (size_t i = 0; i < n; i++) {
        if ((tiers[i]->need & nw_cpu_features()) == tiers[i]->need) {
            bench_linears(tiers[i]);
            if (filter[0] == '\0' || strcmp(filter, "attn") == 0) {
                bench_attentions(tiers[i]);
                bench_ops(tiers[i]);
            }
        }
    }
    return 0;
}
