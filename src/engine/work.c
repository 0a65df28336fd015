/* Scratch of a step and the table of sessions, allocated once.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "engine/wide.h"

/* A float array [n][per]; NULL on overflow or without memory. */
static float *floats(nw_arena *a, uint32_t n, uint32_t per)
{
    return nw_arena_array(a, n, (size_t)per * sizeof(float));
}

/* Which kinds of activations any matrix of the model wants. */
static void wanted_kinds(const nw_engine *e, bool want[NW_ACT_KINDS])
{
    const nw_weights *w = &e->weights;
    for (unsigned i = 0; i < NW_ACT_KINDS && e->opt.swaps; i++) {
        want[i] = true;
    }
    want[e->kernels->act_kind(w->head.type, e->a8)] = true;
    for (uint32_t i = 0; i < e->config->n_layers; i++) {
        const nw_layer *l = &w->layers[i];
        const nw_weight *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < NW_COUNT(all); j++) {
            want[e->kernels->act_kind(all[j]->type, e->a8)] = true;
        }
    }
}

static bool alloc_activations(nw_engine *e)
{
    nw_work *w = &e->work;
    const nw_model_config *c = e->config;
    const uint32_t n = e->facts.max_step_tokens;
    bool want[NW_ACT_KINDS] = {false};
    bool ok = true;

    w->x = floats(&e->arena, n, c->d_model);
    w->y = floats(&e->arena, n, c->d_model);
    w->h = floats(&e->arena, n, c->d_model);
    w->q = floats(&e->arena, n, c->n_heads * c->d_head);
    w->attn = floats(&e->arena, n, c->n_heads * c->d_head);
    w->k = floats(&e->arena, n, c->n_kv_heads * c->d_head);
    w->v = floats(&e->arena, n, c->n_kv_heads * c->d_head);
    w->gate = floats(&e->arena, n, c->d_ff);
    wanted_kinds(e, want);
    for (unsigned i = 0; i < NW_ACT_KINDS; i++) {
        const size_t bytes = nw_act_bytes((nw_act_kind)i, n, e->weights.max_cols);
        w->act[i] = want[i] && bytes > 0 ? nw_arena_alloc(&e->arena, bytes) : NULL;
        ok = ok && (!want[i] || w->act[i] != NULL);
    }
    return ok && w->x != NULL && w->y != NULL && w->h != NULL && w->q != NULL && w->k != NULL &&
           w->v != NULL && w->attn != NULL && w->gate != NULL;
}

static bool alloc_plan(nw_engine *e)
{
    nw_work *w = &e->work;
    const uint32_t n = e->facts.max_step_tokens;

    w->ids = nw_arena_array(&e->arena, n, sizeof *w->ids);
    w->pieces = nw_arena_array(&e->arena, n, sizeof *w->pieces);
    w->chunks = nw_arena_array(&e->arena, n, sizeof *w->chunks);
    w->row_token = nw_arena_array(&e->arena, n, sizeof *w->row_token);
    w->row_out = nw_arena_array(&e->arena, n, sizeof *w->row_out);
    return w->ids != NULL && w->pieces != NULL && w->chunks != NULL && w->row_token != NULL &&
           w->row_out != NULL;
}

/* As many kv heads as may be split, over the segments of the longest context. */
static bool alloc_parts(nw_engine *e)
{
    const nw_model_config *c = e->config;
    const size_t segments = e->facts.n_ctx / NW_ATTN_SEGMENT + 1;
    const size_t row = nw_attn_part_floats(c->d_head) * sizeof(float);

    if (e->facts.n_threads > 1) {
        e->work.attn_parts =
            nw_arena_array(&e->arena, (2 * (size_t)e->facts.n_threads - 1) * segments,
                           c->n_heads / c->n_kv_heads * row);
    }
    return e->facts.n_threads == 1 || e->work.attn_parts != NULL;
}

static bool alloc_scratch(nw_engine *e)
{
    nw_work *w = &e->work;
    const unsigned n = e->facts.n_threads;

    w->attn_scratch = nw_arena_array(&e->arena, n, sizeof *w->attn_scratch);
    w->tile_scratch = nw_arena_array(&e->arena, n, sizeof *w->tile_scratch);
    bool ok = w->attn_scratch != NULL && w->tile_scratch != NULL;
    for (unsigned i = 0; ok && i < n; i++) {
        w->attn_scratch[i] = nw_arena_alloc(&e->arena, nw_attn_scratch_bytes(e->config->d_head));
        w->tile_scratch[i] = floats(&e->arena, e->facts.max_step_tokens, NW_FFN_ROWS);
        ok = w->attn_scratch[i] != NULL && w->tile_scratch[i] != NULL;
    }
    return ok;
}

/* max_seqs on the free list and one more, so that scoring works beside a full batch. */
static bool alloc_sessions(nw_engine *e)
{
    const uint32_t n = e->facts.max_seqs;
    const uint32_t pages = nw_kv_pages_for(e->facts.n_ctx);

    e->sessions = nw_arena_array(&e->arena, (size_t)n + 1, sizeof *e->sessions);
    for (uint32_t i = n + 1; e->sessions != NULL && i-- > 0;) {
        nw_session *s = &e->sessions[i];
        s->engine = e;
        s->pages = nw_arena_array(&e->arena, pages, sizeof *s->pages);
        s->wide = nw_arena_array(&e->arena, pages, sizeof *s->wide);
        if (s->pages == NULL || s->wide == NULL) {
            return false;
        }
        memset(s->wide, 0xFF, pages * sizeof *s->wide); /* NW_NO_PAGE everywhere */
        if (i < n) {
            s->next = e->free_sessions;
            e->free_sessions = s;
        }
    }
    return e->sessions != NULL;
}

nw_status nw_work_open(nw_engine *e, nw_error *err)
{
    const size_t before = e->arena.used_bytes;

    if (!alloc_activations(e) || !alloc_plan(e) || !alloc_scratch(e) || !alloc_parts(e) ||
        !nw_wide_alloc(e) || !alloc_sessions(e)) {
        return nw_fail(err, NW_E_NOMEM,
                       "no memory for steps of %u tokens and %u sessions of %u tokens",
                       e->facts.max_step_tokens, e->facts.max_seqs, e->facts.n_ctx);
    }
    if (nw_ahead_open(&e->ahead, &e->arena, &e->weights, e->config->n_layers, e->pool,
                      NW_ITEM_PANELS, NW_FFN_PANELS, err) != NW_OK) {
        return err->code;
    }
    e->facts.workspace_bytes = e->arena.used_bytes - before;
    return NW_OK;
}
