/* Kernel ledger: two flat tables, what an op is (once a layer) and what it did (once a phase).
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/ledger.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char shape[32];
    const char *intended, *used;
} op_info;

typedef struct {
    uint64_t calls, tokens, ns, bytes, bytes_converted;
} op_count;

struct nw_ledger {
    size_t n; /* (n_layers + 1) * NW_OP_COUNT; layer -1 stands first */
    op_info *info;
    op_count *count; /* [n][NW_PHASE_COUNT] */
};

static const char *const op_names[] = {
#define NW_OP_TEXT(name, text) text,
    NW_OP_MAP(NW_OP_TEXT)
#undef NW_OP_TEXT
};

static const char *const phase_names[NW_PHASE_COUNT] = {"prefill", "decode", "mixed"};

static size_t slot(const nw_ledger *l, nw_op op, int32_t layer)
{
    const size_t i = (size_t)(layer + 1) * NW_OP_COUNT + (size_t)op;
    assert(i < l->n);
    (void)l;
    return i;
}

nw_ledger *nw_ledger_new(uint32_t n_layers)
{
    nw_ledger *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return NULL;
    }
    l->n = ((size_t)n_layers + 1) * NW_OP_COUNT;
    l->info = calloc(l->n, sizeof *l->info);
    l->count = calloc(l->n * NW_PHASE_COUNT, sizeof *l->count);
    if (l->info == NULL || l->count == NULL) {
        nw_ledger_free(l);
        return NULL;
    }
    for (size_t i = 0; i < l->n; i++) {
        l->info[i].intended = l->info[i].used = "";
    }
    return l;
}

void nw_ledger_free(nw_ledger *l)
{
    if (l != NULL) {
        free(l->info);
        free(l->count);
        free(l);
    }
}

void nw_ledger_describe(nw_ledger *l, nw_op op, int32_t layer, const char *shape,
                        const char *intended, const char *used)
{
    op_info *o = &l->info[slot(l, op, layer)];
    (void)snprintf(o->shape, sizeof o->shape, "%s", shape);
    o->intended = intended;
    o->used = used;
}

void nw_ledger_add(nw_ledger *l, const nw_ledger_entry *e)
{
    op_count *c = &l->count[slot(l, e->op, e->layer) * NW_PHASE_COUNT + (size_t)e->phase];
    c->calls++;
    c->tokens += e->tokens;
    c->ns += e->ns;
    c->bytes += e->bytes;
    c->bytes_converted += e->bytes_converted;
}

size_t nw_ledger_snapshot(const nw_ledger *l, nw_ledger_row *rows, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n * NW_PHASE_COUNT; i++) {
        const op_count *c = &l->count[i];
        if (c->calls == 0) {
            continue;
        }
        const size_t at = i / NW_PHASE_COUNT;
        const op_info *o = &l->info[at];
        if (n < cap) {
            nw_ledger_row *r = &rows[n];
            *r = (nw_ledger_row){
                .op = (nw_op)(at % NW_OP_COUNT),
                .op_name = op_names[at % NW_OP_COUNT],
                .layer = (int32_t)(at / NW_OP_COUNT) - 1,
                .phase = (nw_phase)(i % NW_PHASE_COUNT),
                .phase_name = phase_names[i % NW_PHASE_COUNT],
                .intended = o->intended,
                .used = o->used,
                .calls = c->calls,
                .tokens = c->tokens,
                .ns = c->ns,
                .bytes = c->bytes,
                .bytes_converted = c->bytes_converted,
            };
            memcpy(r->shape, o->shape, sizeof r->shape);
        }
        n++;
    }
    return n;
}

void nw_ledger_reset(nw_ledger *l)
{
    memset(l->count, 0, l->n * NW_PHASE_COUNT * sizeof *l->count);
}
