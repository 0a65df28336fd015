/* Free pages as a ring, in the order in which they are to be taken: those whose content is of no use to
 * anyone first, then the others by the time they became free.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_PAGE_RING_H
#define NW_ENGINE_PAGE_RING_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct {
    uint32_t n_pages, n_free;
    uint32_t *next, *prev; /* [n_pages + 1], through n_pages */
} nw_page_ring;

/* All n pages, low numbers first; false without memory. */
static inline bool nw_page_ring_open(nw_page_ring *r, nw_arena *arena, uint32_t n)
{
    *r = (nw_page_ring){.n_pages = n,
                        .n_free = n,
                        .next = nw_arena_array(arena, (size_t)n + 1, sizeof *r->next),
                        .prev = nw_arena_array(arena, (size_t)n + 1, sizeof *r->prev)};
    if (r->next == NULL || r->prev == NULL) {
        return false;
    }
    for (uint32_t i = 0; i <= n; i++) {
        r->next[i] = i == n ? 0 : i + 1;
        r->prev[i] = i == 0 ? n : i - 1;
    }
    return true;
}

static inline void nw_page_ring_remove(nw_page_ring *r, uint32_t page)
{
    r->next[r->prev[page]] = r->next[page];
    r->prev[r->next[page]] = r->prev[page];
    r->n_free--;
}

/* remember: behind all others; otherwise it is the next to be taken. */
static inline void nw_page_ring_insert(nw_page_ring *r, uint32_t page, bool remember)
{
    const uint32_t after = remember ? r->prev[r->n_pages] : r->n_pages;

    r->next[page] = r->next[after];
    r->prev[page] = after;
    r->prev[r->next[page]] = page;
    r->next[after] = page;
    r->n_free++;
}

/* n_free > 0. */
static inline uint32_t nw_page_ring_take(nw_page_ring *r)
{
    const uint32_t page = r->next[r->n_pages];

    assert(r->n_free > 0);
    nw_page_ring_remove(r, page);
    return page;
}

#endif
