/* Grids, Hessians and GPTQ on seeded matrices: errors against what must hold, not against figures.
 * E1, E3, E4: rows of public reports on calibration.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "correlated_stats.h"
#include "quant/gptq.h"
#include "quant/method.h"
#include "table.h"

#define N_COLS 192

static nw_panel_type type_of(const char *name)
{
    nw_panel_type t = {.kind = NW_PANEL_F32};
    if (!nw_panel_parse(name, &t)) {
        fail_msg("no layout '%s'", name);
    }
    return t;
}

static void normal_rows(uint64_t seed, double sigma, float *rows, size_t n)
{
    nw_rng rng = nw_rng_seed(seed);
    for (size_t i = 0; i < n; i++) {
        rows[i] = (float)(sigma * nw_rng_normal(&rng));
    }
}

/* Sizes of channels differ by a factor of ten. */
static double up_to_ten(uint32_t c)
{
    return 1 + 9.0 * (c * 37 % 11) / 10;
}

static nw_input_stats make_stats(uint64_t seed, uint32_t n_cols, uint32_t n_tokens, int dead)
{
    return correlated_stats(seed, n_cols, n_tokens, 0.8, up_to_ten, dead);
}

static nw_hessian make_hessian(nw_input_stats s)
{
    nw_error err = {0};
    nw_hessian h = {0};

    assert_int_equal(nw_hessian_make(&s, true, &h, &err), NW_OK);
    nw_input_stats_release(&s);
    return h;
}

/* Output error of a method over one panel, from the decoded bytes: an independent sum in double. */
static double output_error(nw_method m, const char *layout, const nw_hessian *h, const float *rows,
                           uint32_t n_rows)
{
    const nw_method_job j = {.method = m, .type = type_of(layout), .h = h, .n_cols = h->n};
    static uint8_t panel[65536];
    float decoded[512];
    nw_output_error out;
    uint32_t bad_row = 0;
    double sum = 0;
    size_t bytes = 0;
    void *scratch = calloc(1, nw_method_scratch_bytes(&j));

    assert_non_null(scratch);
    assert_true(nw_panel_bytes(j.type, h->n, &bytes) && bytes <= sizeof panel);
    assert_true(nw_method_pack_panel(&j, rows, n_rows, panel, scratch, &out, &bad_row));
    free(scratch);
    for (uint32_t r = 0; r < n_rows; r++) {
        const float *w = rows + (size_t)r * h->n;
        nw_panel_unpack_row(j.type, panel, h->n, r, decoded);
        for (uint32_t i = 0; i < h->n; i++) {
            double g = 0;
            for (uint32_t k = 0; k < h->n; k++) {
                g += ((double)w[k] - (double)decoded[k]) * (double)h->h[(size_t)i * h->n + k];
            }
            sum += ((double)w[i] - (double)decoded[i]) * g;
        }
    }
    if (m != NW_METHOD_RTN && fabs(out.err - sum) > 1e-3 * sum) {
        fail_msg("the method says %g, the decoded bytes %g", out.err, sum);
    }
    return sum;
}

static struct layout_row {
    const char *name;
} layouts[] = {
    {"int4-g32"}, {"int4-g64"},     {"int4-g32-zp"}, {"int4-g64-zp"}, {"int4-g32-min"},
    {"int8"},     {"int4-g64-min"}, {"nvfp4"},       {"mxfp4"},
};

static void each_method_beats_the_one_before(void **state)
{
    const struct layout_row *r = *state;
    static float rows[16 * N_COLS];
    const nw_hessian h = make_hessian(make_stats(5, N_COLS, 4096, -1));

    normal_rows(6, 0.02, rows, NW_COUNT(rows));
    const double rtn = output_error(NW_METHOD_RTN, r->name, &h, rows, 16);
    const double imatrix = output_error(NW_METHOD_IMATRIX, r->name, &h, rows, 16);
    const double awq = output_error(NW_METHOD_AWQ, r->name, &h, rows, 16);
    const double gptq = output_error(NW_METHOD_GPTQ, r->name, &h, rows, 16);
    const double polished = output_error(NW_METHOD_GPTQ_REFIT, r->name, &h, rows, 16);
    assert_true(imatrix < rtn * 1.02);
    assert_true(awq < imatrix * 1.001); /* groups of 16 to 64; a row's is compared as by imatrix */
    assert_true(gptq < imatrix && gptq < awq);
    assert_true(polished < gptq);
    nw_hessian rest = h;
    nw_hessian_release(&rest);
}

/* A group's block of the second moments is at most 128 columns wide; a row is taken as by imatrix. */
static void awq_of_rows_is_imatrix_and_says_so(void **state)
{
    (void)state;
    assert_true(nw_method_knows(NW_METHOD_AWQ, type_of("int4-g128")));
    assert_true(nw_method_knows(NW_METHOD_AWQ, type_of("nvfp4")));
    assert_false(nw_method_knows(NW_METHOD_AWQ, type_of("int8")));
    assert_int_equal(nw_method_for(NW_METHOD_AWQ, type_of("int8")), NW_METHOD_IMATRIX);
    assert_int_equal(nw_method_for(NW_METHOD_HQQ, type_of("nvfp4")), NW_METHOD_RTN);
}

/* The norm that hqq works on, of errors in the decoded bytes. */
static double half_norm(nw_method m, const char *layout, const float *rows)
{
    const nw_method_job j = {.method = m, .type = type_of(layout), .n_cols = N_COLS};
    static uint8_t panel[65536];
    float decoded[N_COLS];
    nw_output_error out;
    uint32_t bad_row = 0;
    double sum = 0;
    void *scratch = calloc(1, nw_method_scratch_bytes(&j));

    assert_non_null(scratch);
    assert_true(nw_method_pack_panel(&j, rows, 16, panel, scratch, &out, &bad_row));
    free(scratch);
    for (uint32_t r = 0; r < 16; r++) {
        nw_panel_unpack_row(j.type, panel, N_COLS, r, decoded);
        for (uint32_t k = 0; k < N_COLS; k++) {
            sum += sqrt(fabs((double)rows[r * N_COLS + k] - (double)decoded[k]));
        }
    }
    return sum;
}

/* On weights with heavy tails hqq lowers the norm that it minimizes, and costs little of the other. */
static void hqq_lowers_its_norm(void **state)
{
    static const char *const names[] = {"int4-g64", "int4-g64-zp", "int4-g64-min", "int8"};
    static float rows[16 * N_COLS];

    (void)state;
    normal_rows(31, 0.02, rows, NW_COUNT(rows));
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        rows[i] *= 1 + 1e4F * rows[i] * rows[i]; /* cubes: kurtosis far above a gaussian's */
    }
    for (size_t i = 0; i < NW_COUNT(names); i++) {
        const double refit = half_norm(NW_METHOD_REFIT, names[i], rows);
        const double hqq = half_norm(NW_METHOD_HQQ, names[i], rows);
        if (!(hqq < refit)) {
            fail_msg("%s: %g, refit %g", names[i], hqq, refit);
        }
    }
}

/* Inputs that have nothing to do with each other: nothing can be compensated, and GPTQ is rounding
 * to nearest. */
static void gptq_without_correlation_is_rounding(void **state)
{
    static float rows[16 * 64];
    static uint8_t a[4096];
    static uint8_t b[4096];
    nw_error err = {0};
    nw_input_stats s = {0};
    nw_output_error out;
    uint32_t bad_row = 0;

    (void)state;
    assert_int_equal(nw_input_stats_init(&s, 64, &err), NW_OK);
    for (uint32_t i = 0; i < 64; i++) {
        s.moments[i * 64 + i] = (float)(i + 1);
    }
    nw_hessian h = make_hessian(s);
    normal_rows(9, 0.02, rows, NW_COUNT(rows));
    nw_method_job j = {
        .method = NW_METHOD_IMATRIX, .type = type_of("int4-g32"), .h = &h, .n_cols = 64};
    void *scratch = calloc(1, nw_method_scratch_bytes(&j));
    assert_true(nw_method_pack_panel(&j, rows, 16, a, scratch, &out, &bad_row));
    j.method = NW_METHOD_GPTQ;
    assert_true(nw_method_pack_panel(&j, rows, 16, b, scratch, &out, &bad_row));
    assert_memory_equal(a, b, sizeof a);
    free(scratch);
    nw_hessian_release(&h);
}

/* U^T U = P H^-1 P^T, that is U (P H P^T) U^T = 1. */
static void the_factor_is_of_the_inverse(void **state)
{
    enum { N = 40 };
    nw_hessian h = make_hessian(make_stats(7, N, 500, -1));

    (void)state;
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < N; j++) {
            double sum = 0;
            for (size_t k = i; k < N; k++) {
                for (size_t l = j; l < N; l++) {
                    sum += (double)h.u[i * N + k] * (double)h.h[h.order[k] * N + h.order[l]] *
                           (double)h.u[j * N + l];
                }
            }
            assert_true(fabs(sum - (i == j ? 1 : 0)) < 1e-3);
        }
    }
    for (size_t i = 1; i < N; i++) {
        assert_true(h.importance[h.order[i - 1]] >= h.importance[h.order[i]]);
    }
    nw_hessian_release(&h);
}

/* E1: one sample of 8 tokens gives a matrix of rank 8; a channel that is always 0. */
static void e1_few_tokens_and_a_dead_channel_still_factor(void **state)
{
    static float rows[16 * N_COLS];
    nw_hessian h = make_hessian(make_stats(8, N_COLS, 8, 17));

    (void)state;
    assert_non_null(h.u);
    assert_int_equal(h.n_dead, 1);
    assert_true(h.damp >= NW_GPTQ_DAMP && h.damp <= NW_GPTQ_DAMP_MAX);
    normal_rows(10, 0.02, rows, NW_COUNT(rows));
    const double imatrix = output_error(NW_METHOD_IMATRIX, "int4-g32", &h, rows, 16);
    assert_true(output_error(NW_METHOD_GPTQ_REFIT, "int4-g32", &h, rows, 16) < imatrix);
    nw_hessian_release(&h);
}

/* No damping saves a matrix that is no Hessian: the rows are rounded under the weights, and the
 * damping that was tried last is kept for the report. */
static void e1_no_factor_falls_back_to_rounding(void **state)
{
    static float rows[16 * 64];
    nw_error err = {0};
    nw_input_stats s = {0};
    nw_hessian h = {0};

    (void)state;
    assert_int_equal(nw_input_stats_init(&s, 64, &err), NW_OK);
    for (uint32_t i = 0; i < 64; i++) {
        for (uint32_t k = 0; k < 64; k++) {
            s.moments[i * 64 + k] = i == k ? 1 : -1;
        }
    }
    assert_int_equal(nw_hessian_make(&s, true, &h, &err), NW_OK);
    nw_input_stats_release(&s);
    assert_null(h.u);
    assert_true(h.n_tries >= 3);
    assert_true(h.damp > 0.9);
    normal_rows(11, 0.02, rows, NW_COUNT(rows));
    const nw_method_job j = {
        .method = NW_METHOD_GPTQ, .type = type_of("int4-g32"), .h = &h, .n_cols = 64};
    static uint8_t panel[4096];
    nw_output_error out;
    uint32_t bad_row = 0;
    void *scratch = calloc(1, nw_method_scratch_bytes(&j));
    assert_true(nw_method_pack_panel(&j, rows, 16, panel, scratch, &out, &bad_row));
    float decoded[64];
    for (uint32_t r = 0; r < 16; r++) {
        nw_panel_unpack_row(j.type, panel, 64, r, decoded);
        for (uint32_t k = 0; k < 64; k++) {
            assert_true(fabsf(decoded[k] - rows[r * 64 + k]) < 0.02F);
        }
    }
    free(scratch);
    nw_hessian_release(&h);
}

/* E3, E4: groups of zeros, channels without activations, and both at once. */
static void e3_zero_groups_and_dead_channels_stay_finite(void **state)
{
    static const nw_method all[] = {NW_METHOD_REFIT, NW_METHOD_HQQ,  NW_METHOD_IMATRIX,
                                    NW_METHOD_AWQ,   NW_METHOD_GPTQ, NW_METHOD_GPTQ_REFIT};
    static float rows[16 * 64];
    nw_error err = {0};
    nw_input_stats s = {0};

    (void)state;
    assert_int_equal(nw_input_stats_init(&s, 64, &err), NW_OK);
    for (uint32_t i = 32; i < 64; i++) {
        s.moments[i * 64 + i] = 1; /* the first group of inputs is dead */
    }
    nw_hessian h = make_hessian(s);
    normal_rows(12, 0.02, rows, NW_COUNT(rows));
    memset(rows, 0, 64 * sizeof *rows); /* a row of zeros, and a group of another */
    memset(rows + 64 + 32, 0, 32 * sizeof *rows);
    for (size_t i = 0; i < NW_COUNT(all); i++) {
        const nw_method_job j = {
            .method = all[i], .type = type_of("int4-g32-zp"), .h = &h, .n_cols = 64};
        static uint8_t panel[4096];
        float decoded[64];
        nw_output_error out;
        uint32_t bad_row = 0;
        void *scratch = calloc(1, nw_method_scratch_bytes(&j));
        assert_true(nw_method_pack_panel(&j, rows, 15, panel, scratch, &out, &bad_row));
        for (uint32_t r = 0; r < 15; r++) {
            nw_panel_unpack_row(j.type, panel, 64, r, decoded);
            for (uint32_t k = 0; k < 64; k++) {
                assert_true(isfinite(decoded[k]));
                assert_true(fabsf(decoded[k] - rows[r * 64 + k]) < 0.02F);
            }
        }
        free(scratch);
    }
    nw_hessian_release(&h);
}

/* E4: statistics are looked at before they are used. */
static void e4_statistics_that_are_none_are_refused(void **state)
{
    nw_error err = {0};
    nw_input_stats s = make_stats(13, 32, 100, 5);

    (void)state;
    assert_int_equal(nw_input_stats_check(&s, "x", &err), NW_OK);
    assert_int_equal(nw_input_stats_live(&s), 31);
    s.moments[3 * 32 + 7] = NAN;
    assert_int_equal(nw_input_stats_check(&s, "o_in of layer 3", &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "o_in of layer 3"));
    assert_non_null(strstr(err.message, "channels 3 and 7"));
    s.moments[3 * 32 + 7] = 0;
    s.mean_sq[4] = s.moments[4 * 32 + 4] = -1;
    assert_int_equal(nw_input_stats_check(&s, "x", &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "channel 4"));
    nw_input_stats_release(&s);
}

/* E2: a value that is not finite stops with its place. */
static void e2_activations_that_are_not_finite_stop(void **state)
{
    float x[3 * 8] = {0};
    nw_error err = {0};
    nw_input_stats s = {0};

    (void)state;
    x[2 * 8 + 5] = INFINITY;
    assert_int_equal(nw_input_stats_init(&s, 8, &err), NW_OK);
    assert_int_equal(nw_input_stats_add(&s, NULL, x, 3, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "channel 5 of token 2"));
    assert_int_equal(s.n_tokens, 0);
    nw_input_stats_release(&s);
}

/* Moments by tiles equal the plain sums, for widths around a tile. */
static void moments_are_the_plain_sums(void **state)
{
    static const uint32_t widths[] = {1, 17, 191, 192, 193, 400};

    (void)state;
    for (size_t i = 0; i < NW_COUNT(widths); i++) {
        const uint32_t n = widths[i];
        nw_error err = {0};
        nw_input_stats s = {0};
        float *x = calloc(20, n * sizeof *x);
        assert_non_null(x);
        normal_rows(20 + i, 1, x, (size_t)20 * n);
        assert_int_equal(nw_input_stats_init(&s, n, &err), NW_OK);
        assert_int_equal(nw_input_stats_add(&s, NULL, x, 12, &err), NW_OK);
        assert_int_equal(nw_input_stats_add(&s, NULL, x + (size_t)12 * n, 8, &err), NW_OK);
        nw_input_stats_finish(&s);
        for (uint32_t a = 0; a < n; a += 3) {
            for (uint32_t b = 0; b < n; b++) {
                double sum = 0;
                for (uint32_t t = 0; t < 20; t++) {
                    sum += (double)x[(size_t)t * n + a] * (double)x[(size_t)t * n + b];
                }
                assert_true(fabs(sum / 20 - (double)s.moments[(size_t)a * n + b]) < 1e-5);
            }
        }
        free(x);
        nw_input_stats_release(&s);
    }
}

/* ---- grids ---- */

/* 10 log10 of power over error for gaussian weights of sigma 0.02: the values that a numerical
 * search over scales gives for these layouts, less 0.05 dB. 2^20 values put 0.01 dB on them. */
static struct sqnr_row {
    const char *name;
    nw_method method;
    double at_least;
    uint8_t code_bits;
} sqnr_rows[] = {
    {"int4-g32", NW_METHOD_REFIT, 21.7, 0},    {"int4-g128", NW_METHOD_REFIT, 20.2, 0},
    {"int4-g32-zp", NW_METHOD_REFIT, 21.8, 0}, {"int8", NW_METHOD_REFIT, 41.0, 0},
    {"int8", NW_METHOD_RTN, 41.0, 0},          {"int4-g32-min", NW_METHOD_REFIT, 22.2, 0},
    {"int8-g32", NW_METHOD_REFIT, 45.4, 0},    {"nvfp4", NW_METHOD_RTN, 21.7, 0},
    {"mxfp4", NW_METHOD_RTN, 19.0, 0},         {"fp8-e4m3", NW_METHOD_RTN, 31.4, 0},
};

/* Fewer codes: not below the best uniform quantizer of so many levels for the whole distribution (J. Max,
 * IRE Trans. Inform. Theory 6 (1960) 7-12, table II: mean squared error .1188, .03744 and .01154 of the
 * variance for 4, 8 and 16), since a group finds its own, and not above what the bits of codes, scale
 * and minimum can tell (6.02 dB each; 32 bits a group of 32 are one more). */
static struct sqnr_row few_codes[] = {
    {"int4-g32-min", NW_METHOD_REFIT, 9.25, 2},  {"int4-g32-min", NW_METHOD_REFIT, 14.27, 3},
    {"int8-g32-min", NW_METHOD_REFIT, 9.25, 2},  {"int8-g32-min", NW_METHOD_REFIT, 14.27, 3},
    {"int8-g32-min", NW_METHOD_REFIT, 19.38, 4}, {"int4-g32", NW_METHOD_RTN, 14.27, 3},
    {"int4-g32-zp", NW_METHOD_REFIT, 14.27, 3},  {"int8-g32", NW_METHOD_RTN, 19.38, 4},
};

static void gaussian_weights_keep_their_sqnr(void **state)
{
    enum { COLS = 4096, PANELS = 16 };
    const struct sqnr_row *r = *state;
    const nw_method_job j = {.method = r->method,
                             .type = type_of(r->name),
                             .scales = {.code_bits = r->code_bits},
                             .n_cols = COLS};
    float *rows = calloc(16, COLS * sizeof *rows);
    float *decoded = calloc(COLS, sizeof *decoded);
    size_t bytes = 0;
    double err = 0;
    double power = 0;

    assert_true(nw_panel_bytes(j.type, COLS, &bytes));
    uint8_t *panel = malloc(bytes);
    void *scratch = calloc(1, nw_method_scratch_bytes(&j));
    assert_true(rows != NULL && decoded != NULL && panel != NULL && scratch != NULL);
    for (uint64_t p = 0; p < PANELS; p++) {
        nw_output_error out;
        uint32_t bad_row = 0;
        normal_rows(100 + p, 0.02, rows, (size_t)16 * COLS);
        assert_true(nw_method_pack_panel(&j, rows, 16, panel, scratch, &out, &bad_row));
        for (uint32_t k = 0; k < 16; k++) {
            nw_panel_unpack_row(j.type, panel, COLS, k, decoded);
            for (uint32_t c = 0; c < COLS; c++) {
                const double w = (double)rows[(size_t)k * COLS + c];
                const double d = w - (double)decoded[c];
                err += d * d;
                power += w * w;
            }
        }
    }
    const double db = 10 * log10(power / err);
    if (db < r->at_least) {
        fail_msg("%s: %.3f dB, at least %.2f wanted", r->name, db, r->at_least);
    }
    if (r->code_bits > 0 && db > 6.02 * (r->code_bits + 1)) {
        fail_msg("%s: %.3f dB cannot be of %u bits", r->name, db, r->code_bits);
    }
    free(rows);
    free(decoded);
    free(panel);
    free(scratch);
}

/* A group whose values no FP16 scale reaches is refused by its row, and never written as zeros. */
static void values_beyond_the_scale_are_refused(void **state)
{
    static float rows[16 * 64];
    static uint8_t panel[4096];
    const nw_method_job j = {.method = NW_METHOD_REFIT, .type = type_of("int4-g32"), .n_cols = 64};
    nw_output_error out;
    uint32_t bad_row = 0;
    void *scratch = calloc(1, nw_method_scratch_bytes(&j));

    (void)state;
    normal_rows(30, 0.02, rows, NW_COUNT(rows));
    rows[3 * 64 + 40] = 1e30F;
    assert_false(nw_method_pack_panel(&j, rows, 16, panel, scratch, &out, &bad_row));
    assert_int_equal(bad_row, 3);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(awq_of_rows_is_imatrix_and_says_so),
        cmocka_unit_test(hqq_lowers_its_norm),
        cmocka_unit_test(gptq_without_correlation_is_rounding),
        cmocka_unit_test(the_factor_is_of_the_inverse),
        cmocka_unit_test(e1_few_tokens_and_a_dead_channel_still_factor),
        cmocka_unit_test(e1_no_factor_falls_back_to_rounding),
        cmocka_unit_test(e2_activations_that_are_not_finite_stop),
        cmocka_unit_test(e3_zero_groups_and_dead_channels_stay_finite),
        cmocka_unit_test(e4_statistics_that_are_none_are_refused),
        cmocka_unit_test(moments_are_the_plain_sums),
        cmocka_unit_test(values_beyond_the_scale_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += NW_RUN_TABLE("methods", layouts, each_method_beats_the_one_before);
    failed += NW_RUN_TABLE("sqnr", sqnr_rows, gaussian_weights_keep_their_sqnr);
    failed += NW_RUN_TABLE("few codes", few_codes, gaussian_weights_keep_their_sqnr);
    return failed;
}
