/* Graders: what counts as the answer, by hand. SPDX-License-Identifier: Apache-2.0 */
#include "eval/suite.h"
#include "table.h"

static struct row {
    const char *name;
    nw_grader grader;
    const char *answer, *text;
    bool want;
} rows[] = {
    {"exact_ignores_space_around", NW_GRADE_EXACT, "Paris", "  Paris\n", true},
    {"exact_wants_nothing_more", NW_GRADE_EXACT, "Paris", "Paris.", false},
    {"contains_inside_a_sentence", NW_GRADE_CONTAINS, "7391", "The code is 7391.", true},
    {"contains_not_inside_a_number", NW_GRADE_CONTAINS, "739", "The code is 7391.", false},
    {"contains_not_inside_a_word", NW_GRADE_CONTAINS, "art", "a party", false},
    {"contains_second_occurrence", NW_GRADE_CONTAINS, "art", "party art", true},
    {"contains_letters_beyond_ascii_go_on", NW_GRADE_CONTAINS, "Oslo", "Oslo\xc3\xa9", false},
    {"contains_an_empty_answer_is_never_found", NW_GRADE_CONTAINS, "", "text", false},
    {"number_last_one_counts", NW_GRADE_NUMBER, "14", "11 plus 3 equals 14.", true},
    {"number_first_one_does_not", NW_GRADE_NUMBER, "11", "11 plus 3 equals 14.", false},
    {"number_with_thousands", NW_GRADE_NUMBER, "1024", "It is 1,024 tokens", true},
    {"number_decimal_value", NW_GRADE_NUMBER, "2.50", "2.5", true},
    {"number_negative", NW_GRADE_NUMBER, "-3", "x = -3", true},
    {"number_none_at_all", NW_GRADE_NUMBER, "3", "three", false},
    {"number_comma_of_a_list", NW_GRADE_NUMBER, "3", "1, 2, 3", true},
    {"json_any_order_of_keys", NW_GRADE_JSON, "{\"a\":1,\"b\":[2]}", "{\"b\":[2], \"a\":1}", true},
    {"json_in_a_fence", NW_GRADE_JSON, "{\"a\":1}", "```json\n{\"a\": 1}\n```", true},
    {"json_with_prose_is_no_json", NW_GRADE_JSON, "{\"a\":1}", "Here: {\"a\": 1}", false},
    {"json_doubled_key_is_no_json", NW_GRADE_JSON, "{\"a\":1}", "{\"a\":1,\"a\":1}", false},
    {"json_other_value", NW_GRADE_JSON, "{\"a\":1}", "{\"a\":2}", false},
};

static void grade(void **state)
{
    const struct row *r = *state;
    const nw_item item = {.grader = r->grader, .expected = r->answer};
    assert_int_equal(nw_grade(&item, r->text), r->want);
}

int main(void)
{
    return NW_RUN_TABLE("grade", rows, grade);
}
