/* Online softmax over pages for a tile of up to NW_ATTN_ROWS rows. Rows are sorted by position, so
 * those that see anything of a page are a range, and rows that see nothing are left alone: a row's
 * bits depend on its own keys only.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attn_tile.h"

#include <assert.h>
#include <string.h>

/* The caller's scratch, cut up (nw_attn_scratch_bytes). */
typedef struct {
    const nw_attn *a;
    const nw_attn_ops *ops;
    nw_act_kind q_kind, p_kind;
    size_t q_stride, p_stride, o_stride; /* bytes, bytes, floats */
    uint8_t *q, *p;                      /* packed rows */
    float *s, *part, *o;                 /* [rows][NW_KV_PAGE], [rows][o_stride] twice */
    nw_softmax_state *state;             /* [rows] */
    uint32_t row0, n_rows;               /* of n_queries * n_rep */
} tile;

static void tile_init(tile *t, const nw_attn *a, const nw_attn_ops *ops)
{
    uint8_t *at = a->scratch;

    *t = (tile){.a = a, .ops = ops};
    t->q_kind = ops->tier->act_kind(nw_kv_panel(a->kv.k), false);
    t->p_kind = ops->tier->act_kind(nw_kv_panel(a->kv.v), false);
    t->p_kind = t->p_kind == NW_ACT_INT16 ? NW_ACT_BF16 : t->p_kind; /* what softmax packs */
    t->q_stride = nw_act_stride(t->q_kind, a->kv.d_head);
    t->p_stride = nw_act_stride(t->p_kind, NW_KV_PAGE);
    t->o_stride = (a->kv.d_head + 15U) / 16U * 16U;
    t->q = at;
    at += NW_ATTN_ROWS * t->q_stride;
    t->p = at;
    at += NW_ATTN_ROWS * t->p_stride;
    t->s = (float *)(void *)at;
    t->part = t->s + NW_ATTN_ROWS * NW_KV_PAGE;
    t->o = t->part + NW_ATTN_ROWS * t->o_stride;
    t->state = (nw_softmax_state *)(void *)(t->o + NW_ATTN_ROWS * t->o_stride);
}

static uint32_t row_pos(const tile *t, uint32_t r)
{
    return t->a->q_pos + (t->row0 + r) / t->a->n_rep;
}

/* Offset of a row in q (ld = ldq) or out (ld = ldo). */
static size_t row_at(const tile *t, uint32_t r, size_t ld)
{
    const uint32_t i = t->row0 + r;
    return i / t->a->n_rep * ld + (size_t)(i % t->a->n_rep) * t->a->kv.d_head;
}

static void load_rows(tile *t)
{
    for (uint32_t r = 0; r < t->n_rows; r++) {
        t->ops->tier->act_pack(t->q_kind, t->a->q + row_at(t, r, t->a->ldq), 0, 0, 1,
                               t->a->kv.d_head, t->q + r * t->q_stride);
        t->state[r] = (nw_softmax_state){.max = NW_SOFTMAX_FLOOR};
    }
    memset(t->o, 0, t->n_rows * t->o_stride * sizeof *t->o);
}

/* scores = keys x queries for rows [r0, r1), up to the last key any of them sees. */
static void scores(const tile *t, uint32_t page, uint32_t r0, uint32_t r1)
{
    const nw_attn *a = t->a;
    const uint32_t seen = row_pos(t, r1 - 1) - page * NW_KV_PAGE + 1;
    const nw_weight keys = {.type = nw_kv_panel(a->kv.k),
                            .data = a->k_base + a->pages[page] * a->page_stride,
                            .n_rows = NW_KV_PAGE,
                            .n_cols = a->kv.d_head};
    const nw_act q = {.kind = t->q_kind,
                      .n_tokens = r1 - r0,
                      .n_cols = a->kv.d_head,
                      .data = t->q + r0 * t->q_stride};

    t->ops->tier->linear(&keys, &q, 0, nw_panel_count(seen < NW_KV_PAGE ? seen : NW_KV_PAGE),
                         t->s + (size_t)r0 * NW_KV_PAGE, NW_KV_PAGE);
}

static void probabilities(tile *t, uint32_t page, uint32_t r0, uint32_t r1)
{
    const nw_attn *a = t->a;
    const uint32_t base = page * NW_KV_PAGE;
    const uint8_t *v_page = a->v_base + a->pages[page] * a->page_stride;
    const bool scaled = a->kv.v == NW_KV_INT8;
    nw_softmax_page p = {.scale = a->scale, .softcap = a->softcap, .kind = t->p_kind};

    p.v_scales = scaled ? (const float *)(const void *)(v_page + nw_kv_v_scales_at(&a->kv)) : NULL;
    for (uint32_t r = r0; r < r1; r++) {
        const uint32_t pos = row_pos(t, r);
        const uint32_t first = nw_attn_first(a, pos);
        p.j0 = first > base ? first - base : 0;
        p.j1 = pos - base < NW_KV_PAGE - 1 ? pos - base + 1 : NW_KV_PAGE;
        t->ops->softmax(&p, t->s + (size_t)r * NW_KV_PAGE, &t->state[r], t->p + r * t->p_stride);
    }
}

static void add_values(tile *t, uint32_t page, uint32_t r0, uint32_t r1)
{
    const nw_attn *a = t->a;
    const nw_weight values = {.type = nw_kv_panel(a->kv.v),
                              .data = a->v_base + a->pages[page] * a->page_stride,
                              .n_rows = a->kv.d_head,
                              .n_cols = NW_KV_PAGE};
    const nw_act p = {.kind = t->p_kind,
                      .n_tokens = r1 - r0,
                      .n_cols = NW_KV_PAGE,
                      .data = t->p + r0 * t->p_stride};

    t->ops->tier->linear(&values, &p, 0, nw_panel_count(a->kv.d_head), t->part, t->o_stride);
    for (uint32_t r = r0; r < r1; r++) {
        t->ops->merge(t->part + (r - r0) * t->o_stride, a->kv.d_head, t->state[r].shrink,
                      t->o + r * t->o_stride);
    }
}

/* The pages a tile reads next. */
typedef struct {
    const uint8_t *k, *v;
    size_t k_bytes, v_bytes; /* 0: no page */
} page_view;

static page_view view_of(const nw_attn *a, uint32_t page, bool wanted)
{
    const size_t at = wanted ? a->pages[page] * a->page_stride : 0;
    return (page_view){.k = a->k_base + at,
                       .v = a->v_base + at,
                       .k_bytes = wanted ? nw_kv_k_page_bytes(&a->kv) : 0,
                       .v_bytes = wanted ? nw_kv_v_page_bytes(&a->kv) : 0};
}

/* Asks for half of K or V of a page long before it is read: pages lie anywhere, so the hardware
 * cannot guess the next one; in parts, since a long burst stalls loads. Inlined by force: gcc takes
 * a function that only prefetches for one without effect, and drops the call. */
NW_INLINE void prefetch(const uint8_t *p, size_t bytes, unsigned half)
{
    const size_t middle = bytes / 128 * 64;
    const size_t end = half == 0 ? middle : bytes;
    for (size_t at = half == 0 ? 0 : middle; at < end; at += 64) {
        __builtin_prefetch(p + at, 0, 2);
    }
}

/* One page for rows [r0, r1), while the next is on its way. */
static void run_page(tile *t, uint32_t page, uint32_t r0, uint32_t r1, const page_view *next)
{
    prefetch(next->k, next->k_bytes, 0);
    scores(t, page, r0, r1);
    prefetch(next->k, next->k_bytes, 1);
    probabilities(t, page, r0, r1);
    prefetch(next->v, next->v_bytes, 0);
    add_values(t, page, r0, r1);
    prefetch(next->v, next->v_bytes, 1);
}

static void run_tile(tile *t)
{
    const nw_attn *a = t->a;
    const uint32_t last = row_pos(t, t->n_rows - 1) / NW_KV_PAGE;
    const uint32_t first = nw_attn_first(a, row_pos(t, 0)) / NW_KV_PAGE;
    const bool cold = t->row0 == 0; /* the other tiles of a call find its pages in cache */
    const page_view now = view_of(a, first, cold);
    uint32_t r0 = 0;
    uint32_t r1 = t->n_rows;

    prefetch(now.k, now.k_bytes, 0);
    prefetch(now.k, now.k_bytes, 1);
    load_rows(t);
    prefetch(now.v, now.v_bytes, 0);
    prefetch(now.v, now.v_bytes, 1);
    for (uint32_t page = first; page <= last; page++) {
        while (row_pos(t, r0) < page * NW_KV_PAGE) { /* ends before this page */
            r0++;
        }
        for (r1 = r0; r1 < t->n_rows && nw_attn_first(a, row_pos(t, r1)) / NW_KV_PAGE <= page;) {
            r1++;
        }
        const page_view next = view_of(a, page + 1, cold && page < last);
        run_page(t, page, r0, r1, &next);
    }
    for (uint32_t r = 0; r < t->n_rows; r++) {
        t->ops->scale(t->o + r * t->o_stride, a->kv.d_head, 1 / t->state[r].sum,
                      a->out + row_at(t, r, a->ldo));
    }
}

void nw_attend_tiled(const nw_attn *a, const nw_attn_ops *ops)
{
    const uint32_t n_rows = a->n_queries * a->n_rep;
    tile t;

    assert(a->kv.d_head <= NW_KV_MAX_HEAD && a->n_rep > 0);
    tile_init(&t, a, ops);
    for (t.row0 = 0; t.row0 < n_rows; t.row0 += t.n_rows) {
        const uint32_t left = n_rows - t.row0;
        t.n_rows = left < NW_ATTN_ROWS ? left : NW_ATTN_ROWS;
        run_tile(&t);
    }
}
