/* The ragged step: everything is checked and the pages are counted before anything changes; then
 * the tokens of all items are laid out one after the other and run in one pass.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/state.h"

static nw_status check_item(const nw_engine *e, const nw_step_item *it, size_t i, nw_error *err)
{
    const nw_session *s = it->session;
    const uint32_t n_vocab = e->config->n_vocab;

    assert(s != NULL && s->engine == e && it->tokens != NULL);
    assert(it->n_logits == 0 || it->logits != NULL);
    if (it->n_tokens == 0 || it->n_logits > it->n_tokens) {
        return nw_fail(err, NW_E_RANGE, "step item %zu: %u logits wanted of %u tokens", i,
                       it->n_logits, it->n_tokens);
    }
    if (it->n_tokens > e->facts.n_ctx - s->len) {
        return nw_fail(err, NW_E_RANGE,
                       "step item %zu: %u tokens after %u exceed the context of %u tokens", i,
                       it->n_tokens, s->len, e->facts.n_ctx);
    }
    if (s->step_no == e->step_no) {
        return nw_fail(err, NW_E_RANGE, "step item %zu: its session is in the step already", i);
    }
    for (uint32_t t = 0; t < it->n_tokens; t++) {
        if (it->tokens[t] < 0 || (uint32_t)it->tokens[t] >= n_vocab) {
            return nw_fail(err, NW_E_RANGE, "step item %zu: token id %d is not in [0, %u)", i,
                           (int)it->tokens[t], n_vocab);
        }
    }
    return NW_OK;
}

static nw_status check_items(nw_engine *e, const nw_step_item *items, size_t n, nw_error *err)
{
    uint64_t tokens = 0;
    uint64_t pages = 0;

    for (size_t i = 0; i < n; i++) {
        if (check_item(e, &items[i], i, err) != NW_OK) {
            return err->code;
        }
        nw_session *s = items[i].session;
        s->step_no = e->step_no;
        tokens += items[i].n_tokens;
        pages += nw_session_pages_needed(s, s->len + items[i].n_tokens);
    }
    if (n == 0 || tokens > e->facts.max_step_tokens) {
        return nw_fail(err, NW_E_RANGE, "step of %zu items with %llu tokens, at most %u fit", n,
                       (unsigned long long)tokens, e->facts.max_step_tokens);
    }
    if (pages > e->kv.ring.n_free) {
        return nw_fail(err, NW_E_BUSY, "step needs %llu KV pages, %u of %u are free",
                       (unsigned long long)pages, e->kv.ring.n_free, e->kv.n_pages);
    }
    return NW_OK;
}

/* Cuts [pos, pos + n) so that no run is longer than `most`, nor crosses a multiple of `align`. */
static void add_runs(nw_run *runs, uint32_t *n_runs, nw_run all, uint32_t most, uint32_t align)
{
    while (all.n > 0) {
        const uint32_t room = align - all.pos % align;
        uint32_t n = all.n < most ? all.n : most;
        n = n < room ? n : room;
        runs[(*n_runs)++] = (nw_run){all.session, all.t0, n, all.pos};
        all.t0 += n;
        all.pos += n;
        all.n -= n;
    }
}

/* Keys that a chunk reads, once for all its queries, which stand on one page. */
static void count_keys(nw_engine *e, const nw_run *chunk)
{
    nw_work *w = &e->work;
    const uint32_t keys = chunk->pos + chunk->n;
    const uint32_t local = e->config->sliding_window + chunk->n - 1;
    const uint32_t near = keys < local ? keys : local;

    w->kv_tokens += keys;
    w->kv_tokens_local += near;
    if (nw_kv_has_wide(&e->kv.wide)) {
        w->kv_wide += nw_kv_wide_tokens(&e->kv.wide, 0, keys - 1);
        w->kv_wide_local += nw_kv_wide_tokens(&e->kv.wide, keys - near, keys - 1);
    }
}

static void plan_item(nw_engine *e, const nw_step_item *it)
{
    nw_work *w = &e->work;
    nw_session *s = it->session;
    const nw_run all = {s, w->n_tokens, it->n_tokens, s->len};

    memcpy(w->ids + w->n_tokens, it->tokens, it->n_tokens * sizeof *it->tokens);
    add_runs(w->pieces, &w->n_pieces, all, NW_KV_PAGE, NW_KV_PAGE);
    const uint32_t first_chunk = w->n_chunks;
    add_runs(w->chunks, &w->n_chunks, all, NW_ITEM_QUERIES, NW_ITEM_QUERIES);
    for (uint32_t i = first_chunk; i < w->n_chunks; i++) {
        count_keys(e, &w->chunks[i]);
    }
    for (uint32_t i = 0; i < it->n_tokens; i++) {
        const uint32_t seen = s->len + i + 1;
        const uint32_t window = e->config->sliding_window;
        w->kv_pairs += seen;
        w->kv_pairs_local += seen < window ? seen : window;
    }
    for (uint32_t r = 0; r < it->n_logits; r++) {
        w->row_token[w->n_rows] = w->n_tokens + it->n_tokens - it->n_logits + r;
        w->row_out[w->n_rows++] = it->logits + (size_t)r * e->config->n_vocab;
    }
    w->n_tokens += it->n_tokens;
    nw_session_own_tail(s);
    for (uint32_t need = nw_session_pages_needed(s, s->len + it->n_tokens); need > 0; need--) {
        s->pages[s->n_pages] = nw_kv_take(&e->kv);
        nw_kv_wide_add(s, s->n_pages++);
    }
}

static nw_phase phase_of(const nw_step_item *items, size_t n)
{
    size_t one = 0;
    for (size_t i = 0; i < n; i++) {
        one += items[i].n_tokens == 1;
    }
    if (one == n) {
        return NW_PHASE_DECODE;
    }
    return one == 0 ? NW_PHASE_PREFILL : NW_PHASE_MIXED;
}

nw_status nw_step_plan(nw_engine *e, const nw_step_item *items, size_t n_items, nw_error *err)
{
    nw_work *w = &e->work;

    e->step_no++;
    if (check_items(e, items, n_items, err) != NW_OK) {
        return err->code;
    }
    w->phase = phase_of(items, n_items);
    w->n_tokens = w->n_pieces = w->n_chunks = w->n_rows = 0;
    w->kv_tokens = w->kv_tokens_local = w->kv_pairs = w->kv_pairs_local = 0;
    w->kv_wide = w->kv_wide_local = 0;
    for (size_t i = 0; i < n_items; i++) {
        plan_item(e, &items[i]);
    }
    return NW_OK;
}

/* One pass. The first one reads the weights where they are mapped; each of the next ones is preceded by
 * an eighth of its time in which they move into huge pages, until that is done. */
static void forward(nw_engine *e)
{
    if (!e->is_moving) {
        nw_forward(e);
        return;
    }
    if (e->step_s > 0) {
        e->is_moving = nw_artifact_to_huge(e->artifact, e->step_s / 8, e->pool);
    }
    const double start = nw_now_s();
    nw_forward(e);
    e->step_s = nw_now_s() - start;
}

nw_status nw_engine_step(nw_engine *e, const nw_step_item *items, size_t n_items, nw_error *err)
{
    if (nw_step_plan(e, items, n_items, err) != NW_OK) {
        return err->code;
    }
    forward(e);
    for (size_t i = 0; i < n_items; i++) {
        nw_session_grow(items[i].session, items[i].tokens, items[i].n_tokens);
    }
    return NW_OK;
}
