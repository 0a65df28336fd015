/* Names of KV pages: a hash table of chains over (name of the page before, tokens).
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/prefix.h"

#include <assert.h>
#include <string.h>

nw_status nw_prefix_open(nw_prefix *x, nw_arena *arena, uint32_t n_pages, nw_error *err)
{
    uint32_t n_buckets = 16;

    while (n_buckets < n_pages && n_buckets < (uint32_t)1 << 30) {
        n_buckets *= 2;
    }
    *x = (nw_prefix){.n_pages = n_pages,
                     .n_buckets = n_buckets,
                     .pages = nw_arena_array(arena, n_pages, sizeof *x->pages),
                     .buckets = nw_arena_array(arena, n_buckets, sizeof *x->buckets)};
    if (x->pages == NULL || x->buckets == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the names of %u KV pages", n_pages);
    }
    memset(x->buckets, 0xFF, n_buckets * sizeof *x->buckets); /* NW_NO_PAGE everywhere */
    return NW_OK;
}

/* FNV-1a over the tokens and the parent, a word at a time; the top bits are the best. */
static uint32_t bucket_of(const nw_prefix *x, uint64_t parent, const int32_t *tokens)
{
    uint64_t h = 14695981039346656037U ^ parent;

    for (uint32_t i = 0; i < NW_KV_PAGE; i++) {
        h = (h ^ (uint32_t)tokens[i]) * 1099511628211U;
    }
    return (uint32_t)(h >> 32) & (x->n_buckets - 1);
}

uint32_t nw_prefix_find(const nw_prefix *x, uint64_t parent, const int32_t *tokens)
{
    uint32_t page = x->buckets[bucket_of(x, parent, tokens)];

    while (page != NW_NO_PAGE) {
        const nw_prefix_page *p = &x->pages[page];
        if (p->parent == parent && memcmp(p->tokens, tokens, sizeof p->tokens) == 0) {
            return page;
        }
        page = p->next;
    }
    return NW_NO_PAGE;
}

uint64_t nw_prefix_put(nw_prefix *x, uint32_t page, uint64_t parent, const int32_t *tokens)
{
    nw_prefix_page *p = &x->pages[page];
    const uint32_t known = nw_prefix_find(x, parent, tokens);
    uint32_t *bucket = &x->buckets[bucket_of(x, parent, tokens)];

    if (known != NW_NO_PAGE) {
        return x->pages[known].name;
    }
    assert(p->name == 0);
    p->name = ++x->last_name;
    p->parent = parent;
    memcpy(p->tokens, tokens, sizeof p->tokens);
    p->next = *bucket;
    *bucket = page;
    return p->name;
}

void nw_prefix_forget(nw_prefix *x, uint32_t page)
{
    nw_prefix_page *p = &x->pages[page];

    if (p->name == 0) {
        return;
    }
    uint32_t *at = &x->buckets[bucket_of(x, p->parent, p->tokens)];
    while (*at != page) {
        at = &x->pages[*at].next;
    }
    *at = p->next;
    p->name = 0;
}
