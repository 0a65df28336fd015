/* The body of rtn_int4.h for the instruction set that the including file is compiled for; that file
 * defines NW_RTN_INT4, the function's name.
 *
 * Rows lie in lanes (tile[column][16]), NW_VEC of them at a time. A search finds the candidate of least
 * error among those that rtn.h lists, the earlier of two that are equal, and measures few of them: first
 * each gets a lower bound, then each lane measures those whose bound is not above its best so far.
 *
 * The bound: no code brings w = s t closer to a value than the whole number next to t does, so that
 *
 *   sum of (w - w')^2 >= s^2 sum of (t - round(t))^2
 *
 * for every zero point and either sign of s; and the two ends of the row, which are clipped first,
 * count with their own errors. Both sides are computed in floats: SLACK and SLACK_EACH take off more
 * than rounding can add (|t| <= 30, at most 128 columns: 2^-17 of the sum, 6e-6 of s^2 a column).
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "formats/vec.h"
#include "quant/rtn_int4.h"

#define LANES           16u
#define BIG             0x1.8p23F /* a float plus this has no bits behind the point */
#define SLACK           0x1p-13F  /* of a sum, */
#define SLACK_EACH      0x1p-17F  /* and for each column, in steps squared */
#define MOST_CANDIDATES (3 * NW_RTN_CANDIDATES)

/* The fractions of the absmax scale (of the range, with a zero point) that the search tries: 0.6 to
 * 1.05 in steps of 0.025. Below, clipping costs more than finer steps gain for any group of 32 or
 * more; above, the range is wider than the values. */
#define FRACTION_FIRST 0.6F
#define FRACTION_STEP  0.025F

/* NW_VEC rows of a group: scale as stored, decoded; zero point as a float, 0..15. */
typedef struct {
    nw_vec scale, zero;
} fit;

typedef struct {
    fit fit;
    nw_vec err, rank; /* sum of squared errors; place in the list of candidates */
} best_fit;

/* The rows of one vector. */
typedef struct {
    const float *tile; /* [n][LANES], from its first row on */
    uint32_t n;
    nw_vec lo, hi; /* least and greatest value, zero included */
} part;

NW_VEC_INLINE nw_vec store_scale(nw_vec x, bool bf16)
{
    return nw_vec_to_f16(bf16 ? nw_vec_to_bf16(x) : x);
}

/* Code of w under (1 / s, z), as a float in 0..15. The clamp comes first, so that rounding to the
 * nearest whole number, ties to even, is exact. */
NW_VEC_INLINE nw_vec code_of(nw_vec w, nw_vec inv, nw_vec zero)
{
    const nw_vec x = nw_vec_min(nw_vec_max(w * inv + zero, nw_vec_all(0)), nw_vec_all(15));
    return (x + BIG) - BIG;
}

/* (w - w')^2, big_zero = BIG + zero: code - zero in one exact step. */
NW_VEC_INLINE nw_vec square_error(nw_vec w, const fit *f, nw_vec inv, nw_vec big_zero)
{
    const nw_vec x = nw_vec_min(nw_vec_max(w * inv + f->zero, nw_vec_all(0)), nw_vec_all(15));
    const nw_vec d = w - f->scale * ((x + BIG) - big_zero);
    return d * d;
}

static nw_vec measure(const part *p, const fit *f)
{
    const nw_vec inv = nw_vec_inverse(f->scale);
    const nw_vec big_zero = f->zero + BIG;
    nw_vec sum = nw_vec_all(0);

    for (uint32_t c = 0; c < p->n; c++) {
        sum += square_error(nw_vec_load(p->tile + (size_t)c * LANES), f, inv, big_zero);
    }
    return sum;
}

/* The less error; the earlier in the list on a tie. */
NW_VEC_INLINE nw_vec_i beats(nw_vec err, nw_vec rank, const best_fit *best)
{
    return (err < best->err) | ((err == best->err) & (rank < best->rank));
}

/* Lane by lane. */
NW_VEC_INLINE void keep_better(best_fit *best, const fit *f, nw_vec err, nw_vec rank)
{
    const nw_vec_i better = beats(err, rank, best);

    best->fit.scale = nw_vec_pick(better, f->scale, best->fit.scale);
    best->fit.zero = nw_vec_pick(better, f->zero, best->fit.zero);
    best->err = nw_vec_pick(better, err, best->err);
    best->rank = nw_vec_pick(better, rank, best->rank);
}

/* ---- bounds: only their slack matters, not their last bits ---- */

/* sum + (t - round(t))^2 */
NW_VEC_INLINE nw_vec add_remainder(nw_vec sum, nw_vec t)
{
#if defined(__AVX512DQ__)
    const nw_vec r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_fmadd_ps(r, r, sum);
#else
    const nw_vec r = t - ((t + BIG) - BIG);
    return sum + r * r;
#endif
}

/* The sum over the columns, in four parts, so that one addition does not wait for the last. */
static nw_vec remainders(const part *p, nw_vec inv)
{
    nw_vec sum[4] = {{0}};
    uint32_t c = 0;

    for (; c + 4 <= p->n; c += 4) {
        for (uint32_t i = 0; i < 4; i++) {
            const nw_vec w = nw_vec_load(p->tile + (size_t)(c + i) * LANES);
            sum[i] = add_remainder(sum[i], w * inv);
        }
    }
    for (; c < p->n; c++) {
        sum[0] = add_remainder(sum[0], nw_vec_load(p->tile + (size_t)c * LANES) * inv);
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Candidates that were not measured yet, in their order; a bound is infinite where one was. */
typedef struct {
    fit fits[MOST_CANDIDATES];
    nw_vec bounds[MOST_CANDIDATES];
    unsigned n;
} field;

/* n candidates (a constant) of one step, but for its sign, join. */
NW_VEC_INLINE void join(field *all, const part *p, const fit *fits, unsigned n, nw_vec most)
{
    const nw_vec inv = nw_vec_inverse(fits[0].scale);
    const nw_vec step_sq = fits[0].scale * fits[0].scale;
    bool open = false;

    for (unsigned i = 0; i < n; i++) {
        const nw_vec own = i == 0 ? inv : nw_vec_inverse(fits[i].scale);
        const nw_vec big_zero = fits[i].zero + BIG;
        const nw_vec ends = square_error(p->lo, &fits[i], own, big_zero) +
                            square_error(p->hi, &fits[i], own, big_zero);
        all->fits[all->n + i] = fits[i];
        all->bounds[all->n + i] = ends - ends * SLACK;
        open = open || nw_vec_any(all->bounds[all->n + i] <= most);
    }
    if (open) { /* where clipping alone costs too much, that is enough */
        const nw_vec sum = remainders(p, inv);
        const nw_vec ends = add_remainder(add_remainder(nw_vec_all(0), p->lo * inv), p->hi * inv);
        const nw_vec rest = step_sq * (sum - ends - sum * SLACK - SLACK_EACH * (float)(p->n + 2));
        for (unsigned i = 0; i < n; i++) {
            all->bounds[all->n + i] += nw_vec_max(rest, nw_vec_all(0));
        }
    }
    all->n += n;
}

/* Each lane's least bound, and its place in the list. */
NW_VEC_INLINE nw_vec least_bound(const field *all, nw_vec *rank)
{
    nw_vec least = nw_vec_all(__builtin_inff());

    *rank = nw_vec_all(0);
    for (unsigned i = 0; i < all->n; i++) {
        const nw_vec_i lower = all->bounds[i] < least;
        least = nw_vec_pick(lower, all->bounds[i], least);
        *rank = nw_vec_pick(lower, nw_vec_all((float)i), *rank);
    }
    return least;
}

/* Each lane's candidate of that place leaves the field. */
NW_VEC_INLINE fit take(field *all, nw_vec rank)
{
    float at[NW_VEC];
    float scale[NW_VEC];
    float zero[NW_VEC];

    nw_vec_store(at, rank);
    for (unsigned r = 0; r < NW_VEC; r++) {
        const unsigned i = (unsigned)at[r];
        memcpy(&scale[r], (const char *)&all->fits[i].scale + r * sizeof(float), sizeof(float));
        memcpy(&zero[r], (const char *)&all->fits[i].zero + r * sizeof(float), sizeof(float));
        const float gone = __builtin_inff();
        memcpy((char *)&all->bounds[i] + r * sizeof(float), &gone, sizeof gone);
    }
    return (fit){nw_vec_load(scale), nw_vec_load(zero)};
}

/* Measures until no bound could beat the best of its lane. */
static fit search(field *all, const part *p, best_fit best)
{
    nw_vec rank;

    for (;;) {
        const nw_vec least = least_bound(all, &rank);
        if (!nw_vec_any(beats(least, rank, &best))) {
            return best.fit;
        }
        const fit f = take(all, rank);
        keep_better(&best, &f, measure(p, &f), rank);
    }
}

NW_VEC_INLINE float fraction(unsigned i)
{
    return FRACTION_FIRST + FRACTION_STEP * (float)i;
}

/* Symmetric: the peak at code 0 (step peak / -8), then fractions of that step, of either sign. */
static fit fit_symmetric(const part *p, const nw_scales *s)
{
    const nw_vec peak = nw_vec_pick(-p->lo > p->hi, p->lo, p->hi);
    const fit f = {store_scale(peak / -8, s->bf16), nw_vec_all(8)};
    field all; /* large, and written as it grows */

    if (s->rule != NW_SCALE_SEARCH) {
        return f;
    }
    const best_fit best = {.fit = f, .err = measure(p, &f), .rank = nw_vec_all(-1)};
    all.n = 0;
    for (unsigned i = 0; i < NW_RTN_CANDIDATES; i++) {
        const nw_vec scale = store_scale(peak / 8 * fraction(i), s->bf16);
        const fit pair[2] = {{-scale, f.zero}, {scale, f.zero}};
        join(&all, p, pair, 2, best.err);
    }
    return search(&all, p, best);
}

/* With a zero point: the range [lo, hi] on codes 0..15, then fractions of its step. Each step is
 * tried with the zero point that lo asks for and with its two neighbours, since a shorter range may
 * give up either end. */
static fit fit_zero_point(const part *p, const nw_scales *s)
{
    const nw_vec step = (p->hi - p->lo) / 15;
    fit f = {.scale = store_scale(step, s->bf16)};
    field all; /* large, and written as it grows */

    f.zero = code_of(-p->lo, nw_vec_inverse(f.scale), nw_vec_all(0));
    if (s->rule != NW_SCALE_SEARCH) {
        return f;
    }
    const best_fit best = {.fit = f, .err = measure(p, &f), .rank = nw_vec_all(-1)};
    all.n = 0;
    for (unsigned i = 0; i < NW_RTN_CANDIDATES; i++) {
        const nw_vec scale = store_scale(step * fraction(i), s->bf16);
        const nw_vec mid = code_of(-p->lo * fraction(i), nw_vec_inverse(scale), nw_vec_all(0));
        fit three[3];
        for (unsigned k = 0; k < 3; k++) {
            const nw_vec zero = mid + ((float)k - 1);
            three[k].scale = scale;
            three[k].zero = nw_vec_min(nw_vec_max(zero, nw_vec_all(0)), nw_vec_all(15));
        }
        join(&all, p, three, 3, best.err);
    }
    return search(&all, p, best);
}

static part part_of_rows(const nw_rtn_group *g, uint32_t r0)
{
    part p = {.tile = g->tile + r0, .n = g->n, .lo = nw_vec_all(0), .hi = nw_vec_all(0)};

    for (uint32_t k = 0; k < g->n; k++) {
        const nw_vec w = nw_vec_load(p.tile + (size_t)k * LANES);
        p.lo = nw_vec_min(p.lo, w);
        p.hi = nw_vec_max(p.hi, w);
    }
    return p;
}

/* Columns of the group for all 16 rows; rows past n_rows and columns past n are zero. */
static void fill_tile(const nw_rtn_group *g)
{
    const uint32_t whole = g->n / NW_VEC * NW_VEC;

    memset(g->tile + (size_t)whole * LANES, 0,
           (size_t)(g->type.group - whole) * LANES * sizeof *g->tile);
    for (uint32_t r0 = 0; r0 < LANES; r0 += NW_VEC) {
        for (uint32_t c = 0; c < whole; c += NW_VEC) {
            nw_vec v[NW_VEC];
            for (uint32_t i = 0; i < NW_VEC; i++) {
                v[i] = r0 + i < g->n_rows ? nw_vec_load(g->rows + (r0 + i) * g->ld + c)
                                          : nw_vec_all(0);
            }
            nw_vec_transpose(v);
            for (uint32_t i = 0; i < NW_VEC; i++) {
                nw_vec_store(g->tile + (size_t)(c + i) * LANES + r0, v[i]);
            }
        }
    }
    for (uint32_t r = 0; r < g->n_rows; r++) {
        for (uint32_t c = whole; c < g->n; c++) {
            g->tile[(size_t)c * LANES + r] = g->rows[r * g->ld + c];
        }
    }
}

/* The bytes of NW_VEC rows: codes of columns 4 j + t low, of 4 (j + group / 8) + t high. */
static void put_codes(const nw_rtn_group *g, uint32_t r0, const float *scale, const float *zero,
                      uint8_t *dst)
{
    const uint32_t quads = g->type.group / 8U;
    const nw_vec inv = nw_vec_inverse(nw_vec_load(scale + r0));
    const nw_vec z = nw_vec_load(zero + r0);

    for (uint32_t j = 0; j < quads; j++) {
        nw_vec_u bytes = {0};
        for (uint32_t t = 0; t < 4; t++) {
            const float *low = g->tile + (size_t)(4 * j + t) * LANES + r0;
            const float *high = low + (size_t)4 * quads * LANES;
            bytes |= nw_vec_whole(code_of(nw_vec_load(low), inv, z)) << (8 * t);
            bytes |= nw_vec_whole(code_of(nw_vec_load(high), inv, z)) << (8 * t + 4);
        }
        nw_vec_store_u(dst + (size_t)j * 64 + (size_t)r0 * 4, bytes);
    }
}

uint32_t NW_RTN_INT4(const nw_rtn_group *g, uint8_t *dst)
{
    float scale[LANES];
    float zero[LANES];

    fill_tile(g);
    for (uint32_t r0 = 0; r0 < LANES; r0 += NW_VEC) {
        const part p = part_of_rows(g, r0);
        const fit f =
            g->type.zero_point ? fit_zero_point(&p, g->scales) : fit_symmetric(&p, g->scales);
        nw_vec_store(scale + r0, f.scale);
        nw_vec_store(zero + r0, f.zero);
    }
    for (uint32_t r = 0; r < LANES; r++) {
        if (r >= g->n_rows) { /* rows that do not exist: scale 0, and the code of zero is 8 */
            scale[r] = 0;
            zero[r] = 8;
        }
        const uint16_t half = nw_f16_from_f32(scale[r]);
        if ((half & 0x7C00U) == 0x7C00U) {
            return r;
        }
        memcpy(dst + r * sizeof half, &half, sizeof half);
    }
    dst += LANES * sizeof(uint16_t);
    for (uint32_t r = 0; g->type.zero_point && r < LANES; r++) {
        *dst++ = (uint8_t)zero[r];
    }
    for (uint32_t r0 = 0; r0 < LANES; r0 += NW_VEC) {
        put_codes(g, r0, scale, zero, dst);
    }
    return NW_RTN_ALL_FIT;
}
