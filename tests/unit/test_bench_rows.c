/* Figures of a benchmark from hand-made rows; every expected value is worked out in the comment beside
 * it from the definitions (MEASURES section 5). Times in the rows are ms, for reading.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "bench/rows.h"
#include "table.h"

#define MS ((int64_t)1000000)

/* Three requests scheduled in [100, 1100) ms, one before it, one after. */
static nw_gen_mark e_before[] = {{90 * MS, 1}, {120 * MS, 1}, {140 * MS, 1}};
static nw_gen_mark e_a[] = {{250 * MS, 1}, {300 * MS, 2}, {450 * MS, 1}};
static nw_gen_mark e_one[] = {{600 * MS, 1}};
static nw_gen_mark e_after[] = {{1200 * MS, 1}, {1300 * MS, 1}};

static nw_bench_row some[] = {
    {.idx = 0,
     .s_ns = 50 * MS,
     .d_ns = 50 * MS,
     .f_ns = 90 * MS,
     .l_ns = 140 * MS,
     .n_prompt = 9,
     .n_asked = 3,
     .n_output = 3,
     .ok = true,
     .streamed = true,
     .finish = NW_GEN_LENGTH,
     .events = e_before,
     .n_events = 3},
    {.idx = 1,
     .s_ns = 200 * MS,
     .d_ns = 201 * MS,
     .f_ns = 250 * MS,
     .l_ns = 450 * MS,
     .n_prompt = 10,
     .n_asked = 8,
     .n_output = 4,
     .ok = true,
     .streamed = true,
     .finish = NW_GEN_STOP,
     .events = e_a,
     .n_events = 3},
    {.idx = 2,
     .s_ns = 500 * MS,
     .d_ns = 500 * MS,
     .f_ns = 600 * MS,
     .l_ns = 600 * MS,
     .n_prompt = 11,
     .n_asked = 1,
     .n_output = 1,
     .ok = true,
     .streamed = true,
     .finish = NW_GEN_LENGTH,
     .events = e_one,
     .n_events = 1},
    {.idx = 3,
     .s_ns = 700 * MS,
     .d_ns = 701 * MS,
     .f_ns = -1,
     .l_ns = -1,
     .n_asked = 8,
     .streamed = true,
     .finish = NW_GEN_ERROR},
    {.idx = 4,
     .s_ns = 1100 * MS,
     .d_ns = 1100 * MS,
     .f_ns = 1200 * MS,
     .l_ns = 1300 * MS,
     .n_prompt = 12,
     .n_asked = 2,
     .n_output = 2,
     .ok = true,
     .streamed = true,
     .finish = NW_GEN_LENGTH,
     .events = e_after,
     .n_events = 2},
};

static nw_bench_summary summary_of(const nw_bench_row *rows, size_t n, nw_slo slo)
{
    nw_bench_summary s;
    nw_error err = {0};
    assert_int_equal(nw_bench_summarize(rows, n, 100 * MS, 1100 * MS, &slo, &s, &err), NW_OK);
    return s;
}

#define NEAR(x, want) assert_true(fabs((x) - (want)) < 1e-9)

static void counts_by_schedule(void **state)
{
    (void)state;
    const nw_bench_summary s = summary_of(some, 5, (nw_slo){.ttft_ms = 60, .tpot_ms = 70});
    assert_int_equal(s.n_scheduled, 3); /* 1, 2, 3: s in [100, 1100) */
    assert_int_equal(s.n_ok, 2);
    assert_int_equal(s.n_error, 1);
    assert_int_equal(s.n_stop, 1);
    assert_int_equal(s.n_length, 1);
    assert_int_equal(s.prompt_tokens, 10 + 11);
    assert_int_equal(s.asked_tokens, 8 + 1 + 8);
    assert_int_equal(s.output_tokens, 4 + 1);
    NEAR(s.request_rate_asked, 3);
}

static void latencies_by_definition(void **state)
{
    (void)state;
    const nw_bench_summary s = summary_of(some, 5, (nw_slo){0});
    NEAR(s.ttft_ms.min, 50);  /* 250 - 200: from the schedule, not from the sending at 201 */
    NEAR(s.ttft_ms.max, 100); /* 600 - 500 */
    NEAR(s.ttft_send_ms.min, 49);
    assert_int_equal(s.tpot_ms.n, 1);
    NEAR(s.tpot_ms.p50, 200.0 / 3);          /* (450 - 250) / (4 - 1) */
    assert_int_equal(s.n_tpot_undefined, 1); /* one token: no TPOT, never 0 */
    NEAR(s.ntpot_ms.max, 100);               /* (600 - 500) / 1 */
    NEAR(s.ntpot_ms.min, 62.5);              /* (450 - 200) / 4 */
    assert_int_equal(s.gap_ms.n, 2); /* three events, two gaps; the two tokens of one event none */
    NEAR(s.gap_ms.min, 50);
    NEAR(s.gap_ms.max, 150);
    NEAR(s.max_gap_ms.p50, 150);
    NEAR(s.lag_ms.max, 1);
}

static void throughput_by_receipt(void **state)
{
    (void)state;
    const nw_bench_summary s = summary_of(some, 5, (nw_slo){0});
    /* two tokens of request 0 (at 120 and 140), four of 1, one of 2; over 1 s */
    assert_int_equal(s.received_tokens, 7);
    NEAR(s.throughput_tokens_s, 7);
    assert_int_equal(s.received_completions, 3); /* 0 ended inside, 1, 2 */
}

static struct goodput {
    const char *name;
    nw_slo slo;
    size_t want;
} limits[] = {
    {"no_limits_ok_is_good", {.ttft_ms = 0}, 2},
    {"ttft_limit_is_inclusive", {.ttft_ms = 50}, 1},
    {"tpot_limit_spares_one_token_answers", {.tpot_ms = 60}, 1},
    {"gap_limit_shows_the_stall", {.gap_ms = 149}, 1},
    {"gap_limit_kept", {.gap_ms = 150}, 2},
    {"all_fail", {.ttft_ms = 49}, 0},
};

static void goodput_counts(void **state)
{
    const struct goodput *g = *state;
    const nw_bench_summary s = summary_of(some, 5, g->slo);
    assert_int_equal(s.n_good, g->want);
    NEAR(s.goodput_s, (double)g->want);
    NEAR(s.attainment, (double)g->want / 3); /* the error stays in the denominator */
}

static void in_flight_is_a_time_mean(void **state)
{
    (void)state;
    const nw_bench_summary s = summary_of(some, 5, (nw_slo){0});
    /* in [100, 1100): request 0 for 40 ms, 1 for 249, 2 for 100; 4 begins at its end */
    NEAR(s.mean_in_flight, (40 + 249 + 100) / 1000.0);
    NEAR(s.max_in_flight, 1);
}

static void not_streamed_has_no_first_token(void **state)
{
    (void)state;
    nw_gen_mark whole[] = {{450 * MS, 4}};
    const nw_bench_row r = {.s_ns = 200 * MS,
                            .d_ns = 201 * MS,
                            .f_ns = -1,
                            .l_ns = 450 * MS,
                            .n_asked = 4,
                            .n_output = 4,
                            .ok = true,
                            .finish = NW_GEN_LENGTH,
                            .events = whole,
                            .n_events = 1};
    const nw_bench_summary s = summary_of(&r, 1, (nw_slo){0});
    assert_int_equal(s.n_not_streamed, 1);
    assert_int_equal(s.ttft_ms.n, 0);
    assert_true(isnan(s.ttft_ms.p50));
    assert_int_equal(s.tpot_ms.n, 0);
    NEAR(s.e2e_ms.p50, 250);
}

/* A server that does not say how many tokens an event carried: sums are right, no gap is invented. */
static void unknown_counts_are_shared_out(void **state)
{
    (void)state;
    nw_gen_mark marks[] = {{200 * MS, 0}, {600 * MS, 0}, {1200 * MS, 0}};
    const nw_bench_row r = {.s_ns = 150 * MS,
                            .d_ns = 150 * MS,
                            .f_ns = 200 * MS,
                            .l_ns = 1200 * MS,
                            .n_asked = 9,
                            .n_output = 9,
                            .ok = true,
                            .streamed = true,
                            .finish = NW_GEN_LENGTH,
                            .events = marks,
                            .n_events = 3};
    const nw_bench_summary s = summary_of(&r, 1, (nw_slo){0});
    assert_int_equal(s.received_tokens, 6); /* two of three events inside: 9 * 2 / 3 */
    assert_int_equal(s.gap_ms.n, 2);
}

static void late_dispatch_makes_a_run_invalid(void **state)
{
    (void)state;
    nw_bench_row late[5];
    memcpy(late, some, sizeof late);
    late[2].d_ns = late[2].s_ns + 3 * MS; /* limit: max(2 ms, 2 % of the TTFT limit) */
    const nw_bench_summary bad = summary_of(late, 5, (nw_slo){.ttft_ms = 100});
    assert_false(bad.valid);
    assert_non_null(strstr(bad.why_invalid, "3.00 ms"));
    const nw_bench_summary wide = summary_of(late, 5, (nw_slo){.ttft_ms = 200});
    assert_true(wide.valid); /* 2 % of 200 ms is 4 ms */
}

static void nearest_rank_and_p99_only_from_299(void **state)
{
    double v[300];

    (void)state;
    for (int i = 0; i < 300; i++) {
        v[i] = 300 - i; /* 1..300 after sorting */
    }
    nw_bench_dist d = nw_bench_dist_of(v, 300);
    NEAR(d.p50, 150); /* ceil(0.5 * 300) = 150th */
    NEAR(d.p90, 270);
    NEAR(d.p99, 297);
    assert_true(d.has_p99);
    NEAR(d.mean, 150.5);
    d = nw_bench_dist_of(v, 299);
    assert_true(d.has_p99);
    NEAR(d.p99, 297); /* ceil(296.01) */
    NEAR(d.p50, 150); /* ceil(149.5) */
    d = nw_bench_dist_of(v, 298);
    assert_false(d.has_p99);
    assert_true(isnan(d.p99));
    assert_int_equal(d.n_lacking, 1);
    d = nw_bench_dist_of(v, 1);
    NEAR(d.p50, 1);
    NEAR(d.p90, 1);
    d = nw_bench_dist_of(v, 0);
    assert_true(isnan(d.p50));
}

/* A server that had no room is told from one that failed, by its status and not by any number. */
static void status_by_the_answer(void **state)
{
    static const struct {
        const char *error, *status;
        nw_gen_finish finish;
    } rows[] = {
        {"HTTP status 429: queue is full: 4 requests wait", "rejected", NW_GEN_ERROR},
        {"HTTP status 429: ", "rejected", NW_GEN_ERROR},
        {"HTTP status 400: prompt of 1429 tokens and 3 to generate", "error", NW_GEN_ERROR},
        {"HTTP status 503: try again in 429 s", "error", NW_GEN_ERROR},
        {"HTTP status 429: too late", "cancelled", NW_GEN_CANCELLED},
    };
    (void)state;
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        nw_bench_row r = {.finish = rows[i].finish};
        (void)snprintf(r.error, sizeof r.error, "%s", rows[i].error);
        assert_string_equal(nw_bench_row_status(&r), rows[i].status);
    }
    assert_string_equal(nw_bench_row_status(&(nw_bench_row){.ok = true}), "ok");
}

static void empty_window_is_refused(void **state)
{
    nw_bench_summary s;
    nw_error err = {0};
    const nw_slo slo = {0};

    (void)state;
    assert_int_equal(nw_bench_summarize(some, 5, 5, 5, &slo, &s, &err), NW_E_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_by_schedule),
        cmocka_unit_test(latencies_by_definition),
        cmocka_unit_test(throughput_by_receipt),
        cmocka_unit_test(in_flight_is_a_time_mean),
        cmocka_unit_test(not_streamed_has_no_first_token),
        cmocka_unit_test(unknown_counts_are_shared_out),
        cmocka_unit_test(late_dispatch_makes_a_run_invalid),
        cmocka_unit_test(nearest_rank_and_p99_only_from_299),
        cmocka_unit_test(status_by_the_answer),
        cmocka_unit_test(empty_window_is_refused),
    };

    return NW_RUN_TABLE("goodput", limits, goodput_counts) +
           cmocka_run_group_tests(tests, NULL, NULL);
}
