/* What runs where, in words: kernel names for the ledger and the kernel map of the facts.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "engine/state.h"

static const char *const act_names[NW_ACT_KINDS] = {"f32", "bf16", "int8", "int16"};

/* A8 means int8 activations for every matrix of small integers or FP4: a tier that has no such kernel
 * shows as intended int8, used bf16 or f32. Others never have int8 activations. */
static nw_act_kind act_of(const nw_engine *e, nw_panel_type type, bool intended)
{
    const bool coded = type.kind == NW_PANEL_INT8 || type.kind == NW_PANEL_INT4 ||
                       type.kind == NW_PANEL_NVFP4 || type.kind == NW_PANEL_MXFP4;
    return intended && e->a8 && coded ? NW_ACT_INT8 : e->kernels->act_kind(type, e->a8);
}

static const char *kernel_name(nw_engine *e, const nw_weight *const *w, unsigned n, bool intended,
                               nw_error *err)
{
    nw_buf b;
    nw_buf_init(&b, 256);
    (void)nw_buf_printf(&b, "%s ", e->kernels->tier);
    for (unsigned i = 0; i < n; i++) {
        char name[32];
        const nw_act_kind act = act_of(e, w[i]->type, intended);
        char part[64];
        (void)snprintf(part, sizeof part, "%s x %s", nw_panel_name(w[i]->type, name),
                       act_names[act]);
        if (b.data == NULL || strstr(b.data, part) == NULL) {
            (void)nw_buf_printf(&b, "%s%s", i > 0 ? ", " : "", part);
        }
    }
    const char *copy = b.failed ? NULL : nw_arena_strndup(&e->arena, b.data, b.len);
    nw_buf_release(&b);
    if (copy == NULL) {
        (void)nw_fail(err, NW_E_NOMEM, "no memory for the name of a kernel");
    }
    return copy;
}

static nw_status describe_linear(nw_engine *e, nw_op op, int32_t layer, const nw_weight *const *w,
                                 unsigned n, nw_error *err)
{
    char shape[32];
    uint32_t rows = 0;
    for (unsigned i = 0; i < n; i++) {
        rows += w[i]->n_rows;
    }
    (void)snprintf(shape, sizeof shape, "%ux%u", rows, w[0]->n_cols);
    const char *intended = kernel_name(e, w, n, true, err);
    const char *used = kernel_name(e, w, n, false, err);
    if (intended == NULL || used == NULL) {
        return err->code;
    }
    nw_ledger_describe(e->ledger, op, layer, shape, intended, used);
    return NW_OK;
}

static nw_status describe_layer(nw_engine *e, uint32_t layer, const char *attention, nw_error *err)
{
    const nw_model_config *c = e->config;
    const nw_layer *l = &e->weights.layers[layer];
    const nw_weight *const qkv[] = {&l->q, &l->k, &l->v};
    const nw_weight *const o[] = {&l->o};
    const nw_weight *const gate_up[] = {&l->gate, &l->up};
    const nw_weight *const down[] = {&l->down};
    const int32_t at = (int32_t)layer;
    const char *tier = e->kernels->tier;
    char width[32];
    char heads[32];

    if (describe_linear(e, NW_OP_QKV, at, qkv, 3, err) != NW_OK ||
        describe_linear(e, NW_OP_O, at, o, 1, err) != NW_OK ||
        describe_linear(e, NW_OP_GATE_UP, at, gate_up, 2, err) != NW_OK ||
        describe_linear(e, NW_OP_DOWN, at, down, 1, err) != NW_OK) {
        return err->code;
    }
    (void)snprintf(width, sizeof width, "%u", c->d_model);
    (void)snprintf(heads, sizeof heads, "%u/%ux%u", c->n_heads, c->n_kv_heads, c->d_head);
    nw_ledger_describe(e->ledger, NW_OP_ATTN_NORM, at, width, tier, tier);
    nw_ledger_describe(e->ledger, NW_OP_FFN_NORM, at, width, tier, tier);
    nw_ledger_describe(e->ledger, NW_OP_ROPE_KV, at, heads, attention, attention);
    nw_ledger_describe(e->ledger, NW_OP_ATTENTION, at, heads, attention, attention);
    (void)snprintf(width, sizeof width, "%u", c->n_heads * c->d_head);
    nw_ledger_describe(e->ledger, NW_OP_O_PACK, at, width, tier, tier);
    (void)snprintf(width, sizeof width, "%u", c->d_ff);
    nw_ledger_describe(e->ledger, NW_OP_DOWN_PACK, at, width, tier, tier);
    return NW_OK;
}

/* "linear avx512 int8 x int8; head avx512 bf16 x bf16; attention avx512 k int8 v int8 a8; kv int8;
 * act a8". */
static nw_status kernel_map(nw_engine *e, const char *head, const char *attention, nw_error *err)
{
    nw_buf b;
    nw_buf_init(&b, 4096);
    for (uint32_t i = 0; i < e->config->n_layers; i++) {
        const nw_layer *l = &e->weights.layers[i];
        const nw_weight *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < NW_COUNT(all); j++) {
            const char *name = kernel_name(e, &all[j], 1, false, err);
            if (name == NULL) {
                nw_buf_release(&b);
                return err->code;
            }
            if (b.data == NULL || strstr(b.data, name) == NULL) {
                (void)nw_buf_printf(&b, "linear %s; ", name);
            }
        }
    }
    /* all that decides results: a record takes a run with an equal map for the same measurement */
    (void)nw_buf_printf(&b, "head %s; attention %s; kv %s; act %s", head, attention, e->facts.kv,
                        nw_act_rule_name(e->facts.act));
    e->facts.kernel_map = b.failed ? NULL : nw_arena_strndup(&e->arena, b.data, b.len);
    nw_buf_release(&b);
    return e->facts.kernel_map != NULL ? NW_OK
                                       : nw_fail(err, NW_E_NOMEM, "no memory for the kernel map");
}

nw_status nw_describe_kernels(nw_engine *e, nw_error *err)
{
    const nw_weight *const head[] = {&e->weights.head};
    char text[96];
    char width[32];

    const bool a8 = e->a8 && (nw_kv_is_int(e->kv.type.k) || nw_kv_is_int(e->kv.type.v));
    (void)snprintf(text, sizeof text, "%s k %s v %s%s", e->kernels->tier, e->facts.kv_k,
                   e->facts.kv_v, a8 ? " a8" : "");
    const char *attention = nw_arena_strndup(&e->arena, text, strlen(text));
    if (attention == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the name of a kernel");
    }
    for (uint32_t i = 0; i < e->config->n_layers; i++) {
        if (describe_layer(e, i, attention, err) != NW_OK) {
            return err->code;
        }
    }
    (void)snprintf(width, sizeof width, "%u", e->config->d_model);
    nw_ledger_describe(e->ledger, NW_OP_EMBED, -1, width, "ref", "ref");
    nw_ledger_describe(e->ledger, NW_OP_OUT_NORM, -1, width, e->kernels->tier, e->kernels->tier);
    const char *name = kernel_name(e, head, 1, false, err);
    if (name == NULL || describe_linear(e, NW_OP_HEAD, -1, head, 1, err) != NW_OK) {
        return err->code;
    }
    return kernel_map(e, name, attention, err);
}
