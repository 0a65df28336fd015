/* Products of a matrix with 16 rows in lanes against sums in double, over shapes that fill the blocks of
 * eight, leave some over, or are smaller than one.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "base/status.h"
#include "quant/lanes_ops.h"
#include "table.h"

#define MOST 200u
#define LD   (MOST + 3) /* rows that begin nowhere round */

static float a[MOST * LD], x[MOST * NW_LANES], y[MOST * NW_LANES];

static void fill(uint64_t seed, uint32_t n, bool symmetric)
{
    nw_rng rng = nw_rng_seed(seed);

    for (size_t i = 0; i < NW_COUNT(a); i++) {
        a[i] = (float)nw_rng_normal(&rng);
    }
    for (size_t i = 0; symmetric && i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            a[i * LD + k] = a[k * LD + i];
        }
    }
    for (size_t i = 0; i < NW_COUNT(x); i++) {
        x[i] = (float)nw_rng_normal(&rng);
        y[i] = (float)nw_rng_normal(&rng);
    }
}

/* n terms of size 1 each, in F32 in any order, against their sum in double. */
static void assert_near(float got, double want, double terms, const char *what)
{
    if (!(fabs((double)got - want) <= 0x1p-20 * terms)) {
        fail_msg("%s: %g, must be %g", what, (double)got, want);
    }
}

static struct shape_row {
    const char *name;
    uint32_t n, m;
} shapes[] = {
    {"one", 1, 1},        {"below_a_block", 5, 9}, {"a_block", 8, 16},    {"left_over", 13, 64},
    {"many", MOST, MOST}, {"wide", 24, MOST - 1},  {"no_columns", 16, 0}, {"tall", MOST - 1, 3},
};

static void products_are_the_sums(void **state)
{
    const struct shape_row *s = *state;
    static float by_rows[MOST * NW_LANES];
    static float by_columns[MOST * NW_LANES];

    fill(3, 0, false);
    memcpy(by_rows, y, sizeof y);
    memcpy(by_columns, y, sizeof y);
    nw_lanes_take_off(a, LD, s->n, s->m, x, by_rows);
    nw_lanes_take_off_t(a, LD, s->n, s->m, x, by_columns);
    for (size_t i = 0; i < (size_t)MOST * NW_LANES; i++) {
        const size_t row = i / NW_LANES;
        double rows = (double)y[i];
        double columns = (double)y[i];
        for (size_t k = 0; row < s->n && k < s->m; k++) {
            const double xk = (double)x[k * NW_LANES + i % NW_LANES];
            rows -= (double)a[row * LD + k] * xk;
            columns -= (double)a[k * LD + row] * xk;
        }
        assert_near(by_rows[i], rows, 4.0 * s->m + 4, "rows"); /* rows past n: untouched */
        assert_near(by_columns[i], columns, 4.0 * s->m + 4, "columns");
    }
}

static void form_is_the_sum_over_both_halves(void **state)
{
    const struct shape_row *s = *state;
    float out[NW_LANES];

    fill(4, s->n, true);
    nw_lanes_form(a, LD, s->n, x, out);
    for (size_t r = 0; r < NW_LANES; r++) {
        double sum = 0;
        for (size_t i = 0; i < s->n; i++) {
            for (size_t k = 0; k < s->n; k++) {
                sum += (double)x[i * NW_LANES + r] * (double)a[i * LD + k] *
                       (double)x[k * NW_LANES + r];
            }
        }
        assert_near(out[r], sum, 4.0 * s->n * s->n, "form");
    }
}

/* Whatever the instruction set: artifacts are to be the same bytes on every machine. */
static void every_set_gives_the_same_bits(void **state)
{
    static float want[MOST * NW_LANES];
    static float got[MOST * NW_LANES];
    static const uint32_t sets[] = {0, NW_CPU_AVX2, NW_CPU_AVX2 | NW_CPU_AVX512};
    const struct shape_row *s = *state;

    for (size_t i = 0; i < NW_COUNT(sets); i++) {
        if ((nw_cpu_features() & sets[i]) != sets[i]) {
            continue;
        }
        const nw_lanes_ops *ops = nw_lanes_pick(sets[i]);
        fill(5, s->n, true);
        memcpy(got, y, sizeof y);
        ops->take_off(a, LD, s->n, s->m, x, got);
        ops->take_off_t(a, LD, s->n, s->m, x, got);
        ops->form(a, LD, s->n, x, got);
        if (i == 0) {
            memcpy(want, got, sizeof got);
        }
        assert_memory_equal(got, want, sizeof got);
    }
}

int main(void)
{
    int failed = NW_RUN_TABLE("product", shapes, products_are_the_sums);

    failed += NW_RUN_TABLE("bits", shapes, every_set_gives_the_same_bits);
    failed += NW_RUN_TABLE("form", shapes, form_is_the_sum_over_both_halves);
    return failed;
}
