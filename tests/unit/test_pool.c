/* The pool: each item runs exactly once, on a worker in range, and results do not depend on the
 * number of threads or on how long the threads slept before.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/pool.h"
#include "table.h"

#define N_ITEMS 1000

typedef struct {
    atomic_uint runs[N_ITEMS];
    double value[N_ITEMS];
    unsigned n_threads;
    atomic_bool bad_worker;
} job;

static void item_fn(void *ctx, size_t item, unsigned worker)
{
    job *j = ctx;

    atomic_fetch_add(&j->runs[item], 1);
    j->value[item] = 1.0 / (double)(item + 1);
    if (worker >= j->n_threads) {
        atomic_store(&j->bad_worker, true);
    }
}

static struct row {
    const char *name;
    unsigned n_threads;
    size_t n_items;
    unsigned n_runs;
    int64_t sleep_ns; /* between runs: longer than the spin, so that workers sleep */
} rows[] = {
    {"one_thread", 1, N_ITEMS, 3, 0},
    {"two_threads", 2, N_ITEMS, 300, 0},
    {"three_threads_on_any_machine", 3, N_ITEMS, 300, 0},
    {"no_items", 2, 0, 3, 0},
    {"one_item", 2, 1, 300, 0},
    {"fewer_items_than_threads", 3, 2, 300, 0},
    {"sleepers_wake", 3, 64, 50, 300000},
};

static void runs_each_item_once(void **state)
{
    const struct row *r = *state;
    static job j;
    nw_pool *p = NULL;
    nw_error err;

    assert_int_equal(nw_pool_open(r->n_threads, &p, &err), NW_OK);
    assert_int_equal(nw_pool_threads(p), r->n_threads);
    for (unsigned run = 0; run < r->n_runs; run++) {
        memset(&j, 0, sizeof j);
        j.n_threads = r->n_threads;
        nw_pool_run(p, r->n_items, item_fn, &j);
        for (size_t i = 0; i < N_ITEMS; i++) {
            assert_int_equal(atomic_load(&j.runs[i]), i < r->n_items ? 1 : 0);
            assert_true(i >= r->n_items || j.value[i] == 1.0 / (double)(i + 1));
        }
        assert_false(atomic_load(&j.bad_worker));
        if (r->sleep_ns > 0) {
            nw_sleep_until_ns(nw_now_ns() + r->sleep_ns);
        }
    }
    nw_pool_close(p);
}

/* Items of a run stand in as many neighbouring stretches as there are threads. */
static void first_items_cut_a_run_in_even_shares(void **state)
{
    nw_pool *p = NULL;
    nw_error err;

    (void)state;
    assert_int_equal(nw_pool_open(3, &p, &err), NW_OK);
    for (size_t n = 0; n < 20; n++) {
        assert_int_equal(nw_pool_first_item(p, n, 0), 0);
        assert_int_equal(nw_pool_first_item(p, n, 3), n);
        for (unsigned w = 0; w < 3; w++) {
            const size_t share = nw_pool_first_item(p, n, w + 1) - nw_pool_first_item(p, n, w);
            assert_true(share == n / 3 || share == n / 3 + 1);
        }
    }
    nw_pool_close(p);
}

/* What is read ahead changes nothing; the last bytes named are the last of the array. */
static void reading_ahead_changes_nothing(void **state)
{
    static job j;
    static uint8_t memory[8192];
    const nw_pool_ahead ahead[] = {{memory, 4096, 4096, 2}, {memory, 64, 64, 128}, {0}};
    nw_pool *p = NULL;
    nw_error err;

    (void)state;
    assert_int_equal(nw_pool_open(3, &p, &err), NW_OK);
    for (int run = 0; run < 200; run++) {
        memset(&j, 0, sizeof j);
        j.n_threads = 3;
        nw_pool_run_ahead(p, 50, item_fn, &j, run % 2 == 0 ? ahead : NULL);
        for (size_t i = 0; i < N_ITEMS; i++) {
            assert_int_equal(atomic_load(&j.runs[i]), i < 50 ? 1 : 0);
        }
    }
    nw_pool_close(p);
}

static void null_pool_is_serial(void **state)
{
    static job j;

    (void)state;
    j.n_threads = 1;
    nw_pool_run(NULL, 10, item_fn, &j);
    assert_int_equal(atomic_load(&j.runs[9]), 1);
    assert_int_equal(nw_pool_threads(NULL), 1);
    nw_pool_close(NULL);
}

static void too_many_threads_are_refused(void **state)
{
    nw_pool *p = NULL;
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_pool_open(1025, &p, &err), NW_E_RANGE);
    assert_string_equal(err.message, "threads: 1025, at most 1024 allowed");
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(first_items_cut_a_run_in_even_shares),
        cmocka_unit_test(reading_ahead_changes_nothing),
        cmocka_unit_test(null_pool_is_serial),
        cmocka_unit_test(too_many_threads_are_refused),
    };
    return NW_RUN_TABLE("pool", rows, runs_each_item_once) +
           cmocka_run_group_tests(others, NULL, NULL);
}
