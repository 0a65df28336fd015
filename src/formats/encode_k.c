/* Encoders of the K-quants, by search: each sub-block is fitted alone, the super-block's scales are taken
 * from the largest of them, the small scales are rounded to it, their neighbours tried, and the
 * super-block's scales refitted to the codes by least squares. See encode.h for the contract, block.h
 * for the layouts.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "formats/encode_parts.h"
#include "formats/fit.h"

#define SUBS   16 /* sub-blocks of Q6_K, the most of any */
#define ROUNDS 2  /* refits of the super-block's scales */

/* What differs between the three. */
typedef struct {
    int n;            /* values of a sub-block */
    int lo, hi;       /* codes */
    int sc_lo, sc_hi; /* small scales */
    int m_hi;         /* small minima; 0: none */
} k_kind;

/* A super-block: x' = d * sc * q - dmin * m. */
typedef struct {
    float d, dmin;
    int8_t sc[SUBS], m[SUBS];
    int8_t q[NW_SUPER];
    float err;
} k_fit;

static nw_fit_block sub_block(const k_kind *k, const float *x, const float *w, int s)
{
    return (nw_fit_block){
        .x = x + s * k->n, .w = w + s * k->n, .n = k->n, .lo = k->lo, .hi = k->hi};
}

/* a / b as a small integer, 0 where b is 0 or the quotient is no number. */
static int ratio(float a, float b, int lo, int hi)
{
    const float r = b != 0 ? a / b : 0;
    const float bounded = fminf(fmaxf(r, (float)lo), (float)hi); /* a NaN becomes lo */
    return isfinite(r) ? (int)roundf(bounded) : 0;
}

/* The best small scale and minimum of a sub-block near those of `want`, under out->d and out->dmin. */
static float fit_small(const k_kind *k, const nw_fit_block *b, const nw_fit *want, int s,
                       k_fit *out)
{
    const int sc0 = ratio(want->scale, out->d, k->sc_lo, k->sc_hi);
    const int m0 = ratio(-want->min, out->dmin, 0, k->m_hi);
    const int dm = k->m_hi > 0 ? 1 : 0;
    float least = INFINITY;

    for (int sc = sc0 - 1; sc <= sc0 + 1; sc++) {
        for (int m = m0 - dm; m <= m0 + dm; m++) {
            int8_t q[NW_FIT_MAX];
            if (sc < k->sc_lo || sc > k->sc_hi || m < 0 || m > k->m_hi) {
                continue;
            }
            nw_fit fit = {.scale = out->d * (float)sc, .min = -(out->dmin * (float)m)};
            nw_fit_codes(b, &fit, q);
            if (fit.err < least) {
                least = fit.err;
                out->sc[s] = (int8_t)sc;
                out->m[s] = (int8_t)m;
                memcpy(out->q + s * k->n, q, (size_t)k->n);
            }
        }
    }
    return least;
}

/* All the sub-blocks under out->d and out->dmin. */
static void fit_all(const k_kind *k, const float *x, const float *w, const nw_fit *want, k_fit *out)
{
    out->err = 0;
    for (int s = 0; s < NW_SUPER / k->n; s++) {
        const nw_fit_block b = sub_block(k, x, w, s);
        out->err += fit_small(k, &b, &want[s], s, out);
    }
}

/* The d and dmin that suit codes, small scales and minima best: least squares of x on A = sc * q and
 * B = -m. False when they do not determine them. */
static bool refit(const k_kind *k, const float *x, const float *w, k_fit *fit)
{
    double aa = 0;
    double ab = 0;
    double bb = 0;
    double xa = 0;
    double xb = 0;

    for (int i = 0; i < NW_SUPER; i++) {
        const double a = fit->sc[i / k->n] * fit->q[i];
        const double b = -fit->m[i / k->n];
        const double wi = (double)w[i];
        aa += wi * a * a;
        ab += wi * a * b;
        bb += wi * b * b;
        xa += wi * (double)x[i] * a;
        xb += wi * (double)x[i] * b;
    }
    const double det = aa * bb - ab * ab;
    if (det > 1e-9 * aa * bb && bb > 0) {
        fit->d = nw_store_half((float)((xa * bb - xb * ab) / det));
        fit->dmin = nw_store_half((float)((xb * aa - xa * ab) / det));
        return true;
    }
    if (aa > 0 && bb <= 0) {
        fit->d = nw_store_half((float)(xa / aa));
        return true;
    }
    return false;
}

static void search_super(const k_kind *k, const float *x, const float *w, k_fit *best)
{
    const int n_subs = NW_SUPER / k->n;
    nw_fit want[SUBS];
    k_fit fit = {.d = 0};
    float peak = 0; /* of the scales, with its sign */
    float deepest = 0;

    for (int s = 0; s < n_subs; s++) {
        const nw_fit_block b = sub_block(k, x, w, s);
        want[s] = k->m_hi > 0 ? nw_fit_minimum(&b, 0, nw_store_float)
                              : nw_fit_symmetric(&b, nw_store_float);
        peak = fabsf(want[s].scale) > fabsf(peak) ? want[s].scale : peak;
        deepest = fmaxf(deepest, -want[s].min);
    }
    fit.d = nw_store_half(k->sc_lo < 0 ? peak / (float)k->sc_lo : peak / (float)k->sc_hi);
    fit.dmin = k->m_hi > 0 ? nw_store_half(deepest / (float)k->m_hi) : 0;
    fit_all(k, x, w, want, &fit);
    *best = fit;
    for (int i = 0; i < ROUNDS && refit(k, x, w, &fit); i++) {
        fit_all(k, x, w, want, &fit);
        if (fit.err < best->err) {
            *best = fit;
        }
    }
}

void nw_put_k_scales(const int8_t sc[8], const int8_t m[8], uint8_t b[12])
{
    for (int j = 0; j < 4; j++) {
        const unsigned high_sc = (unsigned)sc[j + 4];
        const unsigned high_m = (unsigned)m[j + 4];
        b[j] = (uint8_t)((unsigned)sc[j] | high_sc >> 4 << 6);
        b[j + 4] = (uint8_t)((unsigned)m[j] | high_m >> 4 << 6);
        b[j + 8] = (uint8_t)((high_sc & 15U) | (high_m & 15U) << 4);
    }
}

void nw_put_k45_codes(const int8_t q[NW_SUPER], uint8_t *qh, uint8_t *qs)
{
    for (int c = 0; c < NW_SUPER / 64; c++) {
        for (int l = 0; l < NW_BLOCK; l++) {
            const unsigned low = (unsigned)q[64 * c + l];
            const unsigned high = (unsigned)q[64 * c + NW_BLOCK + l];
            qs[NW_BLOCK * c + l] = (uint8_t)((low & 15U) | (high & 15U) << 4);
            if (qh != NULL) {
                const unsigned bits = low >> 4 | high >> 4 << 1;
                qh[l] = (uint8_t)(c == 0 ? bits : qh[l] | bits << (2 * c));
            }
        }
    }
}

static void put_k45(const k_fit *f, uint8_t *dst, uint8_t *qh, uint8_t *qs)
{
    nw_put_scale(dst, f->d);
    nw_put_scale(dst + 2, f->dmin);
    nw_put_k_scales(f->sc, f->m, dst + 4);
    nw_put_k45_codes(f->q, qh, qs);
}

void nw_search_q4_k(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    static const k_kind kind = {.n = 32, .hi = 15, .sc_hi = 63, .m_hi = 63};
    float ones[NW_SUPER];
    k_fit fit;

    for (size_t b = 0; b < n_blocks; b++, src += NW_SUPER, dst += 144) {
        search_super(&kind, src, nw_weights_at(weights, b, NW_SUPER, ones), &fit);
        put_k45(&fit, dst, NULL, dst + 16);
    }
}

void nw_search_q5_k(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    static const k_kind kind = {.n = 32, .hi = 31, .sc_hi = 63, .m_hi = 63};
    float ones[NW_SUPER];
    k_fit fit;

    for (size_t b = 0; b < n_blocks; b++, src += NW_SUPER, dst += 176) {
        search_super(&kind, src, nw_weights_at(weights, b, NW_SUPER, ones), &fit);
        put_k45(&fit, dst, dst + 16, dst + 48);
    }
}

void nw_put_k6_codes(const int8_t q[NW_SUPER], uint8_t *ql, uint8_t *qh)
{
    memset(ql, 0, NW_SUPER / 2);
    memset(qh, 0, NW_SUPER / 4);
    for (int e = 0; e < NW_SUPER; e++) {
        const int h = e / 128;
        const int g = e % 128 / NW_BLOCK;
        const int l = e % NW_BLOCK;
        const unsigned code = (unsigned)(q[e] + 32);
        uint8_t *low = &ql[64 * h + NW_BLOCK * (g % 2) + l];
        uint8_t *high = &qh[NW_BLOCK * h + l];
        *low = (uint8_t)(*low | (code & 15U) << (g < 2 ? 0 : 4));
        *high = (uint8_t)(*high | code >> 4 << (2 * g));
    }
}

void nw_search_q6_k(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    static const k_kind kind = {.n = 16, .lo = -32, .hi = 31, .sc_lo = -128, .sc_hi = 127};
    float ones[NW_SUPER];
    k_fit fit;

    for (size_t b = 0; b < n_blocks; b++, src += NW_SUPER, dst += 210) {
        search_super(&kind, src, nw_weights_at(weights, b, NW_SUPER, ones), &fit);
        nw_put_k6_codes(fit.q, dst, dst + 128);
        memcpy(dst + 192, fit.sc, SUBS);
        nw_put_scale(dst + 208, fit.d);
    }
}

void nw_encode_q4_k(const float *src, uint8_t *dst, size_t n_blocks)
{
    nw_search_q4_k(src, NULL, dst, n_blocks);
}

void nw_encode_q5_k(const float *src, uint8_t *dst, size_t n_blocks)
{
    nw_search_q5_k(src, NULL, dst, n_blocks);
}

void nw_encode_q6_k(const float *src, uint8_t *dst, size_t n_blocks)
{
    nw_search_q6_k(src, NULL, dst, n_blocks);
}
