/* Study files: each mistake is told with path:line:column. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "study/file.h"
#include "table.h"
#include "tmpdir.h"

#define HEAD "study: s\nbaseline: {name: bf16, recipe: bf16}\ncandidates:\n"
#define ONE  HEAD "  - {name: a, recipe: int4-g64}\n"

static struct row {
    const char *name;
    const char *text;
    const char *error; /* after the path; NULL: accepted */
} rows[] = {
    {"smallest", ONE, NULL},
    {"everything",
     ONE "model: m\nwork: w\npolicy: p\n"
         "calibration: {log: l, by: intent, samples: 9, context: 64, seed: 2}\n"
         "quality: {text: t, context: 256, windows: 8, choice: c, generate: g, items: 3, seed: 9}\n"
         "batch1: {prompt: 10, output: 5, requests: 3, warmup: 1}\n"
         "load: {prompt: [3, 9], output: 4, requests: 7, rates: [0.5, 1.1], warmup_s: 0.5}\n",
     NULL},
    {"unknown_key", ONE "colour: red\n", ":5:9: unknown key 'colour'"},
    {"unknown_key_of_a_candidate", HEAD "  - {name: a, recipe: r, bits: 4}\n",
     ":4:32: unknown key"},
    {"no_baseline", "study: s\ncandidates:\n  - {name: a, recipe: r}\n", ": no baseline"},
    {"no_candidates", "study: s\nbaseline: {name: b, recipe: r}\n", "candidates: a list"},
    {"two_of_one_name", HEAD "  - {name: a, recipe: r}\n  - {name: a, recipe: q}\n",
     ":5:5: two candidates of one name"},
    {"baseline_name_taken", HEAD "  - {name: bf16, recipe: r}\n", "two candidates of one name"},
    {"recipe_and_artifact", HEAD "  - {name: a, recipe: r, artifact: f}\n", "either a recipe or"},
    {"name_that_is_a_path", HEAD "  - {name: ../a, recipe: r}\n", "a candidate needs a name"},
    {"number_as_text", ONE "batch1: {prompt: many}\n", "'prompt' is not a whole number from 1"},
    {"number_out_of_range", ONE "quality: {context: 2}\n",
     "'context' is not a whole number from 4"},
    {"range_upside_down", ONE "load: {prompt: [9, 3]}\n", "tokens: one number or [low, high]"},
    {"rate_of_zero", ONE "load: {rates: [0]}\n", "rates: 1 to 16 shares"},
    {"calibration_from_nothing", ONE "calibration: {samples: 3}\n",
     ":5:14: calibration needs either a log or a text"},
    {"calibration_from_both", ONE "calibration: {log: a, text: b}\n",
     "calibration needs either a log or a text"},
    {"strata_of_a_text", ONE "calibration: {text: b, by: intent}\n",
     "'by' names a field of a log, and there is none"},
    {"no_name", "baseline: {name: b, recipe: r}\ncandidates:\n  - {name: a, recipe: r}\n",
     "no name"},
};

static void load(void **state)
{
    const struct row *r = *state;
    nw_tmpdir dir = nw_tmpdir_make();
    char path[512];
    nw_study s;
    nw_error err = {.code = NW_OK};

    (void)nw_tmpdir_put(&dir, "study.yaml", r->text, strlen(r->text), path, sizeof path);
    const nw_status st = nw_study_load(path, &s, &err);
    if (r->error == NULL) {
        assert_int_equal(st, NW_OK);
        assert_int_equal(s.n_candidates, 2);
        assert_string_equal(s.candidates[0].name, "bf16");
        assert_string_equal(s.candidates[1].recipe, "int4-g64");
        nw_study_release(&s);
    } else {
        assert_int_equal(st, NW_E_FORMAT);
        assert_non_null(strstr(err.message, "study.yaml:"));
        if (strstr(err.message, r->error) == NULL) {
            fail_msg("'%s' is not in: %s", r->error, err.message);
        }
    }
    nw_tmpdir_remove(&dir);
}

static void values_arrive(void **state)
{
    const struct row *r = &rows[1];
    nw_tmpdir dir = nw_tmpdir_make();
    char path[512];
    nw_study s;
    nw_error err = {.code = NW_OK};

    (void)state;
    (void)nw_tmpdir_put(&dir, "study.yaml", r->text, strlen(r->text), path, sizeof path);
    assert_int_equal(nw_study_load(path, &s, &err), NW_OK);
    assert_string_equal(s.quality.generate, "g");
    assert_int_equal(s.quality.n_ctx, 256);
    assert_int_equal(s.batch1.output, 5);
    assert_int_equal(s.load.prompt_lo, 3);
    assert_int_equal(s.load.prompt_hi, 9);
    assert_int_equal(s.load.output_hi, 4);
    assert_int_equal(s.load.n_rates, 2);
    assert_true(s.load.rates[1] > 1.09 && s.load.rates[1] < 1.11);
    assert_true(s.load.warmup_s > 0.49 && s.load.warmup_s < 0.51);
    nw_study_release(&s);
    nw_tmpdir_remove(&dir);
}

/* The studies that ship are without mistakes, and their policies are there. */
static void shipped_studies_load(void **state)
{
    static const char *const names[] = {"demo", "reference"};
    char path[512];
    nw_error err = {.code = NW_OK};

    (void)state;
    for (size_t i = 0; i < NW_COUNT(names); i++) {
        nw_study s;
        (void)snprintf(path, sizeof path, "%s/studies/%s.yaml", NW_SOURCE_DIR, names[i]);
        if (nw_study_load(path, &s, &err) != NW_OK) {
            fail_msg("%s", err.message);
        }
        assert_string_equal(s.name, names[i]);
        (void)snprintf(path, sizeof path, "%s/%s", NW_SOURCE_DIR, s.policy);
        assert_true(nw_file_exists(path));
        nw_study_release(&s);
    }
}

static void reference_keeps_the_full_protocol(void **state)
{
    nw_study s;
    nw_error err = {.code = NW_OK};

    (void)state;
    assert_int_equal(nw_study_load(NW_SOURCE_DIR "/studies/reference.yaml", &s, &err), NW_OK);
    assert_true(s.batch1.requests >= 300 && s.batch1.warmup >= 10);
    assert_true(s.load.files >= 5 && s.load.requests >= 662 && s.load.warmup_s >= 30);
    assert_int_equal(s.quality.windows, 0);
    nw_study_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_arrive),
                                       cmocka_unit_test(shipped_studies_load),
                                       cmocka_unit_test(reference_keeps_the_full_protocol)};
    const int failed = NW_RUN_TABLE("study_file", rows, load);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
