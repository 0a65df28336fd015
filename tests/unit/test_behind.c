/* What is done behind the caller: in order, one at a time, and a failure told once.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/behind.h"
#include "table.h"

typedef struct {
    atomic_int running;
    int n_done, fail_at;
} work;

static nw_status do_one(void *ctx, nw_error *err)
{
    work *w = ctx;

    if (atomic_fetch_add(&w->running, 1) != 0) {
        return nw_fail(err, NW_E_RANGE, "two at a time");
    }
    w->n_done++;
    (void)atomic_fetch_sub(&w->running, 1);
    return w->n_done == w->fail_at ? nw_fail(err, NW_E_IO, "number %d", w->n_done) : NW_OK;
}

static void one_at_a_time(void **state)
{
    nw_behind *b = NULL;
    nw_error err = {0};
    work w = {.fail_at = -1};

    (void)state;
    assert_int_equal(nw_behind_open(&b, &err), NW_OK);
    assert_int_equal(nw_behind_wait(b, &err), NW_OK);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(nw_behind_give(b, do_one, &w, &err), NW_OK);
    }
    assert_int_equal(nw_behind_wait(b, &err), NW_OK);
    assert_int_equal(w.n_done, 1000);
    assert_int_equal(nw_behind_give(b, do_one, &w, &err), NW_OK);
    nw_behind_close(b); /* waits */
    assert_int_equal(w.n_done, 1001);
    nw_behind_close(NULL);
}

static void failure_is_told_once(void **state)
{
    nw_behind *b = NULL;
    nw_error err = {0};
    work w = {.fail_at = 2};

    (void)state;
    assert_int_equal(nw_behind_open(&b, &err), NW_OK);
    assert_int_equal(nw_behind_give(b, do_one, &w, &err), NW_OK);
    assert_int_equal(nw_behind_give(b, do_one, &w, &err), NW_OK);
    assert_int_equal(nw_behind_give(b, do_one, &w, &err), NW_E_IO); /* and is not begun */
    assert_string_equal(err.message, "number 2");
    assert_int_equal(nw_behind_wait(b, &err), NW_OK);
    assert_int_equal(w.n_done, 2);
    nw_behind_close(b);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(one_at_a_time),
                                              cmocka_unit_test(failure_is_told_once)};
    return cmocka_run_group_tests_name("behind", tests, NULL, NULL);
}
