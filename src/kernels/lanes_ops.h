/* Element-wise ops and the softmax of attention in lanes.h vectors, the rest of a row by load_n and
 * store_n, so that no byte beyond a buffer is touched. exp is 2^x with the degree-4 minimax
 * polynomial q of 2^f = 1 + f q(f), |f| <= 1/2, relative error 9.2e-8. Contracts: kernels.h and
 * attn_tile.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_LANES_OPS_H
#define NW_KERNELS_LANES_OPS_H

#include <math.h>

#include "kernels/attn_tile.h"
#include "kernels/lanes.h"

#define NW_LOG2E          0x1.715476p+0F
#define NW_ROOT_2_OVER_PI 0x1.988454p-1F

/* 2^n for whole |n| <= 126. */
NW_INLINE nw_lanes_f nw_lanes_pow2(nw_lanes_i n)
{
    return nw_lanes_from_bits(nw_lanes_left(nw_lanes_add_i(n, nw_lanes_int(127)), 23));
}

/* 2^f for f from -1/2 to 1/2, by a polynomial. */
NW_INLINE nw_lanes_f nw_lanes_power_of(nw_lanes_f f)
{
    nw_lanes_f q = nw_lanes_set(0x1.5bba14p-10F);

    q = nw_lanes_fma(q, f, nw_lanes_set(0x1.3cea88p-7F));
    q = nw_lanes_fma(q, f, nw_lanes_set(0x1.c6b752p-5F));
    q = nw_lanes_fma(q, f, nw_lanes_set(0x1.ebf9bcp-3F));
    q = nw_lanes_fma(q, f, nw_lanes_set(0x1.62e42ap-1F));
    q = nw_lanes_fma(q, f, nw_lanes_set(1));
    return q;
}

/* 2^x; 0 below -150, Inf above 128, NaN for NaN. 2^0 is exactly 1. Scaled in two steps, so that
 * each factor is a normal number. */
NW_INLINE nw_lanes_f nw_lanes_exp2(nw_lanes_f x)
{
    const nw_lanes_f bound = nw_lanes_clamp(x, -200, 200);
    const nw_lanes_f whole = nw_lanes_round(bound);
    const nw_lanes_f f = nw_lanes_sub(bound, whole);
    const nw_lanes_i n = nw_lanes_whole(whole);
    const nw_lanes_i half = nw_lanes_right_signed(n, 1);
    const nw_lanes_f q = nw_lanes_power_of(f);

    return nw_lanes_mul(nw_lanes_mul(q, nw_lanes_pow2(half)),
                        nw_lanes_pow2(nw_lanes_sub_i(n, half)));
}

/* Values i .. of n: all lanes, or those that are left. */
NW_INLINE nw_lanes_f nw_lanes_at(const float *x, size_t i, size_t n)
{
    return n - i >= NW_LANES ? nw_lanes_load(x + i) : nw_lanes_load_n(x + i, n - i);
}

NW_INLINE void nw_lanes_put_at(float *y, size_t i, size_t n, nw_lanes_f v)
{
    if (n - i >= NW_LANES) {
        nw_lanes_store(y + i, v);
    } else {
        nw_lanes_store_n(y + i, n - i, v);
    }
}

/* x / (1 + 2^-arg). */
NW_INLINE nw_lanes_f nw_lanes_gated(nw_lanes_f x, nw_lanes_f arg)
{
    const nw_lanes_f e = nw_lanes_exp2(nw_lanes_sub(nw_lanes_set(0), arg));
    return nw_lanes_div(x, nw_lanes_add(nw_lanes_set(1), e));
}

/* tanh(z) = 1 - 2 / (e^2z + 1): a few 2^-24 absolute, which is what a score needs. */
NW_INLINE nw_lanes_f nw_lanes_tanh(nw_lanes_f z)
{
    const nw_lanes_f e = nw_lanes_exp2(nw_lanes_mul(z, nw_lanes_set(2 * NW_LOG2E)));
    const nw_lanes_f one = nw_lanes_set(1);
    return nw_lanes_sub(one, nw_lanes_div(nw_lanes_set(2), nw_lanes_add(e, one)));
}

static inline void nw_lanes_rmsnorm(const float *x, const float *gain, uint32_t n, float eps,
                                    float *y)
{
    nw_lanes_f even = nw_lanes_set(0);
    nw_lanes_f odd = nw_lanes_set(0);

    for (uint32_t i = 0; i < n; i += NW_LANES) {
        const nw_lanes_f v = nw_lanes_at(x, i, n);
        if (i / NW_LANES % 2 == 0) {
            even = nw_lanes_fma(v, v, even);
        } else {
            odd = nw_lanes_fma(v, v, odd);
        }
    }
    const float mean = nw_lanes_sum(nw_lanes_add(even, odd)) / (float)n;
    const nw_lanes_f inv = nw_lanes_set(1 / sqrtf(mean + eps));
    for (uint32_t i = 0; i < n; i += NW_LANES) {
        const nw_lanes_f v = nw_lanes_mul(nw_lanes_at(x, i, n), inv);
        nw_lanes_put_at(y, i, n, nw_lanes_mul(v, nw_lanes_at(gain, i, n)));
    }
}

static inline void nw_lanes_rope(float *x, uint32_t n_heads, uint32_t d_head, const float *cos,
                                 const float *sin)
{
    const uint32_t half = d_head / 2;

    for (uint32_t h = 0; h < n_heads; h++, x += d_head) {
        for (uint32_t i = 0; i < half; i += NW_LANES) {
            const nw_lanes_f c = nw_lanes_at(cos, i, half);
            const nw_lanes_f s = nw_lanes_at(sin, i, half);
            const nw_lanes_f a = nw_lanes_at(x, i, half);
            const nw_lanes_f b = nw_lanes_at(x + half, i, half);
            const nw_lanes_f turned = nw_lanes_sub(nw_lanes_set(0), nw_lanes_mul(b, s));
            nw_lanes_put_at(x, i, half, nw_lanes_fma(a, c, turned));
            nw_lanes_put_at(x + half, i, half, nw_lanes_fma(b, c, nw_lanes_mul(a, s)));
        }
    }
}

static inline void nw_lanes_silu_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += NW_LANES) {
        const nw_lanes_f g = nw_lanes_at(gate, i, n);
        const nw_lanes_f s = nw_lanes_gated(g, nw_lanes_mul(g, nw_lanes_set(NW_LOG2E)));
        nw_lanes_put_at(y, i, n, nw_lanes_mul(s, nw_lanes_at(up, i, n)));
    }
}

static inline void nw_lanes_gelu_tanh_mul(const float *gate, const float *up, size_t n, float *y)
{
    const nw_lanes_f factor = nw_lanes_set(2 * NW_ROOT_2_OVER_PI * NW_LOG2E);

    for (size_t i = 0; i < n; i += NW_LANES) {
        const nw_lanes_f g = nw_lanes_at(gate, i, n);
        /* 1/2 (1 + tanh u) = sigmoid(2u), u = sqrt(2 / pi) (g + 0.044715 g^3) */
        const nw_lanes_f cube = nw_lanes_mul(nw_lanes_mul(g, g), g);
        const nw_lanes_f u = nw_lanes_fma(cube, nw_lanes_set(0.044715F), g);
        const nw_lanes_f s = nw_lanes_gated(g, nw_lanes_mul(u, factor));
        nw_lanes_put_at(y, i, n, nw_lanes_mul(s, nw_lanes_at(up, i, n)));
    }
}

static inline void nw_lanes_add_to(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += NW_LANES) {
        nw_lanes_put_at(y, i, n, nw_lanes_add(nw_lanes_at(y, i, n), nw_lanes_at(x, i, n)));
    }
}

static inline void nw_lanes_softcap(float *x, size_t n, float cap)
{
    const nw_lanes_f inv = nw_lanes_set(1 / cap);
    for (size_t i = 0; i < n; i += NW_LANES) {
        const nw_lanes_f t = nw_lanes_tanh(nw_lanes_mul(nw_lanes_at(x, i, n), inv));
        nw_lanes_put_at(x, i, n, nw_lanes_mul(t, nw_lanes_set(cap)));
    }
}

/* ---- attention ---- */

/* Scores of vector b in units of log2, hidden keys -Inf; *seen gets the lanes that are not. */
NW_INLINE nw_lanes_f nw_lanes_score(const nw_softmax_page *page, const float *s, unsigned b,
                                    nw_lanes_i *seen)
{
    const nw_lanes_i at = nw_lanes_add_i(nw_lanes_int((int32_t)(b * NW_LANES)), nw_lanes_count());
    const nw_lanes_i after = nw_lanes_greater(at, nw_lanes_int((int32_t)page->j0 - 1));
    const nw_lanes_i before = nw_lanes_greater(nw_lanes_int((int32_t)page->j1), at);
    const nw_lanes_f raw = nw_lanes_load(s + (size_t)b * NW_LANES);
    nw_lanes_f x = nw_lanes_mul(raw, nw_lanes_set(page->scale * NW_LOG2E));

    if (page->softcap > 0) {
        const nw_lanes_f z = nw_lanes_mul(raw, nw_lanes_set(page->scale / page->softcap));
        x = nw_lanes_mul(nw_lanes_tanh(z), nw_lanes_set(page->softcap * NW_LOG2E));
    }
    *seen = nw_lanes_and(after, before);
    return nw_lanes_pick(*seen, x, nw_lanes_set(-INFINITY));
}

#define NW_PAGE_VECTORS (NW_KV_PAGE / NW_LANES)

/* p [NW_KV_PAGE] in whole 255ths of the largest (attention.h: a8). */
static inline void nw_lanes_count_p(float *p)
{
    const nw_lanes_f whole = nw_lanes_set(0x1.8p23F); /* x + this - this: nearest, ties to even */
    nw_lanes_f top = nw_lanes_set(0);

    NW_EACH(b, NW_PAGE_VECTORS) {
        top = nw_lanes_max(top, nw_lanes_load(p + (size_t)b * NW_LANES));
    }
    const float most = nw_lanes_top(top);
    const float steps = most > 0 ? 255 / most : 0;
    NW_EACH(b, NW_PAGE_VECTORS) {
        const nw_lanes_f x = nw_lanes_load(p + (size_t)b * NW_LANES);
        const nw_lanes_f n = nw_lanes_add(nw_lanes_mul(x, nw_lanes_set(steps)), whole);
        const nw_lanes_f y = nw_lanes_mul(nw_lanes_sub(n, whole), nw_lanes_set(most / 255));
        nw_lanes_store(p + (size_t)b * NW_LANES, y);
    }
}

static inline void nw_lanes_softmax(const nw_softmax_page *page, const float *s,
                                    const nw_softmax_states *st, void *p)
{
    nw_lanes_f x[NW_PAGE_VECTORS];
    nw_lanes_i seen[NW_PAGE_VECTORS];
    nw_lanes_f top = nw_lanes_set(-INFINITY);
    nw_lanes_f sum = nw_lanes_set(0);

    NW_EACH(b, NW_PAGE_VECTORS) {
        x[b] = nw_lanes_score(page, s, b, &seen[b]);
        top = nw_lanes_max(top, x[b]);
    }
    const float most = nw_lanes_top(top);
    const float max = most > *st->max ? most : *st->max;
    NW_EACH(b, NW_PAGE_VECTORS) {
        nw_lanes_f e = nw_lanes_exp2(nw_lanes_sub(x[b], nw_lanes_set(max)));
        e = nw_lanes_pick(seen[b], e, nw_lanes_set(0));
        sum = nw_lanes_add(sum, e);
        if (page->v_scales != NULL) {
            e = nw_lanes_mul(e, nw_lanes_load(page->v_scales + (size_t)b * NW_LANES));
        }
        nw_lanes_store((float *)p + (size_t)b * NW_LANES, e);
    }
    if (page->a8) {
        nw_lanes_count_p(p);
    }
    nw_lanes_store_n(st->shrink, 1, nw_lanes_exp2(nw_lanes_set(*st->max - max)));
    *st->sum = *st->sum * *st->shrink + nw_lanes_sum(sum);
    *st->max = max;
}

static inline void nw_lanes_merge(const float *part, uint32_t n, float shrink, float *out)
{
    for (uint32_t i = 0; i < n; i += NW_LANES) {
        const nw_lanes_f o = nw_lanes_at(out, i, n);
        nw_lanes_put_at(out, i, n, nw_lanes_fma(o, nw_lanes_set(shrink), nw_lanes_at(part, i, n)));
    }
}

static inline void nw_lanes_scale(const float *x, uint32_t n, float factor, float *out)
{
    for (uint32_t i = 0; i < n; i += NW_LANES) {
        nw_lanes_put_at(out, i, n, nw_lanes_mul(nw_lanes_at(x, i, n), nw_lanes_set(factor)));
    }
}

#endif
