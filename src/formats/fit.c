/* Scale search over a few values: see fit.h. Each candidate is tried, refitted to its codes by weighted
 * least squares, and tried again; LANES candidates at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/fit.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/clones.h"
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
NW_INLINE float round_even(float x)
{
    const float big = 0x1.8p23F;
    return (x + big) - big;
}

NW_INLINE float clamp(float x, float lo, float hi)
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

#define LANES 8 /* scales that are tried side by side */

/* Fits of one block side by side. Each lane does the operations of nw_fit_codes in their order: the
 * same bits as one at a time. */
typedef struct {
    float scale[LANES], min[LANES], err[LANES];
    float q[NW_FIT_MAX][LANES];
} lanes;

NW_CLONES static void lanes_codes(const nw_fit_block *b, lanes *l)
{
    const float lo = (float)b->lo;
    const float hi = (float)b->hi;
    float scale[LANES]; /* copies, which nothing that is written can change */
    float min[LANES];
    float step[LANES];
    float err[LANES] = {0};

    memcpy(scale, l->scale, sizeof scale);
    memcpy(min, l->min, sizeof min);
    for (int k = 0; k < LANES; k++) {
        const float inv = 1 / scale[k];
        step[k] = isfinite(inv) ? inv : 0;
    }
    for (int i = 0; i < b->n; i++) {
        const float x = b->x[i];
        const float w = b->w[i];
        float *restrict q = l->q[i];
        for (int k = 0; k < LANES; k++) {
            const float code = round_even(clamp((x - min[k]) * step[k], lo, hi));
            const float d = x - (scale[k] * code + min[k]);
            q[k] = code;
            err[k] += w * d * d;
        }
    }
    memcpy(l->err, err, sizeof err);
}

/* What least squares need of the codes of each lane: Σ w q, Σ w q², Σ w x q. */
typedef struct {
    double q[LANES], qq[LANES], xq[LANES];
} lanes_sums;

NW_CLONES static void lanes_sum(const nw_fit_block *b, const lanes *l, lanes_sums *sums)
{
    lanes_sums s = {.q = {0}};

    for (int i = 0; i < b->n; i++) {
        const double w = (double)b->w[i];
        const double wx = w * (double)b->x[i];
        for (int k = 0; k < LANES; k++) {
            const double q = (double)l->q[i][k];
            s.q[k] += w * q;
            s.qq[k] += w * q * q;
            s.xq[k] += wx * q;
        }
    }
    *sums = s;
}

/* Tries fits and, from their codes, the least squares scale (and minimum); keeps the best of all. */
typedef struct {
    const nw_fit_block *b;
    nw_store_fn store;
    bool has_min;
    float max_min, least; /* of minima: the most that is allowed; the least value */
    double sw, sx;        /* Σ w, Σ w x */
    int n_tried;          /* that wait for the lanes to be full */
    nw_fit tried[LANES];
    nw_fit best;
} search;

/* The scale and minimum that suit the codes of lane k best; false when the codes do not determine
 * them. */
static bool refit(const search *s, const lanes_sums *sums, int k, nw_fit *fit)
{
    const double sq = sums->q[k];
    const double sqq = sums->qq[k];
    const double sxq = sums->xq[k];
    const double det = s->sw * sqq - sq * sq;

    if (s->has_min && det > 0) {
        fit->scale = (float)((s->sw * sxq - sq * s->sx) / det);
        fit->min = (float)((sqq * s->sx - sq * sxq) / det);
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

/* The next scale and minimum of the lanes that go on; false when none does. */
static bool refit_lanes(const search *s, lanes *l, bool going[LANES])
{
    lanes_sums sums;
    bool any = false;

    lanes_sum(s->b, l, &sums);
    for (int k = 0; k < s->n_tried; k++) {
        nw_fit fit = {.min = l->min[k]};
        going[k] = going[k] && refit(s, &sums, k, &fit) && is_near(s, &s->tried[k], &fit);
        if (going[k]) {
            l->scale[k] = s->store(fit.scale);
            l->min[k] = s->store(fit.min);
            any = true;
        }
    }
    return any;
}

/* Tries what waits. Of equal errors that of the first that was tried is kept, and of its refits the
 * first. */
static void try_waiting(search *s)
{
    nw_fit found[LANES];
    bool going[LANES];
    lanes l = {.scale = {0}};

    for (int k = 0; k < s->n_tried; k++) {
        l.scale[k] = s->store(s->tried[k].scale);
        l.min[k] = s->store(s->tried[k].min);
        going[k] = true;
        found[k].err = INFINITY;
    }
    for (int round = 0; round <= REFITS; round++) {
        if (round > 0 && !refit_lanes(s, &l, going)) {
            break;
        }
        lanes_codes(s->b, &l);
        for (int k = 0; k < s->n_tried; k++) {
            if (going[k] && l.err[k] < found[k].err) {
                found[k] = (nw_fit){.scale = l.scale[k], .min = l.min[k], .err = l.err[k]};
            }
        }
    }
    for (int k = 0; k < s->n_tried; k++) {
        s->best = found[k].err < s->best.err ? found[k] : s->best;
    }
    s->n_tried = 0;
}

static void try_fit(search *s, float scale, float min)
{
    s->tried[s->n_tried++] = (nw_fit){.scale = scale, .min = min};
    if (s->n_tried == LANES) {
        try_waiting(s);
    }
}

/* A fit that is there before any is tried: all zeros, or the minimum alone. */
static search search_new(const nw_fit_block *b, nw_store_fn store)
{
    search s = {.b = b, .store = store};
    int8_t q[NW_FIT_MAX];

    assert(b->n <= NW_FIT_MAX);
    nw_fit_codes(b, &s.best, q);
    for (int i = 0; i < b->n; i++) {
        s.sw += (double)b->w[i];
        s.sx += (double)b->w[i] * (double)b->x[i];
    }
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
    try_waiting(&s);
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
    try_waiting(&s);
    return s.best;
}
