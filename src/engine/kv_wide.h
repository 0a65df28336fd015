/* Wide copies of KV pages: BF16 beside packed pages, for the first tokens of a session (sinks) and the
 * newest ones (window). What a query reads wide depends on positions alone (kernels/attention.h): a
 * query on page a, the page of its own position, reads page p from its wide copy where
 *
 *     p < n_first   or   a - p < n_newest
 *
 * and else packed. So a token is encoded twice when it comes, and a copy may go as soon as no later
 * query of its session wants it; it needs no second encoding, and how a prompt is cut, or what runs
 * beside it, changes no bit.
 *
 * Copies have a pool of their own: twice what all sessions may hold at one time. A copy that nobody
 * holds is remembered until its memory is wanted, so that a session can be cut back, or another begin
 * with the same pages: both reach only as far as the copies that they need are still there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_KV_WIDE_H
#define NW_ENGINE_KV_WIDE_H

#include "engine/engine.h"
#include "engine/page_ring.h"
#include "kernels/attention.h"

typedef struct {
    uint32_t n_first, n_newest; /* pages; both 0: no copies, and all else is zero */
    nw_kv_type type;
    size_t k_bytes, v_bytes, page_stride; /* as of nw_kv_pool */
    uint8_t *mem;                         /* [n_pages][page_stride], mapped, touched on use */
    size_t mem_bytes;
    nw_page_ring ring;
    uint16_t *refs;  /* [n_pages] sessions that hold the copy */
    uint32_t *owner; /* [n_pages] the page whose copy it is, or NW_NO_PAGE */
    uint32_t *copy;  /* [pages of the pool] its copy, or NW_NO_PAGE */
} nw_kv_wide;

static inline bool nw_kv_has_wide(const nw_kv_wide *w)
{
    return w->n_first > 0 || w->n_newest > 0;
}

/* Sizes of the pool for the window and sinks of `o`; nothing is allocated. */
NW_MUST_USE nw_status nw_kv_wide_plan(nw_kv_wide *w, const nw_kv_type *packed, uint32_t n_heads,
                                      const nw_engine_options *o, nw_error *err);
NW_MUST_USE nw_status nw_kv_wide_open(nw_kv_wide *w, nw_arena *arena, uint32_t n_pool_pages,
                                      nw_error *err);
void nw_kv_wide_close(nw_kv_wide *w); /* all zero may be closed */

/* The page gets other tokens, or nobody can find it any more; no session holds it. */
void nw_kv_wide_forget(nw_kv_wide *w, uint32_t page);

/* Entry i of s->pages was taken: it gets a copy, if some query will read it. */
void nw_kv_wide_add(nw_session *s, uint32_t i);
/* Entry i of s->pages, which others hold too, was copied to `page`, which takes its place. */
void nw_kv_wide_split(nw_session *s, uint32_t i, uint32_t page);
/* Lets go of the copies that no query from s->len on reads. */
void nw_kv_wide_retire(nw_session *s);
/* Can the session go on after n of the tokens in s->pages? It can after s->len, and after none. */
bool nw_kv_wide_reaches(const nw_session *s, uint32_t n);
/* Holds what a query at n reads, where nw_kv_wide_reaches says so, and lets go of all else. */
void nw_kv_wide_resume(nw_session *s, uint32_t n);

/* Of the keys [first, pos] that queries up to pos read, on one page: how many are wide. */
uint32_t nw_kv_wide_tokens(const nw_kv_wide *w, uint32_t first, uint32_t pos);

#endif
