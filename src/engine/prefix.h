/* Which KV page holds which tokens: sessions whose texts begin alike share the pages of what they have
 * in common. A full page is named when it is computed; its name stands for its NW_KV_PAGE tokens and,
 * through the name of the page before it, for all tokens from the start of the text. Names are never
 * used twice, and look-ups compare tokens, so that nothing hangs on a hash. What a page holds depends
 * on these tokens alone (engine.h, Bits): a shared page has the bits that would be computed anew.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_PREFIX_H
#define NW_ENGINE_PREFIX_H

#include "base/arena.h"
#include "base/status.h"
#include "kernels/attention.h"

#define NW_NO_PAGE UINT32_MAX

typedef struct {
    uint64_t name, parent;      /* name 0: none; parent 0: the text begins here */
    uint32_t next;              /* in the list of its bucket, or NW_NO_PAGE */
    int32_t tokens[NW_KV_PAGE]; /* of a named page */
} nw_prefix_page;

typedef struct {
    uint32_t n_pages, n_buckets; /* n_buckets: a power of two */
    nw_prefix_page *pages;       /* [n_pages] */
    uint32_t *buckets;           /* [n_buckets] first page, or NW_NO_PAGE */
    uint64_t last_name;
} nw_prefix;

NW_MUST_USE nw_status nw_prefix_open(nw_prefix *x, nw_arena *arena, uint32_t n_pages,
                                     nw_error *err);
/* The page that holds `tokens` [NW_KV_PAGE] after the page named `parent`; NW_NO_PAGE: none does. */
uint32_t nw_prefix_find(const nw_prefix *x, uint64_t parent, const int32_t *tokens);
/* Names a page that was just filled, unless another page is known for the same text; returns the name
 * of the one that is known then. */
uint64_t nw_prefix_put(nw_prefix *x, uint32_t page, uint64_t parent, const int32_t *tokens);
/* The page gets other tokens. Without a name already: nothing happens. */
void nw_prefix_forget(nw_prefix *x, uint32_t page);

static inline bool nw_prefix_named(const nw_prefix *x, uint32_t page)
{
    return x->pages[page].name != 0;
}

#endif
