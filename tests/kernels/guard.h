/* What the kernel tests share: buffers that end where an unreadable page begins, the tiers this
 * machine can run, and random weights in panels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_KERNELS_GUARD_H
#define NW_TESTS_KERNELS_GUARD_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "formats/half.h"
#include "kernels/kernels.h"

/* `data` .. data + size, then a page that faults; bytes before `data` in its page are 0xA5. */
typedef struct {
    uint8_t *data;
    void *map;
    size_t map_size;
} nw_guarded;

static inline nw_guarded nw_guard_new(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t body = (size + page - 1) / page * page;
    nw_guarded g = {.map_size = body + page};

    g.map = mmap(NULL, g.map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect((uint8_t *)g.map + body, page, PROT_NONE) != 0) {
        perror("mmap");
        abort();
    }
    memset(g.map, 0xA5, body);
    g.data = (uint8_t *)g.map + body - size;
    return g;
}

static inline void nw_guard_free(nw_guarded *g)
{
    (void)munmap(g->map, g->map_size);
}

/* The i-th tier that this CPU runs, or NULL; with NW_TEST_TIER=NAME in the environment that tier alone,
 * and where the CPU does not run it the test is skipped. */
static inline const nw_kernels *nw_tier(size_t i)
{
    const char *only = getenv("NW_TEST_TIER");
    size_t n = 0;
    const nw_kernels *const *list = nw_kernels_list(&n);

    if (only != NULL) {
        const nw_kernels *tier = nw_kernels_by_name(only);
        if (tier == NULL || (tier->need & nw_cpu_features()) != tier->need) {
            printf("skipped: tier %s does not run on %s\n", only, nw_cpu_describe());
            exit(77);
        }
        return i == 0 ? tier : NULL;
    }
    for (size_t j = 0; j < n; j++) {
        if ((list[j]->need & nw_cpu_features()) == list[j]->need && i-- == 0) {
            return list[j];
        }
    }
    return NULL;
}

static inline void nw_fill_normal(float *x, size_t n, nw_rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)nw_rng_normal(rng);
    }
}

#endif
