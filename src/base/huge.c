/* See huge.h. SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* mremap, mincore; NOLINT(bugprone-reserved-identifier) */
#include "base/huge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/room.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define RUN_PAGES ((size_t)4) /* huge pages that are copied before they take their place */
#define MIN_SHARE 0.75        /* of what is in memory, by huge pages: then it stays as it is */

/* The whole huge pages of a mapping. */
static bool find_area(const nw_file *f, nw_huge *h)
{
    const uintptr_t from = ((uintptr_t)f->data + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    const uintptr_t to = ((uintptr_t)f->data + f->size) & ~(HUGE_PAGE - 1);

    if (f->data == NULL || to <= from) {
        return false;
    }
    memcpy(&h->begin, &from, sizeof from);
    h->n_pages = (to - from) / HUGE_PAGE;
    return true;
}

/* Bytes of the n huge pages at p that the page cache holds: what has yet to come from the disk comes in
 * large pieces. */
static size_t resident_bytes(uint8_t *p, size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t n_small = n * (HUGE_PAGE / page);
    unsigned char *map = malloc(n_small);
    size_t there = 0;

    if (map != NULL && mincore(p, n * HUGE_PAGE, map) == 0) {
        for (size_t i = 0; i < n_small; i++) {
            there += map[i] & 1U;
        }
    }
    free(map);
    return there * page;
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

/* Bytes of the n huge pages at p that are mapped as such, as the kernel tells of each mapping. */
static size_t huge_bytes(const uint8_t *p, size_t n)
{
    FILE *fp = fopen("/proc/self/smaps", "re");
    char line[512];
    size_t sum = 0;
    uintptr_t from = 0;
    uintptr_t to = 0;

    while (fp != NULL && fgets(line, sizeof line, fp) != NULL) {
        if (!mapping_of(line, &from, &to) && from < (uintptr_t)(p + n * HUGE_PAGE) &&
            to > (uintptr_t)p) {
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
    const nw_huge *h = ctx;
    const size_t first = h->next + item * RUN_PAGES;
    const size_t pages = h->n_pages - first < RUN_PAGES ? h->n_pages - first : RUN_PAGES;
    const size_t n = pages * HUGE_PAGE;
    uint8_t *const place = h->begin + first * HUGE_PAGE;
    uint8_t *raw =
        mmap(NULL, n + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)worker;
    if (raw == MAP_FAILED) {
        return;
    }
    uint8_t *const copy = raw + (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
    (void)madvise(copy, n, MADV_HUGEPAGE);
    memcpy(copy, place, n);
    if (mprotect(copy, n, PROT_READ) != 0 ||
        mremap(copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) {
        (void)munmap(copy, n);
    }
    if (copy > raw) {
        (void)munmap(raw, (size_t)(copy - raw));
    }
    if (copy < raw + HUGE_PAGE) {
        (void)munmap(copy + n, (size_t)(raw + HUGE_PAGE - copy));
    }
}

/* Whether copying pays. */
static bool pays(const nw_huge *h)
{
    const size_t n = h->n_pages * HUGE_PAGE;
    const double there = (double)resident_bytes(h->begin, h->n_pages);

    return (double)huge_bytes(h->begin, h->n_pages) < MIN_SHARE * there &&
           nw_room_memory() >= n + n / 4;
}

/* Copies the next run for each thread. The first ones tell whether the kernel has huge pages to give. */
static void copy_runs(nw_huge *h, nw_pool *pool)
{
    const size_t left = (h->n_pages - h->next + RUN_PAGES - 1) / RUN_PAGES;
    const size_t threads = pool == NULL ? 1 : nw_pool_threads(pool);
    const size_t runs = left < threads ? left : threads;
    const bool first = h->next == 0;

    nw_pool_run(pool, runs, copy_run, h);
    h->next = left > runs ? h->next + runs * RUN_PAGES : h->n_pages;
    if (first && huge_bytes(h->begin, h->next) < h->next * HUGE_PAGE / 2) {
        h->next = h->n_pages;
    }
}

bool nw_huge_go_on(nw_huge *h, const nw_file *f, size_t min_bytes, double seconds, nw_pool *pool)
{
    const double until = nw_now_s() + seconds;

    if (!h->decided) {
        h->decided = true;
        if (f->size < min_bytes || !find_area(f, h) || !pays(h)) {
            h->next = h->n_pages;
        }
    }
    while (h->next < h->n_pages) {
        copy_runs(h, pool);
        if (nw_now_s() >= until) {
            break;
        }
    }
    return h->next < h->n_pages;
}
