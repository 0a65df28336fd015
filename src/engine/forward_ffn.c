/* Second half of a layer: residual, norm, gate and up with their activation, down. And the end of
 * the pass: last residual, norm and head, only for the rows whose logits are wanted.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "engine/forward.h"
#include "kernels/kv_page.h"

typedef struct {
    nw_engine *e;
    const nw_layer *l;
    unsigned mask;
    nw_act act[2]; /* inputs of gate and up, or of the head */
} ffn_job;

/* x += (post-normed) attention output, h = norm(x), packed for gate and up. */
static void norm_item(void *ctx, size_t item, unsigned worker)
{
    const ffn_job *j = ctx;
    nw_engine *e = j->e;
    const nw_kernels *k = e->kernels;
    const nw_model_config *c = e->config;
    uint32_t t0 = 0;
    uint32_t t1 = 0;
    (void)worker;
    nw_token_range(item, e->work.n_tokens, &t0, &t1);
    for (uint32_t t = t0; t < t1; t++) {
        const size_t at = (size_t)t * c->d_model;
        if (j->l->post_attn_norm != NULL) {
            k->rmsnorm(e->work.y + at, j->l->post_attn_norm, c->d_model, c->norm_eps,
                       e->work.y + at);
        }
        k->add(e->work.y + at, c->d_model, e->work.x + at);
        k->rmsnorm(e->work.x + at, j->l->ffn_norm, c->d_model, c->norm_eps, e->work.h + at);
    }
    nw_pack_tokens(e, j->mask, j->l->gate_in, e->work.h, c->d_model, t0, t1);
}

/* The matrix from panel p0 on, so that its product can be put elsewhere than in a whole row of outputs;
 * what follows the item's own panels is only looked at ahead. */
static nw_weight from_panel(const nw_weight *w, uint32_t p0)
{
    const size_t panel_bytes = nw_weight_bytes(w) / nw_panel_count(w->n_rows);

    return (nw_weight){.type = w->type,
                       .data = w->data + p0 * panel_bytes,
                       .n_rows = w->n_rows - p0 * NW_PANEL_ROWS,
                       .n_cols = w->n_cols};
}

/* A run of panels of gate and the same of up, then the product of the two while it is in cache. */
static void gate_up_item(void *ctx, size_t item, unsigned worker)
{
    const ffn_job *j = ctx;
    nw_engine *e = j->e;
    const nw_kernels *k = e->kernels;
    const uint32_t d_ff = e->config->d_ff;
    const uint32_t n_panels = nw_panel_count(d_ff);
    const uint32_t p0 = (uint32_t)item * NW_FFN_PANELS;
    const uint32_t p1 = p0 + NW_FFN_PANELS < n_panels ? p0 + NW_FFN_PANELS : n_panels;
    const uint32_t r0 = p0 * NW_PANEL_ROWS;
    const uint32_t r1 = p1 * NW_PANEL_ROWS < d_ff ? p1 * NW_PANEL_ROWS : d_ff;
    const nw_weight up_part = from_panel(&j->l->up, p0);
    float *up = e->work.tile_scratch[worker];

    k->linear(&j->l->gate, &j->act[0], p0, p1, e->work.gate, d_ff);
    k->linear(&up_part, &j->act[1], 0, p1 - p0, up, NW_FFN_ROWS);
    nw_wide_add(e, &j->l->gate_wide, p0, p1, 0, e->work.gate, d_ff, worker);
    nw_wide_add(e, &j->l->up_wide, p0, p1, r0, up, NW_FFN_ROWS, worker);
    for (uint32_t t = 0; t < e->work.n_tokens; t++) {
        float *gate = e->work.gate + (size_t)t * d_ff + r0;
        if (e->config->act_gelu) {
            k->gelu_tanh_mul(gate, up + (size_t)t * NW_FFN_ROWS, r1 - r0, gate);
        } else {
            k->silu_mul(gate, up + (size_t)t * NW_FFN_ROWS, r1 - r0, gate);
        }
    }
}

static void pack_item(void *ctx, size_t item, unsigned worker)
{
    const ffn_job *j = ctx;
    uint32_t t0 = 0;
    uint32_t t1 = 0;
    (void)worker;
    nw_token_range(item, j->e->work.n_tokens, &t0, &t1);
    if (nw_artifact_get_facts(j->e->artifact)->hadamard_down) {
        for (uint32_t t = t0; t < t1; t++) {
            nw_kv_rotate_plain(j->e->work.gate + (size_t)t * j->e->config->d_ff,
                               j->e->config->d_ff);
        }
    }
    nw_pack_tokens(j->e, j->mask, j->l->down_in, j->e->work.gate, j->e->config->d_ff, t0, t1);
}

void nw_forward_ffn(nw_engine *e, uint32_t layer)
{
    const nw_model_config *c = e->config;
    const nw_layer *l = &e->weights.layers[layer];
    const nw_weight *const in[] = {&l->gate, &l->up};
    const nw_weight *const out[] = {&l->down};
    const uint32_t n = e->work.n_tokens;
    const int32_t at = (int32_t)layer;
    ffn_job j = {.e = e, .l = l, .mask = nw_act_mask(e, in, NW_COUNT(in), l->gate_coded)};

    nw_run_op(e,
              (nw_ledger_entry){.op = NW_OP_FFN_NORM,
                                .layer = at,
                                .bytes_converted = nw_pack_bytes(j.mask, c->d_model, n)},
              nw_token_items(n), norm_item, &j);
    nw_show_input(e, NW_ROLE_GATE, layer, e->work.h, c->d_model);
    j.act[0] = nw_act_view(e, &l->gate, n);
    j.act[1] = nw_act_view(e, &l->up, n);
    nw_run_op(e,
              (nw_ledger_entry){.op = NW_OP_GATE_UP,
                                .layer = at,
                                .bytes = nw_weight_bytes(&l->gate) + nw_weight_bytes(&l->up),
                                .macs = nw_weight_macs(&l->gate, 2 * n)},
              (nw_panel_count(c->d_ff) + NW_FFN_PANELS - 1) / NW_FFN_PANELS, gate_up_item, &j);
    nw_show_input(e, NW_ROLE_DOWN, layer, e->work.gate, c->d_ff);
    j.mask = nw_act_mask(e, out, NW_COUNT(out), l->down_coded);
    nw_run_op(e,
              (nw_ledger_entry){.op = NW_OP_DOWN_PACK,
                                .layer = at,
                                .bytes_converted = nw_pack_bytes(j.mask, c->d_ff, n)},
              nw_token_items(n), pack_item, &j);
    nw_run_linears(e, NW_OP_DOWN, at, (nw_linear[]){{&l->down, &l->down_wide, e->work.y}}, 1);
}

/* Rows are few and their tokens anywhere in the step: normed rows are gathered into h. */
static void out_norm_item(void *ctx, size_t item, unsigned worker)
{
    const ffn_job *j = ctx;
    nw_engine *e = j->e;
    const nw_kernels *k = e->kernels;
    const nw_model_config *c = e->config;
    uint32_t r0 = 0;
    uint32_t r1 = 0;
    (void)worker;
    nw_token_range(item, e->work.n_rows, &r0, &r1);
    for (uint32_t r = r0; r < r1; r++) {
        const size_t at = (size_t)e->work.row_token[r] * c->d_model;
        float *h = e->work.h + (size_t)r * c->d_model;
        if (j->l->post_ffn_norm != NULL) {
            k->rmsnorm(e->work.y + at, j->l->post_ffn_norm, c->d_model, c->norm_eps,
                       e->work.y + at);
        }
        k->add(e->work.y + at, c->d_model, e->work.x + at);
        k->rmsnorm(e->work.x + at, e->weights.out_norm, c->d_model, c->norm_eps, h);
    }
    nw_pack_tokens(e, j->mask, NULL, e->work.h, c->d_model, r0, r1);
}

/* A run of panels of the head for all rows, through scratch, since rows go to separate places. */
static void head_item(void *ctx, size_t item, unsigned worker)
{
    const ffn_job *j = ctx;
    nw_engine *e = j->e;
    const nw_weight *w = &e->weights.head;
    const size_t ld = NW_ITEM_ROWS;
    const uint32_t n_panels = nw_panel_count(w->n_rows);
    const uint32_t p0 = (uint32_t)item * NW_ITEM_PANELS;
    const uint32_t p1 = p0 + NW_ITEM_PANELS < n_panels ? p0 + NW_ITEM_PANELS : n_panels;
    const uint32_t r0 = p0 * NW_PANEL_ROWS;
    const uint32_t n = (p1 * NW_PANEL_ROWS < w->n_rows ? p1 * NW_PANEL_ROWS : w->n_rows) - r0;
    float *y = e->work.tile_scratch[worker];
    const nw_weight part = from_panel(w, p0);

    e->kernels->linear(&part, &j->act[0], 0, p1 - p0, y, ld);
    for (uint32_t r = 0; r < e->work.n_rows; r++) {
        if (e->config->logit_softcap > 0) {
            e->kernels->softcap(y + r * ld, n, e->config->logit_softcap);
        }
        memcpy(e->work.row_out[r] + r0, y + r * ld, n * sizeof *y);
    }
}

void nw_forward_head(nw_engine *e)
{
    const nw_model_config *c = e->config;
    const nw_weight *w = &e->weights.head;
    const uint32_t n = e->work.n_rows;
    ffn_job j = {.e = e,
                 .l = &e->weights.layers[c->n_layers - 1],
                 .mask = nw_act_mask(e, (const nw_weight *const[]){w}, 1, e->weights.head_coded)};

    nw_run_op(e,
              (nw_ledger_entry){.op = NW_OP_OUT_NORM,
                                .layer = -1,
                                .bytes_converted = nw_pack_bytes(j.mask, c->d_model, n)},
              nw_token_items(n), out_norm_item, &j);
    j.act[0] = nw_act_view(e, w, n);
    nw_run_op(e,
              (nw_ledger_entry){.op = NW_OP_HEAD,
                                .layer = -1,
                                .bytes = nw_weight_bytes(w),
                                .macs = nw_weight_macs(w, n)},
              (nw_panel_count(w->n_rows) + NW_ITEM_PANELS - 1) / NW_ITEM_PANELS, head_item, &j);
}
