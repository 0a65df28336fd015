/* The walk of attention over segments and pages for a tile of rows. Rows are sorted by position, so
 * those that see nothing of a page are the last ones, and they are left alone: a row's bits depend
 * on its own keys only.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attn_tile.h"

#include <string.h>

size_t nw_attn_part_floats(uint32_t d_head)
{
    return NW_KV_LANES + (size_t)nw_kv_v_panels(d_head) * NW_KV_LANES;
}

uint32_t nw_attn_first_segment(uint32_t q_pos, uint32_t window)
{
    return nw_attn_first(window, q_pos) / NW_ATTN_SEGMENT;
}

/* Packed queries twice, sums twice, states twice, each array from a line on, and the work of the
 * products. */
#define STATE_FLOATS ((NW_ATTN_ROWS + 15) / 16 * 16)
size_t nw_attn_scratch_bytes(uint32_t d_head)
{
    return (size_t)NW_ATTN_ROWS * 4 * NW_ATTN_STRIDE + 6 * STATE_FLOATS * sizeof(float) +
           nw_attn_work_bytes(d_head);
}

static nw_softmax_states states_at(float *at)
{
    return (nw_softmax_states){at, at + STATE_FLOATS, at + 2 * STATE_FLOATS};
}

static void tile_init(nw_attn_tile *t, const nw_attn *a, const nw_attn_ops *ops)
{
    const size_t rows = (size_t)NW_ATTN_ROWS * NW_ATTN_STRIDE;
    uint8_t *at = a->scratch;

    t->a = a;
    t->ops = ops;
    t->q = at;
    t->q_wide = at + rows;
    t->o = (float *)(void *)(at + 2 * rows);
    t->total = (float *)(void *)(at + 3 * rows);
    at += 4 * rows;
    t->state = states_at((float *)(void *)at);
    t->sums = states_at(t->state.shrink + STATE_FLOATS);
    t->work = at + 6 * STATE_FLOATS * sizeof(float);
}

/* Rows from row0 on whose queries stand on the same page. */
static void tile_rows(nw_attn_tile *t, uint32_t row0)
{
    const nw_attn *a = t->a;
    const uint32_t pos = a->q_pos + row0 / a->n_rep;
    const uint32_t page_end = (pos / NW_KV_PAGE + 1) * NW_KV_PAGE - a->q_pos;
    const uint32_t end = (page_end < a->n_queries ? page_end : a->n_queries) * a->n_rep;

    t->row0 = row0;
    t->n_rows = end - row0 < t->ops->n_rows ? end - row0 : t->ops->n_rows;
    for (uint32_t r = 0; r < t->n_rows; r++) {
        t->pos[r] = a->q_pos + (row0 + r) / a->n_rep;
    }
}

/* Offset of a row in q (ld = ldq) or out (ld = ldo). */
static size_t row_at(const nw_attn_tile *t, uint32_t r, size_t ld)
{
    const uint32_t i = t->row0 + r;
    return i / t->a->n_rep * ld + (size_t)(i % t->a->n_rep) * t->a->kv.d_head;
}

static void rotate(const nw_attn_tile *t, float *x)
{
    if (t->ops->rotate != NULL) {
        t->ops->rotate(x, t->a->kv.d_head);
    } else {
        nw_kv_rotate_plain(x, t->a->kv.d_head);
    }
}

static void load(const nw_attn_tile *t, nw_kv_kind kind, const float *q, uint32_t r, uint8_t *rows)
{
    if (t->ops->load != NULL) {
        t->ops->load(kind, t->a->a8, q, t->a->kv.d_head, rows + (size_t)r * NW_ATTN_STRIDE);
    } else {
        nw_attn_plain_load(t, kind, q, rows + r * nw_act_stride(NW_ACT_F32, t->a->kv.d_head));
    }
}

static void load_rows(nw_attn_tile *t)
{
    const nw_attn *a = t->a;
    _Alignas(64) float turned[NW_KV_MAX_HEAD];

    for (uint32_t r = 0; r < t->n_rows; r++) {
        const float *q = a->q + row_at(t, r, a->ldq);
        if (a->kv.rotate_k) {
            memcpy(turned, q, a->kv.d_head * sizeof *q);
            rotate(t, turned);
            q = turned;
        }
        load(t, a->kv.k, q, r, t->q);
        if (nw_attn_has_wide(a)) {
            load(t, NW_KV_BF16, q, r, t->q_wide);
        }
    }
}

static nw_attn_page page_of(const nw_attn_tile *t, uint32_t page)
{
    const nw_attn *a = t->a;
    nw_attn_page p = {.kv = a->kv, .q = t->q, .first = page * NW_KV_PAGE};

    if (nw_attn_is_wide(a, t->pos[0] / NW_KV_PAGE, page)) {
        const size_t at = a->wide.pages[page] * a->wide.page_stride;
        p.kv.k = p.kv.v = NW_KV_BF16;
        p.q = t->q_wide;
        p.k = a->wide.k_base + at;
        p.v = a->wide.v_base + at;
    } else {
        const size_t at = a->pages[page] * a->page_stride;
        p.k = a->k_base + at;
        p.v = a->v_base + at;
    }
    return p;
}

/* Asks for a page before any other work, since nothing else will have. Inlined by force: gcc takes
 * a function that only prefetches for one without effect, and drops the call. */
NW_INLINE void prefetch(const uint8_t *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(p + at, 0, 2);
    }
}

/* The rows of pages [page, end): state and o. */
static void run_pages(nw_attn_tile *t, uint32_t page, uint32_t end, uint32_t last)
{
    const nw_attn *a = t->a;
    nw_attn_page p = page_of(t, page);

    while (page < end) {
        const nw_attn_page next = page < last ? page_of(t, page + 1) : p;
        p.next_k = next.k;
        p.next_v = next.v;
        p.n_rows = t->n_rows;
        while (nw_attn_first(a->window, t->pos[p.n_rows - 1]) / NW_KV_PAGE > page) {
            p.n_rows--;
        }
        if (t->ops->page != NULL) {
            t->ops->page(t, &p);
        } else {
            nw_attn_plain_page(t, &p);
        }
        p = next;
        page++;
    }
}

static void reset(const nw_softmax_states *state, float *o, uint32_t n_rows, uint32_t d_head)
{
    const size_t n = (size_t)nw_kv_v_panels(d_head) * NW_KV_LANES;

    for (uint32_t r = 0; r < n_rows; r++) {
        state->max[r] = NW_SOFTMAX_FLOOR;
        state->sum[r] = state->shrink[r] = 0;
        memset(o + (size_t)r * (NW_ATTN_STRIDE / sizeof *o), 0, n * sizeof *o);
    }
}

/* One segment for the tile, into state and o; false where no row sees any of it. */
static bool run_segment(nw_attn_tile *t, uint32_t segment)
{
    const uint32_t per = NW_ATTN_SEGMENT / NW_KV_PAGE;
    const uint32_t first = nw_attn_first(t->a->window, t->pos[0]) / NW_KV_PAGE;
    const uint32_t last = t->pos[0] / NW_KV_PAGE; /* the same page for all rows */
    const uint32_t begin = first > segment * per ? first : segment * per;
    const uint32_t end = last < segment * per + per - 1 ? last + 1 : segment * per + per;

    reset(&t->state, t->o, t->n_rows, t->a->kv.d_head);
    if (begin >= end) {
        return false;
    }
    run_pages(t, begin, end, t->a->phase == NW_ATTN_PART ? end - 1 : last);
    return true;
}

static void join(const nw_attn_tile *t, const nw_softmax_states *state, const float *o, size_t ldo)
{
    if (t->ops->join != NULL) {
        t->ops->join(t, state, o, ldo);
    } else {
        nw_attn_plain_join(t, state, o, ldo);
    }
}

/* out = total / sum, turned back. */
static void finish(const nw_attn_tile *t)
{
    const nw_attn *a = t->a;

    for (uint32_t r = 0; r < t->n_rows; r++) {
        float *out = a->out + row_at(t, r, a->ldo);
        t->ops->scale(t->total + (size_t)r * (NW_ATTN_STRIDE / sizeof *out), a->kv.d_head,
                      1 / t->sums.sum[r], out);
        if (a->kv.rotate_v) {
            rotate(t, out);
        }
    }
}

static float *part_of(const nw_attn_tile *t, uint32_t segment, uint32_t r)
{
    const nw_attn *a = t->a;
    const size_t n = segment - nw_attn_first_segment(a->q_pos, a->window);
    return a->parts +
           (n * a->n_queries * a->n_rep + t->row0 + r) * nw_attn_part_floats(a->kv.d_head);
}

/* PART: [max, sum, 0 .., o] of each row. */
static void keep_part(const nw_attn_tile *t)
{
    const size_t n = nw_attn_part_floats(t->a->kv.d_head) - NW_KV_LANES;

    for (uint32_t r = 0; r < t->n_rows; r++) {
        float *part = part_of(t, t->a->segment, r);
        memset(part, 0, NW_KV_LANES * sizeof *part);
        part[0] = t->state.max[r];
        part[1] = t->state.sum[r];
        memcpy(part + NW_KV_LANES, t->o + (size_t)r * (NW_ATTN_STRIDE / sizeof *part),
               n * sizeof *part);
    }
}

static void join_part(const nw_attn_tile *t, uint32_t segment)
{
    for (uint32_t r = 0; r < t->n_rows; r++) {
        const float *part = part_of(t, segment, r);
        t->state.max[r] = part[0];
        t->state.sum[r] = part[1];
    }
    join(t, &t->state, part_of(t, segment, 0) + NW_KV_LANES, nw_attn_part_floats(t->a->kv.d_head));
}

static void run_tile(nw_attn_tile *t)
{
    const nw_attn *a = t->a;
    const uint32_t first = nw_attn_first_segment(t->pos[0], a->window);
    const uint32_t last = t->pos[0] / NW_ATTN_SEGMENT;

    if (a->phase != NW_ATTN_JOIN) {
        const uint32_t at = a->phase == NW_ATTN_PART
                                ? a->segment * (NW_ATTN_SEGMENT / NW_KV_PAGE)
                                : nw_attn_first(a->window, t->pos[0]) / NW_KV_PAGE;
        if (at <= t->pos[0] / NW_KV_PAGE) {
            const nw_attn_page p = page_of(t, at);
            prefetch(p.k, nw_kv_k_page_bytes(&p.kv));
            prefetch(p.v, nw_kv_v_page_bytes(&p.kv));
        }
        load_rows(t);
    }
    if (a->phase == NW_ATTN_PART) {
        (void)run_segment(t, a->segment);
        keep_part(t);
        return;
    }
    reset(&t->sums, t->total, t->n_rows, a->kv.d_head);
    for (uint32_t s = first; s <= last; s++) {
        if (a->phase == NW_ATTN_JOIN) {
            join_part(t, s);
        } else if (run_segment(t, s)) {
            join(t, &t->state, t->o, NW_ATTN_STRIDE / sizeof *t->o);
        }
    }
    finish(t);
}

void nw_attend_tiled(const nw_attn *a, const nw_attn_ops *ops)
{
    nw_attn_tile t;

    assert(a->kv.d_head <= NW_KV_MAX_HEAD && a->n_rep > 0 && a->n_rep <= 64);
    tile_init(&t, a, ops);
    for (uint32_t row = 0; row < a->n_queries * a->n_rep; row += t.n_rows) {
        tile_rows(&t, row);
        run_tile(&t);
    }
}
