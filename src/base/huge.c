/* See huge.h. SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* mremap, mincore; NOLINT(bugprone-reserved-identifier) */
#include "base/huge.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/room.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define RUN_PAGES ((size_t)4) /* huge pages that are copied before they take their place */
#define MIN_SHARE 0.9         /* of a mapping, in memory and in huge pages */

/* The whole huge pages of a mapping. */
typedef struct {
    uint8_t *begin;
    size_t n_pages;
    atomic_size_t n_copied; /* bytes */
} area;

static bool find_area(const nw_file *f, area *out)
{
    const uintptr_t from = ((uintptr_t)f->data + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    const uintptr_t to = ((uintptr_t)f->data + f->size) & ~(HUGE_PAGE - 1);

    if (f->data == NULL || to <= from) {
        return false;
    }
    memcpy(&out->begin, &from, sizeof from);
    out->n_pages = (to - from) / HUGE_PAGE;
    return true;
}

/* Whether the page cache holds most of it: what has yet to come from the disk comes in large pieces. */
static bool is_resident(const area *a)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t n = a->n_pages * (HUGE_PAGE / page);
    unsigned char *map = malloc(n);
    size_t there = 0;

    if (map != NULL && mincore(a->begin, a->n_pages * HUGE_PAGE, map) == 0) {
        for (size_t i = 0; i < n; i++) {
            there += map[i] & 1U;
        }
    }
    free(map);
    return (double)there >= MIN_SHARE * (double)n;
}

/* The head of a mapping in smaps, "from-to permissions ...". */
static bool mapping_of(const char *line, uintptr_t *from, uintptr_t *to)
{
    char *end = NULL;
    const uintptr_t first = strtoull(line, &end, 16);

    if (end == line || *end != '-') {
        return false;
    }
    const uintptr_t last = strtoull(end + 1, &end, 16);
    if (*end == ' ') {
        *from = first;
        *to = last;
    }
    return *end == ' ';
}

/* KiB of a mapping in huge pages, as one of these lines tells; 0 of any other. */
static size_t huge_kib(const char *line)
{
    static const char *const keys[] = {"FilePmdMapped:", "AnonHugePages:"};

    for (size_t i = 0; i < NW_COUNT(keys); i++) {
        if (strncmp(line, keys[i], strlen(keys[i])) == 0) {
            return strtoull(line + strlen(keys[i]), NULL, 10);
        }
    }
    return 0;
}

/* Bytes of the area that are mapped by huge pages, as the kernel tells of each mapping. */
static size_t huge_bytes(const area *a)
{
    FILE *fp = fopen("/proc/self/smaps", "re");
    char line[512];
    size_t sum = 0;
    uintptr_t from = 0;
    uintptr_t to = 0;

    while (fp != NULL && fgets(line, sizeof line, fp) != NULL) {
        if (!mapping_of(line, &from, &to) &&
            from < (uintptr_t)(a->begin + a->n_pages * HUGE_PAGE) && to > (uintptr_t)a->begin) {
            sum += huge_kib(line) << 10;
        }
    }
    if (fp != NULL) {
        (void)fclose(fp);
    }
    return sum;
}

/* Copies a run into huge pages and puts them where it was; leaves it as it is where that fails. */
static void copy_run(void *ctx, size_t item, unsigned worker)
{
    area *a = ctx;
    const size_t first = item * RUN_PAGES;
    const size_t pages = a->n_pages - first < RUN_PAGES ? a->n_pages - first : RUN_PAGES;
    const size_t n = pages * HUGE_PAGE;
    uint8_t *const place = a->begin + first * HUGE_PAGE;
    uint8_t *raw =
        mmap(NULL, n + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)worker;
    if (raw == MAP_FAILED) {
        return;
    }
    uint8_t *const copy = raw + (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
    (void)madvise(copy, n, MADV_HUGEPAGE);
    memcpy(copy, place, n);
    if (mprotect(copy, n, PROT_READ) == 0 &&
        mremap(copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place) {
        atomic_fetch_add_explicit(&a->n_copied, n, memory_order_relaxed);
    } else {
        (void)munmap(copy, n);
    }
    if (copy > raw) {
        (void)munmap(raw, (size_t)(copy - raw));
    }
    if (copy < raw + HUGE_PAGE) {
        (void)munmap(copy + n, (size_t)(raw + HUGE_PAGE - copy));
    }
}

size_t nw_file_to_huge(const nw_file *f, size_t min_bytes, nw_pool *pool)
{
    area a = {.n_copied = 0};

    if (f->size < min_bytes || !find_area(f, &a) || !is_resident(&a)) {
        return 0;
    }
    for (size_t i = 0; i < a.n_pages; i++) { /* maps it, by huge pages where there are such */
        (void)*(volatile const uint8_t *)(a.begin + i * HUGE_PAGE);
    }
    const size_t n = a.n_pages * HUGE_PAGE;
    if ((double)huge_bytes(&a) >= MIN_SHARE * (double)n || nw_room_memory() < n + n / 4) {
        return 0;
    }
    nw_pool_run(pool, (a.n_pages + RUN_PAGES - 1) / RUN_PAGES, copy_run, &a);
    return atomic_load_explicit(&a.n_copied, memory_order_relaxed);
}
