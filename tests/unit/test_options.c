/* Command lines against a table with every type of option: what is accepted, what comes out, and the
 * sentence of each refusal.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/options.h"
#include "table.h"

static const nw_option options[] = {
    {.name = "flag", .letter = 'f', .type = NW_OPT_FLAG, .help = "h"},
    {.name = "output", .letter = 'o', .type = NW_OPT_STRING, .unit = "FILE", .help = "h"},
    {.name = "n-ctx",
     .type = NW_OPT_INT,
     .fallback = "512",
     .lo = 1,
     .hi = 4096,
     .unit = "tokens",
     .help = "h"},
    {.name = "alpha",
     .letter = 'a',
     .type = NW_OPT_DOUBLE,
     .fallback = "0.5",
     .lo = 0,
     .hi = 1,
     .help = "h"},
    {.name = "format",
     .type = NW_OPT_CHOICE,
     .fallback = "gguf",
     .choices = "gguf|native",
     .help = "h"},
    {.name = "candidate", .letter = 'c', .type = NW_OPT_REPEAT, .unit = "NAME", .help = "h"},
    {.name = "recipe", .type = NW_OPT_STRING, .required = true, .help = "h"},
};

static const nw_command command = {
    .name = "try",
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "MODEL [TEXT]",
    .min_operands = 1,
    .max_operands = 2,
    .summary = "s",
};

#define MAX_ARGS 8

static struct row {
    const char *name;
    const char *argv[MAX_ARGS];
    const char *message; /* "" for accepted lines */
} rows[] = {
    {"least", {"m", "--recipe", "r"}, ""},
    {"options_after_operands", {"m", "t", "--recipe=r", "-f"}, ""},
    {"required_is_missing", {"m"}, "try: --recipe is missing"},
    {"operand_is_missing",
     {"--recipe", "r"},
     "try: 0 operands, at least 1 needed; usage: narrow try MODEL [TEXT]"},
    {"operand_too_many",
     {"a", "b", "c", "--recipe=r"},
     "try: unexpected operand 'c', at most 2 taken"},
    {"nothing_is_required_for_help", {"--help"}, ""},
    {"dashes_end_options", {"--recipe=r", "--", "--flag"}, ""},
    {"a_dash_is_an_operand", {"--recipe=r", "-"}, ""},
    {"int_limits", {"m", "--recipe=r", "--n-ctx", "4096"}, ""},
    {"int_above", {"m", "--n-ctx", "4097"}, "try: --n-ctx is '4097', must be 1 to 4096 tokens"},
    {"int_with_space", {"m", "--n-ctx", " 5"}, "try: --n-ctx is ' 5', must be a whole number"},
    {"int_real", {"m", "--n-ctx", "5.0"}, "try: --n-ctx is '5.0', must be a whole number"},
    {"double_above", {"m", "-a1.5"}, "try: --alpha is '1.5', must be 0 to 1"},
    {"double_nan", {"m", "-a", "nan"}, "try: --alpha is 'nan', must be 0 to 1"},
    {"double_text", {"m", "-a", "x"}, "try: --alpha is 'x', must be a number"},
    {"choice_unknown", {"m", "--format=awq"}, "try: --format is 'awq', must be one of gguf|native"},
    {"choice_prefix", {"m", "--format=gg"}, "try: --format is 'gg', must be one of gguf|native"},
    {"choice_empty", {"m", "--format="}, "try: --format is '', must be one of gguf|native"},
    {"string_empty", {"m", "-o", ""}, "try: --output is '', must not be empty"},
    {"string_twice", {"m", "-o", "a", "-o", "b"}, "try: --output is given twice"},
    {"near_name",
     {"m", "--outptu", "a"},
     "try: unknown option '--outptu'; did you mean '--output'?"},
    {"prefix_is_not_enough",
     {"m", "--out", "a"},
     "try: unknown option '--out'; 'narrow help try' lists them"},
};

static size_t count(const char *const argv[MAX_ARGS])
{
    size_t n = 0;
    while (n < MAX_ARGS && argv[n] != NULL) {
        n++;
    }
    return n;
}

/* argv of main is not const, so the words are copied; the parsed line points into the copies. */
static nw_status parse(const char *const argv[MAX_ARGS], nw_args *a, nw_error *err)
{
    static char kept[MAX_ARGS][32];
    char *copy[MAX_ARGS];
    const size_t n = count(argv);

    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(argv[i]) < sizeof kept[i]);
        memcpy(kept[i], argv[i], strlen(argv[i]) + 1);
        copy[i] = kept[i];
    }
    return nw_args_parse(&command, (int)n, copy, a, err);
}

static void accepts_or_says_why(void **state)
{
    const struct row *r = *state;
    nw_args a = {0};
    nw_error err = {0};
    const nw_status st = parse(r->argv, &a, &err);

    assert_int_equal(st, r->message[0] == '\0' ? NW_OK : NW_E_USAGE);
    assert_string_equal(err.message, r->message);
    assert_int_equal(a.given != NULL, st == NW_OK);
    nw_args_release(&a);
}

static void values_come_out(void **state)
{
    const char *const argv[MAX_ARGS] = {"-f",   "model",         "-cx",    "--n-ctx=7",
                                        "text", "--candidate=y", "-a0.25", "--recipe=r"};
    nw_args a = {0};
    nw_error err = {0};

    (void)state;
    assert_int_equal(parse(argv, &a, &err), NW_OK);
    assert_true(nw_args_flag(&a, "flag"));
    assert_int_equal(nw_args_int(&a, "n-ctx"), 7);
    assert_true(nw_args_double(&a, "alpha") == 0.25);
    assert_string_equal(nw_args_str(&a, "recipe"), "r");
    assert_string_equal(nw_args_str(&a, "format"), "gguf");
    assert_null(nw_args_str(&a, "output"));
    assert_false(nw_args_given(&a, "format"));
    assert_int_equal(nw_args_count(&a, "candidate"), 2);
    assert_string_equal(nw_args_nth(&a, "candidate", 0), "x");
    assert_string_equal(nw_args_nth(&a, "candidate", 1), "y");
    assert_int_equal(a.n_operands, 2);
    assert_string_equal(a.operands[0], "model");
    assert_string_equal(a.operands[1], "text");
    assert_false(a.json || a.quiet || a.help);
    nw_args_release(&a);
}

static void defaults_come_out(void **state)
{
    const char *const argv[MAX_ARGS] = {"m", "--recipe=r", "--json", "-q"};
    nw_args a = {0};
    nw_error err = {0};

    (void)state;
    assert_int_equal(parse(argv, &a, &err), NW_OK);
    assert_int_equal(nw_args_int(&a, "n-ctx"), 512);
    assert_true(nw_args_double(&a, "alpha") == 0.5);
    assert_false(nw_args_flag(&a, "flag"));
    assert_int_equal(nw_args_count(&a, "candidate"), 0);
    assert_true(a.json && a.quiet);
    nw_args_release(&a);
}

static struct explained {
    const char *name;
    size_t row;
    const char *want;
} explanations[] = {
    {"flag", 0, "h"},
    {"number", 2, "h (1 to 4096 tokens; default 512)"},
    {"number_without_unit", 3, "h (0 to 1; default 0.5)"},
    {"choice", 4, "h (default gguf)"},
    {"repeat", 5, "h (may be repeated)"},
    {"required", 6, "h (required)"},
};

static void explained(void **state)
{
    const struct explained *r = *state;
    nw_buf b;

    nw_buf_init(&b, 1000);
    nw_help_explain(&options[r->row], &b);
    assert_string_equal(b.data, r->want);
    nw_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(values_come_out),
        cmocka_unit_test(defaults_come_out),
    };
    return NW_RUN_TABLE("parse", rows, accepts_or_says_why) +
           NW_RUN_TABLE("explain", explanations, explained) +
           cmocka_run_group_tests(others, NULL, NULL);
}
