/* The knapsack of layouts: see allocate.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/allocate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEPS  ((uint64_t)1 << 17)
#define BISECTIONS 200

typedef struct {
    const nw_alloc_group *groups;
    size_t n;
    uint64_t least; /* sum of the smallest options */
    uint64_t unit;
    size_t n_steps; /* a table has n_steps + 1 places: bytes above `least`, in units */
    double *best;   /* [n_steps + 1] least loss of the groups so far within so many units */
    uint8_t *pick;  /* [n][n_steps + 1] */
} table;

static uint64_t least_bytes(const nw_alloc_group *g)
{
    uint64_t least = g->bytes[0];

    for (size_t i = 1; i < g->n; i++) {
        least = g->bytes[i] < least ? g->bytes[i] : least;
    }
    return least;
}

static double least_loss(const nw_alloc_group *g)
{
    double least = g->loss[0];

    for (size_t i = 1; i < g->n; i++) {
        least = fmin(least, g->loss[i]);
    }
    return least;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* What all differences from the smallest options are multiples of; 0 where there are none. */
static uint64_t step_bytes(const nw_alloc_group *groups, size_t n)
{
    uint64_t unit = 0;

    for (size_t g = 0; g < n; g++) {
        const uint64_t least = least_bytes(&groups[g]);
        for (size_t i = 0; i < groups[g].n; i++) {
            unit = common_divisor(unit, groups[g].bytes[i] - least);
        }
    }
    return unit;
}

/* `room`: the most bytes above the smallest options that are of interest; with `whole`, the largest
 * options of all groups have to fit as well, each rounded up. */
static nw_status table_open(table *t, const nw_alloc_group *groups, size_t n, uint64_t room,
                            bool whole, nw_error *err)
{
    const uint64_t exact = step_bytes(groups, n);

    *t = (table){.groups = groups, .n = n, .unit = exact > 0 ? exact : 1};
    for (size_t g = 0; g < n; g++) {
        t->least += least_bytes(&groups[g]);
    }
    if (room / t->unit > MAX_STEPS) {
        t->unit = (room + MAX_STEPS - 1) / MAX_STEPS;
    }
    t->n_steps = (size_t)(room / t->unit) + (whole ? n : 0);
    t->best = calloc(2 * (t->n_steps + 1), sizeof *t->best);
    t->pick = calloc(n + 1, t->n_steps + 1);
    if (t->best == NULL || t->pick == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory to share %" PRIu64 " bytes out to %zu groups",
                       room, n);
    }
    return NW_OK;
}

static void table_close(table *t)
{
    free(t->best);
    free(t->pick);
}

static uint64_t units(const table *t, uint64_t bytes)
{
    return (bytes + t->unit - 1) / t->unit;
}

/* Fills best and pick, group by group. A smaller option wins a tie. */
static void table_fill(table *t)
{
    const size_t n = t->n_steps + 1;
    double *next = t->best + n;

    for (size_t g = 0; g < t->n; g++) {
        const nw_alloc_group *group = &t->groups[g];
        const uint64_t least = least_bytes(group);
        uint8_t *pick = t->pick + g * n;
        for (size_t s = 0; s < n; s++) {
            next[s] = (double)INFINITY;
        }
        for (size_t i = 0; i < group->n; i++) {
            const uint64_t w = units(t, group->bytes[i] - least);
            for (uint64_t s = w; s < n; s++) {
                const double loss = t->best[s - w] + group->loss[i];
                if (loss < next[s]) {
                    next[s] = loss;
                    pick[s] = (uint8_t)i;
                }
            }
        }
        memcpy(t->best, next, n * sizeof *next);
    }
}

static nw_status take_picks(const table *t, size_t s, nw_allocation *out, nw_error *err)
{
    *out = (nw_allocation){.pick = calloc(t->n + 1, 1), .unit = t->unit};
    if (out->pick == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the choices of %zu groups", t->n);
    }
    const uint64_t exact = step_bytes(t->groups, t->n);
    out->exact = exact == 0 || t->unit == exact;
    for (size_t g = t->n; g-- > 0;) {
        const nw_alloc_group *group = &t->groups[g];
        const uint8_t i = t->pick[g * (t->n_steps + 1) + s];
        out->pick[g] = i;
        out->bytes += group->bytes[i];
        out->loss += group->loss[i];
        s -= (size_t)units(t, group->bytes[i] - least_bytes(group));
    }
    return NW_OK;
}

/* Where the unit is coarse, some of the budget may be left: one better option after the other, the
 * largest gain first, as long as it fits. */
static void use_rest(const nw_alloc_group *groups, size_t n, uint64_t budget, nw_allocation *a)
{
    for (bool found = true; found;) {
        double gain = 0;
        size_t at = 0;
        uint8_t to = 0;
        for (size_t g = 0; g < n; g++) {
            const nw_alloc_group *group = &groups[g];
            const uint8_t now = a->pick[g];
            for (uint8_t i = 0; i < group->n; i++) {
                const double less = group->loss[now] - group->loss[i];
                if (less > gain && a->bytes - group->bytes[now] + group->bytes[i] <= budget) {
                    gain = less;
                    at = g;
                    to = i;
                }
            }
        }
        found = gain > 0;
        if (found) {
            const nw_alloc_group *group = &groups[at];
            a->bytes = a->bytes - group->bytes[a->pick[at]] + group->bytes[to];
            a->loss -= gain;
            a->pick[at] = to;
        }
    }
}

/* min over choices of sum value + price * (sum cost - limit): below the value of every choice that
 * keeps the limit, for any price >= 0; the largest is found by bisection, since its slope, sum cost -
 * limit, falls with the price. By bytes: value is loss, cost bytes; else the other way round. */
static double dual(const nw_alloc_group *groups, size_t n, bool by_bytes, double limit,
                   double price, double *slope)
{
    double sum = 0;
    double cost = 0;

    for (size_t g = 0; g < n; g++) {
        double best = (double)INFINITY;
        double best_cost = 0;
        for (size_t i = 0; i < groups[g].n; i++) {
            const double bytes = (double)groups[g].bytes[i];
            const double c = by_bytes ? bytes : groups[g].loss[i];
            const double v = (by_bytes ? groups[g].loss[i] : bytes) + price * c;
            if (v < best) {
                best = v;
                best_cost = c;
            }
        }
        sum += best;
        cost += best_cost;
    }
    *slope = cost - limit;
    return sum - price * limit;
}

static double lower_bound(const nw_alloc_group *groups, size_t n, bool by_bytes, double limit)
{
    double lo = 0;
    double hi = 1e-30;
    double slope = 0;
    double best = dual(groups, n, by_bytes, limit, 0, &slope);

    if (slope <= 0) {
        return best; /* the limit binds nothing */
    }
    while (dual(groups, n, by_bytes, limit, hi, &slope) > -(double)INFINITY && slope > 0 &&
           hi < 1e30) {
        lo = hi;
        hi *= 2;
    }
    for (int i = 0; i < BISECTIONS; i++) {
        const double mid = lo + (hi - lo) / 2;
        best = fmax(best, dual(groups, n, by_bytes, limit, mid, &slope));
        if (slope > 0) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return best;
}

nw_status nw_allocate_bytes(const nw_alloc_group *groups, size_t n, uint64_t budget,
                            nw_allocation *out, nw_error *err)
{
    uint64_t least = 0;
    uint64_t most = 0;
    table t = {0};

    for (size_t g = 0; g < n; g++) {
        uint64_t largest = 0;
        for (size_t i = 0; i < groups[g].n; i++) {
            largest = groups[g].bytes[i] > largest ? groups[g].bytes[i] : largest;
        }
        least += least_bytes(&groups[g]);
        most += largest;
    }
    if (budget < least) {
        return nw_fail(err, NW_E_RANGE,
                       "the smallest layouts take %" PRIu64 " bytes, the budget leaves %" PRIu64,
                       least, budget);
    }
    const uint64_t room = (budget < most ? budget : most) - least;
    nw_status st = table_open(&t, groups, n, room, false, err);
    if (st == NW_OK) {
        table_fill(&t);
        st = take_picks(&t, t.n_steps, out, err);
    }
    table_close(&t);
    if (st == NW_OK) {
        use_rest(groups, n, budget, out);
        out->bound = lower_bound(groups, n, true, (double)budget);
    }
    return st;
}

nw_status nw_allocate_loss(const nw_alloc_group *groups, size_t n, double limit, nw_allocation *out,
                           nw_error *err)
{
    double least = 0;
    uint64_t room = 0;
    table t = {0};
    size_t s = 0;

    for (size_t g = 0; g < n; g++) {
        uint64_t largest = 0;
        for (size_t i = 0; i < groups[g].n; i++) {
            largest = groups[g].bytes[i] > largest ? groups[g].bytes[i] : largest;
        }
        room += largest - least_bytes(&groups[g]);
        least += least_loss(&groups[g]);
    }
    if (!(least <= limit)) {
        return nw_fail(err, NW_E_RANGE, "the least losses add up to %.6g, the limit is %.6g", least,
                       limit);
    }
    nw_status st = table_open(&t, groups, n, room, true, err);
    if (st == NW_OK) {
        table_fill(&t);
        while (s < t.n_steps && !(t.best[s] <= limit)) {
            s++;
        }
        st = t.best[s] <= limit
                 ? take_picks(&t, s, out, err)
                 : nw_fail(err, NW_E_RANGE, "no choice of layouts keeps a loss of %.6g", limit);
    }
    table_close(&t);
    if (st == NW_OK) {
        out->bound = lower_bound(groups, n, false, limit);
    }
    return st;
}
