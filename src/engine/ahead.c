/* First reads of each linear: see ahead.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/ahead.h"

#include "formats/panel.h"

/* Asked for while a thread waits: some microseconds of its share of memory, and a part of L2. */
#define AHEAD_BYTES ((size_t)128 << 10)

enum { QKV, O, GATE_UP, DOWN, N_LINEARS };

static uint32_t items_of(const nw_weight *w, uint32_t item_panels)
{
    return (nw_panel_count(w->n_rows) + item_panels - 1) / item_panels;
}

/* From panel p on, as far as AHEAD_BYTES and the matrix go, in the order in which one token reads. */
static nw_pool_ahead read_from(const nw_weight *w, uint32_t p)
{
    size_t panel = 0;

    if (!nw_panel_bytes(w->type, w->n_cols, &panel)) {
        return (nw_pool_ahead){0};
    }
    const size_t left = (nw_panel_count(w->n_rows) - p) * panel;
    return (nw_pool_ahead){
        .begin = w->data + p * panel, .bytes = left < AHEAD_BYTES ? left : AHEAD_BYTES, .n = 1};
}

/* A run over the items of n weights, one after the other. */
static void fill(nw_pool_ahead *reads, const nw_weight *const *w, unsigned n, const nw_pool *pool,
                 uint32_t item_panels)
{
    size_t items = 0;

    for (unsigned i = 0; i < n; i++) {
        items += items_of(w[i], item_panels);
    }
    for (unsigned t = 0; t < nw_pool_threads(pool); t++) {
        size_t item = nw_pool_first_item(pool, items, t);
        unsigned i = 0;
        while (i + 1 < n && item >= items_of(w[i], item_panels)) {
            item -= items_of(w[i++], item_panels);
        }
        reads[t] = item < items_of(w[i], item_panels)
                       ? read_from(w[i], (uint32_t)item * item_panels)
                       : (nw_pool_ahead){0};
    }
}

nw_status nw_ahead_open(nw_ahead *a, nw_arena *arena, const nw_weights *w, uint32_t n_layers,
                        const nw_pool *pool, uint32_t item_panels, uint32_t ffn_panels,
                        nw_error *err)
{
    const unsigned n = nw_pool_threads(pool);
    const size_t ops = (size_t)n_layers * N_LINEARS + 1;

    *a = (nw_ahead){.n_layers = n_layers,
                    .n_threads = n,
                    .reads = nw_arena_array(arena, ops * n, sizeof *a->reads)};
    if (a->reads == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the reads of %u layers", n_layers);
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        const nw_layer *l = &w->layers[i];
        nw_pool_ahead *at = a->reads + (size_t)i * N_LINEARS * n;
        fill(at + QKV * n, (const nw_weight *const[]){&l->q, &l->k, &l->v}, 3, pool, item_panels);
        fill(at + O * n, (const nw_weight *const[]){&l->o}, 1, pool, item_panels);
        fill(at + GATE_UP * n, (const nw_weight *const[]){&l->gate}, 1, pool, ffn_panels);
        fill(at + DOWN * n, (const nw_weight *const[]){&l->down}, 1, pool, item_panels);
    }
    fill(a->reads + (ops - 1) * n, (const nw_weight *const[]){&w->head}, 1, pool, item_panels);
    return NW_OK;
}

const nw_pool_ahead *nw_ahead_after(const nw_ahead *a, nw_op op, int32_t layer)
{
    const size_t first = layer < 0 ? 0 : (size_t)layer * N_LINEARS;
    size_t next = 0;

    if (op == NW_OP_ATTENTION) {
        next = first + O;
    } else if (op == NW_OP_O) {
        next = first + GATE_UP;
    } else if (op == NW_OP_GATE_UP) {
        next = first + DOWN;
    } else if (op == NW_OP_DOWN) {
        next = first + N_LINEARS; /* the next layer's qkv, or the head */
    } else if (op != NW_OP_HEAD) {
        return NULL;
    }
    return a->reads + next * a->n_threads; /* after the head: layer 0 of the next step */
}
