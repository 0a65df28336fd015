/* The forward pass: embedding, layers, head. Every loop is split by output (panels, tokens, heads),
 * never by a sum, so that the bits do not depend on the number of threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/forward.h"

#include <assert.h>

#include "base/clock.h"
#include "kernels/act.h"

unsigned nw_act_mask(const nw_engine *e, const nw_weight *const *w, unsigned n, bool coded)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < n; i++) {
        mask |= 1U << e->kernels->act_kind(w[i]->type, e->a8);
    }
    if (nw_act_rule_rounds(e->facts.act) && coded) {
        mask |= NW_ACT_ROUND;
    }
    return mask;
}

void nw_pack_tokens(nw_engine *e, unsigned mask, const nw_artifact_input *in, float *x,
                    uint32_t n_cols, uint32_t t0, uint32_t t1)
{
    const nw_act_fixed *fixed =
        e->has_fixed && in != NULL && in->fixed.scale > 0 ? &in->fixed : NULL;

    nw_wide_take(e, in, x, n_cols, t0, t1);
    for (uint32_t t = t0; (mask & NW_ACT_ROUND) != 0 && t < t1; t++) {
        nw_act_rule_round(e->facts.act, fixed, x + (size_t)t * n_cols, n_cols);
    }
    for (unsigned kind = 0; kind < NW_ACT_KINDS; kind++) {
        if ((mask >> kind & 1U) != 0 && kind == NW_ACT_INT8 && fixed != NULL) {
            nw_act_pack_fixed(fixed->scale, x, n_cols, t0, t1, n_cols, e->work.act[kind]);
        } else if ((mask >> kind & 1U) != 0) {
            e->kernels->act_pack((nw_act_kind)kind, x, n_cols, t0, t1, n_cols, e->work.act[kind]);
        }
    }
    nw_wide_restore(e, in, x, n_cols, t0, t1);
}

uint64_t nw_pack_bytes(unsigned mask, uint32_t n_cols, uint32_t n_tokens)
{
    uint64_t bytes = 0;
    for (unsigned kind = 0; kind < NW_ACT_KINDS; kind++) {
        if ((mask >> kind & 1U) != 0 && kind != NW_ACT_F32) {
            bytes += nw_act_bytes((nw_act_kind)kind, n_tokens, n_cols);
        }
    }
    return bytes;
}

nw_act nw_act_view(const nw_engine *e, const nw_weight *w, uint32_t n_tokens)
{
    const nw_act_kind kind = e->kernels->act_kind(w->type, e->a8);
    return (nw_act){
        .kind = kind, .n_tokens = n_tokens, .n_cols = w->n_cols, .data = e->work.act[kind]};
}

uint64_t nw_weight_bytes(const nw_weight *w)
{
    size_t bytes = 0;
    return nw_panel_tensor_bytes(w->type, w->n_rows, w->n_cols, &bytes) ? bytes : 0;
}

uint64_t nw_weight_macs(const nw_weight *w, uint32_t n_tokens)
{
    return (uint64_t)w->n_rows * w->n_cols * n_tokens;
}

/* The rotary embedding of few heads (about a microsecond each) takes no longer than sharing it out. */
#define FEW_HEADS 4u

static bool entry_is_small(const nw_ledger_entry *entry, size_t n)
{
    return n <= 1 || (entry->op == NW_OP_ROPE_KV && n <= FEW_HEADS);
}

/* A step of more tokens computes longer than it reads: nothing is gained by reading ahead. */
#define AHEAD_TOKENS 4u

void nw_run_op(nw_engine *e, nw_ledger_entry entry, size_t n, nw_pool_fn fn, void *ctx)
{
    const int64_t start = nw_now_ns();
    const nw_pool_ahead *next =
        e->work.n_tokens <= AHEAD_TOKENS ? nw_ahead_after(&e->ahead, entry.op, entry.layer) : NULL;
    nw_pool_run_ahead(entry_is_small(&entry, n) ? NULL : e->pool, n, fn, ctx, next);
    entry.ns = (uint64_t)(nw_now_ns() - start);
    entry.start_ns = start;
    entry.phase = e->work.phase;
    entry.tokens = entry.op == NW_OP_HEAD ? e->work.n_rows : e->work.n_tokens;
    if (entry.op == NW_OP_ATTENTION) {
        const bool global = nw_config_layer_is_global(e->config, (uint32_t)entry.layer);
        entry.macs = 2 * (global ? e->work.kv_pairs : e->work.kv_pairs_local) * e->config->n_heads *
                     e->config->d_head;
    }
    nw_ledger_add(e->ledger, &entry);
}

size_t nw_token_items(uint32_t n_tokens)
{
    return (n_tokens + NW_ITEM_TOKENS - 1) / NW_ITEM_TOKENS;
}

void nw_token_range(size_t item, uint32_t n_tokens, uint32_t *t0, uint32_t *t1)
{
    *t0 = (uint32_t)item * NW_ITEM_TOKENS;
    *t1 = *t0 + NW_ITEM_TOKENS < n_tokens ? *t0 + NW_ITEM_TOKENS : n_tokens;
}

typedef struct {
    const nw_engine *e;
    unsigned n;
    struct {
        const nw_weight *w, *wide;
        nw_act act;
        float *y;
        size_t first; /* item at which it begins */
    } part[3];
} linear_job;

static void linear_item(void *ctx, size_t item, unsigned worker)
{
    const linear_job *j = ctx;
    unsigned i = j->n - 1;
    while (item < j->part[i].first) {
        i--;
    }
    const nw_weight *w = j->part[i].w;
    const uint32_t n_panels = nw_panel_count(w->n_rows);
    const uint32_t p0 = (uint32_t)(item - j->part[i].first) * NW_ITEM_PANELS;
    const uint32_t p1 = p0 + NW_ITEM_PANELS < n_panels ? p0 + NW_ITEM_PANELS : n_panels;
    j->e->kernels->linear(w, &j->part[i].act, p0, p1, j->part[i].y, w->n_rows);
    nw_wide_add(j->e, j->part[i].wide, p0, p1, 0, j->part[i].y, w->n_rows, worker);
}

void nw_run_linears(nw_engine *e, nw_op op, int32_t layer, const nw_linear *l, unsigned n)
{
    linear_job j = {.e = e, .n = n};
    nw_ledger_entry entry = {.op = op, .layer = layer};
    size_t items = 0;

    assert(n > 0 && n <= NW_COUNT(j.part));
    for (unsigned i = 0; i < n; i++) {
        j.part[i].w = l[i].w;
        j.part[i].wide = l[i].wide;
        j.part[i].act = nw_act_view(e, l[i].w, e->work.n_tokens);
        j.part[i].y = l[i].y;
        j.part[i].first = items;
        items += (nw_panel_count(l[i].w->n_rows) + NW_ITEM_PANELS - 1) / NW_ITEM_PANELS;
        entry.bytes += nw_weight_bytes(l[i].w);
        entry.macs += nw_weight_macs(l[i].w, e->work.n_tokens);
    }
    nw_run_op(e, entry, items, linear_item, &j);
}

static void embed_item(void *ctx, size_t item, unsigned worker)
{
    nw_engine *e = ctx;
    const nw_model_config *c = e->config;
    uint32_t t0 = 0;
    uint32_t t1 = 0;
    (void)worker;
    nw_token_range(item, e->work.n_tokens, &t0, &t1);
    for (uint32_t t = t0; t < t1; t++) {
        float *x = e->work.x + (size_t)t * c->d_model;
        nw_artifact_embed_row(e->embed, (uint32_t)e->work.ids[t], x);
        for (uint32_t i = 0; i < c->d_model; i++) {
            x[i] *= c->embed_scale;
        }
    }
}

void nw_forward(nw_engine *e)
{
    const uint64_t embed_bytes = (uint64_t)e->work.n_tokens * e->config->d_model * sizeof(float);

    nw_run_op(e, (nw_ledger_entry){.op = NW_OP_EMBED, .layer = -1, .bytes = embed_bytes},
              nw_token_items(e->work.n_tokens), embed_item, e);
    for (uint32_t layer = 0; layer < e->config->n_layers; layer++) {
        nw_forward_attention(e, layer);
        nw_forward_ffn(e, layer);
    }
    if (e->work.n_rows > 0) {
        nw_forward_head(e);
    }
}
