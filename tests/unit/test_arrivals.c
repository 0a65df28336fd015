/* Arrival schedules: made, written, read back, and refused by file and line when they are wrong.
 * Poisson counts are checked at five standard errors, with fixed seeds.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "bench/arrivals.h"
#include "table.h"
#include "tmpdir.h"

static const nw_token_range prompt = {10, 20};
static const nw_token_range output = {3, 5};

static nw_arrivals make(nw_arrival_kind kind, double rate, double s, size_t max, uint64_t seed)
{
    nw_arrivals a = {0};
    nw_error err = {0};
    const nw_arrival_plan p = {kind, rate, s, max, prompt, output, seed};
    assert_int_equal(nw_arrivals_make(&p, &a, &err), NW_OK);
    return a;
}

static void constant_rate_is_exact(void **state)
{
    (void)state;
    nw_arrivals a = make(NW_ARRIVE_CONSTANT, 4, 10, 0, 1);
    assert_int_equal(a.n, 40);
    assert_int_equal(a.rows[0].t_ns, 0);
    assert_int_equal(a.rows[39].t_ns, 9750000000);
    assert_true(fabs(nw_arrivals_rate(&a) - 4) < 1e-9);
    nw_arrivals_release(&a);
}

static void poisson_has_its_mean_and_order(void **state)
{
    (void)state;
    nw_arrivals a = make(NW_ARRIVE_POISSON, 50, 200, 0, 7);
    assert_true(fabs((double)a.n - 10000) < 5 * 100); /* sd of a Poisson count is its root */
    for (size_t i = 0; i < a.n; i++) {
        assert_true(i == 0 || a.rows[i].t_ns >= a.rows[i - 1].t_ns);
        assert_in_range(a.rows[i].n_prompt, 10, 20);
        assert_in_range(a.rows[i].n_output, 3, 5);
    }
    nw_arrivals_release(&a);
}

static void seed_gives_the_same_rows_and_rate_keeps_lengths(void **state)
{
    (void)state;
    nw_arrivals a = make(NW_ARRIVE_POISSON, 5, 100, 60, 3);
    nw_arrivals b = make(NW_ARRIVE_POISSON, 5, 100, 60, 3);
    nw_arrivals faster = make(NW_ARRIVE_POISSON, 10, 100, 60, 3);
    assert_int_equal(a.n, 60);
    assert_memory_equal(a.rows, b.rows, a.n * sizeof *a.rows);
    for (size_t i = 0; i < a.n; i++) {
        assert_int_equal(a.rows[i].n_prompt, faster.rows[i].n_prompt);
        assert_int_equal(a.rows[i].n_output, faster.rows[i].n_output);
    }
    nw_arrivals_release(&a);
    nw_arrivals_release(&b);
    nw_arrivals_release(&faster);
}

static void written_file_reads_back_the_same(void **state)
{
    char path[512];
    nw_error err = {0};
    nw_arrivals b = {0};
    const nw_tmpdir dir = nw_tmpdir_make();

    (void)state;
    nw_arrivals a = make(NW_ARRIVE_POISSON, 20, 30, 0, 11);
    (void)nw_tmpdir_file(&dir, "a.csv", path, sizeof path);
    assert_int_equal(nw_arrivals_write(&a, path, &err), NW_OK);
    assert_int_equal(nw_arrivals_read(path, &b, &err), NW_OK);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.rows, b.rows, a.n * sizeof *a.rows);
    nw_arrivals_release(&a);
    nw_arrivals_release(&b);
    nw_tmpdir_remove(&dir);
}

#define HEAD "t,prompt_tokens,output_tokens\n"

static struct row {
    const char *name;
    const char *text;       /* @ stands for a byte of 0 */
    const char *want_error; /* part of it; NULL: good, two rows at 0 and 1.5 s */
} files[] = {
    {"csv", HEAD "0,5,6\n1.5,7,8\n", NULL},
    {"csv_with_crlf", "t,prompt_tokens,output_tokens\r\n0,5,6\r\n1.5,7,8\r\n", NULL},
    {"jsonl",
     "{\"t\":0,\"prompt_tokens\":5,\"output_tokens\":6}\n"
     "{\"t\":1.5,\"prompt_tokens\":7,\"output_tokens\":8}",
     NULL},
    {"no_header", "0,5,6\n", ":1: '0,5,6'"},
    {"header_alone", HEAD, "no arrivals"},
    {"empty_file", "", ":1:"},
    {"time_runs_back", HEAD "2,5,6\n1,5,6\n", ":3: t of 1 s lies before"},
    {"two_fields", HEAD "2,5\n", ":2: '2,5'"},
    {"four_fields", HEAD "2,5,6,7\n", ":2:"},
    {"no_output_tokens", HEAD "2,5,0\n", "whole numbers from 1"},
    {"half_a_token", HEAD "2,5,1.5\n", "whole numbers from 1"},
    {"time_not_a_number", HEAD "nan,5,6\n", "t is nan"},
    {"time_without_end", HEAD "inf,5,6\n", "t is inf"},
    {"blank_lines", HEAD "0,5,6\n\n\r\n1.5,7,8\n\n", NULL},
    {"fault_after_blank_lines", HEAD "\n\n1,2\n", ":4: '1,2'"},
    {"no_header_but_a_blank_line", "\n" HEAD "0,5,6\n", ":1: ''"},
    {"nul_byte", HEAD "0,5,6\n@1.5,7,8\n", ":3: a byte of 0"},
    {"jsonl_string", "{\"t\":\"0\",\"prompt_tokens\":5,\"output_tokens\":6}\n", ":1: numbers t"},
};

static void reads_or_refuses(void **state)
{
    const struct row *r = *state;
    char path[512];
    nw_arrivals a = {0};
    nw_error err = {0};
    const nw_tmpdir dir = nw_tmpdir_make();

    char *text = strdup(r->text);
    const size_t n = strlen(text);
    for (char *at = strchr(text, '@'); at != NULL; at = strchr(at + 1, '@')) {
        *at = '\0';
    }
    (void)nw_tmpdir_put(&dir, "a", text, n, path, sizeof path);
    free(text);
    const nw_status st = nw_arrivals_read(path, &a, &err);
    if (r->want_error != NULL) {
        assert_int_not_equal(st, NW_OK);
        assert_null(a.rows);
        assert_non_null(strstr(err.message, path));
        assert_non_null(strstr(err.message, r->want_error));
    } else {
        assert_int_equal(st, NW_OK);
        assert_int_equal(a.n, 2);
        assert_int_equal(a.rows[1].t_ns, 1500000000);
        assert_int_equal(a.rows[1].n_prompt, 7);
        assert_int_equal(a.rows[1].n_output, 8);
    }
    nw_arrivals_release(&a);
    nw_tmpdir_remove(&dir);
}

static struct absurd {
    const char *name;
    nw_arrival_plan plan;
} absurd[] = {
    {"rate_zero", {NW_ARRIVE_POISSON, 0, 1, 0, {1, 1}, {1, 1}, 1}},
    {"rate_nan", {NW_ARRIVE_POISSON, (double)NAN, 1, 0, {1, 1}, {1, 1}, 1}},
    {"duration_negative", {NW_ARRIVE_CONSTANT, 1, -1.0, 0, {1, 1}, {1, 1}, 1}},
    {"ten_billion_requests", {NW_ARRIVE_POISSON, 1e5, 1e5, 0, {1, 1}, {1, 1}, 1}},
    {"range_falls", {NW_ARRIVE_POISSON, 1, 1, 0, {5, 4}, {1, 1}, 1}},
    {"no_output", {NW_ARRIVE_POISSON, 1, 1, 0, {1, 1}, {0, 4}, 1}},
};

static void making_refuses(void **state)
{
    const struct absurd *t = *state;
    nw_arrivals a = {0};
    nw_error err = {0};

    assert_int_equal(nw_arrivals_make(&t->plan, &a, &err), NW_E_RANGE);
    assert_null(a.rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_rate_is_exact),
        cmocka_unit_test(poisson_has_its_mean_and_order),
        cmocka_unit_test(seed_gives_the_same_rows_and_rate_keeps_lengths),
        cmocka_unit_test(written_file_reads_back_the_same),
    };

    return NW_RUN_TABLE("arrivals_file", files, reads_or_refuses) +
           NW_RUN_TABLE("arrivals_plan", absurd, making_refuses) +
           cmocka_run_group_tests(tests, NULL, NULL);
}
