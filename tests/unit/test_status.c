/* Messages: context stands before the fault, long ones are cut and never overrun; size arithmetic
 * refuses what does not fit; each code has its exit code.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/status.h"
#include "table.h"

static struct row {
    const char *name;
    nw_status code;
    int exit_code;
} rows[] = {
    {"ok_is_0", NW_OK, 0},
    {"usage_is_2", NW_E_USAGE, 2},
    {"refused_input_is_3", NW_E_FORMAT, 3},
    {"range_is_3", NW_E_RANGE, 3},
    {"unsupported_is_3", NW_E_UNSUPPORTED, 3},
    {"environment_is_4", NW_E_IO, 4},
    {"no_memory_is_4", NW_E_NOMEM, 4},
    {"network_is_4", NW_E_NETWORK, 4},
    {"busy_is_4", NW_E_BUSY, 4},
    {"cancelled_is_130_as_in_a_shell", NW_E_CANCELLED, 130},
};

static void exit_code(void **state)
{
    const struct row *r = *state;
    assert_int_equal(nw_status_exit_code(r->code), r->exit_code);
    assert_true(strlen(nw_status_text(r->code)) > 1);
}

static void context_comes_first(void **state)
{
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_fail(&err, NW_E_FORMAT, "a.gguf: %d bytes", 7), NW_E_FORMAT);
    assert_int_equal(nw_context(&err, "opening %s", "a model"), NW_E_FORMAT);
    assert_string_equal(err.message, "opening a model: a.gguf: 7 bytes");
    assert_int_equal(err.code, NW_E_FORMAT);
}

static void long_messages_are_cut(void **state)
{
    char text[2000];
    nw_error err = {0};

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(nw_fail(&err, NW_E_IO, "%s", text), NW_E_IO);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    for (size_t cut = 0; cut < 8; cut++) { /* lengths around the end of the field */
        (void)nw_fail(&err, NW_E_IO, "end");
        (void)nw_context(&err, "%s", text + sizeof text - sizeof err.message - 3 + cut);
        assert_true(strlen(err.message) <= sizeof err.message - 1);
        assert_int_equal(err.message[0], 'x');
    }
    (void)nw_fail(&err, NW_E_IO, "%.1000s", text);
    (void)nw_context(&err, "%.50s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

static void sizes_do_not_wrap(void **state)
{
    size_t out = 7;

    (void)state;
    assert_false(nw_size_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_false(nw_size_add(SIZE_MAX, 1, &out));
    assert_int_equal(out, 7);
    assert_true(nw_size_mul(SIZE_MAX, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_true(nw_size_add(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(context_comes_first),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(sizes_do_not_wrap),
    };
    return NW_RUN_TABLE("status", rows, exit_code) + cmocka_run_group_tests(others, NULL, NULL);
}
