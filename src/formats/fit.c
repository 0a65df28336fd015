/* Scale search over a few values: see fit.h. Each candidate is tried, refitted to its codes by weighted
 * least squares, and tried again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/fit.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "formats/half.h"

/* Fractions of the scale that covers the whole range: below 0.6 clipping costs more than finer steps
 * gain for blocks of 16 and more; above 1.05 the range is wider than the values. */
#define FRACTIONS      19
#define FRACTION_FIRST 0.6F
#define FRACTION_STEP  0.025F
#define REFITS         2
#define REFIT_MOST     1.25F /* times the scale that was tried: a refit goes no further */

float nw_store_half(float x)
{
    const uint16_t h = nw_f16_from_f32(x);
    const bool over = (h & 0x7C00U) == 0x7C00U;
    return nw_f16_to_f32((uint16_t)(over ? (h & 0x8000U) | 0x7BFFU : h));
}

float nw_store_float(float x)
{
    return x;
}

/* x to the nearest integer, ties to even, |x| < 2^22: adding 1.5 * 2^23 leaves no bits behind the
 * point. */
static float round_even(float x)
{
    const float big = 0x1.8p23F;
    return (x + big) - big;
}

static float clamp(float x, float lo, float hi)
{
    x = x > lo ? x : lo;
    return x < hi ? x : hi;
}

void nw_fit_codes(const nw_fit_block *b, nw_fit *fit, int8_t *q)
{
    const float inv = 1 / fit->scale;
    const float step = isfinite(inv) ? inv : 0;
    float err = 0;

    for (int i = 0; i < b->n; i++) {
        const float v = clamp((b->x[i] - fit->min) * step, (float)b->lo, (float)b->hi);
        const float code = round_even(v);
        const float d = b->x[i] - (fit->scale * code + fit->min);
        q[i] = (int8_t)code;
        err += b->w[i] * d * d;
    }
    fit->err = err;
}

/* Tries a fit and, from its codes, the least squares scale (and minimum); keeps the best of all. */
typedef struct {
    const nw_fit_block *b;
    nw_store_fn store;
    bool has_min;
    float max_min, least; /* of minima: the most that is allowed; the least value */
    nw_fit best;
} search;

/* The scale and minimum that suit the codes best; false when the codes do not determine them. */
static bool refit(const search *s, const int8_t *q, nw_fit *fit)
{
    const nw_fit_block *b = s->b;
    double sw = 0;
    double sq = 0;
    double sqq = 0;
    double sx = 0;
    double sxq = 0;

    for (int i = 0; i < b->n; i++) {
        const double w = (double)b->w[i];
        const double x = (double)b->x[i];
        sw += w;
        sq += w * q[i];
        sqq += w * q[i] * q[i];
        sx += w * x;
        sxq += w * x * q[i];
    }
    const double det = sw * sqq - sq * sq;
    if (s->has_min && det > 0) {
        fit->scale = (float)((sw * sxq - sq * sx) / det);
        fit->min = (float)((sqq * sx - sq * sxq) / det);
        if (fit->min <= s->max_min) {
            return true;
        }
        fit->min = s->max_min;
    }
    fit->scale = (float)((sxq - (double)fit->min * sq) / sqq);
    return sqq > 0;
}

/* Whether a refit stays near what was tried. So the scales that a search returns are bounded by the
 * values' range, which formats/bound.h relies on. */
static bool is_near(const search *s, const nw_fit *tried, const nw_fit *fit)
{
    const float slack = (REFIT_MOST - 1) * tried->scale * (float)s->b->hi;

    if (s->has_min && !(fit->scale >= 0 && fit->min >= s->least - slack)) {
        return false;
    }
    return fabsf(fit->scale) <= REFIT_MOST * fabsf(tried->scale);
}

static void try_fit(search *s, float scale, float min)
{
    const nw_fit tried = {.scale = scale, .min = min};
    nw_fit fit = tried;
    int8_t q[NW_FIT_MAX];

    for (int i = 0; i <= REFITS; i++) {
        fit.scale = s->store(fit.scale);
        fit.min = s->store(fit.min);
        nw_fit_codes(s->b, &fit, q);
        if (fit.err < s->best.err) {
            s->best = fit;
        }
        if (!refit(s, q, &fit) || !is_near(s, &tried, &fit)) {
            return;
        }
    }
}

/* A fit that is there before any is tried: all zeros, or the minimum alone. */
static search search_new(const nw_fit_block *b, nw_store_fn store)
{
    search s = {.b = b, .store = store};
    int8_t q[NW_FIT_MAX];

    assert(b->n <= NW_FIT_MAX);
    nw_fit_codes(b, &s.best, q);
    return s;
}

nw_fit nw_fit_symmetric(const nw_fit_block *b, nw_store_fn store)
{
    search s = search_new(b, store);
    float peak = 0;

    for (int i = 0; i < b->n; i++) {
        peak = fabsf(b->x[i]) > fabsf(peak) ? b->x[i] : peak;
    }
    for (int i = 0; i < FRACTIONS && peak != 0; i++) {
        const float f = FRACTION_FIRST + FRACTION_STEP * (float)i;
        try_fit(&s, peak / (float)b->lo * f, 0);
        if (b->lo != -b->hi) { /* the other sign has its peak at a code that is one less */
            try_fit(&s, -peak / (float)b->lo * f, 0);
        }
    }
    return s.best;
}

nw_fit nw_fit_minimum(const nw_fit_block *b, float max_min, nw_store_fn store)
{
    search s = search_new(b, store);
    float lo = b->x[0];
    float hi = b->x[0];

    s.has_min = true;
    s.max_min = max_min;
    for (int i = 1; i < b->n; i++) {
        lo = b->x[i] < lo ? b->x[i] : lo;
        hi = b->x[i] > hi ? b->x[i] : hi;
    }
    lo = lo < max_min ? lo : max_min;
    s.least = lo;
    for (int i = 0; i < FRACTIONS; i++) {
        const float f = FRACTION_FIRST + FRACTION_STEP * (float)i;
        const float range = (hi - lo) * f;
        const float cut = (hi - lo) * (1 - f);
        try_fit(&s, range / (float)b->hi, lo); /* what is cut lies at the top */
        try_fit(&s, range / (float)b->hi, clamp(lo + cut / 2, lo, max_min));
        try_fit(&s, range / (float)b->hi, clamp(lo + cut, lo, max_min));
    }
    return s.best;
}
