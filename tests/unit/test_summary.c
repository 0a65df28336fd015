/* What eval prints of its rows, against sums by hand. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "eval/summary.h"
#include "table.h"

static double real(const json_t *o, const char *key)
{
    assert_true(json_is_number(json_object_get(o, key)));
    return json_number_value(json_object_get(o, key));
}

static bool near(double x, double want, double tolerance)
{
    return fabs(x - want) <= tolerance;
}

/* REPORTS H2: a Wilson interval has a width at 0 and 1 too, and unknown is absent, not 0. With
 * z = 1.959963984540054, z^2 = 3.841458820694124: 0 of n gives hi = z^2 / (n + z^2), n of n gives
 * lo = n / (n + z^2). */
static struct row {
    const char *name;
    int right, wrong, unscored;
    double accuracy, lo, hi; /* NaN: absent */
} rows[] = {
    {"none_of_25", 0, 25, 0, 0, 0, 0.13319225},
    {"all_of_25", 25, 0, 0, 1, 0.86680775, 1},
    {"one_item", 1, 0, 0, 1, 0.20654931, 1},
    {"unscored_items_do_not_count", 25, 0, 7, 1, 0.86680775, 1},
    {"nothing_scored_is_unknown", 0, 0, 3, NAN, NAN, NAN},
};

static void accuracy(void **state)
{
    const struct row *r = *state;
    nw_rec_item items[64] = {{.item_id = NULL}};
    size_t n = 0;
    json_t *out = json_object();

    for (int i = 0; i < r->right + r->wrong + r->unscored; i++) {
        const int correct = i < r->right ? 1 : i < r->right + r->wrong ? 0 : -1;
        items[n++] = (nw_rec_item){.item_id = "x", .correct = correct, .n_output = -1};
    }
    nw_summary_items(items, n, out);
    assert_int_equal(json_integer_value(json_object_get(out, "scored")), r->right + r->wrong);
    if (isnan(r->accuracy)) {
        assert_null(json_object_get(out, "accuracy"));
        assert_null(json_object_get(out, "accuracy_lo"));
    } else {
        assert_true(near(real(out, "accuracy"), r->accuracy, 0));
        assert_true(near(real(out, "accuracy_lo"), r->lo, 1e-7));
        assert_true(near(real(out, "accuracy_hi"), r->hi, 1e-7));
    }
    assert_null(json_object_get(out, "mean_output_tokens")); /* no length was counted */
    json_decref(out);
}

static void lengths_and_stops_are_counted(void **state)
{
    const nw_rec_item items[] = {{.correct = 1, .n_output = 10, .finish = "stop"},
                                 {.correct = 0, .n_output = 20, .finish = "length"},
                                 {.correct = 0, .n_output = -1, .finish = "error"},
                                 {.correct = 0, .n_output = 30, .finish = "length"}};
    json_t *out = json_object();

    (void)state;
    nw_summary_items(items, NW_COUNT(items), out);
    assert_true(near(real(out, "mean_output_tokens"), 20, 0));
    const json_t *finish = json_object_get(out, "finish");
    assert_int_equal(json_integer_value(json_object_get(finish, "length")), 2);
    assert_int_equal(json_integer_value(json_object_get(finish, "stop")), 1);
    assert_int_equal(json_integer_value(json_object_get(finish, "error")), 1);
    json_decref(out);
}

/* Two windows of two tokens with nll 1 3 | 2 6: mean 3, window means 2 and 4, so the standard error
 * is 1 and the interval 3 +- t(0.975; 1) = 12.7062047364. */
static void the_interval_is_over_windows(void **state)
{
    nw_rec_token t[4] = {{.window = 0, .nll = 1, .kl = 0.5, .top1 = 1},
                         {.window = 0, .nll = 3, .kl = 0.1, .top1 = 0},
                         {.window = 1, .nll = 2, .kl = 0.2, .top1 = 1},
                         {.window = 1, .nll = 6, .kl = 0.4, .top1 = 1}};
    const double base[4] = {1, 2, 2, 5};
    json_t *out = json_object();
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_summary_tokens(t, base, 4, out, &err), NW_OK);
    assert_true(near(log(real(out, "perplexity")), 3, 1e-12));
    assert_true(near(log(real(out, "perplexity_lo")), 3 - 12.7062047364, 1e-8));
    assert_true(near(log(real(out, "perplexity_hi")), 3 + 12.7062047364, 1e-8));
    assert_true(near(log(real(out, "perplexity_base")), 2.5, 1e-12));
    /* paired: both windows lose 1/2 a token, so the ratio is known without error */
    assert_true(near(real(out, "ln_ratio"), 0.5, 1e-12));
    assert_true(near(real(out, "ln_ratio_lo"), 0.5, 1e-12));
    assert_true(near(real(out, "kl_mean"), 0.3, 1e-12));
    assert_true(near(real(out, "kl_max"), 0.5, 0));
    assert_true(near(real(out, "top1"), 0.75, 0));
    json_decref(out);
}

static void one_window_has_no_interval_and_no_baseline_no_kl(void **state)
{
    nw_rec_token t[2] = {{.window = 0, .nll = 1}, {.window = 0, .nll = 2}};
    const double base[2] = {NAN, NAN};
    json_t *out = json_object();
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_summary_tokens(t, base, 2, out, &err), NW_OK);
    assert_true(near(log(real(out, "perplexity")), 1.5, 1e-12));
    assert_null(json_object_get(out, "perplexity_lo"));
    assert_null(json_object_get(out, "kl_mean"));
    assert_null(json_object_get(out, "ln_ratio"));
    assert_null(json_object_get(out, "top1"));
    json_decref(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_and_stops_are_counted),
        cmocka_unit_test(the_interval_is_over_windows),
        cmocka_unit_test(one_window_has_no_interval_and_no_baseline_no_kl),
    };
    const int failed = NW_RUN_TABLE("summary", rows, accuracy);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
