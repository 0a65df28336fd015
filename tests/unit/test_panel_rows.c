/* Whole rows in vectors against the reference decoder and plain sums: the same bits for every
 * instruction set that this machine has.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "formats/panel_rows.h"
#include "table.h"

enum { MOST_COLS = 300, MOST_PANEL = 64 + 16 * 4 * 384 };

static struct tier {
    const char *name;
    uint32_t need;
} tiers[] = {
    {"plain", 0},
    {"avx2", NW_CPU_AVX2},
    {"avx512", NW_CPU_AVX512},
};

static const nw_rows_fns *fns_of(const struct tier *t)
{
    if ((nw_cpu_features() & t->need) != t->need) {
        skip();
    }
    return nw_rows_pick(t->need);
}

/* Bytes at random make a panel of any of these; FP16 scales of any bits are finite, infinite or NaN. */
static void unpack_trial(const nw_rows_fns *fns, const char *name, nw_rng *rng)
{
    static uint8_t panel[MOST_PANEL];
    static float out[16 * (MOST_COLS + 3)];
    float want[MOST_COLS];
    nw_panel_rows p = {.panel = panel,
                       .n_rows = 1 + (uint32_t)nw_rng_below(rng, 16),
                       .n_cols = 1 + (uint32_t)nw_rng_below(rng, MOST_COLS),
                       .out = out,
                       .ld = MOST_COLS + 3};
    size_t n_bytes = 0;

    assert_true(nw_panel_parse(name, &p.type) && nw_panel_rows_knows(p.type));
    assert_true(nw_panel_bytes(p.type, p.n_cols, &n_bytes) && n_bytes <= sizeof panel);
    for (size_t i = 0; i < n_bytes; i++) {
        panel[i] = (uint8_t)nw_rng_u64(rng);
    }
    memset(out, 0xA5, sizeof out);
    fns->unpack(&p);
    for (uint32_t r = 0; r < 16; r++) {
        const float *row = out + r * p.ld;
        const uint8_t untouched[4] = {0xA5, 0xA5, 0xA5, 0xA5};
        if (r >= p.n_rows) {
            assert_memory_equal(row, untouched, 4);
            continue;
        }
        nw_panel_unpack_row(p.type, panel, p.n_cols, r, want);
        for (uint32_t c = 0; c < p.n_cols; c++) {
            if (!isnan(want[c]) || !isnan(row[c])) {
                assert_memory_equal(&row[c], &want[c], sizeof want[c]);
            }
        }
        assert_memory_equal(row + p.n_cols, untouched, 4);
    }
}

static void unpacks(void **state)
{
    static const char *const names[] = {
        "bf16",         "int8",         "int8-g32",     "int8-g32-min", "int8-g128",
        "int4-g32",     "int4-g64",     "int4-g128",    "int4-g32-zp",  "int4-g64-zp",
        "int4-g128-zp", "int4-g32-min", "int4-g64-min", "int4-g16",     "int4-g16-zp",
        "int4-g16-min", "int8-g16-zp",  "int8-g128-zp", "int4-row"};
    const nw_rows_fns *fns = fns_of(*state);
    nw_rng rng = nw_rng_seed(7);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int k = 0; k < 40; k++) {
            unpack_trial(fns, names[i], &rng);
        }
    }
}

/* Of one panel, with and without the values that it was made of. */
static void error_trial(const nw_rows_fns *fns, const char *name, nw_rng *rng)
{
    static uint8_t panel[MOST_PANEL];
    static float out[16 * MOST_COLS];
    static float w[16 * MOST_COLS];
    nw_panel_rows p = {.panel = panel,
                       .n_rows = 1 + (uint32_t)nw_rng_below(rng, 16),
                       .n_cols = 1 + (uint32_t)nw_rng_below(rng, MOST_COLS),
                       .out = out,
                       .ld = MOST_COLS};
    size_t n_bytes = 0;
    nw_row_error want = {0};

    assert_true(nw_panel_parse(name, &p.type) && nw_panel_bytes(p.type, p.n_cols, &n_bytes));
    for (size_t i = 0; i < n_bytes; i++) { /* halves of 0x3x3x are near 0.3, singles near 2e-9 */
        panel[i] = 0x30 | (nw_rng_u64(rng) & 0xF);
    }
    for (size_t i = 0; i < sizeof w / sizeof *w; i++) {
        w[i] = (float)nw_rng_normal(rng);
    }
    fns->unpack(&p);
    for (uint32_t r = 0; r < p.n_rows; r++) {
        const nw_row_error e = fns->error(w + (size_t)r * p.ld, out + (size_t)r * p.ld, p.n_cols);
        want.sum_sq += e.sum_sq;
        want.sum_out_sq += e.sum_out_sq;
        want.sum_err_sq += e.sum_err_sq;
        want.max_abs_err = fmax(want.max_abs_err, e.max_abs_err);
        want.n_nonzero += e.n_nonzero;
    }
    for (int without = 0; without < 2; without++) {
        const nw_row_error e = fns->panel_error(&p, without ? NULL : w);
        const nw_row_error plain = nw_rows_plain.panel_error(&p, without ? NULL : w);
        assert_memory_equal(&e, &plain, sizeof e);
        assert_true(fabs(e.sum_out_sq - want.sum_out_sq) <= 1e-12 * want.sum_out_sq);
        assert_int_equal(e.n_nonzero, want.n_nonzero);
        if (!without) {
            assert_true(fabs(e.sum_sq - want.sum_sq) <= 1e-12 * want.sum_sq);
            assert_true(fabs(e.sum_err_sq - want.sum_err_sq) <= 1e-12 * want.sum_err_sq);
            assert_memory_equal(&e.max_abs_err, &want.max_abs_err, sizeof want.max_abs_err);
        }
    }
}

static void adds_up_panels(void **state)
{
    static const char *const names[] = {"bf16",      "int8",        "int8-g32-min", "int4-g32",
                                        "int4-g128", "int4-g64-zp", "int4-g32-min"};
    const nw_rows_fns *fns = fns_of(*state);
    nw_rng rng = nw_rng_seed(9);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int k = 0; k < 40; k++) {
            error_trial(fns, names[i], &rng);
        }
    }
}

static void sums_of(const float *w, const float *q, size_t n, nw_row_error *e)
{
    double sq[16] = {0};
    double out[16] = {0};
    double err[16] = {0};

    *e = (nw_row_error){0};
    for (size_t i = 0; i < n; i++) {
        const double d = (double)w[i] - (double)q[i];
        sq[i % 16] += (double)w[i] * (double)w[i];
        out[i % 16] += (double)q[i] * (double)q[i];
        err[i % 16] += d * d;
        e->max_abs_err = fmax(e->max_abs_err, fabs(d));
        e->n_nonzero += q[i] < 0 || q[i] > 0;
    }
    for (int i = 0; i < 16; i++) {
        e->sum_sq += sq[i];
        e->sum_out_sq += out[i];
        e->sum_err_sq += err[i];
    }
}

static void adds_up(void **state)
{
    const nw_rows_fns *fns = fns_of(*state);
    nw_rng rng = nw_rng_seed(8);
    float w[200];
    float q[200];
    nw_row_error want;

    for (size_t n = 0; n < 200; n++) {
        for (size_t i = 0; i < n; i++) {
            w[i] = (float)nw_rng_normal(&rng);
            q[i] = i % 3 == 0 ? 0 : i % 7 == 0 ? 1e-45F : rintf(w[i] * 8) / 8;
        }
        sums_of(w, q, n, &want);
        const nw_row_error e = fns->error(w, q, n);
        assert_memory_equal(&e, &want, sizeof want);
    }
}

static void finds_what_is_not_finite(void **state)
{
    const nw_rows_fns *fns = fns_of(*state);
    const float bad[] = {INFINITY, -INFINITY, NAN};
    float w[70];

    for (size_t n = 0; n <= 70; n++) {
        for (size_t i = 0; i < n; i++) {
            w[i] = i % 2 == 0 ? 3.4e38F : -1e-45F;
        }
        assert_true(fns->is_finite(w, n));
        for (size_t i = 0; i < n; i++) {
            const float kept = w[i];
            w[i] = bad[i % 3];
            assert_false(fns->is_finite(w, n));
            w[i] = kept;
        }
    }
}

int main(void)
{
    return NW_RUN_TABLE("unpack", tiers, unpacks) + NW_RUN_TABLE("error", tiers, adds_up) +
           NW_RUN_TABLE("panel_error", tiers, adds_up_panels) +
           NW_RUN_TABLE("finite", tiers, finds_what_is_not_finite);
}
