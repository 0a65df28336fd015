/* The buffer: its cap holds, a refused append changes nothing, and text is always NUL-terminated.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/buf.h"
#include "table.h"

static struct row {
    const char *name;
    size_t max;
    const char *first, *second;
    bool second_fits;
    const char *want;
} rows[] = {
    {"room_for_both", 10, "abc", "def", true, "abcdef"},
    {"exactly_full", 6, "abc", "def", true, "abcdef"},
    {"one_byte_over", 5, "abc", "def", false, "abc"},
    {"nothing_fits_a_cap_of_zero", 0, "", "x", false, ""},
    {"empty_fits_a_cap_of_zero", 0, "", "", true, ""},
};

static void buf_cap(void **state)
{
    const struct row *r = *state;

    for (int printf_too = 0; printf_too < 2; printf_too++) {
        nw_buf b;
        nw_buf_init(&b, r->max);
        assert_true(nw_buf_puts(&b, r->first));
        const bool fits =
            printf_too ? nw_buf_printf(&b, "%s", r->second) : nw_buf_puts(&b, r->second);
        assert_int_equal(fits, r->second_fits);
        assert_int_equal(b.failed, !r->second_fits);
        assert_int_equal(b.len, strlen(r->want));
        assert_string_equal(b.data, r->want);
        nw_buf_release(&b);
    }
}

static void take_moves_the_text_out(void **state)
{
    nw_buf b;

    (void)state;
    nw_buf_init(&b, 8);
    char *empty = nw_buf_take(&b);
    assert_string_equal(empty, "");
    assert_true(nw_buf_printf(&b, "%d", 1234));
    char *text = nw_buf_take(&b);
    assert_string_equal(text, "1234");
    assert_null(b.data);
    assert_true(nw_buf_puts(&b, "12345678"));
    assert_false(nw_buf_puts(&b, "9"));
    assert_null(nw_buf_take(&b));
    assert_true(b.failed);
    nw_buf_clear(&b);
    assert_true(nw_buf_puts(&b, "again"));
    nw_buf_release(&b);
    free(empty);
    free(text);
}

static void grows_far_and_keeps_bytes(void **state)
{
    nw_buf b;

    (void)state;
    nw_buf_init(&b, SIZE_MAX);
    for (unsigned i = 0; i < 100000; i++) {
        const char c = (char)('a' + i % 26);
        assert_true(nw_buf_add(&b, &c, 1));
    }
    assert_int_equal(b.len, 100000);
    assert_int_equal(b.data[99999], 'a' + 99999 % 26);
    assert_int_equal(b.data[100000], '\0');
    nw_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(take_moves_the_text_out),
        cmocka_unit_test(grows_far_and_keeps_bytes),
    };
    return NW_RUN_TABLE("buf", rows, buf_cap) + cmocka_run_group_tests(others, NULL, NULL);
}
