/* Suites: items are read whole or refused with file, line and key. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/suite.h"
#include "table.h"
#include "tmpdir.h"

static struct row {
    const char *name;
    nw_item_kind kind;
    const char *text;  /* of the file */
    const char *error; /* a part of the message; NULL: accepted */
} rows[] = {
    {"choice_minimal", NW_ITEM_CHOICE,
     "{\"id\":\"a\",\"prompt\":\"p\",\"choices\":[\"x\",\"y\"],\"answer\":1}\n", NULL},
    {"last_line_without_newline_is_read", NW_ITEM_CHOICE,
     "{\"id\":\"a\",\"prompt\":\"p\",\"choices\":[\"x\",\"y\"],\"answer\":0}", NULL},
    {"one_choice_is_too_few", NW_ITEM_CHOICE,
     "{\"id\":\"a\",\"prompt\":\"p\",\"choices\":[\"x\"],\"answer\":0}\n",
     ":1: choices: 1, 2 to 26"},
    {"answer_out_of_range", NW_ITEM_CHOICE,
     "{\"id\":\"a\",\"prompt\":\"p\",\"choices\":[\"x\",\"y\"],\"answer\":2}\n", "answer"},
    {"empty_choice", NW_ITEM_CHOICE,
     "{\"id\":\"a\",\"prompt\":\"p\",\"choices\":[\"x\",\"\"],\"answer\":0}\n", "choices[1]"},
    {"second_line_is_named", NW_ITEM_CHOICE,
     "{\"id\":\"a\",\"prompt\":\"p\",\"choices\":[\"x\",\"y\"],\"answer\":1}\n{\"id\":\"b\"}\n",
     ":2: 'prompt' is missing"},
    {"two_items_of_one_id", NW_ITEM_CHOICE,
     "{\"id\":\"a\",\"prompt\":\"p\",\"choices\":[\"x\",\"y\"],\"answer\":1}\n"
     "{\"id\":\"a\",\"prompt\":\"q\",\"choices\":[\"x\",\"y\"],\"answer\":1}\n",
     "id 'a' stands twice"},
    {"no_items", NW_ITEM_CHOICE, "", "no items"},
    {"generate_minimal", NW_ITEM_GENERATE,
     "{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"2+2?\"}],\"grader\":\"number\","
     "\"answer\":4}\n",
     NULL},
    {"unknown_grader", NW_ITEM_GENERATE,
     "{\"id\":\"a\",\"messages\":[{}],\"grader\":\"vibes\",\"answer\":4}\n", "grader 'vibes'"},
    {"answer_of_wrong_type", NW_ITEM_GENERATE,
     "{\"id\":\"a\",\"messages\":[{}],\"grader\":\"exact\",\"answer\":[1]}\n", "answer"},
    {"max_tokens_out_of_range", NW_ITEM_GENERATE,
     "{\"id\":\"a\",\"messages\":[{}],\"grader\":\"exact\",\"answer\":\"b\",\"max_tokens\":0}\n",
     "max_tokens"},
};

static void file_is_read(void **state)
{
    const struct row *r = *state;
    nw_tmpdir dir = nw_tmpdir_make();
    char path[512];
    nw_suite suite;
    nw_error err = {.code = NW_OK};

    (void)nw_tmpdir_put(&dir, "suite.jsonl", r->text, strlen(r->text), path, sizeof path);
    const nw_status st = nw_suite_open(path, r->kind, 1, 0, &suite, &err);
    if (r->error == NULL) {
        assert_int_equal(st, NW_OK);
        assert_int_equal(suite.n_items, 1);
        assert_string_equal(suite.items[0].cluster, "a"); /* none given: its own */
        nw_suite_release(&suite);
    } else {
        assert_int_not_equal(st, NW_OK);
        if (strstr(err.message, r->error) == NULL) {
            fail_msg("'%s' is not in: %s", r->error, err.message);
        }
    }
    nw_tmpdir_remove(&dir);
}

/* Every generator: same seed, same bytes; other seed, other questions; answers inside; and what it
 * writes as JSONL is read back to the same hash. */
static void generators_are_reproducible(void **state)
{
    size_t n = 0;
    const nw_suite_builtin *b = nw_suite_builtins(&n);
    nw_error err = {.code = NW_OK};

    (void)state;
    for (size_t i = 0; i < n; i++) {
        char spec[64];
        nw_suite one;
        nw_suite two;
        nw_suite other;
        (void)snprintf(spec, sizeof spec, "builtin:%s", b[i].name);
        assert_int_equal(nw_suite_open(spec, b[i].kind, 1, 0, &one, &err), NW_OK);
        assert_int_equal(nw_suite_open(spec, b[i].kind, 1, 0, &two, &err), NW_OK);
        assert_int_equal(nw_suite_open(spec, b[i].kind, 2, 0, &other, &err), NW_OK);
        assert_int_equal(one.n_items, b[i].n_default);
        assert_string_equal(one.hash.hex, two.hash.hex);
        assert_string_not_equal(one.hash.hex, other.hash.hex);
        nw_suite_release(&one);
        nw_suite_release(&two);
        nw_suite_release(&other);
    }
}

static void generator_round_trips_through_a_file(void **state)
{
    nw_tmpdir dir = nw_tmpdir_make();
    char path[512];
    nw_suite made;
    nw_suite read;
    nw_error err = {.code = NW_OK};

    (void)state;
    assert_int_equal(nw_suite_open("builtin:basics", NW_ITEM_CHOICE, 3, 140, &made, &err), NW_OK);
    (void)nw_tmpdir_put(&dir, "suite.jsonl", "", 0, path, sizeof path);
    FILE *fp = fopen(path, "w");
    assert_non_null(fp);
    for (size_t i = 0; i < made.n_items; i++) {
        char *line = nw_item_json(&made, i);
        (void)fprintf(fp, "%s\n", line);
        free(line);
    }
    (void)fclose(fp);
    assert_int_equal(nw_suite_open(path, NW_ITEM_CHOICE, 0, 0, &read, &err), NW_OK);
    assert_string_equal(made.hash.hex, read.hash.hex);
    nw_suite_release(&made);
    nw_suite_release(&read);
    nw_tmpdir_remove(&dir);
}

/* The right choice must not sit at one place, or a model that always takes it would score. */
static void right_answers_are_spread(void **state)
{
    nw_suite s;
    nw_error err = {.code = NW_OK};
    size_t at[4] = {0};
    size_t of_four = 0;

    (void)state;
    assert_int_equal(nw_suite_open("builtin:basics", NW_ITEM_CHOICE, 1, 700, &s, &err), NW_OK);
    for (size_t i = 0; i < s.n_items; i++) {
        const nw_item *it = &s.items[i];
        for (uint32_t c = 0; c < it->n_choices; c++) {
            for (uint32_t d = 0; d < c; d++) {
                assert_string_not_equal(it->choices[c], it->choices[d]);
            }
        }
        if (it->n_choices == 4) {
            at[it->answer]++;
            of_four++;
        }
    }
    for (size_t k = 0; k < 4; k++) { /* a quarter, give or take 5 binomial standard deviations */
        assert_true(at[k] * 4 > of_four - 4 * of_four / 11 && at[k] * 4 < of_four + of_four / 2);
    }
    nw_suite_release(&s);
}

static void unknown_generator_is_named(void **state)
{
    nw_suite s;
    nw_error err = {.code = NW_OK};

    (void)state;
    assert_int_equal(nw_suite_open("builtin:nope", NW_ITEM_CHOICE, 1, 0, &s, &err),
                     NW_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "builtin:nope"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generators_are_reproducible),
        cmocka_unit_test(generator_round_trips_through_a_file),
        cmocka_unit_test(right_answers_are_spread),
        cmocka_unit_test(unknown_generator_is_named),
    };
    const int failed = NW_RUN_TABLE("suite_file", rows, file_is_read);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
