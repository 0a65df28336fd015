/* Reports on speed that users had to find out by themselves, by their numbers: which KV path runs (F1),
 * pairs of KV types (F2), threads by what may be used (F5; tests/cli/threads.sh has the program), and what FP8 weights are
 * multiplied as (F6).
 * Head sizes (F3) are swept in test_engine_kv.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* CPU_SET */
#include <sched.h>

#include "base/cpu.h"
#include "engine/ledger.h"
#include "engine_fixture.h"

/* Fills names with every KV kind and every pair of two; returns how many. */
static size_t kv_names(char names[64][24])
{
    size_t n = 0;
    for (int k = 0; nw_kv_kind_name((nw_kv_kind)k) != NULL; k++) {
        for (int v = 0; nw_kv_kind_name((nw_kv_kind)v) != NULL; v++) {
            (void)snprintf(names[n++], 24, "%s/%s", nw_kv_kind_name((nw_kv_kind)k),
                           nw_kv_kind_name((nw_kv_kind)v));
        }
    }
    return n;
}

/* F1: the attention kernel in use stands in the facts and in the ledger, and is the intended one. */
static void f1_the_kv_path_in_use_is_told(void **state)
{
    (void)state;
    char names[64][24];
    const size_t n = kv_names(names);
    const int32_t ids[3] = {1, 2, 3};

    assert_true(n >= 9);
    for (size_t i = 0; i < n; i++) {
        nw_engine_options o = fixture_options();
        nw_error err = {0};
        nw_ledger_row rows[64];
        bool found = false;
        assert_int_equal(nw_engine_kv_parse(names[i], &o, &err), NW_OK);
        nw_engine *e = fixture_engine(0, &o);
        const nw_engine_facts *f = nw_engine_get_facts(e);
        nw_session *s = open_session(e);
        feed(e, s, ids, 3, NULL);
        const size_t n_rows = nw_ledger_snapshot(nw_engine_ledger(e), rows, NW_COUNT(rows));
        for (size_t k = 0; k < n_rows; k++) {
            if (rows[k].op == NW_OP_ATTENTION) {
                found = true;
                assert_string_equal(rows[k].used, rows[k].intended);
                assert_non_null(strstr(rows[k].used, f->kv_k));
                assert_non_null(strstr(rows[k].used, f->kv_v));
            }
        }
        assert_true(found);
        assert_int_equal(strncmp(names[i], f->kv_k, strlen(f->kv_k)), 0);
        assert_non_null(strstr(f->kernel_map, f->kv_v));
        nw_session_close(s);
        nw_engine_close(e);
    }
}

/* F2: every pair works with no other option (above); what is no pair is refused before a model is read. */
static void f2_no_kv_pair_needs_another_option(void **state)
{
    (void)state;
    static const char *const bad[] = {"int3", "f32/", "/f32", "f32/int3", "f32/f32/f32", ""};

    for (size_t i = 0; i < NW_COUNT(bad); i++) {
        nw_engine_options o = nw_engine_options_default();
        nw_error err = {0};
        assert_int_equal(nw_engine_kv_parse(bad[i], &o, &err), NW_E_RANGE);
        assert_non_null(strstr(err.message, "KV format"));
    }
}

/* F5: one processor allowed is one thread, whatever the machine has. */
static void f5_threads_are_those_of_the_affinity(void **state)
{
    (void)state;
    cpu_set_t all;
    cpu_set_t one;
    const char *why = NULL;
    size_t first = 0;

    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(nw_cpu_threads(&why), 1);
    nw_engine_options o = fixture_options();
    o.n_threads = 0;
    nw_engine *e = fixture_engine(0, &o);
    assert_int_equal(nw_engine_get_facts(e)->n_threads, 1);
    assert_string_equal(nw_engine_get_facts(e)->threads_why, why);
    nw_engine_close(e);
    o.n_threads = 2;
    e = fixture_engine(0, &o);
    assert_string_equal(nw_engine_get_facts(e)->threads_why, "2 as asked");
    nw_engine_close(e);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* F6: of FP8 weights it is said what they are multiplied as. No kernel multiplies FP8: files whose inputs
 * are rounded to it (fp8-w8a8) are no exception, and the rounding is told by itself. */
static void f6_fp8_weights_are_not_called_fp8_compute(void **state)
{
    static const char *const recipes[] = {"fp8-e4m3", "fp8-w8a8"};
    static const char *const acts[] = {"a16", "fp8"};
    const nw_model_config c = nw_tiny_wide();
    char source[300];

    (void)state;
    nw_tiny_write(&c, 12, nw_tmpdir_file(&fixture_dir, "fp8-source", source, sizeof source));
    for (size_t i = 0; i < NW_COUNT(recipes); i++) {
        nw_error err = {0};
        nw_ledger_row rows[64];
        const int32_t ids[3] = {1, 2, 3};
        const nw_quantize_options q = {
            .source = source,
            .recipe = recipes[i],
            .out =
                nw_tmpdir_file(&fixture_dir, recipes[i], fixture_path[2], sizeof fixture_path[2]),
        };
        const nw_engine_options o = fixture_options();
        size_t n_fp8 = 0;
        assert_int_equal(nw_quantize(&q, NULL, &err), NW_OK);
        nw_engine *e = fixture_engine(2, &o);
        assert_string_equal(nw_act_rule_name(nw_engine_get_facts(e)->act), acts[i]);
        assert_non_null(strstr(nw_engine_get_facts(e)->kernel_map, "fp8-e4m3 x "));
        assert_null(strstr(nw_engine_get_facts(e)->kernel_map, " x fp8"));
        nw_session *s = open_session(e);
        feed(e, s, ids, 3, NULL);
        const size_t n = nw_ledger_snapshot(nw_engine_ledger(e), rows, NW_COUNT(rows));
        for (size_t k = 0; k < n && k < NW_COUNT(rows); k++) {
            n_fp8 += strstr(rows[k].used, "fp8-e4m3 x ") != NULL;
            assert_null(strstr(rows[k].used, " x fp8"));
        }
        assert_true(n_fp8 > 0);
        nw_session_close(s);
        nw_engine_close(e);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(f5_threads_are_those_of_the_affinity), /* first: it is found out once */
        cmocka_unit_test(f1_the_kv_path_in_use_is_told),
        cmocka_unit_test(f2_no_kv_pair_needs_another_option),
        cmocka_unit_test(f6_fp8_weights_are_not_called_fp8_compute),
    };
    return cmocka_run_group_tests_name("reports_f", tests, fixture_setup, fixture_teardown);
}
