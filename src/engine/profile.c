/* The kernel ledger against the machine's limits: see profile.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/profile.h"

#include <stdlib.h>
#include <string.h>

#include "engine/state.h"

/* Rows of the ledger that differ in nothing but the layer. */
typedef struct {
    nw_ledger_row sum;
    uint32_t layers;
    double peak; /* of its activations' kind; 0: no matrices, or unknown */
} group;

typedef struct {
    group *list;
    size_t n;
    nw_ledger_row phase[NW_PHASE_COUNT]; /* sums; tokens: each once */
    uint64_t fallback_ns[NW_PHASE_COUNT];
} profile;

/* The first matrix that the op multiplies by; NULL for ops without one. */
static const nw_weight *matrix_of(const nw_engine *e, nw_op op, int32_t layer)
{
    const nw_layer *l = layer >= 0 ? &e->weights.layers[layer] : NULL;

    if (op == NW_OP_HEAD) {
        return &e->weights.head;
    }
    if (l == NULL) {
        return NULL;
    }
    return op == NW_OP_QKV       ? &l->q
           : op == NW_OP_O       ? &l->o
           : op == NW_OP_GATE_UP ? &l->gate
           : op == NW_OP_DOWN    ? &l->down
                                 : NULL;
}

static double peak_of(const nw_engine *e, const nw_ledger_row *r, const nw_roofs *roofs)
{
    const nw_weight *w = matrix_of(e, r->op, r->layer);

    if (w == NULL) {
        return 0;
    }
    const nw_act_kind act = e->kernels->act_kind(w->type, e->a8);
    switch (act) {
    case NW_ACT_INT8:
    case NW_ACT_INT16:
        return roofs->int8_macs_s / nw_kernels_dots(e->kernels, w->type, act);
    case NW_ACT_BF16:
        return roofs->bf16_macs_s;
    case NW_ACT_F32:
        return roofs->f32_macs_s;
    }
    return 0;
}

static void add(nw_ledger_row *sum, const nw_ledger_row *r)
{
    sum->calls += r->calls;
    sum->tokens += r->tokens;
    sum->ns += r->ns;
    sum->bytes += r->bytes;
    sum->bytes_converted += r->bytes_converted;
    sum->macs += r->macs;
}

static bool same(const nw_ledger_row *a, const nw_ledger_row *b)
{
    return a->op == b->op && a->phase == b->phase && strcmp(a->shape, b->shape) == 0 &&
           strcmp(a->used, b->used) == 0 && strcmp(a->intended, b->intended) == 0;
}

static int longest_first(const void *a, const void *b)
{
    const group *x = a;
    const group *y = b;
    if (x->sum.phase != y->sum.phase) {
        return (int)x->sum.phase - (int)y->sum.phase;
    }
    return (x->sum.ns < y->sum.ns) - (x->sum.ns > y->sum.ns);
}

static void sum_up(const nw_engine *e, const nw_ledger_row *rows, size_t n, const nw_roofs *roofs,
                   profile *p)
{
    for (size_t i = 0; i < n; i++) {
        const nw_ledger_row *r = &rows[i];
        size_t at = 0;
        while (at < p->n && !same(&p->list[at].sum, r)) {
            at++;
        }
        group *g = &p->list[at];
        if (at == p->n) {
            p->n++;
            *g = (group){.sum = *r, .layers = 1, .peak = peak_of(e, r, roofs)};
        } else {
            add(&g->sum, r);
            g->layers++;
        }
        nw_ledger_row *phase = &p->phase[r->phase];
        phase->phase_name = r->phase_name;
        add(phase, r);
        phase->tokens -= r->op == NW_OP_EMBED ? 0 : r->tokens; /* each token once */
        p->fallback_ns[r->phase] += strcmp(r->used, r->intended) != 0 ? r->ns : 0;
    }
    qsort(p->list, p->n, sizeof *p->list, longest_first);
}

static json_t *integer(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* x / y, or null where there is nothing to divide by. */
static json_t *ratio(double x, double y)
{
    return y > 0 ? json_real(x / y) : json_null();
}

static json_t *giga(double rate)
{
    return rate > 0 ? json_real(rate / 1e9) : json_null();
}

static json_t *phase_json(const nw_ledger_row *r, uint64_t fallback_ns, const nw_roofs *roofs)
{
    const double s = (double)r->ns * 1e-9;

    return json_pack("{s:s, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "phase", r->phase_name,
                     "s", s, "tokens", integer(r->tokens), "bytes", integer(r->bytes), "gb_per_s",
                     ratio((double)r->bytes / 1e9, s), "share_of_read",
                     ratio((double)r->bytes, s * roofs->read_bytes_s), "macs", integer(r->macs),
                     "gmac_per_s", ratio((double)r->macs / 1e9, s), "bytes_converted",
                     integer(r->bytes_converted), "fallback_share",
                     ratio((double)fallback_ns, (double)r->ns));
}

static json_t *op_json(const profile *p, const group *g, const nw_roofs *roofs)
{
    const nw_ledger_row *r = &g->sum;
    const double s = (double)r->ns * 1e-9;
    const double all = (double)p->phase[r->phase].ns;

    return json_pack(
        "{s:s, s:s, s:s, s:i, s:o, s:s, s:s, s:b, s:f, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o}",
        "op", r->op_name, "shape", r->shape, "phase", r->phase_name, "layers", (int)g->layers,
        "calls", integer(r->calls), "intended", r->intended, "used", r->used, "fallback",
        strcmp(r->used, r->intended) != 0, "s", s, "share_of_time", ratio((double)r->ns, all),
        "bytes", integer(r->bytes), "gb_per_s", ratio((double)r->bytes / 1e9, s), "share_of_read",
        ratio((double)r->bytes, s * roofs->read_bytes_s), "macs", integer(r->macs), "gmac_per_s",
        ratio((double)r->macs / 1e9, s), "share_of_peak", ratio((double)r->macs, s * g->peak),
        "bytes_converted", integer(r->bytes_converted));
}

/* The kernel of the matrices that reads most bytes, over all phases; of two alike that of the earlier op. */
static const char *main_kernel(const nw_engine *e, const profile *p)
{
    const char *most = NULL;
    uint64_t most_bytes = 0;
    nw_op most_op = NW_OP_HEAD;

    for (size_t i = 0; i < p->n; i++) {
        uint64_t bytes = 0;
        const nw_ledger_row *r = &p->list[i].sum;
        if (matrix_of(e, r->op, r->layer) == NULL) {
            continue;
        }
        for (size_t k = 0; k < p->n; k++) {
            const nw_ledger_row *other = &p->list[k].sum;
            const bool counts = matrix_of(e, other->op, other->layer) != NULL;
            bytes += counts && strcmp(other->used, r->used) == 0 ? other->bytes : 0;
        }
        if (bytes > most_bytes || (bytes == most_bytes && r->op < most_op)) {
            most_bytes = bytes;
            most_op = r->op;
            most = r->used;
        }
    }
    return most;
}

static json_t *islands_json(const nw_engine *e, const profile *p)
{
    json_t *list = json_array();
    const char *most = main_kernel(e, p);

    for (size_t i = 0; most != NULL && i < p->n; i++) {
        const nw_ledger_row *r = &p->list[i].sum;
        if (matrix_of(e, r->op, r->layer) == NULL || strcmp(r->used, most) == 0) {
            continue;
        }
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:o, s:o}", "op", r->op_name, "shape",
                            r->shape, "phase", r->phase_name, "used", r->used, "among", most, "s",
                            (double)r->ns * 1e-9, "bytes", integer(r->bytes), "bytes_converted",
                            integer(r->bytes_converted)));
    }
    return list;
}

static json_t *all_json(const nw_engine *e, const profile *p, const nw_roofs *roofs)
{
    json_t *phases = json_array();
    json_t *ops = json_array();

    for (int i = 0; i < NW_PHASE_COUNT; i++) {
        if (p->phase[i].ns > 0) {
            (void)json_array_append_new(phases, phase_json(&p->phase[i], p->fallback_ns[i], roofs));
        }
    }
    for (size_t i = 0; i < p->n; i++) {
        (void)json_array_append_new(ops, op_json(p, &p->list[i], roofs));
    }
    return json_pack("{s:{s:o, s:o, s:o, s:o}, s:o, s:o, s:o}", "roofs", "read_gb_per_s",
                     giga(roofs->read_bytes_s), "f32_gmac_per_s", giga(roofs->f32_macs_s),
                     "bf16_gmac_per_s", giga(roofs->bf16_macs_s), "int8_gmac_per_s",
                     giga(roofs->int8_macs_s), "phases", phases, "ops", ops, "islands",
                     islands_json(e, p));
}

json_t *nw_profile_json(nw_engine *e, const nw_roofs *roofs)
{
    const nw_ledger *l = nw_engine_ledger(e);
    const size_t n = nw_ledger_snapshot(l, NULL, 0);
    nw_ledger_row *rows = calloc(n + 1, sizeof *rows);
    profile p = {.list = calloc(n + 1, sizeof *p.list)};
    json_t *out = NULL;

    if (rows != NULL && p.list != NULL) {
        (void)nw_ledger_snapshot(l, rows, n);
        sum_up(e, rows, n, roofs, &p);
        out = all_json(e, &p, roofs);
    }
    free(rows);
    free(p.list);
    return out;
}
