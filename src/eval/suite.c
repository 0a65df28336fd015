/* Suites: reading items from JSONL or from a generator, checking each field, hashing the whole.
 * SPDX-License-Identifier: Apache-2.0 */
#include "eval/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS_MAX = 1000000, CHOICES_MAX = 26, TOKENS_MAX = 4096 };

static const nw_suite_builtin builtins[] = {
    {"basics", NW_ITEM_CHOICE, 420,
     "choice: facts, classes, opposites, agreement, sequences, small sums", nw_suite_make_basics},
    {"assistant", NW_ITEM_GENERATE, 200,
     "generate: look up, copy, extract, pick, add; graded by exact rules", nw_suite_make_assistant},
};

static const char *const grader_names[] = {"exact", "contains", "number", "json"};

const nw_suite_builtin *nw_suite_builtins(size_t *n)
{
    *n = NW_COUNT(builtins);
    return builtins;
}

static nw_status copy_str(nw_suite *s, const char *from, const char **to, nw_error *err)
{
    *to = nw_arena_strndup(&s->arena, from, strlen(from));
    return *to != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for items", s->name);
}

static nw_status read_choice(nw_suite *s, const char *where, const json_t *row, nw_item *it,
                             nw_error *err)
{
    const json_t *choices = json_object_get(row, "choices");
    const size_t n = json_array_size(choices);
    const char *prompt = NULL;

    if (nw_json_str(row, where, "prompt", &prompt, err) != NW_OK ||
        copy_str(s, prompt, &it->prompt, err) != NW_OK) {
        return err->code;
    }
    if (n < 2 || n > CHOICES_MAX) {
        return nw_fail(err, NW_E_RANGE, "%s: choices: %zu, 2 to %d wanted", where, n, CHOICES_MAX);
    }
    it->n_choices = (uint32_t)n;
    it->choices = nw_arena_array(&s->arena, n, sizeof *it->choices);
    if (it->choices == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for items", s->name);
    }
    for (size_t c = 0; c < n; c++) {
        const char *text = json_string_value(json_array_get(choices, c));
        if (text == NULL || text[0] == '\0') {
            return nw_fail(err, NW_E_FORMAT, "%s: choices[%zu] is not a non-empty string", where,
                           c);
        }
        if (copy_str(s, text, &it->choices[c], err) != NW_OK) {
            return err->code;
        }
    }
    return nw_json_u32(row, where, "answer", 0, it->n_choices - 1, &it->answer, err);
}

/* A number is kept as text: the grader compares values, not spellings. */
static nw_status read_expected(nw_suite *s, const char *where, const json_t *row, nw_item *it,
                               nw_error *err)
{
    const json_t *answer = json_object_get(row, "answer");
    char number[40];

    if (json_is_string(answer)) {
        return copy_str(s, json_string_value(answer), &it->expected, err);
    }
    if (!json_is_number(answer)) {
        return nw_fail(err, NW_E_FORMAT, "%s: answer is neither a string nor a number", where);
    }
    (void)snprintf(number, sizeof number, "%.17g", json_number_value(answer));
    return copy_str(s, number, &it->expected, err);
}

static nw_status read_grader(const char *where, const json_t *row, nw_item *it, nw_error *err)
{
    const char *name = NULL;

    if (nw_json_str(row, where, "grader", &name, err) != NW_OK) {
        return err->code;
    }
    for (size_t g = 0; g < NW_COUNT(grader_names); g++) {
        if (strcmp(name, grader_names[g]) == 0) {
            it->grader = (nw_grader)g;
            return NW_OK;
        }
    }
    return nw_fail(err, NW_E_UNSUPPORTED,
                   "%s: grader '%s', one of exact contains number json"
                   " wanted",
                   where, name);
}

static nw_status read_generate(nw_suite *s, const char *where, const json_t *row, nw_item *it,
                               nw_error *err)
{
    const json_t *messages = json_object_get(row, "messages");

    if (json_array_size(messages) == 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: messages is not a non-empty list", where);
    }
    it->messages = json_deep_copy(messages);
    it->max_tokens = 128;
    if (it->messages == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for items", s->name);
    }
    if (read_grader(where, row, it, err) != NW_OK ||
        read_expected(s, where, row, it, err) != NW_OK) {
        return err->code;
    }
    return nw_json_opt_u32(row, where, "max_tokens", 1, TOKENS_MAX, &it->max_tokens, err);
}

/* Reads one object into the next item; the caller has made room. */
static nw_status add_item(nw_suite *s, const char *where, const json_t *row, nw_error *err)
{
    nw_item *it = &s->items[s->n_items];
    const char *id = NULL;
    const char *cluster = NULL;

    *it = (nw_item){.n_choices = 0};
    if (nw_json_str(row, where, "id", &id, err) != NW_OK ||
        nw_json_opt_str(row, where, "cluster", &cluster, err) != NW_OK ||
        copy_str(s, id, &it->id, err) != NW_OK ||
        copy_str(s, cluster != NULL ? cluster : id, &it->cluster, err) != NW_OK) {
        return err->code;
    }
    s->n_items++; /* from here on release frees what the item holds */
    return s->kind == NW_ITEM_CHOICE ? read_choice(s, where, row, it, err)
                                     : read_generate(s, where, row, it, err);
}

static nw_status grow(nw_suite *s, size_t *cap, nw_error *err)
{
    if (s->n_items < *cap) {
        return NW_OK;
    }
    const size_t next = *cap == 0 ? 256 : *cap * 2;
    nw_item *items = next > ITEMS_MAX * 2ULL ? NULL : realloc(s->items, next * sizeof *items);
    if (items == NULL) {
        return nw_fail(err, NW_E_RANGE, "%s: more than %zu items", s->name, s->n_items);
    }
    s->items = items;
    *cap = next;
    return NW_OK;
}

static nw_status read_file(nw_suite *s, const char *path, size_t max_items, nw_error *err)
{
    nw_jsonl in = {0};
    json_t *row = NULL;
    size_t cap = 0;
    nw_status st = nw_jsonl_open(&in, path, false, err);

    while (st == NW_OK && (max_items == 0 || s->n_items < max_items)) {
        char where[512];
        st = nw_jsonl_next(&in, &row, err);
        if (st != NW_OK || row == NULL) {
            break;
        }
        (void)snprintf(where, sizeof where, "%s:%zu", path, in.line_no);
        st = grow(s, &cap, err);
        st = st == NW_OK ? add_item(s, where, row, err) : st;
    }
    nw_jsonl_close(&in);
    return st;
}

static nw_status read_builtin(nw_suite *s, const nw_suite_builtin *b, uint64_t seed,
                              size_t max_items, nw_error *err)
{
    const size_t n = max_items == 0 ? b->n_default : max_items;
    size_t cap = 0;

    for (size_t i = 0; i < n; i++) {
        json_t *row = b->make(seed, i);
        nw_status st = row == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory for items", s->name)
                                   : grow(s, &cap, err);
        st = st == NW_OK ? add_item(s, s->name, row, err) : st;
        json_decref(row);
        if (st != NW_OK) {
            return st;
        }
    }
    return NW_OK;
}

static nw_status read_spec(nw_suite *s, const char *spec, uint64_t seed, size_t max_items,
                           nw_error *err)
{
    static const char prefix[] = "builtin:";

    if (strncmp(spec, prefix, sizeof prefix - 1) != 0) {
        return read_file(s, spec, max_items, err);
    }
    for (size_t i = 0; i < NW_COUNT(builtins); i++) {
        const nw_suite_builtin *b = &builtins[i];
        if (strcmp(spec + sizeof prefix - 1, b->name) == 0 && b->kind == s->kind) {
            return read_builtin(s, b, seed, max_items, err);
        }
    }
    return nw_fail(err, NW_E_UNSUPPORTED, "suite '%s': no such generator of the %s kind", spec,
                   s->kind == NW_ITEM_CHOICE ? "choice" : "generate");
}

static int by_id(const void *a, const void *b)
{
    const nw_item *const *x = a;
    const nw_item *const *y = b;
    return strcmp((*x)->id, (*y)->id);
}

/* Pairing is by id, so a duplicate id would pair the wrong rows. */
static nw_status check_unique(const nw_suite *s, nw_error *err)
{
    const nw_item **sorted = calloc(s->n_items, sizeof *sorted);
    nw_status st = NW_OK;

    if (sorted == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for items", s->name);
    }
    for (size_t i = 0; i < s->n_items; i++) {
        sorted[i] = &s->items[i];
    }
    qsort(sorted, s->n_items, sizeof *sorted, by_id);
    for (size_t i = 1; i < s->n_items && st == NW_OK; i++) {
        if (strcmp(sorted[i - 1]->id, sorted[i]->id) == 0) {
            st = nw_fail(err, NW_E_FORMAT, "%s: id '%s' stands twice", s->name, sorted[i]->id);
        }
    }
    free(sorted);
    return st;
}

char *nw_item_json(const nw_suite *s, size_t i)
{
    const nw_item *it = &s->items[i];
    json_t *row = NULL;

    if (s->kind == NW_ITEM_CHOICE) {
        json_t *choices = json_array();
        for (uint32_t c = 0; c < it->n_choices; c++) {
            (void)json_array_append_new(choices, json_string(it->choices[c]));
        }
        row = json_pack("{s:s, s:s, s:s, s:o, s:i}", "id", it->id, "cluster", it->cluster, "prompt",
                        it->prompt, "choices", choices, "answer", (int)it->answer);
    } else {
        row = json_pack("{s:s, s:s, s:O, s:s, s:s, s:i}", "id", it->id, "cluster", it->cluster,
                        "messages", it->messages, "grader", grader_names[it->grader], "answer",
                        it->expected, "max_tokens", (int)it->max_tokens);
    }
    char *text = row == NULL ? NULL : nw_json_canonical(row);
    json_decref(row);
    return text;
}

static nw_status hash_items(nw_suite *s, nw_error *err)
{
    nw_sha256 h = {0};

    if (nw_sha256_init(&h, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; i < s->n_items; i++) {
        char *line = nw_item_json(s, i);
        if (line == NULL) {
            nw_sha256_release(&h);
            return nw_fail(err, NW_E_NOMEM, "%s: no memory for items", s->name);
        }
        nw_sha256_add(&h, line, strlen(line) + 1); /* the NUL parts the lines */
        free(line);
    }
    s->hash = nw_sha256_end(&h);
    return NW_OK;
}

nw_status nw_suite_open(const char *spec, nw_item_kind kind, uint64_t seed, size_t max_items,
                        nw_suite *out, nw_error *err)
{
    nw_suite s = {.kind = kind};

    s.name = strdup(spec);
    nw_status st =
        s.name == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory for a suite", spec) : NW_OK;
    st = st == NW_OK ? read_spec(&s, spec, seed, max_items, err) : st;
    if (st == NW_OK && s.n_items == 0) {
        st = nw_fail(err, NW_E_FORMAT, "%s: no items", spec);
    }
    st = st == NW_OK ? check_unique(&s, err) : st;
    st = st == NW_OK ? hash_items(&s, err) : st;
    if (st != NW_OK) {
        nw_suite_release(&s);
        return st;
    }
    *out = s;
    return NW_OK;
}

void nw_suite_release(nw_suite *s)
{
    for (size_t i = 0; i < s->n_items; i++) {
        json_decref(s->items[i].messages);
    }
    free(s->items);
    free(s->name);
    nw_arena_release(&s->arena);
    *s = (nw_suite){.kind = NW_ITEM_CHOICE};
}
