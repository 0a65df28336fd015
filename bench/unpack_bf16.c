/* How fast a packed BF16 tensor becomes a 12-bit panel, beside zstd's decompression of the same bytes
 * (level 3), in turns in one run on one core.
 *
 *   bench_unpack_bf16 MODEL [ROUNDS]
 *
 * packs the BF16 matrices of a checkpoint (up to 64 MiB), then prints bits a weight of both and the
 * medians of BF16 bytes a second, by CPU time. libzstd is looked for when the program runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "formats/bf16_packed.h"
#include "model/checkpoint.h"

#define MOST_BYTES ((size_t)64 << 20)
#define MOST_ITEMS 4096

/* One panel: packed by us. */
typedef struct {
    const nw_bf16_unpacker *unpacker;
    uint8_t *packed;
    size_t n_packed, n_panel;
    uint32_t n_cols;
} item;

typedef struct {
    item items[MOST_ITEMS];
    size_t n_items, n_packed, n_values;
    uint16_t *plain; /* the values of all, row by row */
    uint8_t *panel, *scratch;
} work;

typedef struct {
    size_t (*bound)(size_t);
    size_t (*compress)(void *, size_t, const void *, size_t, int);
    size_t (*decompress)(void *, size_t, const void *, size_t);
} zstd;

static void *must(void *p)
{
    if (p == NULL) {
        (void)fprintf(stderr, "no memory\n");
        exit(4);
    }
    return p;
}

static void add_panel(work *k, const nw_bf16_packer *p, const nw_bf16_unpacker *u,
                      const uint16_t *w, uint32_t n_rows, uint32_t n_cols)
{
    size_t bound = 0;
    item *it = &k->items[k->n_items++];

    *it = (item){.unpacker = u, .n_cols = n_cols};
    if (!nw_bf16_packed_bound(n_cols, &bound) ||
        !nw_panel_bytes(nw_bf16_unpacked_type(u), n_cols, &it->n_panel)) {
        exit(4);
    }
    uint8_t *out = must(malloc(bound));
    void *scratch = must(malloc(nw_bf16_packed_scratch(n_cols)));
    it->n_packed = nw_bf16_pack(p, w, n_cols, n_rows, n_cols, out, scratch);
    it->packed = must(realloc(out, it->n_packed));
    k->n_packed += it->n_packed;
    free(scratch);
}

static uint32_t most_escapes(const uint8_t exponents[16], const uint16_t *w, uint32_t n_rows,
                             uint32_t n_cols)
{
    uint32_t most = 0;

    for (uint32_t r = 0; r < n_rows; r += 16) {
        const uint32_t n = n_rows - r < 16 ? n_rows - r : 16;
        const uint32_t e = nw_bf16_12_count(exponents, w + (size_t)r * n_cols, n_cols, n, n_cols);
        most = e > most ? e : most;
    }
    return most;
}

static void add_tensor(work *k, const nw_checkpoint *c, const nw_ckpt_tensor *t)
{
    uint16_t *w = k->plain + k->n_values;
    nw_exponent_counts counts = {{0}};
    nw_bf16_packed_head head;
    nw_bf16_packer *p = must(malloc(sizeof *p));
    nw_bf16_unpacker *u = must(malloc(sizeof *u));
    nw_panel_type type = {.kind = NW_PANEL_BF16};
    nw_error err = {0};
    uint8_t table[16];

    if (nw_checkpoint_read_raw(c, t, 0, t->n_rows, (uint8_t *)w, &err) != NW_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    nw_exponent_count(&counts, w, (size_t)t->n_rows * t->n_cols);
    nw_bf16_12_table(&counts, table);
    const bool fits =
        nw_bf16_12_type(most_escapes(table, w, t->n_rows, t->n_cols), t->n_cols, &type);
    nw_bf16_packed_head_make(&counts, fits ? type.escapes : NW_BF16_12_END, &head);
    nw_bf16_packer_init(p, &head);
    if (!nw_bf16_unpacker_init(u, &head)) {
        exit(1);
    }
    for (uint32_t r = 0; r < t->n_rows; r += 16) {
        add_panel(k, p, u, w + (size_t)r * t->n_cols, t->n_rows - r < 16 ? t->n_rows - r : 16,
                  t->n_cols);
    }
    k->n_packed += sizeof head;
    k->n_values += (size_t)t->n_rows * t->n_cols;
    free(p);
}

static bool wanted(const work *k, const nw_ckpt_tensor *t)
{
    const size_t bytes = (size_t)t->n_rows * t->n_cols * sizeof(uint16_t);
    return t->format == NW_FMT_BF16 && t->offset == 0 && t->n_rows > 1 &&
           k->n_values * sizeof(uint16_t) + bytes <= MOST_BYTES &&
           k->n_items + nw_panel_count(t->n_rows) <= MOST_ITEMS;
}

static void load(work *k, const char *path)
{
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    size_t panel = 64;
    size_t scratch = 64;

    if (nw_checkpoint_open(path, &c, &err) != NW_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    k->plain = must(malloc(MOST_BYTES));
    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        if (wanted(k, nw_checkpoint_at(c, i))) {
            add_tensor(k, c, nw_checkpoint_at(c, i));
        }
    }
    for (size_t i = 0; i < k->n_items; i++) {
        const size_t s = nw_bf16_packed_scratch(k->items[i].n_cols);
        panel = k->items[i].n_panel > panel ? k->items[i].n_panel : panel;
        scratch = s > scratch ? s : scratch;
    }
    k->panel = must(aligned_alloc(64, panel));
    k->scratch = must(malloc(scratch));
    nw_checkpoint_close(c);
}

/* BF16 bytes a second of one pass over all panels. */
static double unpack_all(const work *k)
{
    const double t0 = nw_thread_cpu_s();

    for (size_t i = 0; i < k->n_items; i++) {
        const item *it = &k->items[i];
        if (!nw_bf16_unpack(it->unpacker, it->packed, it->n_packed, it->n_cols, k->panel,
                            k->scratch)) {
            (void)fprintf(stderr, "a panel does not unpack\n");
            exit(1);
        }
    }
    return (double)(k->n_values * sizeof(uint16_t)) / (nw_thread_cpu_s() - t0);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool find_zstd(zstd *z)
{
    void *lib = dlopen("libzstd.so.1", RTLD_NOW);

    if (lib == NULL) {
        return false;
    }
    *(void **)(void *)&z->bound = dlsym(lib, "ZSTD_compressBound");
    *(void **)(void *)&z->compress = dlsym(lib, "ZSTD_compress");
    *(void **)(void *)&z->decompress = dlsym(lib, "ZSTD_decompress");
    return z->bound != NULL && z->compress != NULL && z->decompress != NULL;
}

static void compare(const work *k, const zstd *z, int rounds)
{
    const size_t n = k->n_values * sizeof(uint16_t);
    uint8_t *small = must(malloc(z->bound(n)));
    uint8_t *back = must(malloc(n));
    double *ours = must(calloc((size_t)rounds, sizeof *ours));
    double *theirs = must(calloc((size_t)rounds, sizeof *theirs));
    const size_t n_small = z->compress(small, z->bound(n), k->plain, n, 3);

    for (int i = 0; i < rounds; i++) {
        ours[i] = unpack_all(k);
        const double t0 = nw_thread_cpu_s();
        const size_t got = z->decompress(back, n, small, n_small);
        theirs[i] = (double)n / (nw_thread_cpu_s() - t0);
        if (got != n || memcmp(back, k->plain, n) != 0) {
            (void)fprintf(stderr, "zstd's bytes differ\n");
            exit(1);
        }
    }
    qsort(ours, (size_t)rounds, sizeof *ours, by_value);
    qsort(theirs, (size_t)rounds, sizeof *theirs, by_value);
    (void)printf("narrow  %.3f bits a weight (%.1f %%), %.2f GB/s to panels\n",
                 8.0 * (double)k->n_packed / (double)k->n_values,
                 100.0 * (double)k->n_packed / (double)n, ours[rounds / 2] / 1e9);
    (void)printf("zstd -3 %.3f bits a weight (%.1f %%), %.2f GB/s\nratio %.2f, %zu MiB\n",
                 8.0 * (double)n_small / (double)k->n_values, 100.0 * (double)n_small / (double)n,
                 theirs[rounds / 2] / 1e9, ours[rounds / 2] / theirs[rounds / 2], n >> 20);
    free(small);
    free(back);
    free(ours);
    free(theirs);
}

int main(int argc, char **argv)
{
    work *k = must(calloc(1, sizeof *k));
    zstd z = {0};
    const long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 15;

    if (argc < 2 || rounds < 1 || rounds > 1000) {
        (void)fprintf(stderr, "usage: bench_unpack_bf16 MODEL [ROUNDS]\n");
        return 2;
    }
    if (!find_zstd(&z)) {
        (void)fprintf(stderr, "skipped: no libzstd.so.1\n");
        return 77;
    }
    load(k, argv[1]);
    if (k->n_values == 0) {
        (void)fprintf(stderr, "%s has no BF16 matrix of at most 64 MiB\n", argv[1]);
        return 1;
    }
    compare(k, &z, (int)rounds);
    return 0;
}
