/* Fitting of grids: see grid.h. Every operation is an IEEE one in a fixed order: the same bytes on
 * every machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/grid.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "formats/fp4.h"
#include "formats/fp8.h"

/* Steps of the search: fractions of the scale that the extent of the group asks for. Below 0.6
 * clipping costs more than finer steps gain; above 1 the refit takes over. */
#define FRACTION_FIRST 0.60F
#define FRACTION_STEP  0.05F
#define N_FRACTIONS    10
#define N_REFITS       3 /* of the best fit, after the search */

typedef struct {
    nw_grid_fit fit;
    float err[NW_LANES];
} candidate;

NW_INLINE float max2(float a, float b)
{
    return a > b ? a : b;
}

NW_INLINE float min2(float a, float b)
{
    return a < b ? a : b;
}

/* x to the nearest integer, ties to even, for |x| < 2^22 (see rtn.c). */
NW_INLINE float round_even(float x)
{
    const float big = 0x1.8p23F;
    return (x + big) - big;
}

NW_INLINE float inverse(float s)
{
    const float inv = 1 / s;
    return isfinite(inv) ? inv : 0;
}

/* The code nearest to x, as a float. E2M1 has steps of 1/2 up to 2, of 1 up to 4 and of 2 up to 6; ties
 * to the even multiple of the step are ties to the even code. */
NW_INLINE float code_of(const nw_grid *g, float x)
{
    const float c = min2(max2(x, g->lo), g->hi);

    if (g->kind == NW_GRID_FP4) {
        const float a = c < 0 ? -c : c;
        const float scale = a < 2 ? 2.0F : a < 4 ? 1.0F : 0.5F;
        return round_even(c * scale) / scale;
    }
    return round_even(c);
}

/* Fewer codes, around the code of zero; zero points and minima count from 0 on, or from the middle of INT8. */
static void limit_codes(nw_grid *g, unsigned bits)
{
    const float half = (float)(1U << (bits - 1));

    if (g->kind == NW_GRID_MID) {
        g->lo = 8 - half;
        g->hi = 8 + half - 1;
    } else if (g->kind == NW_GRID_CENTERED) {
        g->lo = 1 - half;
        g->hi = half - 1;
    } else if (g->lo < 0) {
        g->lo = -half;
        g->hi = half - 1;
    } else {
        g->hi = 2 * half - 1;
    }
}

bool nw_grid_of(nw_panel_type type, const nw_scales *scales, uint32_t n_cols, nw_grid *out)
{
    nw_grid g = {.group = nw_panel_scale_cols(type, n_cols),
                 .tensor = type.span == NW_SPAN_TENSOR,
                 .bf16_scale = scales->bf16};

    if (type.two_level) {
        return false;
    }
    if (type.kind == NW_PANEL_INT8) {
        g.kind = type.min ? NW_GRID_MIN : type.zero_point ? NW_GRID_ZERO : NW_GRID_CENTERED;
        g.lo = g.kind == NW_GRID_CENTERED ? -127 : -128;
        g.hi = 127;
        g.f32_scale = type.group == 0;
    } else if (type.kind == NW_PANEL_INT4) {
        g.kind = type.min ? NW_GRID_MIN : type.zero_point ? NW_GRID_ZERO : NW_GRID_MID;
        g.hi = 15;
    } else if (type.kind == NW_PANEL_NVFP4 || type.kind == NW_PANEL_MXFP4) {
        g.kind = NW_GRID_FP4;
        g.hi = NW_E2M1_MAX;
        g.lo = -g.hi;
        g.e4m3_scale = type.kind == NW_PANEL_NVFP4;
        g.tensor_scale = scales->absmax / (NW_E2M1_MAX * NW_E4M3_MAX);
    } else {
        return false;
    }
    if (scales->code_bits > 0 && g.kind != NW_GRID_FP4) {
        limit_codes(&g, scales->code_bits);
    }
    *out = g;
    return true;
}

NW_CLONES void nw_grid_encode(const nw_grid *g, const nw_grid_fit *fit, const float *w, float *code,
                              float *value)
{
    for (uint32_t r = 0; r < NW_LANES; r++) {
        const float q = (w[r] - fit->offset[r]) * inverse(fit->scale[r]);
        code[r] = code_of(g, q);
        value[r] = fit->scale[r] * code[r] + fit->offset[r];
    }
}

/* A scale of FP4: the nearest E4M3 times the tensor's, or power of two; never 0 or below for one that is
 * above, since 0 would make zeros of a block that has values. */
static uint8_t fp4_scale_code(const nw_grid *g, float scale)
{
    if (!(scale > 0)) {
        return 0;
    }
    if (g->e4m3_scale) {
        const uint8_t code = nw_e4m3_from_f32(scale / g->tensor_scale);
        return code == 0 ? 1 : code;
    }
    const uint8_t below = nw_e8m0_floor(scale);
    return below < 254 && scale > 1.5F * nw_e8m0_to_f32(below) ? (uint8_t)(below + 1) : below;
}

static float fp4_scale_value(const nw_grid *g, uint8_t code)
{
    return g->e4m3_scale ? nw_e4m3_to_f32(code) * g->tensor_scale : nw_e8m0_to_f32(code);
}

/* Of a grid that is not FP4. */
NW_INLINE float store_scale(const nw_grid *g, float scale)
{
    if (g->f32_scale) {
        return g->bf16_scale ? nw_bf16_to_f32(nw_bf16_from_f32(scale)) : scale;
    }
    return nw_scale_store(scale, g->bf16_scale);
}

float nw_grid_store_scale(const nw_grid *g, float scale)
{
    if (g->kind == NW_GRID_FP4) {
        return scale > 0 ? fp4_scale_value(g, fp4_scale_code(g, scale)) : 0;
    }
    return store_scale(g, scale);
}

/* Scales of 16 lanes as they will be stored. */
NW_INLINE void store_scales(const nw_grid *g, const float *scale, float *stored)
{
    if (g->kind == NW_GRID_FP4) {
        for (uint32_t r = 0; r < NW_LANES; r++) {
            stored[r] = nw_grid_store_scale(g, scale[r]);
        }
    } else if (g->f32_scale || g->bf16_scale) {
        for (uint32_t r = 0; r < NW_LANES; r++) {
            stored[r] = store_scale(g, scale[r]);
        }
    } else {
        for (uint32_t r = 0; r < NW_LANES; r++) {
            stored[r] = nw_f16_round(scale[r]);
        }
    }
}

NW_INLINE void store(const nw_grid *g, const float *scale, const float *offset, nw_grid_fit *fit)
{
    float stored[NW_LANES];

    store_scales(g, scale, stored);
    memcpy(fit->scale, stored, sizeof stored);
    if (g->kind == NW_GRID_MIN) {
        for (uint32_t r = 0; r < NW_LANES; r++) {
            fit->offset[r] = nw_f16_round(offset[r]);
        }
    } else {
        for (uint32_t r = 0; r < NW_LANES; r++) {
            fit->offset[r] = -(stored[r] * fit->zero[r]);
        }
    }
}

void nw_grid_store(const nw_grid *g, const float *scale, const float *offset, nw_grid_fit *fit)
{
    store(g, scale, offset, fit);
}

/* What a refit sums up of a group: weights h, codes u (less the code of zero) and values w. */
typedef struct {
    float h, u[NW_LANES], uu[NW_LANES], w[NW_LANES], wu[NW_LANES];
} sums;

NW_INLINE sums sum_up(const nw_grid *g, const float *tile, const float *h, uint32_t n,
                      const nw_grid_fit *fit)
{
    sums s = {0};
    float inv[NW_LANES];

    for (uint32_t r = 0; r < NW_LANES; r++) {
        inv[r] = inverse(fit->scale[r]);
    }
    for (uint32_t k = 0; k < n; k++) {
        const float *w = tile + (size_t)k * NW_LANES;
        const float hk = h != NULL ? h[k] : 1;
        s.h += hk;
        for (uint32_t r = 0; r < NW_LANES; r++) {
            const float x = (w[r] - fit->offset[r]) * inv[r];
            const float u = code_of(g, x) - fit->zero[r];
            s.u[r] += hk * u;
            s.uu[r] += hk * u * u;
            s.w[r] += hk * w[r];
            s.wu[r] += hk * w[r] * u;
        }
    }
    return s;
}

NW_CLONES static void refit(const nw_grid *g, const float *tile, const float *h, uint32_t n,
                            nw_grid_fit *fit)
{
    const sums s = sum_up(g, tile, h, n, fit);
    const bool both = g->kind == NW_GRID_MIN;
    bool ok[NW_LANES];
    float scale[NW_LANES];
    float stored[NW_LANES];
    float offset[NW_LANES];

    for (uint32_t r = 0; r < NW_LANES; r++) {
        const float num = both ? s.h * s.wu[r] - s.u[r] * s.w[r] : s.wu[r];
        const float den = both ? s.h * s.uu[r] - s.u[r] * s.u[r] : s.uu[r];
        const float best = num / den;
        /* a denominator that is all rounding says that the codes are all the same */
        ok[r] = den > 1e-6F * (both ? s.h * s.uu[r] : s.uu[r]) && isfinite(best);
        scale[r] = ok[r] ? best : fit->scale[r];
    }
    store_scales(g, scale, stored);
    for (uint32_t r = 0; r < NW_LANES; r++) {
        offset[r] = ok[r] ? (s.w[r] - stored[r] * s.u[r]) / s.h : fit->offset[r];
    }
    store(g, scale, offset, fit);
}

void nw_grid_refit(const nw_grid *g, const float *tile, const float *h, uint32_t n,
                   nw_grid_fit *fit)
{
    refit(g, tile, h, n, fit);
}

NW_CLONES static void measure(const nw_grid *g, const float *tile, const nw_grid_metric *m,
                              uint32_t n, candidate *c)
{
    const bool full = m->full != NULL && n <= NW_GRID_FULL;
    float diff[NW_GRID_FULL * NW_LANES];
    float inv[NW_LANES];
    float sum[NW_LANES] = {0};

    for (uint32_t r = 0; r < NW_LANES; r++) {
        inv[r] = inverse(c->fit.scale[r]);
    }
    for (uint32_t k = 0; k < n; k++) {
        const float *w = tile + (size_t)k * NW_LANES;
        const float hk = m->h != NULL ? m->h[k] : 1;
        float d[NW_LANES];
        for (uint32_t r = 0; r < NW_LANES; r++) {
            const float x = (w[r] - c->fit.offset[r]) * inv[r];
            d[r] = w[r] - (c->fit.scale[r] * code_of(g, x) + c->fit.offset[r]);
            sum[r] += hk * d[r] * d[r];
        }
        if (full) {
            memcpy(diff + (size_t)k * NW_LANES, d, sizeof d);
        }
    }
    if (full) {
        nw_lanes_form(m->full, m->ld, n, diff, sum);
    }
    memcpy(c->err, sum, sizeof sum);
}

/* Lane by lane, the earlier one on a tie. */
static void keep_better(candidate *best, const candidate *c)
{
    for (uint32_t r = 0; r < NW_LANES; r++) {
        if (c->err[r] < best->err[r]) {
            best->fit.scale[r] = c->fit.scale[r];
            best->fit.offset[r] = c->fit.offset[r];
            best->fit.zero[r] = c->fit.zero[r];
            best->err[r] = c->err[r];
        }
    }
}

typedef struct {
    float lo[NW_LANES], hi[NW_LANES];
} extent;

static extent extent_of(const nw_grid *g, const float *tile, uint32_t n)
{
    extent e;

    for (uint32_t r = 0; r < NW_LANES; r++) {
        const float first = g->kind == NW_GRID_MIN ? tile[r] : 0;
        e.lo[r] = e.hi[r] = first;
    }
    for (uint32_t k = 0; k < n; k++) {
        const float *w = tile + (size_t)k * NW_LANES;
        for (uint32_t r = 0; r < NW_LANES; r++) {
            e.lo[r] = min2(e.lo[r], w[r]);
            e.hi[r] = max2(e.hi[r], w[r]);
        }
    }
    return e;
}

/* Fractions of the scale that puts the peak at code 6: up to 3/2, which puts it at 4 where steps are
 * finer; powers of two want no more than three. */
static float fp4_fraction(const nw_grid *g, int i)
{
    return g->e4m3_scale ? 0.65F + 0.1F * (float)i : 0.5F * (float)(1 << (i < 3 ? i : 2));
}

/* Scales of candidate i, a fraction f of those of the extent. */
NW_INLINE void propose_scales(const nw_grid *g, const extent *e, int i, float f, float *scale)
{
    if (g->kind == NW_GRID_ZERO || g->kind == NW_GRID_MIN) {
        for (uint32_t r = 0; r < NW_LANES; r++) {
            scale[r] = (e->hi[r] - e->lo[r]) / (g->hi - g->lo) * f;
        }
    } else {
        const float codes = g->kind == NW_GRID_MID ? (g->hi - g->lo + 1) / 2 : g->hi;
        const float part = g->kind == NW_GRID_FP4   ? fp4_fraction(g, i)
                           : g->kind == NW_GRID_MID ? f * (i % 2 == 0 ? -1.0F : 1.0F)
                                                    : f;
        for (uint32_t r = 0; r < NW_LANES; r++) {
            scale[r] = max2(-e->lo[r], e->hi[r]) / codes * part;
        }
    }
}

/* Candidate i of the search, before the refit: a fraction of the scale of the extent. Symmetric
 * INT4 tries both signs (its codes reach -8 and 7), zero points three neighbours. */
NW_CLONES static void propose(const nw_grid *g, const extent *e, int i, nw_grid_fit *fit)
{
    static const int variants[] = {[NW_GRID_CENTERED] = 1,
                                   [NW_GRID_MID] = 2,
                                   [NW_GRID_ZERO] = 3,
                                   [NW_GRID_MIN] = 1,
                                   [NW_GRID_FP4] = 1};
    const int variant = i % variants[g->kind];
    const int step = i / variants[g->kind];
    const float f = FRACTION_FIRST + FRACTION_STEP * (float)step;
    float scale[NW_LANES];
    float offset[NW_LANES];

    memset(fit->zero, 0, sizeof fit->zero);
    propose_scales(g, e, i, f, scale);
    for (uint32_t r = 0; g->kind == NW_GRID_ZERO && r < NW_LANES; r++) {
        const float z = round_even(g->lo - e->lo[r] * f * inverse(scale[r])) + (float)(variant - 1);
        fit->zero[r] = min2(max2(z, g->lo), g->hi);
    }
    for (uint32_t r = 0; g->kind == NW_GRID_MID && r < NW_LANES; r++) {
        fit->zero[r] = 8;
    }
    for (uint32_t r = 0; r < NW_LANES; r++) {
        /* the middle of the range stays the middle of the codes */
        offset[r] = (e->hi[r] + e->lo[r]) / 2 - scale[r] * (g->hi + g->lo) / 2;
    }
    store(g, scale, offset, fit);
}

static int n_candidates(const nw_grid *g)
{
    return N_FRACTIONS * (g->kind == NW_GRID_ZERO ? 3 : g->kind == NW_GRID_MID ? 2 : 1);
}

void nw_grid_search(const nw_grid *g, const float *tile, const nw_grid_metric *m, uint32_t n,
                    nw_grid_fit *fit)
{
    const extent e = extent_of(g, tile, n);
    candidate best = {0};
    candidate c = {0};

    assert(n > 0);
    for (uint32_t r = 0; r < NW_LANES; r++) {
        best.err[r] = INFINITY;
    }
    for (int i = 0; i < n_candidates(g); i++) {
        propose(g, &e, i, &c.fit);
        measure(g, tile, m, n, &c);
        keep_better(&best, &c);
        refit(g, tile, m->h, n, &c.fit);
        measure(g, tile, m, n, &c);
        keep_better(&best, &c);
    }
    for (int i = 0; i < N_REFITS; i++) {
        c = best;
        refit(g, tile, m->h, n, &c.fit);
        measure(g, tile, m, n, &c);
        keep_better(&best, &c);
    }
    for (uint32_t r = 0; r < NW_LANES; r++) {
        if (!isfinite(best.err[r])) {
            best.fit.scale[r] = INFINITY; /* no scale that can be stored: packing refuses the row */
        }
    }
    *fit = best.fit;
}

/* ---- one scale a tensor ---- */

int nw_grid_n_candidates(const nw_grid *g)
{
    return n_candidates(g);
}

void nw_grid_candidate(const nw_grid *g, float lo, float hi, int i, nw_grid_fit *fit)
{
    extent e;

    for (uint32_t r = 0; r < NW_LANES; r++) {
        e.lo[r] = lo;
        e.hi[r] = hi;
    }
    propose(g, &e, i, fit);
}

void nw_grid_errors(const nw_grid *g, const float *tile, uint32_t n, const nw_grid_fit *fit,
                    float errors[NW_LANES])
{
    const nw_grid_metric plain = {.h = NULL};
    candidate c = {.fit = *fit};

    measure(g, tile, &plain, n, &c);
    memcpy(errors, c.err, sizeof c.err);
}

/* ---- packing ---- */

typedef struct {
    uint8_t *codes;          /* [16][n_cols] */
    uint16_t *scales, *mins; /* [16][n_groups] */
    uint8_t *zeros;          /* two's complement of int8; or the scale codes of FP4 */
    float *wide;             /* [16], F32 row scales */
} pack_scratch;

size_t nw_grid_scratch_bytes(uint32_t n_cols)
{
    /* groups have 16 columns or more, and a row has one group at least */
    const size_t groups = n_cols / 16 + 1;
    return NW_LANES * (sizeof(float) + groups * (2 * sizeof(uint16_t) + 1) + n_cols);
}

static pack_scratch layout(uint32_t n_cols, void *scratch)
{
    const size_t groups = n_cols / 16 + 1;
    pack_scratch s;
    uint8_t *p = scratch;

    s.wide = scratch;
    p += NW_LANES * sizeof *s.wide;
    s.scales = (uint16_t *)(void *)p;
    p += NW_LANES * groups * sizeof *s.scales;
    s.mins = (uint16_t *)(void *)p;
    p += NW_LANES * groups * sizeof *s.mins;
    s.zeros = p;
    s.codes = p + NW_LANES * groups;
    return s;
}

/* Groups of `group` columns, of which the grid's may have several. */
static bool store_fits(const nw_grid *g, const nw_grid_fit *fits, uint32_t group, uint32_t n_groups,
                       uint32_t n_rows, const pack_scratch *s, uint32_t *bad_row)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t k = 0; k < n_groups; k++) {
            const nw_grid_fit *fit = &fits[k * group / g->group];
            const size_t at = (size_t)r * n_groups + k;
            if (!isfinite(fit->scale[r]) || !isfinite(fit->offset[r])) {
                *bad_row = r;
                return false;
            }
            s->wide[r] = fit->scale[r];
            s->zeros[at] = g->kind == NW_GRID_FP4 ? fp4_scale_code(g, fit->scale[r])
                                                  : (uint8_t)(int)fit->zero[r];
            s->scales[at] = nw_f16_from_f32(fit->scale[r]);
            s->mins[at] = nw_f16_from_f32(g->kind == NW_GRID_MIN ? fit->offset[r] : 0);
        }
    }
    return true;
}

static void pack_int8(nw_panel_type type, const pack_scratch *s, uint32_t n_groups, uint32_t n_rows,
                      uint32_t n_cols, uint8_t *panel)
{
    const int8_t *codes = (const int8_t *)s->codes;

    if (type.group == 0) {
        nw_panel_pack_int8(codes, n_cols, s->wide, n_rows, n_cols, panel);
    } else {
        nw_panel_pack_int8_groups(type, codes, n_cols, s->scales, type.min ? s->mins : NULL,
                                  type.zero_point ? (const int8_t *)s->zeros : NULL, n_groups,
                                  n_rows, n_cols, panel);
    }
}

static void store_codes(const nw_grid *g, const float *codes, uint32_t n_rows, uint32_t n_cols,
                        const pack_scratch *s)
{
    for (uint32_t c = 0; c < n_cols; c++) {
        for (uint32_t r = 0; r < n_rows; r++) {
            const float q = codes[(size_t)c * NW_LANES + r];
            s->codes[(size_t)r * n_cols + c] =
                g->kind == NW_GRID_FP4 ? nw_e2m1_from_f32(q) : (uint8_t)(int)q;
        }
    }
}

bool nw_grid_pack(nw_panel_type type, const nw_grid *g, const float *codes, const nw_grid_fit *fits,
                  uint32_t n_rows, uint32_t n_cols, uint8_t *panel, void *scratch,
                  uint32_t *bad_row)
{
    const uint32_t group = type.group > 0 ? type.group : n_cols;
    const uint32_t n_groups = n_cols / group + (n_cols % group != 0);
    const pack_scratch s = layout(n_cols, scratch);

    if (!store_fits(g, fits, group, n_groups, n_rows, &s, bad_row)) {
        return false;
    }
    store_codes(g, codes, n_rows, n_cols, &s);
    if (type.kind == NW_PANEL_INT8) {
        pack_int8(type, &s, n_groups, n_rows, n_cols, panel);
    } else if (type.kind == NW_PANEL_NVFP4) {
        nw_panel_pack_nvfp4(s.codes, n_cols, s.zeros, n_groups, g->tensor_scale, n_rows, n_cols,
                            panel);
    } else if (type.kind == NW_PANEL_MXFP4) {
        nw_panel_pack_mxfp4(s.codes, n_cols, s.zeros, n_groups, n_rows, n_cols, panel);
    } else if (type.min) {
        nw_panel_pack_int4_min(type, s.codes, n_cols, s.scales, s.mins, n_groups, n_rows, n_cols,
                               panel);
    } else {
        nw_panel_pack_int4(type, s.codes, n_cols, s.scales, type.zero_point ? s.zeros : NULL,
                           n_groups, n_rows, n_cols, panel);
    }
    return true;
}
