/* Kernel ledger: two flat tables, what an op is (once a layer) and what it did (once a phase); and the
 * events of a trace where one is wanted.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/ledger.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

typedef struct {
    char shape[32];
    const char *intended, *used;
} op_info;

typedef struct {
    uint64_t calls, tokens, ns, bytes, bytes_converted, macs;
} op_count;

struct nw_ledger {
    size_t n; /* (n_layers + 1) * NW_OP_COUNT; layer -1 stands first */
    op_info *info;
    op_count *count;         /* [n][NW_PHASE_COUNT] */
    nw_ledger_entry *events; /* [cap_events], NULL without a trace */
    size_t n_events, cap_events, n_dropped;
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
        free(l->events);
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
    c->macs += e->macs;
    if (l->n_events < l->cap_events) {
        l->events[l->n_events++] = *e;
    } else if (l->events != NULL) {
        l->n_dropped++;
    }
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
                .macs = c->macs,
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

/* ---- trace ---- */

nw_status nw_ledger_trace(nw_ledger *l, size_t cap, nw_error *err)
{
    nw_ledger_entry *events = calloc(cap, sizeof *events);

    if (events == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a trace of %zu events", cap);
    }
    free(l->events);
    l->events = events;
    l->cap_events = cap;
    l->n_events = l->n_dropped = 0;
    return NW_OK;
}

static bool put_event(nw_buf *b, const nw_ledger *l, const nw_ledger_entry *e, int64_t begin_ns)
{
    const op_info *o = &l->info[slot(l, e->op, e->layer)];

    return nw_buf_printf(b,
                         ",\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": 1, "
                         "\"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"layer\": %d, "
                         "\"tokens\": %llu, \"bytes\": %llu, \"macs\": %llu, \"shape\": \"%s\", "
                         "\"kernel\": \"%s\"}}",
                         op_names[e->op], phase_names[e->phase], (int)e->phase + 1,
                         (double)(e->start_ns - begin_ns) / 1e3, (double)e->ns / 1e3, (int)e->layer,
                         (unsigned long long)e->tokens, (unsigned long long)e->bytes,
                         (unsigned long long)e->macs, o->shape, o->used);
}

nw_status nw_ledger_trace_write(const nw_ledger *l, const char *path, nw_error *err)
{
    nw_buf b;
    nw_status st = NW_OK;

    nw_buf_init(&b, 64 + 1024 * (l->n_events + NW_PHASE_COUNT));
    (void)nw_buf_printf(&b, "{\"otherData\": {\"events_dropped\": \"%zu\"}, \"traceEvents\": [\n",
                        l->n_dropped);
    for (int i = 0; i < NW_PHASE_COUNT; i++) {
        (void)nw_buf_printf(&b,
                            "%s{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": %d, "
                            "\"args\": {\"name\": \"%s\"}}",
                            i > 0 ? ",\n" : "", i + 1, phase_names[i]);
    }
    for (size_t i = 0; i < l->n_events; i++) {
        (void)put_event(&b, l, &l->events[i], l->events[0].start_ns);
    }
    if (!nw_buf_printf(&b, "\n]}\n") || b.failed) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for a trace of %zu events", l->n_events);
    } else {
        st = nw_file_write(path, b.data, b.len, err);
    }
    nw_buf_release(&b);
    return st;
}
