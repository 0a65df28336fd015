/* What round to nearest and refit do to a group, against the bound that is derived for its layout, with whole
 * codes and with fewer; and that every layout which is rounded to has one.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "formats/bound.h"
#include "quant/method.h"
#include "table.h"

#define COLS 384u

static struct layout_row {
    const char *name;
    unsigned code_bits;
} layouts[] = {
    {"bf16", 0},           {"int8", 0},           {"int8-g16", 0},     {"int8-g32", 0},
    {"int8-g128", 0},      {"int8-g32-min", 0},   {"int4-g32", 0},     {"int4-g64", 0},
    {"int4-g128", 0},      {"int4-g32-zp", 0},    {"int4-g128-zp", 0}, {"int4-g32-min", 0},
    {"int4-g64-min", 0},   {"fp8-e4m3", 0},       {"fp8-e5m2", 0},     {"nvfp4", 0},
    {"mxfp4", 0},          {"int8", 5},           {"int8-g32", 6},     {"int8-g32-min", 5},
    {"int4-g32", 3},       {"int4-g32-zp", 3},    {"int4-g32-min", 3}, {"int4-g32", 2},
    {"int4-g32-min", 2},   {"int4-g16", 0},       {"int4-g16-zp", 0},  {"int4-g16-min", 0},
    {"int4-g256", 0},      {"int4-g256-zp", 0},   {"int4-row", 0},     {"int4-row-zp", 0},
    {"int4-tensor", 0},    {"int4-tensor-zp", 0}, {"int8-g16-zp", 0},  {"int8-g32-zp", 0},
    {"int8-g128-zp", 0},   {"int8-g256", 0},      {"int8-g256-zp", 0}, {"int8-row-zp", 0},
    {"int8-tensor-zp", 0}, {"int8-g32-zp", 5},
};

enum { NORMAL, POSITIVE, ONE_LARGE, TINY, LARGE, CONSTANT, N_KINDS };

static float draw(int kind, nw_rng *rng, size_t at)
{
    const float x = (float)nw_rng_normal(rng);

    switch (kind) {
    case POSITIVE:
        return 2 + x * 0.1F;
    case ONE_LARGE:
        return at % 61 == 7 ? 40 * x : x;
    case TINY:
        return x * 1e-4F;
    case LARGE:
        return x * 1000;
    case CONSTANT:
        return -0.37F;
    default:
        return x;
    }
}

static void check_group(const struct layout_row *r, const nw_error_bound *b, const float *x,
                        const float *y, size_t n, double tensor_peak)
{
    double peak = 0;
    double lo = 0;
    double hi = 0;
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        peak = fmax(peak, fabs((double)x[i]));
        lo = fmin(lo, (double)x[i]);
        hi = fmax(hi, (double)x[i]);
    }
    const double all =
        b->of_peak * peak + b->of_range * (hi - lo) + b->floor + b->of_tensor * tensor_peak;
    for (size_t i = 0; i < n; i++) {
        const double e = fabs((double)x[i] - (double)y[i]);
        sum += e * e;
        if (!b->rms && e > all + b->of_value * fabs((double)x[i])) {
            fail_msg("%s: %g became %g", r->name, (double)x[i], (double)y[i]);
        }
    }
    if (sqrt(sum / (double)n) > all + b->of_value * peak) {
        fail_msg("%s of %u bits: error %g, bound %g", r->name, r->code_bits, sqrt(sum / (double)n),
                 all);
    }
}

static void every_group_is_within_its_bound(void **state)
{
    const struct layout_row *r = *state;
    static float w[16 * COLS];
    static uint8_t panel[16 * COLS * 4];
    static float out[16 * COLS];
    nw_method_job j = {.scales = {.code_bits = (uint8_t)r->code_bits}, .n_cols = COLS};
    nw_error_bound b = {0};
    nw_rng rng = nw_rng_seed(9);

    assert_true(nw_panel_parse(r->name, &j.type) && nw_panel_bound(j.type, r->code_bits, &b));
    const size_t group = nw_panel_scale_cols(j.type, COLS);
    const size_t rows = j.type.span == NW_SPAN_TENSOR ? 16 : 1;
    for (int i = 0; i < 2 * N_KINDS; i++) {
        nw_output_error ignored;
        uint32_t bad_row = 0;
        double peak = 0;
        j.method = i % 2 == 0 ? NW_METHOD_RTN : NW_METHOD_REFIT;
        j.method = nw_method_for(j.method, j.type);
        void *scratch = malloc(nw_method_scratch_bytes(&j));
        for (size_t k = 0; k < NW_COUNT(w); k++) {
            w[k] = draw(i / 2, &rng, k);
            peak = fmax(peak, fabs((double)w[k]));
        }
        assert_true(nw_method_pack_panel(&j, w, 16, panel, scratch, &ignored, &bad_row));
        free(scratch);
        for (uint32_t row = 0; row < 16; row++) {
            nw_panel_unpack_row(j.type, panel, COLS, row, out + row * COLS);
        }
        for (size_t at = 0; at < NW_COUNT(w); at += rows * COLS) {
            for (size_t c = 0; c < COLS; c += group) {
                const size_t n = COLS - c < group ? COLS - c : group;
                check_group(r, &b, w + at + c, out + at + c, rows * n, peak);
            }
        }
    }
}

/* A bound that no error comes near would hold whatever the code did. */
static void bounds_are_near_what_happens(void **state)
{
    nw_error_bound b = {0};
    nw_panel_type t;

    (void)state;
    assert_true(nw_panel_parse("int4-g32-min", &t) && nw_panel_bound(t, 0, &b));
    assert_true(b.of_range > 0.5 / 15 && b.of_range < 0.5 / 14);
    assert_true(nw_panel_bound(t, 3, &b) && b.of_range > 0.5 / 7 && b.of_range < 0.5 / 6);
    assert_true(nw_panel_parse("int4-g32-zp", &t) && nw_panel_bound(t, 2, &b));
    assert_true(b.of_range > 0.5 / 3 && b.of_range < 0.5 / 2);
    assert_true(nw_panel_parse("int8", &t) && nw_panel_bound(t, 0, &b));
    assert_true(b.of_peak > 0.5 / 127 && b.of_peak < 0.5 / 126);
    assert_true(nw_panel_parse("int4-g128", &t) && nw_panel_bound(t, 0, &b));
    assert_true(b.of_peak > 1.0 / 8 && b.of_peak < 1.0 / 7);
    assert_true(nw_panel_parse("f32", &t) && !nw_panel_bound(t, 0, &b));
    assert_true(nw_panel_parse("int4-g32-k", &t) && !nw_panel_bound(t, 0, &b));
    assert_true(nw_panel_parse("bf16-12", &t) && !nw_panel_bound(t, 0, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_are_near_what_happens)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    failed += NW_RUN_TABLE("bound", layouts, every_group_is_within_its_bound);
    return failed;
}
