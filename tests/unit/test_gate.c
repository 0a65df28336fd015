/* The gate: never more threads inside than there is room for, and every one gets in.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "base/clock.h"
#include "serve/gate.h"
#include "table.h"

#define N_THREADS 12

static struct row {
    const char *name;
    unsigned room;
} rows[] = {{"one", 1}, {"two", 2}, {"room_for_all", N_THREADS}};

typedef struct {
    nw_gate gate;
    atomic_uint inside, most, passed;
} door;

static void *pass(void *arg)
{
    door *d = arg;

    nw_gate_enter(&d->gate);
    const unsigned n = atomic_fetch_add(&d->inside, 1) + 1;
    unsigned most = atomic_load(&d->most);
    while (n > most && !atomic_compare_exchange_weak(&d->most, &most, n)) {
    }
    nw_sleep_until_ns(nw_now_ns() + 5000000); /* long enough that the others come */
    atomic_fetch_sub(&d->inside, 1);
    atomic_fetch_add(&d->passed, 1);
    nw_gate_leave(&d->gate);
    return NULL;
}

static void holds_back(void **state)
{
    const struct row *r = *state;
    static door d;
    pthread_t threads[N_THREADS];
    unsigned inside = 1;
    unsigned waiting = 1;

    d = (door){.passed = 0};
    nw_gate_init(&d.gate, r->room);
    for (size_t i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, pass, &d), 0);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&d.passed), N_THREADS);
    assert_in_range(atomic_load(&d.most), 1, r->room);
    nw_gate_count(&d.gate, &inside, &waiting);
    assert_true(inside == 0 && waiting == 0);
    nw_gate_release(&d.gate);
}

/* With the gate's room taken, a further thread waits, and is counted, until there is room. */
static void counts_who_waits(void **state)
{
    static door d;
    pthread_t thread;
    unsigned inside = 0;
    unsigned waiting = 0;

    (void)state;
    d = (door){.passed = 0};
    nw_gate_init(&d.gate, 1);
    nw_gate_enter(&d.gate);
    assert_int_equal(pthread_create(&thread, NULL, pass, &d), 0);
    while (waiting == 0) {
        nw_sleep_until_ns(nw_now_ns() + 1000000);
        nw_gate_count(&d.gate, &inside, &waiting);
    }
    assert_true(inside == 1 && waiting == 1 && atomic_load(&d.passed) == 0);
    nw_gate_leave(&d.gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&d.passed), 1);
    nw_gate_release(&d.gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_who_waits)};

    return NW_RUN_TABLE("gate", rows, holds_back) + cmocka_run_group_tests(tests, NULL, NULL);
}
