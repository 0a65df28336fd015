/* JSON: positions and names in messages, typed look-ups with their limits, JSONL that was cut short.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "table.h"
#include "tmpdir.h"

static struct row {
    const char *name;
    const char *text;
    const char *message; /* NULL: accepted */
} rows[] = {
    {"object", "{\"a\": 1}", NULL},
    {"list", "[1, 2]", NULL},
    {"duplicate_key", "{\"a\": 1,\n \"a\": 2}", "t:2:4: duplicate object key near '\"a\"'"},
    {"cut_short", "{\"a\": ", "t:1:6: unexpected token near end of file"},
    {"two_values", "{} {}", "t:1:4: end of file expected near '{'"},
    {"empty", "", "t:1:0: '[' or '{' expected near end of file"},
    {"bad_utf8", "[\"\xff\"]", "t:1:2: unable to decode byte 0xff near '\"'"},
    {"lone_surrogate", "[\"\\ud800\"]", "t:1:9: invalid Unicode '\\uD800' near '\"\\ud800\"'"},
    {"long_integer", "{\"model_max_length\": 1000000000000000019884624838656}", NULL},
    {"long_integers",
     "[-9223372036854775809, 9223372036854775807, \"\\\"99999999999999999999\", "
     "0.99999999999999999999, 1e-00000000000000000001]",
     NULL},
    {"endless_real", "[1e999]", "t:1:6: real number overflow near '1e999'"},
    {"trailing_comma", "[1,]", "t:1:4: unexpected token near ']'"},
};

static void parse(void **state)
{
    const struct row *r = *state;
    json_t *v = NULL;
    nw_error err = {0};
    const nw_status st = nw_json_parse("t", r->text, strlen(r->text), &v, &err);

    if (r->message == NULL) {
        assert_int_equal(st, NW_OK);
        assert_non_null(v);
    } else {
        assert_int_equal(st, NW_E_FORMAT);
        assert_null(v);
        assert_string_equal(err.message, r->message);
    }
    json_decref(v);
}

/* Integers that int64_t holds stay integers beside one that it does not; text is left alone. */
static void long_integers_become_reals(void **state)
{
    static const char text[] = "[1000000000000000019884624838656, 9223372036854775807, "
                               "\"99999999999999999999\", -99999999999999999999]";
    json_t *v = NULL;
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_json_parse("t", text, sizeof text - 1, &v, &err), NW_OK);
    assert_true(json_real_value(json_array_get(v, 0)) > 0.99e30);
    assert_int_equal(json_integer_value(json_array_get(v, 1)), INT64_MAX);
    assert_string_equal(json_string_value(json_array_get(v, 2)), "99999999999999999999");
    assert_true(json_real_value(json_array_get(v, 3)) < -0.99e20);
    json_decref(v);
}

static struct lookup {
    const char *name;
    const char *text;
    nw_status want;
    uint32_t value; /* 9 stays where nothing is found */
    const char *message;
} lookups[] = {
    {"present", "{\"n\": 5}", NW_OK, 5, NULL},
    {"lowest", "{\"n\": 1}", NW_OK, 1, NULL},
    {"highest", "{\"n\": 10}", NW_OK, 10, NULL},
    {"absent", "{}", NW_OK, 9, NULL},
    {"null_is_absent", "{\"n\": null}", NW_OK, 9, NULL},
    {"too_low", "{\"n\": 0}", NW_E_RANGE, 9, "c.json: 'n' is 0, must be 1 to 10"},
    {"too_high", "{\"n\": 4294967297}", NW_E_RANGE, 9,
     "c.json: 'n' is 4294967297, must be 1 to 10"},
    {"negative", "{\"n\": -1}", NW_E_RANGE, 9, "c.json: 'n' is -1, must be 1 to 10"},
    {"real", "{\"n\": 5.0}", NW_E_FORMAT, 9, "c.json: 'n' is 5.0, expected an integer"},
    {"text", "{\"n\": \"5\"}", NW_E_FORMAT, 9, "c.json: 'n' is \"5\", expected an integer"},
    {"object", "{\"n\": {}}", NW_E_FORMAT, 9, "c.json: 'n' is an object, expected an integer"},
};

static void opt_u32(void **state)
{
    const struct lookup *r = *state;
    json_t *v = NULL;
    nw_error err = {0};
    uint32_t n = 9;

    assert_int_equal(nw_json_parse("t", r->text, strlen(r->text), &v, &err), NW_OK);
    assert_int_equal(nw_json_opt_u32(v, "c.json", "n", 1, 10, &n, &err), r->want);
    assert_int_equal(n, r->value);
    assert_string_equal(err.message, r->message == NULL ? "" : r->message);
    json_decref(v);
}

static void other_lookups(void **state)
{
    static const char text[] = "{\"x\": 0.5, \"b\": true, \"s\": \"hi\", \"i\": 2}";
    json_t *v = NULL;
    nw_error err = {0};
    double x = 0;
    bool b = false;
    const char *s = NULL;
    uint32_t n = 0;

    (void)state;
    assert_int_equal(nw_json_parse("t", text, sizeof text - 1, &v, &err), NW_OK);
    assert_int_equal(nw_json_opt_double(v, "t", "x", 0, 1, &x, &err), NW_OK);
    assert_true(x == 0.5);
    assert_int_equal(nw_json_opt_double(v, "t", "i", 0, 1, &x, &err), NW_E_RANGE);
    assert_string_equal(err.message, "t: 'i' is 2, must be 0 to 1");
    assert_int_equal(nw_json_opt_bool(v, "t", "b", &b, &err), NW_OK);
    assert_true(b);
    assert_int_equal(nw_json_opt_bool(v, "t", "i", &b, &err), NW_E_FORMAT);
    assert_int_equal(nw_json_str(v, "t", "s", &s, &err), NW_OK);
    assert_string_equal(s, "hi");
    assert_int_equal(nw_json_str(v, "t", "none", &s, &err), NW_E_FORMAT);
    assert_string_equal(err.message, "t: 'none' is missing");
    assert_int_equal(nw_json_u32(v, "t", "none", 0, 1, &n, &err), NW_E_FORMAT);
    assert_int_equal(nw_json_opt_str(v, "t", "b", &s, &err), NW_E_FORMAT);
    assert_string_equal(err.message, "t: 'b' is true, expected a string");
    json_decref(v);
}

static void canonical_is_sorted(void **state)
{
    static const char text[] = "{ \"b\": 1,\n\"a\": [true, null] }";
    json_t *v = NULL;
    nw_error err;

    (void)state;
    assert_int_equal(nw_json_parse("t", text, sizeof text - 1, &v, &err), NW_OK);
    char *canonical = nw_json_canonical(v);
    assert_string_equal(canonical, "{\"a\":[true,null],\"b\":1}");
    free(canonical);
    json_decref(v);
}

static struct jsonl {
    const char *name;
    const char *text;
    bool strict_end;
    int n_rows; /* before the end or the error */
    const char *message;
} jsonls[] = {
    {"two_rows", "{\"a\":1}\n{\"a\":2}\n", true, 2, NULL},
    {"empty_file", "", true, 0, NULL},
    {"blank_lines_are_skipped", "{\"a\":1}\n\n \r\n{\"a\":2}\n", true, 2, NULL},
    {"last_line_without_newline", "{\"a\":1}\n{\"a\":2}", false, 2, NULL},
    {"last_line_cut_is_an_error", "{\"a\":1}\n{\"a\":2}", true, 1, ":2: line cut short"},
    {"half_a_row", "{\"a\":1}\n{\"a\":", false, 1, ":2:5: unexpected token near end of file"},
    {"duplicate_key", "{\"a\":1,\"a\":1}\n", true, 0, ":1:10: duplicate object key near '\"a\"'"},
};

static void jsonl_rows(void **state)
{
    const struct jsonl *r = *state;
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    nw_jsonl reader = {0};
    json_t *row = NULL;
    nw_error err = {0};
    int n = 0;

    nw_tmpdir_put(&d, "rows.jsonl", r->text, strlen(r->text), path, sizeof path);
    assert_int_equal(nw_jsonl_open(&reader, path, r->strict_end, &err), NW_OK);
    nw_status st = nw_jsonl_next(&reader, &row, &err);
    while (st == NW_OK && row != NULL) {
        n++;
        assert_int_equal(json_integer_value(json_object_get(row, "a")), n);
        st = nw_jsonl_next(&reader, &row, &err);
    }
    assert_int_equal(n, r->n_rows);
    assert_int_equal(st, r->message == NULL ? NW_OK : NW_E_FORMAT);
    assert_string_equal(st == NW_OK ? "" : err.message + strlen(path),
                        r->message == NULL ? "" : r->message);
    nw_jsonl_close(&reader);
    nw_jsonl_close(&reader);
    nw_tmpdir_remove(&d);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(other_lookups),
        cmocka_unit_test(long_integers_become_reals),
        cmocka_unit_test(canonical_is_sorted),
    };
    return NW_RUN_TABLE("parse", rows, parse) + NW_RUN_TABLE("opt_u32", lookups, opt_u32) +
           NW_RUN_TABLE("jsonl", jsonls, jsonl_rows) + cmocka_run_group_tests(others, NULL, NULL);
}
