/* Attention in plain C and double precision: what every tier is held to. One query head at a time,
 * one key at a time, over the numbers that the pages stand for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref_attention.h"

#include <math.h>
#include <string.h>

#include "kernels/kv_page.h"

typedef struct {
    const nw_attn *a;
    double max, sum;
    double out[NW_KV_MAX_HEAD];
    float q[NW_KV_MAX_HEAD], row[NW_KV_MAX_HEAD];
} head_state;

static double score(const head_state *st, const float *key)
{
    double s = 0;

    for (uint32_t d = 0; d < st->a->kv.d_head; d++) {
        s += (double)st->q[d] * (double)key[d];
    }
    s *= (double)st->a->scale;
    return st->a->softcap > 0 ? (double)st->a->softcap * tanh(s / (double)st->a->softcap) : s;
}

/* The key at `pos` for a query on page `at`. */
static void add_key(head_state *st, uint32_t at, uint32_t pos)
{
    const nw_attn *a = st->a;
    const uint32_t page = pos / NW_KV_PAGE;
    const bool wide = nw_attn_is_wide(a, at, page);
    const size_t place =
        wide ? a->wide.pages[page] * a->wide.page_stride : a->pages[page] * a->page_stride;
    nw_kv_type kv = a->kv;

    if (wide) {
        kv.k = kv.v = NW_KV_BF16;
    }
    nw_kv_k_token(&kv, (wide ? a->wide.k_base : a->k_base) + place, pos % NW_KV_PAGE, st->row);
    const double s = score(st, st->row);
    const double max = s > st->max || isnan(s) ? s : st->max;
    const double shrink = exp(st->max - max);
    const double p = exp(s - max);
    nw_kv_v_token(&kv, (wide ? a->wide.v_base : a->v_base) + place, pos % NW_KV_PAGE, st->row);
    for (uint32_t d = 0; d < kv.d_head; d++) {
        st->out[d] = st->out[d] * shrink + p * (double)st->row[d];
    }
    st->sum = st->sum * shrink + p;
    st->max = max;
}

static void one_head(const nw_attn *a, const float *q, uint32_t pos, float *out)
{
    head_state st = {.a = a, .max = -HUGE_VAL};

    memcpy(st.q, q, a->kv.d_head * sizeof *q);
    if (a->kv.rotate_k) {
        nw_kv_rotate_plain(st.q, a->kv.d_head);
    }
    for (uint32_t j = nw_attn_first(a->window, pos); j <= pos; j++) {
        add_key(&st, pos / NW_KV_PAGE, j);
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
