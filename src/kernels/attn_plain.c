/* The products of attention for tiers that have no own: a page is widened to F32 panels once for all
 * rows of a tile, unless the tier's `linear` reads it as it lies, and both products are calls of
 * `linear`.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "formats/half.h"
#include "kernels/attn_tile.h"

/* Where the pieces of `work` stand. */
typedef struct {
    float *wide, *s, *part; /* [NW_KV_PAGE][d_head padded], [rows][NW_KV_PAGE], [rows][o_ld] */
    uint8_t *p;             /* [rows] packed F32 rows */
    size_t o_ld, p_stride;
} workspace;

static size_t wide_floats(uint32_t d_head)
{
    return (size_t)NW_KV_PAGE * nw_kv_v_panels(d_head) * NW_KV_LANES;
}

size_t nw_attn_work_bytes(uint32_t d_head)
{
    const size_t o_ld = (size_t)nw_kv_v_panels(d_head) * NW_KV_LANES;
    const size_t row = (NW_KV_PAGE + o_ld) * sizeof(float) + nw_act_stride(NW_ACT_F32, NW_KV_PAGE);

    return wide_floats(d_head) * sizeof(float) + NW_ATTN_ROWS * row;
}

static workspace cut(const nw_attn_tile *t)
{
    workspace w = {.o_ld = (size_t)nw_kv_v_panels(t->a->kv.d_head) * NW_KV_LANES,
                   .p_stride = nw_act_stride(NW_ACT_F32, NW_KV_PAGE)};

    w.wide = (float *)(void *)t->work;
    w.s = w.wide + wide_floats(t->a->kv.d_head);
    w.part = w.s + (size_t)NW_ATTN_ROWS * NW_KV_PAGE;
    w.p = (uint8_t *)(w.part + NW_ATTN_ROWS * w.o_ld);
    return w;
}

void nw_attn_plain_load(const nw_attn_tile *t, nw_kv_kind kind, const float *q, uint8_t *row)
{
    const uint32_t n = t->a->kv.d_head;
    float coded[NW_KV_MAX_HEAD];

    if (t->a->a8 && nw_kv_is_int(kind)) {
        float inv = 0;
        const float scale = nw_int8_scale(q, n, &inv);
        for (uint32_t i = 0; i < n; i++) {
            coded[i] = nw_int8_code(q[i], inv) * scale;
        }
        q = coded;
    }
    t->ops->tier->act_pack(NW_ACT_F32, q, 0, 0, 1, n, row);
}

/* Without branches, so that it becomes vectors; NaN codes are not stored. */
NW_INLINE float e4m3(uint32_t code)
{
    const uint32_t mag = code & 0x7FU;
    const float small = (float)(int32_t)mag * 0x1p-9F;
    const uint32_t bits = mag < 8 ? nw_f32_bits(small) : (mag << 20) + (120U << 23);
    return nw_f32_from_bits(bits | (code & 0x80U) << 24);
}

/* One vector of a page to nw_kv_vector_cols() columns of 16 floats; flip: of the stored integers. */
static void widen_vector(nw_kv_kind kind, const uint8_t *b, uint8_t flip, float *out)
{
    for (unsigned t = 0; t < 4; t++, out += NW_KV_LANES) {
        switch (kind) {
        case NW_KV_F32:
            return; /* read as it lies */
        case NW_KV_BF16:
            for (unsigned r = 0; t < 2 && r < NW_KV_LANES; r++) {
                uint16_t half = 0;
                memcpy(&half, b + (size_t)r * 4 + (size_t)t * 2, sizeof half);
                out[r] = nw_bf16_to_f32(half);
            }
            break;
        case NW_KV_FP8:
            for (unsigned r = 0; r < NW_KV_LANES; r++) {
                out[r] = e4m3(b[r / 4 * 16 + t / 2 * 8 + r % 4 * 2 + t % 2]);
            }
            break;
        case NW_KV_INT8:
            for (unsigned r = 0; r < NW_KV_LANES; r++) {
                out[r] = (float)((int)(uint8_t)(b[r * 4 + t] ^ flip) - 128);
            }
            break;
        case NW_KV_INT4:
            for (unsigned r = 0; r < NW_KV_LANES; r++) {
                const unsigned both = b[r * 4 + t] ^ flip;
                out[r] = (float)((int)(both & 15U) - 8);
                out[r + (size_t)4 * NW_KV_LANES] = (float)((int)(both >> 4) - 8);
            }
            break;
        }
    }
}

/* n columns of a panel; a last vector may hold more than are wanted. */
static void widen_panel(nw_kv_kind kind, const uint8_t *p, uint8_t flip, uint32_t n, float *out)
{
    const uint32_t cols = nw_kv_vector_cols(kind);
    float last[8 * NW_KV_LANES];

    for (uint32_t c = 0; c < n; c += cols, p += 64) {
        if (n - c >= cols) {
            widen_vector(kind, p, flip, out + (size_t)c * NW_KV_LANES);
        } else {
            widen_vector(kind, p, flip, last);
            memcpy(out + (size_t)c * NW_KV_LANES, last, (n - c) * NW_KV_LANES * sizeof *out);
        }
    }
}

static void widen_k(const nw_kv_type *kv, const uint8_t *page, float *out)
{
    const size_t panel = nw_kv_k_panel_bytes(kv);

    for (uint32_t i = 0; i < NW_KV_PAGE / NW_KV_LANES; i++, page += panel) {
        float scale[NW_KV_LANES];
        widen_panel(kv->k, page + (nw_kv_scaled(kv->k) ? 64 : 0), 0, kv->d_head, out);
        if (nw_kv_scaled(kv->k)) {
            memcpy(scale, page, sizeof scale);
        }
        for (uint32_t c = 0; c < kv->d_head; c++, out += NW_KV_LANES) {
            for (uint32_t r = 0; nw_kv_scaled(kv->k) && r < NW_KV_LANES; r++) {
                out[r] *= scale[r];
            }
        }
    }
}

static void widen_v(const nw_kv_type *kv, const uint8_t *page, float *out)
{
    const size_t panel = nw_kv_panel_bytes(kv->v, NW_KV_PAGE);
    const uint8_t flip = kv->v == NW_KV_INT8 ? 0x80 : kv->v == NW_KV_INT4 ? 0x88 : 0;

    page += nw_kv_v_codes_at(kv->v);
    for (uint32_t i = 0; i < nw_kv_v_panels(kv->d_head); i++, page += panel) {
        widen_panel(kv->v, page, flip, NW_KV_PAGE, out);
        out += (size_t)NW_KV_PAGE * NW_KV_LANES;
    }
}

/* Whether `linear` reads panels of this kind with F32 activations: then pages stay as they lie. */
static bool as_it_lies(const nw_kernels *tier, nw_panel_kind kind)
{
    return kind == NW_PANEL_F32 ||
           tier->act_kind((nw_panel_type){.kind = kind}, false) == NW_ACT_F32;
}

static nw_weight keys_of(const nw_attn_tile *t, const nw_attn_page *p, float *wide)
{
    static const nw_panel_kind panels[NW_KV_KINDS] = {NW_PANEL_F32, NW_PANEL_BF16, NW_PANEL_F32,
                                                      NW_PANEL_INT8, NW_PANEL_F32};
    const bool same = p->kv.k == NW_KV_F32 || panels[p->kv.k] != NW_PANEL_F32;
    nw_weight w = {.type = {.kind = panels[p->kv.k]},
                   .data = p->k,
                   .n_rows = NW_KV_PAGE,
                   .n_cols = p->kv.d_head};

    if (!same || !as_it_lies(t->ops->tier, w.type.kind)) {
        widen_k(&p->kv, p->k, wide);
        w.type.kind = NW_PANEL_F32;
        w.data = (const uint8_t *)wide;
    }
    return w;
}

static nw_weight values_of(const nw_attn_tile *t, const nw_attn_page *p, float *wide)
{
    nw_weight w = {.type = {.kind = p->kv.v == NW_KV_BF16 ? NW_PANEL_BF16 : NW_PANEL_F32},
                   .data = p->v,
                   .n_rows = p->kv.d_head,
                   .n_cols = NW_KV_PAGE};

    if (nw_kv_scaled(p->kv.v) || !as_it_lies(t->ops->tier, w.type.kind)) {
        widen_v(&p->kv, p->v, wide);
        w.type.kind = NW_PANEL_F32;
        w.data = (const uint8_t *)wide;
    }
    return w;
}

static void probabilities(const nw_attn_tile *t, const nw_attn_page *p, const workspace *w)
{
    nw_softmax_page page = {.scale = t->a->scale,
                            .softcap = t->a->softcap,
                            .v_scales = NULL,
                            .kind = NW_ACT_F32,
                            .a8 = t->a->a8 && nw_kv_is_int(p->kv.v)};

    if (nw_kv_scaled(p->kv.v)) {
        page.v_scales = (const float *)(const void *)p->v;
    }
    for (uint32_t r = 0; r < p->n_rows; r++) {
        nw_attn_span(t, p, r, &page.j0, &page.j1);
        const nw_softmax_states state = nw_softmax_from(&t->state, r);
        t->ops->softmax(&page, w->s + (size_t)r * NW_KV_PAGE, &state, w->p + r * w->p_stride);
    }
}

void nw_attn_plain_page(const nw_attn_tile *t, const nw_attn_page *p)
{
    const workspace w = cut(t);
    const nw_weight keys = keys_of(t, p, w.wide);
    nw_act a = {.kind = NW_ACT_F32, .n_tokens = p->n_rows, .n_cols = p->kv.d_head, .data = p->q};

    t->ops->tier->linear(&keys, &a, 0, NW_KV_PAGE / NW_KV_LANES, w.s, NW_KV_PAGE);
    probabilities(t, p, &w);
    const nw_weight values = values_of(t, p, w.wide);
    a.n_cols = NW_KV_PAGE;
    a.data = w.p;
    t->ops->tier->linear(&values, &a, 0, nw_panel_count(p->kv.d_head), w.part, w.o_ld);
    for (uint32_t r = 0; r < p->n_rows; r++) {
        t->ops->merge(w.part + r * w.o_ld, p->kv.d_head, t->state.shrink[r],
                      t->o + (size_t)r * (NW_ATTN_STRIDE / sizeof *t->o));
    }
}

void nw_attn_plain_join(const nw_attn_tile *t, const nw_softmax_states *state, const float *o,
                        size_t ldo)
{
    for (uint32_t r = 0; r < t->n_rows; r++, o += ldo) {
        const nw_softmax_states sums = nw_softmax_from(&t->sums, r);
        float *total = t->total + (size_t)r * (NW_ATTN_STRIDE / sizeof *total);
        float *scaled = cut(t).part;
        if (state->sum[r] == 0.0F) { /* it sees nothing of the segment */
            continue;
        }
        const float max = state->max[r] > *sums.max ? state->max[r] : *sums.max;
        const float old = exp2f(*sums.max - max);
        const float new = exp2f(state->max[r] - max);
        *sums.sum = *sums.sum * old + state->sum[r] * new;
        *sums.max = max;
        t->ops->scale(o, t->a->kv.d_head, new, scaled);
        t->ops->merge(scaled, t->a->kv.d_head, old, total);
    }
}
