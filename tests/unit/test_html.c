/* Escaping, formats and numbers of the report.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "report/html.h"
#include "table.h"

#define BAD "\xEF\xBF\xBD"

static struct escape_row {
    const char *name, *in, *out;
} escapes[] = {
    {"plain text stays", "caf\xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80\tx\ny",
     "caf\xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80\tx\ny"},
    {"markup becomes entities", "<script>alert(1)</script>",
     "&lt;script&gt;alert(1)&lt;/script&gt;"},
    {"quotes end no attribute", "\" onload='x' &amp;", "&quot; onload=&#39;x&#39; &amp;amp;"},
    {"cdata end", "]]>", "]]&gt;"},
    {"controls are replaced", "a\x01\x1b[31m\x7f\r", "a" BAD BAD "[31m" BAD BAD},
    {"C1 controls are replaced", "a\xC2\x9Bm", "a" BAD "m"},
    {"lone continuation", "\x80<", BAD "&lt;"},
    {"overlong slash", "\xC0\xAF", BAD BAD},
    {"overlong three bytes", "\xE0\x80\xBC", BAD BAD BAD},
    {"surrogate", "\xED\xA0\x80", BAD BAD BAD},
    {"above the last character", "\xF4\x90\x80\x80", BAD BAD BAD BAD},
    {"cut at the end", "x\xE2\x82", "x" BAD BAD},
    {"cut before markup", "\xE2\x82<", BAD BAD "&lt;"},
    {"empty", "", ""},
};

static void escapes_text(void **state)
{
    const struct escape_row *row = *state;
    nw_buf b;

    nw_buf_init(&b, 4096);
    assert_true(nw_html_escape(&b, row->in, strlen(row->in)));
    assert_string_equal(b.data != NULL ? b.data : "", row->out);
    nw_buf_release(&b);
}

static void formats_escape_every_text(void **state)
{
    nw_buf b;

    (void)state;
    nw_buf_init(&b, 4096);
    assert_true(nw_html(&b, "<b>%s</b>%d%%%zu|%lld|%5.2f|%.*s|%x", "<i>", -3, (size_t)7,
                        (long long)1 << 40, 2.5, 3, "a&bcdef", 255));
    assert_string_equal(b.data, "<b>&lt;i&gt;</b>-3%7|1099511627776| 2.50|a&amp;b|ff");
    nw_buf_clear(&b);
    const char *volatile none = NULL;
    assert_true(nw_html(&b, "%s", none));
    assert_string_equal(b.data, NW_EN_DASH);
    nw_buf_release(&b);
}

static struct number_row {
    const char *name;
    double value;
    const char *sig, *signed2;
} numbers[] = {
    {"zero", 0, "0", "0.00"},
    {"small", 0.01234, "0.0123", "+0.01"},
    {"tiny", 3.14e-6, "3.1e-06", "0.00"},
    {"one", 1.2345, "1.23", "+1.23"},
    {"tens", 12.345, "12.3", "+12.35"},
    {"rounds up a place", 9.9996, "10.0", "+10.00"},
    {"hundreds", 123.4, "123", "+123.40"},
    {"thousands", 1234.5, "1234", "+1234.50"},
    {"negative", -0.5,
     "\xE2\x88\x92"
     "0.500",
     "\xE2\x88\x92"
     "0.50"},
    {"negative that rounds to zero", -0.0001,
     "\xE2\x88\x92"
     "0.000100",
     "0.00"},
    {"not measured", (double)NAN, NW_EN_DASH, NW_EN_DASH},
    {"no bound", (double)INFINITY, "\xE2\x88\x9E", "\xE2\x88\x9E"},
};

static void numbers_for_people(void **state)
{
    const struct number_row *row = *state;
    nw_num n;

    assert_string_equal(nw_sig(row->value, &n), row->sig);
    assert_string_equal(nw_signed(row->value, 2, &n), row->signed2);
}

static void counts_have_separators(void **state)
{
    nw_num n;

    (void)state;
    assert_string_equal(nw_count(0, &n), "0");
    assert_string_equal(nw_count(999, &n), "999");
    assert_string_equal(nw_count(1234567, &n), "1,234,567");
    assert_string_equal(nw_count(-1, &n), NW_EN_DASH);
    assert_string_equal(nw_mib(3 * 1048576.0, &n), "3.00");
    assert_string_equal(nw_sig_range(0.5, 12, &n), "0.500 to 12.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_escape_every_text),
        cmocka_unit_test(counts_have_separators),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    failed += NW_RUN_TABLE("escape", escapes, escapes_text);
    failed += NW_RUN_TABLE("numbers", numbers, numbers_for_people);
    return failed;
}
