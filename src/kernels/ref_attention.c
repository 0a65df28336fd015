/* Attention in plain C and double precision: what every tier is held to. One query head at a time,
 * page by page, over the numbers that the pages stand for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref_attention.h"

#include <math.h>
#include <string.h>

#include "kernels/act.h"
#include "kernels/kv_page.h"

typedef struct {
    const nw_attn *a;
    double max, sum;
    double out[NW_KV_MAX_HEAD];
    float q[NW_KV_MAX_HEAD], coded[NW_KV_MAX_HEAD]; /* coded: as a8 has it */
} head_state;

/* Where a page is, and what is in it. */
typedef struct {
    nw_kv_type kv;
    const uint8_t *k, *v;
} page_view;

/* `page` for a query on page `at`. */
static page_view page_of(const nw_attn *a, uint32_t at, uint32_t page)
{
    page_view p = {.kv = a->kv};

    if (nw_attn_is_wide(a, at, page)) {
        const size_t place = a->wide.pages[page] * a->wide.page_stride;
        p.kv.k = p.kv.v = NW_KV_BF16;
        p.k = a->wide.k_base + place;
        p.v = a->wide.v_base + place;
    } else {
        p.k = a->k_base + a->pages[page] * a->page_stride;
        p.v = a->v_base + a->pages[page] * a->page_stride;
    }
    return p;
}

static double score(const head_state *st, const page_view *p, uint32_t slot)
{
    const float *q = nw_kv_is_int(p->kv.k) ? st->coded : st->q;
    float key[NW_KV_MAX_HEAD];
    double s = 0;

    nw_kv_k_token(&p->kv, p->k, slot, key);
    for (uint32_t d = 0; d < st->a->kv.d_head; d++) {
        s += (double)q[d] * (double)key[d];
    }
    s *= (double)st->a->scale;
    return st->a->softcap > 0 ? (double)st->a->softcap * tanh(s / (double)st->a->softcap) : s;
}

/* Factors of the values of slots [j0, j1), e times their scales, in whole 255ths of the largest. */
static void count_factors(const page_view *p, uint32_t j0, uint32_t j1, double *e)
{
    const float *scales = (const float *)(const void *)p->v;
    double top = 0;

    for (uint32_t j = j0; j < j1; j++) {
        top = fmax(top, e[j] * (double)scales[j]);
    }
    for (uint32_t j = j0; j < j1; j++) {
        const double scale = (double)scales[j];
        e[j] = scale == 0 ? 0 : nearbyint(e[j] * scale * 255 / top) * top / 255 / scale;
    }
}

/* Keys [j0, j1) of a page. */
static void add_page(head_state *st, const page_view *p, uint32_t j0, uint32_t j1)
{
    double e[NW_KV_PAGE];
    double max = st->max;
    float row[NW_KV_MAX_HEAD];

    for (uint32_t j = j0; j < j1; j++) {
        e[j] = score(st, p, j);
        max = e[j] > max || isnan(e[j]) ? e[j] : max;
    }
    const double shrink = exp(st->max - max);
    st->max = max;
    st->sum *= shrink;
    for (uint32_t d = 0; d < st->a->kv.d_head; d++) {
        st->out[d] *= shrink;
    }
    for (uint32_t j = j0; j < j1; j++) {
        e[j] = exp(e[j] - max);
        st->sum += e[j];
    }
    if (st->a->a8 && nw_kv_is_int(p->kv.v)) {
        count_factors(p, j0, j1, e);
    }
    for (uint32_t j = j0; j < j1; j++) {
        nw_kv_v_token(&p->kv, p->v, j, row);
        for (uint32_t d = 0; d < st->a->kv.d_head; d++) {
            st->out[d] += e[j] * (double)row[d];
        }
    }
}

static void load(head_state *st, const float *q)
{
    const uint32_t n = st->a->kv.d_head;
    float inv = 0;

    memcpy(st->q, q, n * sizeof *q);
    if (st->a->kv.rotate_k) {
        nw_kv_rotate_plain(st->q, n);
    }
    memcpy(st->coded, st->q, n * sizeof *q);
    if (st->a->a8) {
        const float scale = nw_int8_scale(st->q, n, &inv);
        for (uint32_t d = 0; d < n; d++) {
            st->coded[d] = nw_int8_code(st->q[d], inv) * scale;
        }
    }
}

static void one_head(const nw_attn *a, const float *q, uint32_t pos, float *out)
{
    head_state st = {.a = a, .max = -HUGE_VAL};
    const uint32_t first = nw_attn_first(a->window, pos);

    load(&st, q);
    for (uint32_t page = first / NW_KV_PAGE; page <= pos / NW_KV_PAGE; page++) {
        const page_view p = page_of(a, pos / NW_KV_PAGE, page);
        const uint32_t begin = page * NW_KV_PAGE;
        add_page(&st, &p, first > begin ? first - begin : 0,
                 pos - begin < NW_KV_PAGE - 1 ? pos - begin + 1 : NW_KV_PAGE);
    }
    for (uint32_t d = 0; d < a->kv.d_head; d++) {
        out[d] = (float)(st.out[d] / st.sum);
    }
    if (a->kv.rotate_v) {
        nw_kv_rotate_plain(out, a->kv.d_head);
    }
}

/* Parts are not worth keeping here: JOIN computes the whole. */
void nw_ref_attend(const nw_attn *a)
{
    if (a->phase == NW_ATTN_PART) {
        return;
    }
    for (uint32_t i = 0; i < a->n_queries; i++) {
        for (uint32_t h = 0; h < a->n_rep; h++) {
            const size_t at = (size_t)h * a->kv.d_head;
            one_head(a, a->q + i * a->ldq + at, a->q_pos + i, a->out + i * a->ldo + at);
        }
    }
}
