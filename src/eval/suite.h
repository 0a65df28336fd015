/* Task suites: items with known answers, from a JSONL file or from the generators that ship.
 * A choice item is scored by the likelihood of each continuation; a generate item by a grader over
 * the generated text. Items carry a cluster (their template or source), since items of one cluster
 * are not independent and intervals must know it (MEASURES section 5).
 *
 * JSONL, one object a line:
 *   choice    {"id", "cluster", "prompt", "choices": [..2..26 strings], "answer": index}
 *   generate  {"id", "cluster", "messages": [..], "grader": "exact|contains|number|json",
 *              "answer": string or number, "max_tokens": 1..4096}
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_EVAL_SUITE_H
#define NW_EVAL_SUITE_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"

typedef enum { NW_ITEM_CHOICE, NW_ITEM_GENERATE } nw_item_kind;

typedef enum { NW_GRADE_EXACT, NW_GRADE_CONTAINS, NW_GRADE_NUMBER, NW_GRADE_JSON } nw_grader;

typedef struct {
    const char *id;       /* unique in the suite */
    const char *cluster;  /* never NULL; equals id where the source names none */
    const char *prompt;   /* choice: text before the continuation */
    const char **choices; /* [n_choices] continuations, appended to the prompt as they stand */
    uint32_t n_choices;
    uint32_t answer;      /* choice: index of the right one */
    json_t *messages;     /* generate: chat messages; owned by the suite */
    const char *expected; /* generate: what the grader looks for */
    nw_grader grader;
    uint32_t max_tokens;
} nw_item;

typedef struct {
    char *name; /* file path or "builtin:NAME" */
    nw_item_kind kind;
    nw_item *items; /* [n_items], in file order */
    size_t n_items;
    nw_digest hash; /* of the canonical items: equal hash, equal questions */
    nw_arena arena;
} nw_suite;

/* spec: a path, or "builtin:NAME" with a seed; at most max_items items are kept (0: all; a builtin
 * then gives its default number). Errors name file, line and key. */
NW_MUST_USE nw_status nw_suite_open(const char *spec, nw_item_kind kind, uint64_t seed,
                                    size_t max_items, nw_suite *out, nw_error *err);
void nw_suite_release(nw_suite *s);

/* True where the text passes the item's grader (see grade.c for each rule). */
bool nw_grade(const nw_item *item, const char *text);

/* One line of JSONL for the item, as nw_suite_open reads it; the caller frees it. */
char *nw_item_json(const nw_suite *s, size_t i);

/* Generators (suite_choice.c, suite_generate.c). A generator gives item number i of a seed as a
 * JSON object, so that every suite, shipped or brought, takes the same way in. */
typedef struct {
    const char *name; /* after "builtin:" */
    nw_item_kind kind;
    size_t n_default;
    const char *what; /* one line for --help and the report */
    json_t *(*make)(uint64_t seed, size_t i);
} nw_suite_builtin;

const nw_suite_builtin *nw_suite_builtins(size_t *n);

json_t *nw_suite_make_basics(uint64_t seed, size_t i);
json_t *nw_suite_make_assistant(uint64_t seed, size_t i);

#endif
