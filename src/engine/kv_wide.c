/* Wide copies of KV pages: see kv_wide.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv_wide.h"

#include <string.h>
#include <sys/mman.h>

#include "base/file.h"
#include "engine/state.h"

nw_status nw_kv_wide_plan(nw_kv_wide *w, const nw_kv_type *packed, uint32_t n_heads,
                          const nw_engine_options *o, nw_error *err)
{
    *w = (nw_kv_wide){.n_first = o->kv_sinks / NW_KV_PAGE, .n_newest = o->kv_window / NW_KV_PAGE};
    if (!nw_kv_has_wide(w)) {
        return NW_OK;
    }
    w->type = *packed; /* rotated as the packed pages are */
    w->type.k = w->type.v = NW_KV_BF16;
    w->k_bytes = nw_kv_k_page_bytes(&w->type);
    w->v_bytes = nw_kv_v_page_bytes(&w->type);

    /* What a session holds between two steps; in one, the pages of the step's tokens, a last page that
     * was begun, and the copy of one that was shared. One session more is score's own. */
    const size_t sessions = (size_t)o->max_seqs + 1;
    const size_t held = sessions * (w->n_first + w->n_newest + 2) + o->max_step_tokens / NW_KV_PAGE;
    w->ring.n_pages = (uint32_t)(2 * held);
    if (!nw_size_mul(w->k_bytes + w->v_bytes, n_heads, &w->page_stride) ||
        !nw_size_mul(w->page_stride, w->ring.n_pages, &w->mem_bytes)) {
        return nw_fail(err, NW_E_RANGE, "%u wide KV pages of %u heads are too large",
                       w->ring.n_pages, n_heads);
    }
    return NW_OK;
}

nw_status nw_kv_wide_open(nw_kv_wide *w, nw_arena *arena, uint32_t n_pool_pages, nw_error *err)
{
    const uint32_t n = w->ring.n_pages;

    if (!nw_kv_has_wide(w)) {
        return NW_OK;
    }
    void *mem = mmap(NULL, w->mem_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    w->mem = mem == MAP_FAILED ? NULL : mem;
    w->refs = nw_arena_array(arena, n, sizeof *w->refs);
    w->owner = nw_arena_array(arena, n, sizeof *w->owner);
    w->copy = nw_arena_array(arena, n_pool_pages, sizeof *w->copy);
    if (w->mem == NULL || w->refs == NULL || w->owner == NULL || w->copy == NULL ||
        !nw_page_ring_open(&w->ring, arena, n)) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu bytes of wide KV pages", w->mem_bytes);
    }
    (void)madvise(w->mem, w->mem_bytes, MADV_HUGEPAGE); /* only faster */
    memset(w->owner, 0xFF, n * sizeof *w->owner);       /* NW_NO_PAGE everywhere */
    memset(w->copy, 0xFF, n_pool_pages * sizeof *w->copy);
    return NW_OK;
}

void nw_kv_wide_close(nw_kv_wide *w)
{
    if (w->mem != NULL) {
        (void)munmap(w->mem, w->mem_bytes);
        w->mem = NULL;
    }
}

/* ---- copies ---- */

static void unlink_copy(nw_kv_wide *w, uint32_t copy)
{
    if (w->owner[copy] != NW_NO_PAGE) {
        w->copy[w->owner[copy]] = NW_NO_PAGE;
        w->owner[copy] = NW_NO_PAGE;
    }
}

static uint32_t take(nw_kv_wide *w, uint32_t page)
{
    const uint32_t copy = nw_page_ring_take(&w->ring);

    assert(w->refs[copy] == 0 && w->copy[page] == NW_NO_PAGE);
    unlink_copy(w, copy);
    w->owner[copy] = page;
    w->copy[page] = copy;
    w->refs[copy] = 1;
    return copy;
}

static void hold(nw_kv_wide *w, uint32_t copy)
{
    if (w->refs[copy]++ == 0) {
        nw_page_ring_remove(&w->ring, copy);
    }
}

static void give(nw_kv_wide *w, uint32_t copy)
{
    assert(w->refs[copy] > 0);
    if (--w->refs[copy] == 0) {
        nw_page_ring_insert(&w->ring, copy, w->owner[copy] != NW_NO_PAGE);
    }
}

void nw_kv_wide_forget(nw_kv_wide *w, uint32_t page)
{
    const uint32_t copy = nw_kv_has_wide(w) ? w->copy[page] : NW_NO_PAGE;

    if (copy != NW_NO_PAGE) {
        assert(w->refs[copy] == 0);
        unlink_copy(w, copy);
        nw_page_ring_remove(&w->ring, copy);
        nw_page_ring_insert(&w->ring, copy, false);
    }
}

/* ---- what a session holds ---- */

/* Whether a query at n, or a later one, reads entry i wide. */
static bool is_wanted(const nw_kv_wide *w, uint32_t n, uint32_t i)
{
    return i < w->n_first || i + w->n_newest > n / NW_KV_PAGE;
}

void nw_kv_wide_add(nw_session *s, uint32_t i)
{
    nw_kv_wide *w = &s->engine->kv.wide;

    if (nw_kv_has_wide(w) && (i < w->n_first || w->n_newest > 0)) {
        s->wide[i] = take(w, s->pages[i]);
    }
}

void nw_kv_wide_split(nw_session *s, uint32_t i, uint32_t page)
{
    nw_kv_wide *w = &s->engine->kv.wide;

    if (nw_kv_has_wide(w) && s->wide[i] != NW_NO_PAGE) {
        const uint32_t copy = take(w, page);
        memcpy(w->mem + copy * w->page_stride, w->mem + s->wide[i] * w->page_stride,
               w->page_stride);
        give(w, s->wide[i]);
        s->wide[i] = copy;
    }
}

static void drop(nw_session *s, uint32_t i)
{
    if (s->wide[i] != NW_NO_PAGE) {
        give(&s->engine->kv.wide, s->wide[i]);
        s->wide[i] = NW_NO_PAGE;
    }
}

void nw_kv_wide_retire(nw_session *s)
{
    const nw_kv_wide *w = &s->engine->kv.wide;

    if (!nw_kv_has_wide(w)) {
        return;
    }
    for (; s->wide_from < s->n_pages && !(s->wide_from + w->n_newest > s->len / NW_KV_PAGE);
         s->wide_from++) {
        if (s->wide_from >= w->n_first) {
            drop(s, s->wide_from);
        }
    }
}

bool nw_kv_wide_reaches(const nw_session *s, uint32_t n)
{
    const nw_kv_wide *w = &s->engine->kv.wide;
    const uint32_t n_pages = nw_kv_pages_for(n);

    for (uint32_t i = 0; nw_kv_has_wide(w) && i < n_pages; i++) {
        if (i >= w->n_first && i + w->n_newest <= n / NW_KV_PAGE) { /* on to the newest */
            i = n / NW_KV_PAGE - w->n_newest;
            continue;
        }
        if (s->wide[i] == NW_NO_PAGE && w->copy[s->pages[i]] == NW_NO_PAGE) {
            return false;
        }
    }
    return true;
}

void nw_kv_wide_resume(nw_session *s, uint32_t n)
{
    nw_kv_wide *w = &s->engine->kv.wide;
    const uint32_t n_pages = nw_kv_pages_for(n);

    for (uint32_t i = 0; nw_kv_has_wide(w) && i < s->n_pages; i++) {
        if (i >= n_pages || !is_wanted(w, n, i)) {
            drop(s, i);
        } else if (s->wide[i] == NW_NO_PAGE) {
            s->wide[i] = w->copy[s->pages[i]];
            hold(w, s->wide[i]);
        }
    }
    s->wide_from = 0; /* nothing to drop up to the newest: retire finds that out */
}

uint32_t nw_kv_wide_tokens(const nw_kv_wide *w, uint32_t first, uint32_t pos)
{
    const uint32_t at = pos / NW_KV_PAGE;
    const uint32_t newest = at >= w->n_newest ? (at - w->n_newest + 1) * NW_KV_PAGE : 0;
    const uint32_t end = pos + 1;
    const uint32_t from = newest > end ? end : newest > first ? newest : first;
    const uint32_t sinks = w->n_first * NW_KV_PAGE < from ? w->n_first * NW_KV_PAGE : from;

    return end - from + (sinks > first ? sinks - first : 0);
}
