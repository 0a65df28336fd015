/* YAML: scalars of the core schema (YAML 1.2.2, chapter 10.3), the place of each node, and refusals
 * with the place of the fault.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/yaml.h"
#include "table.h"
#include "tmpdir.h"

static nw_status load(const char *text, nw_yaml **y, nw_error *err, size_t *n_path)
{
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];

    nw_tmpdir_put(&d, "s.yaml", text, strlen(text), path, sizeof path);
    *n_path = strlen(path);
    const nw_status st = nw_yaml_load(path, y, err);
    nw_tmpdir_remove(&d);
    return st;
}

static struct row {
    const char *name;
    const char *text;
    const char *json; /* canonical; NULL: refused */
    const char *message;
} rows[] = {
    {"map", "b: 1\na: x\n", "{\"a\":\"x\",\"b\":1}", NULL},
    {"list", "- 1\n- [2, 3]\n", "[1,[2,3]]", NULL},
    {"nulls", "[~, null, Null, NULL, '']", "[null,null,null,null,\"\"]", NULL},
    {"empty_value_is_null", "a:\n", "{\"a\":null}", NULL},
    {"booleans", "[true, False, TRUE, yes, 'true']", "[true,false,true,\"yes\",\"true\"]", NULL},
    {"integers", "[0, -12, +3, 0o17, 0x1F, 017]", "[0,-12,3,15,31,17]", NULL},
    {"integer_limits", "[9223372036854775807, -9223372036854775808]",
     "[9223372036854775807,-9223372036854775808]", NULL},
    {"reals", "[1.5, .5, 2., 1e3, -1.25E-1]", "[1.5,0.5,2.0,1000.0,-0.125]", NULL},
    {"not_numbers", "[1.2.3, 1e, ., 0x, 1_000, v1]",
     "[\"1.2.3\",\"1e\",\".\",\"0x\",\"1_000\",\"v1\"]", NULL},
    {"quoted_stays_text", "[\"1\", '2.5']", "[\"1\",\"2.5\"]", NULL},
    {"block_text", "a: |\n  x\n  y\n", "{\"a\":\"x\\ny\\n\"}", NULL},
    {"integer_overflow", "a: 9223372036854775808\n", NULL, ":1:4: integer does not fit 64 bits"},
    {"infinity", "a: .inf\n", NULL, ":1:4: number is not finite"},
    {"real_overflow", "a: 1e999\n", NULL, ":1:4: number is not finite"},
    {"duplicate_key", "a: 1\nb: 2\na: 3\n", NULL, ":3:1: duplicate key 'a'"},
    {"duplicate_key_below", "a:\n  - {k: 1, k: 2}\n", NULL, ":2:12: duplicate key 'k'"},
    {"alias", "a: &x [1]\nb: *x\n", NULL, ":2:4: aliases and tags are not supported"},
    {"tag", "a: !!str 1\n", NULL, ":1:10: tags are not supported"},
    {"tagged_list", "a: !x [1]\n", NULL, ":1:7: aliases and tags are not supported"},
    {"list_as_key", "[1]: 2\n", NULL, ":1:1: a key must be a plain name"},
    {"two_documents", "a: 1\n---\nb: 2\n", NULL, ":3:1: a second document in one file"},
    {"directive", "%YAML 1.2\n---\na: 1\n", NULL, ":1:1: directives are not supported"},
    {"control_character", "a: 1\nb: \x01\n", NULL, ":2:4: a control character"},
    {"not_utf8", "a: \xff\n", NULL, ":1:4: not UTF-8"},
    {"empty_document", "# nothing\n", NULL, ": an empty document"},
};

static void load_text(void **state)
{
    const struct row *r = *state;
    nw_yaml *y = NULL;
    nw_error err = {0};
    size_t n_path = 0;
    const nw_status st = load(r->text, &y, &err, &n_path);

    if (r->json != NULL) {
        assert_int_equal(st, NW_OK);
        char *json = nw_json_canonical(nw_yaml_root(y));
        assert_string_equal(json, r->json);
        free(json);
    } else {
        assert_int_equal(st, NW_E_FORMAT);
        assert_null(y);
        assert_string_equal(err.message + n_path, r->message);
    }
    nw_yaml_close(y);
}

static void syntax_errors_have_a_place(void **state)
{
    nw_yaml *y = NULL;
    nw_error err = {0};
    size_t n_path = 0;

    (void)state;
    assert_int_equal(load("a: 1\nb: [1, 2\n", &y, &err, &n_path), NW_E_FORMAT);
    assert_int_equal(err.message[n_path], ':');
    assert_true(strtol(err.message + n_path + 1, NULL, 10) >= 2);
    assert_int_equal(load("a: \"\n", &y, &err, &n_path), NW_E_FORMAT);
    assert_int_equal(load("\xff\xfe\xff", &y, &err, &n_path), NW_E_FORMAT);
    assert_null(y);
}

static struct where {
    const char *name;
    const char *pointer;
    const char *place;
} wheres[] = {
    {"root", "", ":1:1"},
    {"value_of_a_key", "/name", ":1:7"},
    {"item_of_a_list", "/candidates/0", ":3:5"},
    {"field_of_an_item", "/candidates/1/weights", ":6:14"},
    {"escaped_slash", "/a~1b", ":7:6"},
    {"escaped_tilde", "/c~0d", ":8:6"},
    {"quoted", "/q", ":9:4"},
    {"quoted_in_flow", "/f/x/1", ":10:12"},
    {"flow_list", "/f/x", ":10:8"},
    {"absent_key_shows_its_parent", "/candidates/1/kv", ":5:5"},
    {"absent_index_shows_the_list", "/candidates/7", ":3:3"},
    {"below_a_scalar", "/name/x/y", ":1:7"},
};

static void where_is(void **state)
{
    static const char text[] = "name: demo\n"
                               "candidates:\n"
                               "  - name: a\n"
                               "    weights: bf16\n"
                               "  - name: b\n"
                               "    weights: int4\n"
                               "a/b: 1\n"
                               "c~d: 2\n"
                               "q: \"text\"\n"
                               "f: {x: [1, 'y']}\n";
    const struct where *r = *state;
    nw_yaml *y = NULL;
    nw_error err = {0};
    size_t n_path = 0;
    char buf[600];

    assert_int_equal(load(text, &y, &err, &n_path), NW_OK);
    assert_string_equal(nw_yaml_where(y, r->pointer, buf, sizeof buf) + n_path, r->place);
    assert_int_equal(strlen(nw_yaml_path(y)), n_path);
    nw_yaml_close(y);
}

static void depth_and_size_are_bounded(void **state)
{
    static char text[(1 << 20) + 2];
    nw_yaml *y = NULL;
    nw_error err = {0};
    size_t n_path = 0;

    (void)state;
    memset(text, '[', 100000);
    assert_int_equal(load(text, &y, &err, &n_path), NW_E_FORMAT);
    memset(text, '#', sizeof text - 1);
    assert_int_equal(load(text, &y, &err, &n_path), NW_E_RANGE);
    assert_null(y);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(syntax_errors_have_a_place),
        cmocka_unit_test(depth_and_size_are_bounded),
    };
    return NW_RUN_TABLE("load", rows, load_text) + NW_RUN_TABLE("where", wheres, where_is) +
           cmocka_run_group_tests(others, NULL, NULL);
}
