/* The search for the highest stable rate: against services that hold up to a known rate, that hold once and
 * not again, that hold everything or nothing; and what counts as held.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "bench/stable.h"
#include "table.h"

static struct row {
    const char *name;
    double first, limit; /* rates up to the limit are held */
    unsigned n_lucky;    /* of confirmations that fail first */
    bool found;
} rows[] = {
    {"above_the_first", 1, 13.7, 0, true},    {"below_the_first", 4, 0.61, 0, true},
    {"at_the_first", 4, 4, 0, true},          {"lucky_once", 1, 13.7, 1, true},
    {"lucky_twice", 1, 13.7, 2, true},        {"nothing_is_held", 8, 0, 0, false},
    {"everything_is_held", 8, 1e9, 0, false},
};

static void finds(void **state)
{
    const struct row *r = *state;
    nw_stable_search s;
    double limit = r->limit;
    unsigned n_lucky = r->n_lucky;
    unsigned n = 0;

    nw_stable_begin(&s, r->first);
    while (s.next > 0) {
        bool held = s.next <= limit;
        if (s.confirming && held && n_lucky > 0) {
            n_lucky--;
            held = false;
            limit = s.next * 0.9; /* what it really holds */
        }
        nw_stable_tell(&s, held);
        assert_true(++n <= NW_STABLE_MAX_TRIES);
    }
    assert_int_equal(s.found, r->found);
    assert_int_equal(n_lucky, 0);
    if (r->found) {
        assert_int_equal(s.n_confirmed, NW_STABLE_CONFIRMATIONS);
        assert_true(s.lo <= limit && s.hi > limit && s.hi <= 1.05 * s.lo);
    }
}

/* n requests, one every 100 ms; n_late of them, spread evenly, beyond the limit of 60 ms. */
typedef struct {
    nw_bench_row rows[200];
    nw_in_flight series[400];
    nw_load_result r;
} made;

static void make(made *m, size_t n, double ttft_ms, double growth, size_t n_late)
{
    const nw_slo slo = {.ttft_ms = 60};
    nw_error err = {0};

    *m = (made){.r = {.w0_ns = 0, .w1_ns = (int64_t)n * 100000000}};
    for (size_t i = 0; i < n; i++) {
        const int64_t s_ns = (int64_t)i * 100000000;
        const bool is_late = (i + 1) * n_late / n != i * n_late / n;
        const double late = is_late ? 61 - ttft_ms : 0;
        const int64_t f_ns =
            s_ns + (int64_t)((ttft_ms + growth * (double)i / (double)n * ttft_ms + late) * 1e6);
        m->rows[i] = (nw_bench_row){.idx = (uint32_t)i,
                                    .s_ns = s_ns,
                                    .d_ns = s_ns,
                                    .f_ns = f_ns,
                                    .l_ns = f_ns + 1000000,
                                    .n_prompt = 1,
                                    .n_asked = 2,
                                    .n_output = 2,
                                    .ok = true,
                                    .streamed = true,
                                    .finish = NW_GEN_LENGTH};
        m->series[2 * i] = (nw_in_flight){s_ns, 1};
        m->series[2 * i + 1] = (nw_in_flight){m->rows[i].l_ns, 0};
    }
    m->r.rows = (nw_bench_rows){.rows = m->rows, .n = n};
    m->r.series = m->series;
    m->r.n_series = 2 * n;
    assert_int_equal(nw_bench_summarize(m->rows, n, 0, m->r.w1_ns, &slo, &m->r.summary, &err),
                     NW_OK);
}

static struct held_row {
    const char *name;
    size_t n;
    double growth; /* of TTFT over the window */
    size_t n_late; /* beyond the limit */
    double asked;
    const char *why; /* part of it; "": held */
} held_rows[] = {
    {"steady", 200, 0, 0, 0.9, ""},
    {"few", 30, 0, 0, 0.9, "too few answers to tell: 30"},
    {"queue_grows", 200, 0.5, 0, 0.9, "drift"},
    {"some_late", 200, 0, 3, 0.9, ""},
    {"all_asked_for_and_some_late", 200, 0, 3, 0.98, "attainment is at least 0.96"},
};

static void is_held(void **state)
{
    const struct held_row *h = *state;
    static made m;
    char why[160];

    make(&m, h->n, 40, h->growth, h->n_late);
    const bool held = nw_stable_held(&m.r, h->asked, why);
    if (held != (h->why[0] == '\0') || strstr(why, h->why) == NULL) {
        fail_msg("'%s' lacks '%s'", why, h->why);
    }
}

/* n of n good: n / (n + z^2). */
static void attainment_has_a_most(void **state)
{
    (void)state;
    assert_true(fabs(nw_stable_most_attainment(300) - 300 / (300 + 1.644854 * 1.644854)) < 1e-12);
    assert_true(nw_stable_most_attainment(1e6) < 1);
    assert_true(nw_stable_most_attainment(0) <= 0);
}

int main(void)
{
    const struct CMUnitTest most[] = {cmocka_unit_test(attainment_has_a_most)};
    return cmocka_run_group_tests(most, NULL, NULL) + NW_RUN_TABLE("search", rows, finds) +
           NW_RUN_TABLE("held", held_rows, is_held);
}
