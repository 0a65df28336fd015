/* First half of a layer: residual of the layer before, norm, q k v, rotary embedding, KV pages,
 * attention, o.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "engine/forward.h"

typedef struct {
    nw_engine *e;
    uint32_t layer;
    unsigned mask; /* kinds to pack */
    float *x;      /* pack_item: input [n_tokens][n_cols] */
    uint32_t n_cols;
    bool global;         /* sees all positions */
    uint32_t n_parts;    /* attention: items a kv head's query heads are split in */
    uint32_t n_segments; /* attention: items a kv head's keys are split in */
} attn_job;

/* x += (post-normed) output of the layer before, h = norm(x), packed for q, k, v. */
static void norm_item(void *ctx, size_t item, unsigned worker)
{
    const attn_job *j = ctx;
    nw_engine *e = j->e;
    const nw_kernels *k = e->kernels;
    const nw_model_config *c = e->config;
    const nw_layer *l = &e->weights.layers[j->layer];
    uint32_t t0 = 0;
    uint32_t t1 = 0;
    (void)worker;
    nw_token_range(item, e->work.n_tokens, &t0, &t1);
    for (uint32_t t = t0; t < t1; t++) {
        const size_t at = (size_t)t * c->d_model;
        if (j->layer > 0) {
            const float *post = (l - 1)->post_ffn_norm;
            if (post != NULL) {
                k->rmsnorm(e->work.y + at, post, c->d_model, c->norm_eps, e->work.y + at);
            }
            k->add(e->work.y + at, c->d_model, e->work.x + at);
        }
        k->rmsnorm(e->work.x + at, l->attn_norm, c->d_model, c->norm_eps, e->work.h + at);
    }
    nw_pack_tokens(e, j->mask, l->q_in, e->work.h, c->d_model, t0, t1);
}

/* q, k and v of one kv group of one token, with their biases. */
static void add_biases(const nw_engine *e, const nw_layer *l, uint32_t head, float *q, float *k,
                       float *v)
{
    const nw_model_config *c = e->config;
    const uint32_t n_q = c->n_heads / c->n_kv_heads * c->d_head;

    e->kernels->add(l->q_bias + (size_t)head * n_q, n_q, q);
    e->kernels->add(l->k_bias + (size_t)head * c->d_head, c->d_head, k);
    e->kernels->add(l->v_bias + (size_t)head * c->d_head, c->d_head, v);
}

/* The packed type of a head: with the fixed scales of FP8, where the artifact has them. */
static nw_kv_type type_of(const nw_engine *e, uint32_t layer, uint32_t head)
{
    const nw_artifact_kv *said = e->kv_said;
    nw_kv_type type = e->kv.type;

    if (said->n_scales > 0 && !e->opt.kv_dynamic) {
        const size_t at = (size_t)layer * said->n_scales + (said->n_scales > 1 ? head : 0);
        type.k_scale = said->k_scale[at];
        type.v_scale = said->v_scale[at];
    }
    return type;
}

/* Keys less their mean, over their factor, and queries times it: weights of the softmax stay as they
 * are, since a product with the mean is the same for all keys of a query. */
static void scale_channels(const nw_engine *e, uint32_t layer, uint32_t head, uint32_t n_rep,
                           float *q, float *k)
{
    const uint32_t d = e->config->d_head;
    const size_t at = ((size_t)layer * e->config->n_kv_heads + head) * d;
    const float *mean = e->kv_said->k_mean + at;
    const float *factor = e->kv_said->k_factor + at;

    for (uint32_t i = 0; i < d; i++) {
        k[i] = (k[i] - mean[i]) / factor[i];
    }
    for (uint32_t r = 0; r < n_rep; r++, q += d) {
        for (uint32_t i = 0; i < d; i++) {
            q[i] *= factor[i];
        }
    }
}

/* One token's key and value into its page, and into the wide copy of that where it has one. */
static void put_kv(nw_engine *e, uint32_t layer, uint32_t head, const nw_session *s, uint32_t pos,
                   const float *k, const float *v)
{
    const nw_kv_pool *kv = &e->kv;
    const uint32_t i = pos / NW_KV_PAGE;
    const uint32_t slot = pos % NW_KV_PAGE;
    uint8_t *page = nw_kv_base(kv, layer, head) + s->pages[i] * kv->page_stride;

    const nw_kv_type type = type_of(e, layer, head);

    e->kernels->kv_put(&type, slot, k, v, page, page + kv->k_bytes);
    if (nw_kv_has_wide(&kv->wide) && s->wide[i] != NW_NO_PAGE) {
        page = nw_kv_wide_base(kv, layer, head) + s->wide[i] * kv->wide.page_stride;
        e->kernels->kv_put(&kv->wide.type, slot, k, v, page, page + kv->wide.k_bytes);
    }
}

/* Norms and rotates the heads of one kv group of one token, and puts K and V in their page. */
static void put_token(const attn_job *j, const nw_run *p, uint32_t i, uint32_t head)
{
    nw_engine *e = j->e;
    const nw_kernels *kern = e->kernels;
    const nw_model_config *c = e->config;
    const nw_layer *l = &e->weights.layers[j->layer];
    const nw_rope_table *rope = j->global ? &e->rope_global : &e->rope_local;
    const uint32_t n_rep = c->n_heads / c->n_kv_heads;
    const uint32_t pos = p->pos + i;
    const size_t t = p->t0 + i;
    float *q = e->work.q + (t * c->n_heads + (size_t)head * n_rep) * c->d_head;
    float *k = e->work.k + (t * c->n_kv_heads + head) * c->d_head;
    float *v = e->work.v + (t * c->n_kv_heads + head) * c->d_head;

    if (l->q_bias != NULL) {
        add_biases(e, l, head, q, k, v);
    }
    if (c->qk_norm) {
        kern->rmsnorm(k, l->k_norm, c->d_head, c->norm_eps, k);
        for (uint32_t r = 0; r < n_rep; r++) {
            float *qr = q + (size_t)r * c->d_head;
            kern->rmsnorm(qr, l->q_norm, c->d_head, c->norm_eps, qr);
        }
    }
    const float *cosines = rope->cos + (size_t)pos * rope->half;
    const float *sines = rope->sin + (size_t)pos * rope->half;
    kern->rope(k, 1, c->d_head, cosines, sines);
    kern->rope(q, n_rep, c->d_head, cosines, sines);

    if (e->opt.kv_channel) {
        scale_channels(e, j->layer, head, n_rep, q, k);
    }
    put_kv(e, j->layer, head, p->session, pos, k, v);
}

/* One kv head of one piece: tokens of a page are put in order by one thread. */
static void put_item(void *ctx, size_t item, unsigned worker)
{
    const attn_job *j = ctx;
    const uint32_t n_kv = j->e->config->n_kv_heads;
    const nw_run *p = &j->e->work.pieces[item / n_kv];
    (void)worker;
    for (uint32_t i = 0; i < p->n; i++) {
        put_token(j, p, i, (uint32_t)(item % n_kv));
    }
}

static nw_attn_wide wide_of(const attn_job *j, const nw_session *s, uint32_t head)
{
    const nw_kv_wide *w = &j->e->kv.wide;

    if (!nw_kv_has_wide(w)) {
        return (nw_attn_wide){0};
    }
    const uint8_t *base = nw_kv_wide_base(&j->e->kv, j->layer, head);
    return (nw_attn_wide){.n_first = w->n_first,
                          .n_newest = w->n_newest,
                          .pages = s->wide,
                          .k_base = base,
                          .v_base = base + w->k_bytes,
                          .page_stride = w->page_stride};
}

/* Query heads [h0, h1) of one kv head, for one chunk of queries. */
static nw_attn attn_of(const attn_job *j, const nw_run *r, uint32_t head, uint32_t h0, uint32_t h1,
                       unsigned worker)
{
    nw_engine *e = j->e;
    const nw_model_config *c = e->config;
    const uint32_t n_rep = c->n_heads / c->n_kv_heads;
    const size_t ld = (size_t)c->n_heads * c->d_head;
    const size_t first = r->t0 * ld + ((size_t)head * n_rep + h0) * c->d_head;
    const uint8_t *base = nw_kv_base(&e->kv, j->layer, head);

    return (nw_attn){
        .kv = e->kv.type,
        .n_rep = h1 - h0,
        .n_queries = r->n,
        .q_pos = r->pos,
        .window = j->global ? 0 : c->sliding_window,
        .scale = c->attn_scale,
        .softcap = c->attn_softcap,
        .a8 = e->a8,
        .q = e->work.q + first,
        .ldq = ld,
        .pages = r->session->pages,
        .k_base = base,
        .v_base = base + e->kv.k_bytes,
        .page_stride = e->kv.page_stride,
        .wide = wide_of(j, r->session, head),
        .out = e->work.attn + first,
        .ldo = ld,
        .scratch = e->work.attn_scratch[worker],
    };
}

/* The last chunks of a prompt see the most keys: they go first. */
static const nw_run *chunk_of(const nw_engine *e, size_t at)
{
    return &e->work.chunks[e->work.n_chunks - 1 - at];
}

static void attend_item(void *ctx, size_t item, unsigned worker)
{
    const attn_job *j = ctx;
    const nw_model_config *c = j->e->config;
    const uint32_t n_rep = c->n_heads / c->n_kv_heads;
    const uint32_t part = (uint32_t)(item % j->n_parts);
    const uint32_t head = (uint32_t)(item / j->n_parts % c->n_kv_heads);
    const nw_attn a = attn_of(j, chunk_of(j->e, item / j->n_parts / c->n_kv_heads), head,
                              part * n_rep / j->n_parts, (part + 1) * n_rep / j->n_parts, worker);

    j->e->kernels->attend(&a);
}

/* One chunk and kv head whose keys are split; `unit` counts them. */
static nw_attn split_of(const attn_job *j, size_t unit, unsigned worker)
{
    const nw_model_config *c = j->e->config;
    const uint32_t n_rep = c->n_heads / c->n_kv_heads;
    nw_attn a = attn_of(j, chunk_of(j->e, unit / c->n_kv_heads), (uint32_t)(unit % c->n_kv_heads),
                        0, n_rep, worker);

    a.parts = j->e->work.attn_parts + unit * j->n_segments * n_rep * nw_attn_part_floats(c->d_head);
    return a;
}

static void part_item(void *ctx, size_t item, unsigned worker)
{
    const attn_job *j = ctx;
    nw_attn a = split_of(j, item / j->n_segments, worker);

    a.phase = NW_ATTN_PART;
    a.segment = nw_attn_first_segment(a.q_pos, a.window) + (uint32_t)(item % j->n_segments);
    if (a.segment <= a.q_pos / NW_ATTN_SEGMENT) {
        j->e->kernels->attend(&a);
    }
}

static void join_item(void *ctx, size_t unit, unsigned worker)
{
    const attn_job *j = ctx;
    nw_attn a = split_of(j, unit, worker);

    a.phase = NW_ATTN_JOIN;
    j->e->kernels->attend(&a);
}

static void pack_item(void *ctx, size_t item, unsigned worker)
{
    const attn_job *j = ctx;
    uint32_t t0 = 0;
    uint32_t t1 = 0;
    (void)worker;
    nw_token_range(item, j->e->work.n_tokens, &t0, &t1);
    nw_pack_tokens(j->e, j->mask, j->e->weights.layers[j->layer].o_in, j->x, j->n_cols, t0, t1);
}

/* Few tokens and few kv heads would leave threads idle: then a kv head's query heads are split. */
static uint32_t head_parts(const nw_engine *e)
{
    const nw_model_config *c = e->config;
    const size_t items = (size_t)e->work.n_chunks * c->n_kv_heads;
    const size_t want = 2 * (size_t)e->facts.n_threads;
    const uint32_t n_rep = c->n_heads / c->n_kv_heads;

    if (items >= want || e->facts.n_threads == 1) {
        return 1;
    }
    const size_t parts = (want + items - 1) / items;
    return parts < n_rep ? (uint32_t)parts : n_rep;
}

/* Segments that the keys of a kv head are split in: few sequences that decode, and fewer kv heads
 * than keep the threads busy; 1 where it is not worth a second loop. */
static uint32_t key_segments(const attn_job *j)
{
    const nw_engine *e = j->e;
    const uint32_t window = j->global ? 0 : e->config->sliding_window;
    const size_t units = (size_t)e->work.n_chunks * e->config->n_kv_heads;
    uint32_t most = 1;

    if (e->facts.n_threads == 1 || units >= 2 * (size_t)e->facts.n_threads) {
        return 1;
    }
    for (uint32_t i = 0; i < e->work.n_chunks; i++) {
        const nw_run *r = &e->work.chunks[i];
        const uint32_t n = r->pos / NW_ATTN_SEGMENT - nw_attn_first_segment(r->pos, window) + 1;
        if (r->n > 1) {
            return 1;
        }
        most = n > most ? n : most;
    }
    return most;
}

static void attend_all(nw_engine *e, attn_job *j)
{
    const nw_model_config *c = e->config;
    const uint64_t token_bytes = (e->kv.k_bytes + e->kv.v_bytes) / NW_KV_PAGE * c->n_kv_heads;
    const uint64_t wide_bytes =
        (e->kv.wide.k_bytes + e->kv.wide.v_bytes) / NW_KV_PAGE * c->n_kv_heads;
    const uint64_t keys = j->global ? e->work.kv_tokens : e->work.kv_tokens_local;
    const uint64_t wide = j->global ? e->work.kv_wide : e->work.kv_wide_local;
    const size_t units = (size_t)e->work.n_chunks * c->n_kv_heads;
    nw_ledger_entry put = {.op = NW_OP_ROPE_KV,
                           .layer = (int32_t)j->layer,
                           .bytes_converted = (token_bytes + wide_bytes) * e->work.n_tokens};
    nw_ledger_entry attend = {.op = NW_OP_ATTENTION,
                              .layer = (int32_t)j->layer,
                              .bytes = (keys - wide) * token_bytes + wide * wide_bytes};

    nw_run_op(e, put, (size_t)e->work.n_pieces * c->n_kv_heads, put_item, j);
    j->n_parts = head_parts(e);
    j->n_segments = key_segments(j);
    if (j->n_segments == 1) {
        nw_run_op(e, attend, units * j->n_parts, attend_item, j);
        return;
    }
    nw_run_op(e, attend, units * j->n_segments, part_item, j);
    attend.bytes = 0;
    nw_run_op(e, attend, units, join_item, j);
}

void nw_forward_attention(nw_engine *e, uint32_t layer)
{
    const nw_model_config *c = e->config;
    const nw_layer *l = &e->weights.layers[layer];
    const nw_weight *const in[] = {&l->q, &l->k, &l->v};
    const nw_weight *const out[] = {&l->o};
    const uint32_t n = e->work.n_tokens;
    attn_job j = {.e = e,
                  .layer = layer,
                  .mask = nw_act_mask(e, in, NW_COUNT(in), l->q_coded),
                  .x = e->work.attn,
                  .n_cols = c->n_heads * c->d_head,
                  .global = nw_config_layer_is_global(c, layer)};

    nw_run_op(e,
              (nw_ledger_entry){.op = NW_OP_ATTN_NORM,
                                .layer = (int32_t)layer,
                                .bytes_converted = nw_pack_bytes(j.mask, c->d_model, n)},
              nw_token_items(n), norm_item, &j);
    nw_show_input(e, NW_ROLE_Q, layer, e->work.h, c->d_model);
    nw_run_linears(e, NW_OP_QKV, (int32_t)layer,
                   (nw_linear[]){{&l->q, &l->q_wide, e->work.q},
                                 {&l->k, &l->k_wide, e->work.k},
                                 {&l->v, &l->v_wide, e->work.v}},
                   3);
    attend_all(e, &j);
    nw_show_input(e, NW_ROLE_K, layer, e->work.k, c->n_kv_heads * c->d_head);
    nw_show_input(e, NW_ROLE_V, layer, e->work.v, c->n_kv_heads * c->d_head);
    nw_show_input(e, NW_ROLE_O, layer, e->work.attn, j.n_cols);
    j.mask = nw_act_mask(e, out, NW_COUNT(out), l->o_coded);
    nw_run_op(e,
              (nw_ledger_entry){.op = NW_OP_O_PACK,
                                .layer = (int32_t)layer,
                                .bytes_converted = nw_pack_bytes(j.mask, j.n_cols, n)},
              nw_token_items(n), pack_item, &j);
    nw_run_linears(e, NW_OP_O, (int32_t)layer, (nw_linear[]){{&l->o, &l->o_wide, e->work.y}}, 1);
}
