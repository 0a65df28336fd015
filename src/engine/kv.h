/* The pool of KV pages and what sessions hold of it.
 *
 * A pool page is NW_KV_PAGE tokens of every layer and kv head:
 *     page      [n_layers][n_kv_heads] { K page | V page }      (kernels/attention.h)
 * so a session needs one table of page numbers, whatever the depth of the model. A page has a count
 * of the sessions that hold it; the last one to let go returns it to the free list. Full pages have
 * names (prefix.h): they are free, but remembered, until their memory is wanted, the longest free
 * first. A page that others hold too is copied before it is written. Beside packed pages there may be
 * wide copies of some (kv_wide.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_KV_H
#define NW_ENGINE_KV_H

#include "base/arena.h"
#include "engine/engine.h"
#include "engine/kv_wide.h"
#include "engine/prefix.h"
#include "kernels/attention.h"
#include "model/config.h"

typedef struct {
    nw_kv_type type;
    uint32_t n_layers, n_kv_heads;
    size_t k_bytes, v_bytes; /* of one page of one layer and head */
    size_t page_stride;      /* bytes of a pool page */
    uint8_t *mem;            /* [n_pages][page_stride], mapped, touched on use */
    size_t mem_bytes;
    uint32_t n_pages;
    nw_page_ring ring; /* free pages: nameless ones are taken first */
    uint16_t *refs;    /* [n_pages] sessions that hold the page */
    nw_prefix names;
    nw_kv_wide wide;
} nw_kv_pool;

/* o->kv_bytes 0: max_seqs x n_ctx tokens, at most half of this machine's (or container's) memory; the
 * wide copies are part of it. NW_E_RANGE when not even one page fits. Tables live in `arena`. */
NW_MUST_USE nw_status nw_kv_pool_open(nw_kv_pool *p, nw_arena *arena, const nw_model_config *c,
                                      const nw_engine_options *o, uint32_t n_ctx, nw_error *err);
void nw_kv_pool_close(nw_kv_pool *p); /* all zero may be closed */

/* K pages of (layer, head) start here; V pages at + k_bytes; page i at + i * page_stride. */
static inline uint8_t *nw_kv_base(const nw_kv_pool *p, uint32_t layer, uint32_t head)
{
    return p->mem + ((size_t)layer * p->n_kv_heads + head) * (p->k_bytes + p->v_bytes);
}

/* The same of the wide copies. */
static inline uint8_t *nw_kv_wide_base(const nw_kv_pool *p, uint32_t layer, uint32_t head)
{
    return p->wide.mem +
           ((size_t)layer * p->n_kv_heads + head) * (p->wide.k_bytes + p->wide.v_bytes);
}

static inline uint32_t nw_kv_pages_for(uint32_t n_tokens)
{
    return n_tokens / NW_KV_PAGE + (n_tokens % NW_KV_PAGE != 0);
}

uint32_t nw_kv_take(nw_kv_pool *p);            /* one is free; the page loses its name */
void nw_kv_hold(nw_kv_pool *p, uint32_t page); /* one more reference; the page may be a free one */
void nw_kv_give(nw_kv_pool *p, uint32_t page); /* lets go of one reference */

/* Before tokens are written after `len`: a page that others hold is copied, and one that has a name
 * loses it. Pages enough are free. */
void nw_session_own_tail(nw_session *s);
/* Tokens were put at the end, into pages that it has: pages that became full are named. */
void nw_session_grow(nw_session *s, const int32_t *tokens, uint32_t n);

struct nw_session {
    nw_engine *engine;
    uint32_t len, n_pages;
    uint32_t *pages;          /* [pages of n_ctx] */
    uint32_t *wide;           /* [pages of n_ctx] wide copies that it holds, else NW_NO_PAGE */
    uint32_t wide_from;       /* no copy is held before, but of the first pages */
    bool nameless;            /* cut in the middle of a page: what follows has no name */
    uint64_t name;            /* of the text up to its last full page */
    int32_t tail[NW_KV_PAGE]; /* tokens after its last full page, unless nameless */
    uint64_t step_no; /* the last step it was in: finds a session that stands twice in one */
    nw_session *next; /* free list */
};

#endif
