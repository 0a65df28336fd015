/* The parser of command lines: see options.h. getopt_long keeps global state and knows neither types
 * nor ranges, so a table of its own is shorter.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "target/target.h"

struct nw_arg {
    const nw_option *option;
    const char *text; /* NULL for a flag */
    int64_t integer;
    double real;
};

static const nw_option global_options[] = {
    {.name = "help", .letter = 'h', .type = NW_OPT_FLAG, .help = "show this help and end"},
    {.name = "quiet",
     .letter = 'q',
     .type = NW_OPT_FLAG,
     .help = "no progress and no notes on stderr, only warnings and errors"},
    {.name = "json", .type = NW_OPT_FLAG, .help = "print the result as JSON"}, /* last */
};

const nw_option *nw_options_global(const nw_command *c, size_t *n)
{
    *n = NW_COUNT(global_options) - (c->text_only ? 1 : 0);
    return global_options;
}

/* Row i of the command's options and, after them, of the global ones; NULL after the last. */
static const nw_option *option_at(const nw_command *c, size_t i)
{
    if (i < c->n_options) {
        return &c->options[i];
    }
    size_t n = 0;
    const nw_option *global = nw_options_global(c, &n);
    i -= c->n_options;
    return i < n ? &global[i] : NULL;
}

static const nw_option *find_name(const nw_command *c, const char *name, size_t len)
{
    const nw_option *o = NULL;

    for (size_t i = 0; (o = option_at(c, i)) != NULL; i++) {
        if (strlen(o->name) == len && memcmp(o->name, name, len) == 0) {
            return o;
        }
    }
    return NULL;
}

static const nw_option *find_letter(const nw_command *c, char letter)
{
    const nw_option *o = NULL;

    for (size_t i = 0; (o = option_at(c, i)) != NULL; i++) {
        if (o->letter == letter) {
            return o;
        }
    }
    return NULL;
}

/* Insertions, deletions, changes (Levenshtein); words longer than 31 are never near. */
static size_t distance(const char *a, const char *b)
{
    enum { MAX = 32 };
    size_t row[MAX];
    const size_t n_a = strlen(a);
    const size_t n_b = strlen(b);

    if (n_a >= MAX || n_b >= MAX) {
        return MAX;
    }
    for (size_t j = 0; j <= n_b; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            const size_t above = row[j];
            const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            const size_t shift = (above < row[j - 1] ? above : row[j - 1]) + 1;
            row[j] = change < shift ? change : shift;
            diagonal = above;
        }
    }
    return row[n_b];
}

const char *nw_nearest(const char *word, const char *(*get)(const void *ctx, size_t i),
                       const void *ctx)
{
    const char *best = NULL;
    size_t best_distance = 3; /* two slips at most, and fewer than half of the letters */
    const char *candidate = NULL;

    for (size_t i = 0; (candidate = get(ctx, i)) != NULL; i++) {
        const size_t d = distance(word, candidate);
        if (d < best_distance && 2 * d < strlen(candidate)) {
            best = candidate;
            best_distance = d;
        }
    }
    return best;
}

static const char *option_name(const void *ctx, size_t i)
{
    const nw_option *o = option_at(ctx, i);
    return o == NULL ? NULL : o->name;
}

static nw_status unknown(const nw_command *c, const char *arg, nw_error *err)
{
    char word[64] = "";
    const size_t len = strcspn(arg, "=");

    if (strncmp(arg, "--", 2) == 0 && len - 2 < sizeof word) {
        memcpy(word, arg + 2, len - 2);
    }
    const char *near = nw_nearest(word, option_name, c);
    if (near != NULL) {
        return nw_fail(err, NW_E_USAGE, "%s: unknown option '%.*s'; did you mean '--%s'?", c->name,
                       (int)len, arg, near);
    }
    return nw_fail(err, NW_E_USAGE, "%s: unknown option '%.*s'; 'narrow help %s' lists them",
                   c->name, (int)len, arg, c->name);
}

static nw_status bad_value(const nw_command *c, const nw_arg *a, const char *want, nw_error *err)
{
    return nw_fail(err, NW_E_USAGE, "%s: --%s is '%s', %s", c->name, a->option->name, a->text,
                   want);
}

static nw_status out_of_range(const nw_command *c, const nw_arg *a, nw_error *err)
{
    const nw_option *o = a->option;
    char want[96];
    const char *unit = o->unit == NULL ? "" : o->unit;

    (void)snprintf(want, sizeof want, "must be %.16g to %.16g%s%.32s", o->lo, o->hi,
                   *unit == '\0' ? "" : " ", unit);
    return bad_value(c, a, want, err);
}

static bool is_choice(const char *choices, const char *text)
{
    const size_t n = strlen(text);

    for (const char *p = choices; n > 0 && *p != '\0';) {
        const size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, text, n) == 0) {
            return true;
        }
        p += len;
        p += *p == '|' ? 1 : 0;
    }
    return false;
}

/* Numbers must be the whole text; strtod alone would let "1x", "" and " 1" through. */
static bool parse_number(const char *text, char **end, nw_arg *a)
{
    if (*text == '\0' || isspace((unsigned char)*text) != 0) {
        return false;
    }
    if (a->option->type == NW_OPT_INT) {
        a->integer = strtoll(text, end, 10);
        a->real = (double)a->integer;
    } else {
        a->real = strtod(text, end);
    }
    return *end != text && **end == '\0';
}

static nw_status check_value(const nw_command *c, nw_arg *a, nw_error *err)
{
    const nw_option *o = a->option;
    char *end = NULL;
    char want[160];

    switch (o->type) {
    case NW_OPT_FLAG:
        return NW_OK;
    case NW_OPT_STRING:
    case NW_OPT_REPEAT:
        return *a->text == '\0' ? bad_value(c, a, "must not be empty", err) : NW_OK;
    case NW_OPT_CHOICE:
        if (!is_choice(o->choices, a->text)) {
            (void)snprintf(want, sizeof want, "must be one of %.128s", o->choices);
            return bad_value(c, a, want, err);
        }
        return NW_OK;
    case NW_OPT_INT:
    case NW_OPT_DOUBLE:
        if (!parse_number(a->text, &end, a)) {
            return bad_value(
                c, a, o->type == NW_OPT_INT ? "must be a whole number" : "must be a number", err);
        }
        return a->real >= o->lo && a->real <= o->hi ? NW_OK : out_of_range(c, a, err);
    }
    return NW_OK;
}

static const nw_arg *last_given(const nw_args *a, const nw_option *o)
{
    for (size_t i = a->n_given; i > 0; i--) {
        if (a->given[i - 1].option == o) {
            return &a->given[i - 1];
        }
    }
    return NULL;
}

static nw_status add_given(nw_args *a, const nw_option *o, const char *text, nw_error *err)
{
    nw_arg value = {.option = o, .text = text};
    const nw_status st = check_value(a->command, &value, err);

    if (st != NW_OK) {
        return st;
    }
    if (o->type != NW_OPT_REPEAT && o->type != NW_OPT_FLAG && last_given(a, o) != NULL) {
        return nw_fail(err, NW_E_USAGE, "%s: --%s is given twice", a->command->name, o->name);
    }
    a->given[a->n_given++] = value;
    a->help |= o == &global_options[0];
    a->quiet |= o == &global_options[1];
    a->json |= o == &global_options[2];
    return NW_OK;
}

/* One option at argv[*i], and its value, which may be the next argument. */
static nw_status parse_option(nw_args *a, int argc, char *const *argv, int *i, nw_error *err)
{
    const nw_command *c = a->command;
    const char *arg = argv[*i];
    const bool is_long = arg[1] == '-';
    const char *equals = is_long ? strchr(arg, '=') : NULL;
    const size_t len = equals == NULL ? strlen(arg) : (size_t)(equals - arg);
    const nw_option *o = is_long ? find_name(c, arg + 2, len - 2) : find_letter(c, arg[1]);
    const char *value = equals == NULL ? NULL : equals + 1;

    if (o == NULL) {
        return unknown(c, arg, err);
    }
    if (!is_long && arg[2] != '\0') {
        value = arg + 2;
    }
    if (o->type == NW_OPT_FLAG) {
        if (value != NULL) {
            return nw_fail(err, NW_E_USAGE, "%s: --%s takes no value, but has '%s'", c->name,
                           o->name, value);
        }
        return add_given(a, o, NULL, err);
    }
    if (value == NULL) {
        if (*i + 1 >= argc) {
            return nw_fail(err, NW_E_USAGE, "%s: --%s needs a value", c->name, o->name);
        }
        value = argv[++*i];
    }
    return add_given(a, o, value, err);
}

static nw_status check_required(const nw_args *a, nw_error *err)
{
    const nw_command *c = a->command;

    for (size_t i = 0; i < c->n_options; i++) {
        if (c->options[i].required && last_given(a, &c->options[i]) == NULL) {
            return nw_fail(err, NW_E_USAGE, "%s: --%s is missing", c->name, c->options[i].name);
        }
    }
    if (a->n_operands < c->min_operands) {
        return nw_fail(err, NW_E_USAGE, "%s: %zu operands, at least %u needed; usage: narrow %s %s",
                       c->name, a->n_operands, c->min_operands, c->name, c->operands);
    }
    if (a->n_operands > c->max_operands) {
        return nw_fail(err, NW_E_USAGE, "%s: unexpected operand '%s', at most %u taken", c->name,
                       a->operands[c->max_operands], c->max_operands);
    }
    return NW_OK;
}

nw_status nw_args_parse(const nw_command *command, int argc, char *const *argv, nw_args *out,
                        nw_error *err)
{
    const size_t n = argc < 1 ? 1 : (size_t)argc;
    nw_args a = {.command = command};
    bool options_end = false;
    nw_status st = NW_OK;

    a.storage = calloc(n, sizeof *a.storage);
    a.given = calloc(n, sizeof *a.given);
    if (a.storage == NULL || a.given == NULL) {
        nw_args_release(&a);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu arguments", command->name, n);
    }
    for (int i = 0; st == NW_OK && i < argc; i++) {
        const char *arg = argv[i];
        if (!options_end && strcmp(arg, "--") == 0) {
            options_end = true;
        } else if (!options_end && arg[0] == '-' && arg[1] != '\0') {
            st = parse_option(&a, argc, argv, &i, err);
        } else {
            a.storage[a.n_operands++] = arg;
        }
    }
    a.operands = a.storage;
    if (st == NW_OK && !a.help) {
        st = check_required(&a, err);
    }
    if (st == NW_OK) {
        *out = a;
    } else {
        nw_args_release(&a);
    }
    return st;
}

void nw_args_release(nw_args *a)
{
    free(a->storage);
    free(a->given);
    *a = (nw_args){0};
}

static const nw_option *must_find(const nw_args *a, const char *name)
{
    const nw_option *o = find_name(a->command, name, strlen(name));
    assert(o != NULL);
    return o;
}

bool nw_args_given(const nw_args *a, const char *name)
{
    return last_given(a, must_find(a, name)) != NULL;
}

bool nw_args_flag(const nw_args *a, const char *name)
{
    assert(must_find(a, name)->type == NW_OPT_FLAG);
    return nw_args_given(a, name);
}

const char *nw_args_str(const nw_args *a, const char *name)
{
    const nw_option *o = must_find(a, name);
    assert(o->type == NW_OPT_STRING || o->type == NW_OPT_CHOICE);
    const nw_arg *arg = last_given(a, o);
    return arg == NULL ? o->fallback : arg->text;
}

int64_t nw_args_int(const nw_args *a, const char *name)
{
    const nw_option *o = must_find(a, name);
    assert(o->type == NW_OPT_INT);
    const nw_arg *arg = last_given(a, o);
    if (arg != NULL) {
        return arg->integer;
    }
    return o->fallback == NULL ? 0 : strtoll(o->fallback, NULL, 10);
}

double nw_args_double(const nw_args *a, const char *name)
{
    const nw_option *o = must_find(a, name);
    assert(o->type == NW_OPT_DOUBLE);
    const nw_arg *arg = last_given(a, o);
    if (arg != NULL) {
        return arg->real;
    }
    return o->fallback == NULL ? 0 : strtod(o->fallback, NULL);
}

size_t nw_args_count(const nw_args *a, const char *name)
{
    const nw_option *o = must_find(a, name);
    size_t n = 0;

    assert(o->type == NW_OPT_REPEAT);
    for (size_t i = 0; i < a->n_given; i++) {
        n += a->given[i].option == o ? 1 : 0;
    }
    return n;
}

const char *nw_args_nth(const nw_args *a, const char *name, size_t i)
{
    const nw_option *o = must_find(a, name);
    const nw_arg *found = NULL;
    size_t seen = 0;

    for (size_t k = 0; k < a->n_given && found == NULL; k++) {
        if (a->given[k].option == o && seen++ == i) {
            found = &a->given[k];
        }
    }
    assert(found != NULL);
    return found->text;
}

const char *nw_args_server_key(const nw_args *a)
{
    const char *key = nw_args_str(a, "api-key");
    const char *env = getenv("NARROW_API_KEY");

    return key != NULL ? key : env != NULL && env[0] != '\0' ? env : NULL;
}

nw_status nw_args_check_server(const nw_args *a, nw_error *err)
{
    static const char *const of_server[] = {"threads", "tier", "kv", "act"};
    const bool url = nw_target_spec_is_url(a->operands[0]);

    for (size_t i = 0; url && i < NW_COUNT(of_server); i++) {
        if (nw_args_given(a, of_server[i])) {
            return nw_fail(err, NW_E_USAGE, "--%s is for an artifact, %s runs already",
                           of_server[i], a->operands[0]);
        }
    }
    return NW_OK;
}
