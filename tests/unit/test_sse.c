/* Event streams, whole and cut at every byte. Expected events are written by hand from the rules of
 * the WHATWG specification (section 9.2.6), whose three examples stand in the table.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "table.h"
#include "target/sse.h"

static struct row {
    const char *name;
    const char *in;
    const char *want; /* each event's data in brackets */
} rows[] = {
    {"one_event", "data: a\n\n", "[a]"},
    {"crlf_is_one_line_end", "data: a\r\n\r\ndata: b\r\n\r\n", "[a][b]"},
    {"cr_alone_ends_a_line", "data: a\r\rdata: b\r\r", "[a][b]"},
    {"two_data_lines_are_joined", "data: YHOO\ndata: +2\ndata: 10\n\n", "[YHOO\n+2\n10]"},
    {"comment_is_skipped", ": test stream\n\ndata: first event\nid: 1\n\n", "[first event]"},
    {"no_space_after_colon", "data:x\n\n", "[x]"},
    {"only_one_space_is_dropped", "data:  x\n\n", "[ x]"},
    {"empty_data_is_an_event", "data\n\ndata\ndata\n\ndata:", "[][\n]"},
    {"unfinished_event_is_none", "data: a\n\ndata: b\n", "[a]"},
    {"other_fields_are_skipped", "event: x\nretry: 5\ndatax: n\ndata: y\n\n", "[y]"},
    {"blank_lines_make_no_event", "\n\n\ndata: a\n\n\n\n", "[a]"},
    {"byte_order_mark_at_start",
     "\xEF\xBB\xBF"
     "data: a\n\n",
     "[a]"},
    {"done_marker", "data: {\"x\":1}\n\ndata: [DONE]\n\n", "[{\"x\":1}][[DONE]]"},
};

static void collect(void *ctx, const char *data, size_t n)
{
    nw_buf *all = ctx;
    (void)(nw_buf_puts(all, "[") && nw_buf_add(all, data, n) && nw_buf_puts(all, "]"));
}

static void push_in_steps(const struct row *r, size_t step)
{
    nw_sse s;
    nw_buf all;
    nw_error err = {0};
    const size_t n = strlen(r->in);

    nw_sse_init(&s, 1000);
    nw_buf_init(&all, 10000);
    (void)nw_buf_puts(&all, "");
    for (size_t i = 0; i < n; i += step) {
        assert_int_equal(
            nw_sse_push(&s, r->in + i, i + step < n ? step : n - i, collect, &all, &err), NW_OK);
    }
    assert_string_equal(all.data, r->want);
    nw_buf_release(&all);
    nw_sse_release(&s);
}

static void reads(void **state)
{
    for (size_t step = 1; step < 9; step++) {
        push_in_steps(*state, step);
    }
    push_in_steps(*state, 1000000);
}

/* A server that never ends a line, or never an event, meets the limit and not the memory's end. */
static void too_long_is_refused(void **state)
{
    static const char *const pieces[] = {"data: 0123456789", "data: 0123456789\n"};

    (void)state;
    for (size_t k = 0; k < NW_COUNT(pieces); k++) {
        nw_sse s;
        nw_buf all;
        nw_error err = {0};
        nw_status st = NW_OK;
        nw_sse_init(&s, 100);
        nw_buf_init(&all, 1000);
        for (int i = 0; st == NW_OK && i < 100; i++) {
            st = nw_sse_push(&s, pieces[k], strlen(pieces[k]), collect, &all, &err);
        }
        assert_int_equal(st, NW_E_RANGE);
        assert_non_null(strstr(err.message, "100 bytes"));
        nw_buf_release(&all);
        nw_sse_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(too_long_is_refused)};

    return NW_RUN_TABLE("sse", rows, reads) + cmocka_run_group_tests(tests, NULL, NULL);
}
