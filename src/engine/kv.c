/* KV page pool and sessions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/state.h"

/* Memory this process may use: physical, or less where cgroup v2 says so. */
static size_t memory_limit(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    size_t limit = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : (size_t)1 << 30;
    char *text = NULL;
    size_t len = 0;
    nw_error err = {0};

    if (nw_file_exists("/sys/fs/cgroup/memory.max") &&
        nw_file_read("/sys/fs/cgroup/memory.max", 64, &text, &len, &err) == NW_OK) {
        char *end = NULL;
        const unsigned long long v = strtoull(text, &end, 10); /* "max": no digits */
        if (end != text && v < limit) {
            limit = (size_t)v;
        }
        free(text);
    }
    return limit;
}

static nw_status pool_size(nw_kv_pool *p, const nw_engine_options *o, uint32_t n_ctx, nw_error *err)
{
    const uint64_t all = (uint64_t)o->max_seqs * nw_kv_pages_for(n_ctx);
    const size_t bytes = o->kv_bytes > 0 ? o->kv_bytes : memory_limit() / 2;
    const size_t wide = p->wide.mem_bytes;
    const uint64_t fit = bytes > wide ? (bytes - wide) / p->page_stride : 0;

    if (fit == 0 && wide > 0) {
        return nw_fail(err, NW_E_RANGE,
                       "KV pool of %zu bytes holds no page of %zu bytes beside %zu bytes of window "
                       "and sinks",
                       bytes, p->page_stride, wide);
    }
    if (fit == 0) {
        return nw_fail(err, NW_E_RANGE, "KV pool of %zu bytes holds no page of %zu bytes", bytes,
                       p->page_stride);
    }
    const uint64_t n = fit < all ? fit : all;
    p->n_pages = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    p->mem_bytes = p->n_pages * p->page_stride;
    return NW_OK;
}

nw_status nw_kv_pool_open(nw_kv_pool *p, nw_arena *arena, const nw_model_config *c,
                          const nw_engine_options *o, uint32_t n_ctx, nw_error *err)
{
    *p = (nw_kv_pool){
        .type = nw_kv_type_of((nw_kv_kind)o->kv_k, (nw_kv_kind)o->kv_v, c->d_head),
        .n_layers = c->n_layers,
        .n_kv_heads = c->n_kv_heads,
    };
    p->k_bytes = nw_kv_k_page_bytes(&p->type);
    p->v_bytes = nw_kv_v_page_bytes(&p->type);
    if (!nw_size_mul(p->k_bytes + p->v_bytes, (size_t)c->n_layers * c->n_kv_heads,
                     &p->page_stride)) {
        return nw_fail(err, NW_E_RANGE, "KV page of %u layers is too large", c->n_layers);
    }
    if (nw_kv_wide_plan(&p->wide, &p->type, c->n_layers * c->n_kv_heads, o, err) != NW_OK ||
        pool_size(p, o, n_ctx, err) != NW_OK) {
        return err->code;
    }
    p->refs = nw_arena_array(arena, p->n_pages, sizeof *p->refs);
    void *mem = mmap(NULL, p->mem_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    p->mem = mem == MAP_FAILED ? NULL : mem;
    if (p->mem == NULL || p->refs == NULL || !nw_page_ring_open(&p->ring, arena, p->n_pages)) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a KV pool of %zu bytes", p->mem_bytes);
    }
    (void)madvise(mem, p->mem_bytes, MADV_HUGEPAGE); /* only faster */
    if (nw_kv_wide_open(&p->wide, arena, p->n_pages, err) != NW_OK) {
        return err->code;
    }
    return nw_prefix_open(&p->names, arena, p->n_pages, err);
}

void nw_kv_pool_close(nw_kv_pool *p)
{
    if (p->mem != NULL) {
        (void)munmap(p->mem, p->mem_bytes);
        p->mem = NULL;
    }
    nw_kv_wide_close(&p->wide);
}

uint32_t nw_kv_take(nw_kv_pool *p)
{
    const uint32_t page = nw_page_ring_take(&p->ring);

    assert(p->refs[page] == 0);
    nw_prefix_forget(&p->names, page);
    nw_kv_wide_forget(&p->wide, page);
    p->refs[page] = 1;
    return page;
}

void nw_kv_hold(nw_kv_pool *p, uint32_t page)
{
    assert(page < p->n_pages);
    if (p->refs[page]++ == 0) {
        nw_page_ring_remove(&p->ring, page);
    }
}

void nw_kv_give(nw_kv_pool *p, uint32_t page)
{
    assert(page < p->n_pages && p->refs[page] > 0);
    if (--p->refs[page] == 0) {
        const bool named = nw_prefix_named(&p->names, page);
        if (!named) {
            nw_kv_wide_forget(&p->wide, page);
        }
        nw_page_ring_insert(&p->ring, page, named);
    }
}

nw_status nw_session_open(nw_engine *e, nw_session **out, nw_error *err)
{
    *out = e->free_sessions;
    if (*out == NULL) {
        return nw_fail(err, NW_E_BUSY, "all %u sessions of the engine are open", e->facts.max_seqs);
    }
    e->free_sessions = (*out)->next;
    (*out)->next = NULL;
    return NW_OK;
}

void nw_session_close(nw_session *s)
{
    if (s != NULL) {
        (void)nw_session_truncate(s, 0);
        s->next = s->engine->free_sessions;
        s->engine->free_sessions = s;
    }
}

uint32_t nw_session_len(const nw_session *s)
{
    return s->len;
}

/* Cut to n tokens, into pages that are full: name and tail are what the names of pages say. */
static void cut_name(nw_session *s, uint32_t n)
{
    const nw_prefix_page *pages = s->engine->kv.names.pages;
    const uint32_t full = n / NW_KV_PAGE;

    s->name = full > 0 ? pages[s->pages[full - 1]].name : 0;
    s->nameless = full > 0 && s->name == 0;
    if (n % NW_KV_PAGE != 0) {
        const nw_prefix_page *tail = &pages[s->pages[full]];
        s->nameless = s->nameless || tail->name == 0;
        memcpy(s->tail, tail->tokens, sizeof s->tail);
    }
}

uint32_t nw_session_truncate(nw_session *s, uint32_t n)
{
    assert(n <= s->len);
    if (!nw_kv_wide_reaches(s, n)) {
        n = n / NW_KV_PAGE * NW_KV_PAGE;
        while (!nw_kv_wide_reaches(s, n)) {
            n -= NW_KV_PAGE;
        }
    }
    if (n / NW_KV_PAGE < s->len / NW_KV_PAGE) {
        cut_name(s, n);
    }
    nw_kv_wide_resume(s, n);
    while (s->n_pages > nw_kv_pages_for(n)) {
        nw_kv_give(&s->engine->kv, s->pages[--s->n_pages]);
    }
    s->len = n;
    return n;
}

/* Is the page that the next token goes to begun, and held by others too? */
static bool tail_is_shared(const nw_session *s)
{
    return s->len % NW_KV_PAGE != 0 && s->engine->kv.refs[s->pages[s->len / NW_KV_PAGE]] > 1;
}

uint32_t nw_session_pages_needed(const nw_session *s, uint32_t n_tokens)
{
    const uint32_t want = nw_kv_pages_for(n_tokens);
    const uint32_t copy = n_tokens > s->len && tail_is_shared(s) ? 1 : 0;
    return (want > s->n_pages ? want - s->n_pages : 0) + copy;
}

void nw_session_own_tail(nw_session *s)
{
    nw_kv_pool *kv = &s->engine->kv;
    uint32_t *page = &s->pages[s->len / NW_KV_PAGE];

    if (tail_is_shared(s)) {
        const uint32_t copy = nw_kv_take(kv);
        memcpy(kv->mem + copy * kv->page_stride, kv->mem + *page * kv->page_stride,
               kv->page_stride);
        nw_kv_wide_split(s, s->len / NW_KV_PAGE, copy);
        nw_kv_give(kv, *page);
        *page = copy;
    } else if (s->len % NW_KV_PAGE != 0) {
        nw_prefix_forget(&kv->names, *page);
    }
}

void nw_session_grow(nw_session *s, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n && !s->nameless; i++) {
        const uint32_t at = (s->len + i) % NW_KV_PAGE;
        s->tail[at] = tokens[i];
        if (at + 1 == NW_KV_PAGE) {
            s->name = nw_prefix_put(&s->engine->kv.names, s->pages[(s->len + i) / NW_KV_PAGE],
                                    s->name, s->tail);
        }
    }
    s->len += n;
    nw_kv_wide_retire(s);
}

uint32_t nw_session_attach(nw_session *s, const int32_t *ids, uint32_t n)
{
    nw_kv_pool *kv = &s->engine->kv;

    assert(n > s->len && n <= s->engine->facts.n_ctx);
    if (s->len % NW_KV_PAGE != 0 || s->nameless) {
        return s->len;
    }
    const uint32_t held = s->n_pages;
    uint64_t name = s->name;
    uint32_t full = held;
    while (n - full * NW_KV_PAGE > NW_KV_PAGE) { /* one token is left to run */
        const uint32_t page = nw_prefix_find(&kv->names, name, ids + (size_t)full * NW_KV_PAGE);
        if (page == NW_NO_PAGE) {
            break;
        }
        s->pages[full++] = page;
        name = kv->names.pages[page].name;
    }
    while (full > held && !nw_kv_wide_reaches(s, full * NW_KV_PAGE)) {
        full--;
    }
    if (full > held) {
        for (; s->n_pages < full; s->n_pages++) {
            nw_kv_hold(kv, s->pages[s->n_pages]);
        }
        s->name = kv->names.pages[s->pages[full - 1]].name;
        s->len = full * NW_KV_PAGE;
        nw_kv_wide_resume(s, s->len);
    }
    return s->len;
}

uint32_t nw_engine_pages_total(const nw_engine *e)
{
    return e->kv.n_pages;
}

uint32_t nw_engine_pages_free(const nw_engine *e)
{
    return e->kv.ring.n_free;
}
