/* Reports on load clients (I1 to I4), each by its number, on rows of hand: the start-up burst stays out of
 * the window, totals are those of the rows, what was not measured is null and says so, and what was asked
 * for is not what came.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "bench/result.h"
#include "table.h"

#define MS     ((int64_t)1000000)
#define N_ROWS 400

static nw_bench_row rows[N_ROWS];
static nw_gen_mark marks[N_ROWS][4];

/* One request each 10 ms, of 10 to 19 prompt tokens, 8 asked for and 4 got, one each `gap_ms`. */
static void fill_rows(int64_t ttft_ms, int64_t gap_ms, bool streamed)
{
    for (uint32_t i = 0; i < N_ROWS; i++) {
        const int64_t s = (int64_t)i * 10 * MS;
        for (int64_t k = 0; k < 4; k++) {
            marks[i][k] = (nw_gen_mark){s + (ttft_ms + k * gap_ms) * MS, 1};
        }
        rows[i] = (nw_bench_row){.idx = i,
                                 .s_ns = s,
                                 .d_ns = s,
                                 .f_ns = streamed ? marks[i][0].t_ns : -1,
                                 .l_ns = marks[i][3].t_ns,
                                 .n_prompt = 10 + i % 10,
                                 .n_asked = 8,
                                 .n_output = 4,
                                 .ok = true,
                                 .streamed = streamed,
                                 .finish = i % 4 == 0 ? NW_GEN_LENGTH : NW_GEN_STOP,
                                 .events = streamed ? marks[i] : &marks[i][3],
                                 .n_events = streamed ? 4 : 1};
        if (!streamed) {
            marks[i][3].n_tokens = 4;
        }
    }
}

static nw_bench_summary summary_of(int64_t w0_ns, int64_t w1_ns)
{
    const nw_slo slo = {.ttft_ms = 1000, .tpot_ms = 100};
    nw_bench_summary s;
    nw_error err = {0};
    assert_int_equal(nw_bench_summarize(rows, N_ROWS, w0_ns, w1_ns, &slo, &s, &err), NW_OK);
    return s;
}

/* I1: the first 50 requests find a cold server. In the window they are its p99; handed over before it they
 * are in no figure, and the window is the one that is told. */
static void i1_the_burst_of_the_start_is_no_p99(void **state)
{
    (void)state;
    fill_rows(20, 5, true);
    for (int i = 0; i < 50; i++) {
        rows[i].f_ns = rows[i].s_ns + 2000 * MS;
        rows[i].l_ns = rows[i].f_ns + 15 * MS;
    }
    const nw_bench_summary with = summary_of(0, 4000 * MS);
    const nw_bench_summary without = summary_of(500 * MS, 4000 * MS);
    assert_true(with.ttft_ms.has_p99 && fabs(with.ttft_ms.p99 - 2000) < 1e-9);
    assert_true(without.ttft_ms.has_p99 && fabs(without.ttft_ms.p99 - 20) < 1e-9);
    assert_int_equal(without.n_scheduled, 350);
    assert_true(fabs(without.window_s - 3.5) < 1e-9);
    /* the burst is still in flight when the window begins: it hands over undrained */
    assert_true(without.max_in_flight >= 50);
}

/* I2: every total is the sum of its rows. */
static void i2_totals_are_those_of_the_rows(void **state)
{
    uint64_t n_prompt = 0;
    uint64_t n_output = 0;
    uint64_t n_received = 0;
    const int64_t w0 = 995 * MS;
    const int64_t w1 = 3005 * MS;

    (void)state;
    fill_rows(20, 5, true);
    const nw_bench_summary s = summary_of(w0, w1);
    for (int i = 0; i < N_ROWS; i++) {
        const bool in = rows[i].s_ns >= w0 && rows[i].s_ns < w1;
        n_prompt += in ? rows[i].n_prompt : 0;
        n_output += in ? rows[i].n_output : 0;
        for (int k = 0; k < 4; k++) {
            n_received += marks[i][k].t_ns >= w0 && marks[i][k].t_ns < w1;
        }
    }
    assert_int_equal(s.prompt_tokens, n_prompt);
    assert_int_equal(s.output_tokens, n_output);
    assert_int_equal(s.received_tokens, n_received);
    assert_int_equal(s.n_scheduled, s.n_ok + s.n_error);
}

static json_t *json_of(const nw_bench_summary *s)
{
    const nw_load_options o = {.window_s = s->window_s};
    const nw_load_result r = {
        .rows = {rows, N_ROWS, N_ROWS}, .w1_ns = (int64_t)(s->window_s * 1e9), .summary = *s};
    json_t *json = nw_load_json(&o, &r);
    assert_non_null(json);
    return json;
}

/* I3: without streaming, what needs it is null and the reason stands beside; sums and E2E are there. */
static void i3_not_streaming_is_said(void **state)
{
    static const char *const absent[] = {"ttft_ms", "tpot_ms", "gap_ms", "max_gap_ms"};

    (void)state;
    fill_rows(20, 5, false);
    const nw_bench_summary s = summary_of(0, 4000 * MS);
    json_t *json = json_of(&s);
    for (size_t i = 0; i < NW_COUNT(absent); i++) {
        const json_t *d = json_object_get(json, absent[i]);
        assert_int_equal(json_integer_value(json_object_get(d, "n")), 0);
        assert_true(json_is_null(json_object_get(d, "p50")));
        assert_true(json_is_null(json_object_get(d, "p99")));
    }
    assert_null(json_object_get(json, "goodput_rps"));
    assert_non_null(
        strstr(json_string_value(json_object_get(json, "not_measured")), "not streaming"));
    assert_true(json_number_value(json_object_get(json_object_get(json, "e2e_ms"), "p50")) > 0);
    assert_true(s.throughput_tokens_s > 300);
    json_decref(json);
}

/* I4: asked and got are two figures, with the reasons of the ends, and TPOT is of each request. */
static void i4_asked_is_not_got(void **state)
{
    (void)state;
    fill_rows(20, 5, true);
    marks[7][3].t_ns += 600 * MS; /* one slow request is one slow TPOT, and no mean of tokens */
    rows[7].l_ns = marks[7][3].t_ns;
    const nw_bench_summary s = summary_of(0, 4000 * MS);
    json_t *json = json_of(&s);
    assert_int_equal(json_integer_value(json_object_get(json, "asked_tokens")), 8 * N_ROWS);
    assert_int_equal(json_integer_value(json_object_get(json, "output_tokens")), 4 * N_ROWS);
    assert_int_equal(json_integer_value(json_object_get(json, "finish_length")), N_ROWS / 4);
    assert_int_equal(json_integer_value(json_object_get(json, "finish_stop")), N_ROWS * 3 / 4);
    assert_int_equal(s.tpot_ms.n, N_ROWS);
    assert_true(fabs(s.tpot_ms.max - 205) < 1e-9 && fabs(s.tpot_ms.p50 - 5) < 1e-9);
    assert_int_equal(s.n_good, N_ROWS - 1);
    json_decref(json);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(i1_the_burst_of_the_start_is_no_p99),
        cmocka_unit_test(i2_totals_are_those_of_the_rows),
        cmocka_unit_test(i3_not_streaming_is_said),
        cmocka_unit_test(i4_asked_is_not_got),
    };
    return cmocka_run_group_tests_name("reports_i", tests, NULL, NULL);
}
