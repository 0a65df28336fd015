/* The pool of KV pages and what sessions hold of it.
 *
 * A pool page is NW_KV_PAGE tokens of every layer and kv head:
 *     page      [n_layers][n_kv_heads] { K page | V page }      (kernels/attention.h)
 * so a session needs one table of page numbers, whatever the depth of the model. A page has a count
 * of the sessions that hold it; the last one to let go returns it to the free list.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_KV_H
#define NW_ENGINE_KV_H

#include "base/arena.h"
#include "engine/engine.h"
#include "kernels/attention.h"
#include "model/config.h"

typedef struct {
    nw_kv_type type;
    uint32_t n_layers, n_kv_heads;
    size_t k_bytes, v_bytes; /* of one page of one layer and head */
    size_t page_stride;      /* bytes of a pool page */
    uint8_t *mem;            /* [n_pages][page_stride], mapped, touched on use */
    size_t mem_bytes;
    uint32_t n_pages, n_free;
    uint32_t *free_ids; /* [n_pages], a stack: the first n_free are free */
    uint16_t *refs;     /* [n_pages] sessions that hold the page */
} nw_kv_pool;

/* want_bytes 0: max_seqs x n_ctx tokens, at most half of this machine's (or container's) memory.
 * NW_E_RANGE when not even one page fits. Tables live in `arena`. */
NW_MUST_USE nw_status nw_kv_pool_open(nw_kv_pool *p, nw_arena *arena, const nw_model_config *c,
                                      const nw_engine_options *o, uint32_t n_ctx, nw_error *err);
void nw_kv_pool_close(nw_kv_pool *p); /* all zero may be closed */

/* K pages of (layer, head) start here; V pages at + k_bytes; page i at + i * page_stride. */
static inline uint8_t *nw_kv_base(const nw_kv_pool *p, uint32_t layer, uint32_t head)
{
    return p->mem + ((size_t)layer * p->n_kv_heads + head) * (p->k_bytes + p->v_bytes);
}

static inline uint32_t nw_kv_pages_for(uint32_t n_tokens)
{
    return n_tokens / NW_KV_PAGE + (n_tokens % NW_KV_PAGE != 0);
}

uint32_t nw_kv_take(nw_kv_pool *p);            /* n_free > 0 */
void nw_kv_give(nw_kv_pool *p, uint32_t page); /* lets go of one reference */

struct nw_session {
    nw_engine *engine;
    uint32_t len, n_pages;
    uint32_t *pages;  /* [pages of n_ctx] */
    uint64_t step_no; /* the last step it was in: finds a session that stands twice in one */
    nw_session *next; /* free list */
};

#endif
