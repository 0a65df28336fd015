/* Statements of a template: text, output, if, for, set, macro, break, continue, generation. Any other
 * statement is refused with its name and position.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "model/template_internal.h"

static bool statements(nwt_parser *p, nwt_node **first);

static bool expect_end(nwt_parser *p)
{
    if (p->tok[p->i].kind == T_BLOCK_END) {
        p->i++;
        return true;
    }
    nwt_unexpected(p, "'%}'");
    return false;
}

/* True at "{% word". */
static bool at_block(const nwt_parser *p, const char *word)
{
    const nwt_token *t = &p->tok[p->i];

    return t->kind == T_BLOCK_BEGIN && t[1].kind == T_NAME && t[1].n == strlen(word) &&
           memcmp(t[1].s, word, t[1].n) == 0;
}

/* Steps over "{% word %}". */
static bool expect_block(nwt_parser *p, const char *word, size_t opened_at)
{
    if (!at_block(p, word)) {
        (void)nwt_fail_at(p->t, opened_at, NW_E_FORMAT, p->err, "a block without its '%s'", word);
        return false;
    }
    p->i += 2;
    return expect_end(p);
}

/* The body up to the block that ends it; nesting is bounded. */
static bool body(nwt_parser *p, nwt_node **first)
{
    if (++p->depth > NW_TEMPLATE_MAX_DEPTH) {
        (void)nwt_fail_at(p->t, p->tok[p->i].at, NW_E_RANGE, p->err, "nested deeper than %d levels",
                          NW_TEMPLATE_MAX_DEPTH);
        return false;
    }
    const bool ok = statements(p, first);
    p->depth--;
    return ok;
}

/* if and elif: the parser stands behind the word. A chain of elif is a loop, not a recursion. */
static nwt_node *parse_if(nwt_parser *p, size_t at)
{
    nwt_node *top = nwt_node_new(p, N_IF);
    nwt_node *n = top;

    while (n != NULL) {
        n->a = nwt_parse_expr_or_tuple(p);
        if (n->a == NULL || !expect_end(p) || !body(p, &n->first)) {
            return NULL;
        }
        if (!at_block(p, "elif")) {
            break;
        }
        p->i += 2;
        n->b = nwt_node_new(p, N_IF);
        n = n->b;
        if (n != NULL) {
            n->op = 1; /* an elif */
        }
    }
    if (n == NULL) {
        return NULL;
    }
    if (at_block(p, "else")) {
        p->i += 2;
        if (!expect_end(p) || !body(p, &n->b)) {
            return NULL;
        }
    }
    return expect_block(p, "endif", at) ? top : NULL;
}

/* "a" or "a, b": the names a loop or a set assigns to. */
static bool targets(nwt_parser *p, nwt_node **first)
{
    nwt_node **tail = first;
    const bool bracket = nwt_is_op(p, "(");

    p->i += bracket;
    for (;;) {
        nwt_node *n = nwt_node_new(p, N_NAME);
        if (n == NULL || (n->name = nwt_take_name(p)) == NULL) {
            return false;
        }
        *tail = n;
        tail = &n->next;
        if (!nwt_is_op(p, ",")) {
            return !bracket || nwt_expect_op(p, ")");
        }
        p->i++;
    }
}

static nwt_node *parse_for(nwt_parser *p, size_t at)
{
    nwt_node *n = nwt_node_new(p, N_FOR);

    if (n == NULL || !targets(p, &n->names)) {
        return NULL;
    }
    if (!nwt_is_name(p, "in")) {
        nwt_unexpected(p, "'in'");
        return NULL;
    }
    p->i++;
    n->a = nwt_parse_for_iterable(p);
    if (n->a == NULL) {
        return NULL;
    }
    if (nwt_is_name(p, "if")) {
        p->i++;
        n->b = nwt_parse_expr(p);
        if (n->b == NULL) {
            return NULL;
        }
    }
    if (nwt_is_name(p, "recursive")) {
        (void)nwt_fail_at(p->t, p->tok[p->i].at, NW_E_UNSUPPORTED, p->err,
                          "a recursive loop is not supported");
        return NULL;
    }
    if (!expect_end(p) || !body(p, &n->first)) {
        return NULL;
    }
    if (at_block(p, "else")) {
        p->i += 2;
        if (!expect_end(p) || !body(p, &n->c)) {
            return NULL;
        }
    }
    return expect_block(p, "endfor", at) ? n : NULL;
}

static nwt_node *parse_set(nwt_parser *p, size_t at)
{
    nwt_node *n = nwt_node_new(p, N_SET);

    if (n == NULL || !targets(p, &n->names)) {
        return NULL;
    }
    if (nwt_is_op(p, ".")) {
        p->i++;
        n->attr = nwt_take_name(p);
        if (n->attr == NULL) {
            return NULL;
        }
    }
    if (p->tok[p->i].kind == T_BLOCK_END && n->attr == NULL && n->names->next == NULL) {
        n->kind = N_SETBLOCK;
        return expect_end(p) && body(p, &n->first) && expect_block(p, "endset", at) ? n : NULL;
    }
    if (!nwt_expect_op(p, "=")) {
        return NULL;
    }
    n->a = nwt_parse_expr_or_tuple(p);
    return n->a != NULL && expect_end(p) ? n : NULL;
}

static bool params(nwt_parser *p, nwt_node **first)
{
    nwt_node **tail = first;

    while (!nwt_is_op(p, ")")) {
        nwt_node *n = nwt_node_new(p, N_PARAM);
        if (n == NULL || (n->name = nwt_take_name(p)) == NULL) {
            return false;
        }
        if (nwt_is_op(p, "=")) {
            p->i++;
            n->a = nwt_parse_expr(p);
            if (n->a == NULL) {
                return false;
            }
        }
        *tail = n;
        tail = &n->next;
        if (!nwt_is_op(p, ",")) {
            break;
        }
        p->i++;
    }
    return nwt_expect_op(p, ")");
}

static nwt_node *parse_macro(nwt_parser *p, size_t at)
{
    nwt_node *n = nwt_node_new(p, N_MACRO);

    if (n == NULL || (n->name = nwt_take_name(p)) == NULL || !nwt_expect_op(p, "(") ||
        !params(p, &n->b) || !expect_end(p)) {
        return NULL;
    }
    if (p->n_macros == NW_COUNT(p->macros)) {
        (void)nwt_fail_at(p->t, at, NW_E_RANGE, p->err, "more than %zu macros",
                          NW_COUNT(p->macros));
        return NULL;
    }
    p->macros[p->n_macros++] = n->name;
    return body(p, &n->first) && expect_block(p, "endmacro", at) ? n : NULL;
}

static nwt_node *parse_break(nwt_parser *p, size_t at)
{
    nwt_node *n = nwt_node_new(p, N_BREAK);

    (void)at;
    return n != NULL && expect_end(p) ? n : NULL;
}

static nwt_node *parse_continue(nwt_parser *p, size_t at)
{
    nwt_node *n = nwt_node_new(p, N_CONTINUE);

    (void)at;
    return n != NULL && expect_end(p) ? n : NULL;
}

/* transformers' mark for what the assistant wrote: its body is rendered as it stands. */
static nwt_node *parse_generation(nwt_parser *p, size_t at)
{
    nwt_node *n = nwt_node_new(p, N_GROUP);

    return n != NULL && expect_end(p) && body(p, &n->first) && expect_block(p, "endgeneration", at)
               ? n
               : NULL;
}

static const struct {
    const char *word;
    nwt_node *(*parse)(nwt_parser *p, size_t at);
} rows[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"break", parse_break},
    {"continue", parse_continue},
    {"generation", parse_generation},
};

/* Words that end or divide a block: the caller deals with them. */
static bool at_divider(const nwt_parser *p)
{
    static const char *const words[] = {"elif",   "else",     "endif",        "endfor",
                                        "endset", "endmacro", "endgeneration"};

    for (size_t i = 0; i < NW_COUNT(words); i++) {
        if (at_block(p, words[i])) {
            return true;
        }
    }
    return false;
}

static nwt_node *block(nwt_parser *p)
{
    const nwt_token *t = &p->tok[p->i];

    if (t[1].kind != T_NAME) {
        p->i++;
        nwt_unexpected(p, "a statement");
        return NULL;
    }
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        if (at_block(p, rows[i].word)) {
            p->i += 2;
            return rows[i].parse(p, t->at);
        }
    }
    (void)nwt_fail_at(p->t, t[1].at, NW_E_UNSUPPORTED, p->err, "statement '%.*s' is not supported",
                      t[1].n > 60 ? 60 : (int)t[1].n, t[1].s);
    return NULL;
}

static nwt_node *text(nwt_parser *p)
{
    const nwt_token *t = &p->tok[p->i];
    nwt_node *n = nwt_node_new(p, N_TEXT);

    if (n == NULL || nwt_str_raw(&p->t->arena, t->s, t->n, false, &n->value, p->err) != NW_OK) {
        return NULL;
    }
    p->i++;
    return n;
}

static nwt_node *output(nwt_parser *p)
{
    nwt_node *n = nwt_node_new(p, N_OUTPUT);

    p->i++;
    if (n == NULL || (n->a = nwt_parse_expr_or_tuple(p)) == NULL) {
        return NULL;
    }
    if (p->tok[p->i].kind != T_VAR_END) {
        nwt_unexpected(p, "'}}'");
        return NULL;
    }
    p->i++;
    return n;
}

static bool statements(nwt_parser *p, nwt_node **first)
{
    nwt_node **tail = first;

    while (p->tok[p->i].kind != T_END && !at_divider(p)) {
        const nwt_token_kind kind = p->tok[p->i].kind;
        nwt_node *n = kind == T_TEXT ? text(p) : kind == T_VAR_BEGIN ? output(p) : block(p);
        if (n == NULL) {
            return false;
        }
        *tail = n;
        tail = &n->next;
    }
    return true;
}

static nw_status parse(nw_template *t, nw_error *err)
{
    nwt_token *tok = NULL;
    size_t n_tok = 0;

    if (nwt_lex(t, &tok, &n_tok, err) != NW_OK) {
        return err->code;
    }
    nwt_parser p = {.t = t, .tok = tok, .err = err};
    if (!statements(&p, &t->body)) {
        return err->code;
    }
    if (tok[p.i].kind != T_END) {
        return nwt_fail_at(t, tok[p.i + 1].at, NW_E_FORMAT, err, "'%.*s' without its block",
                           (int)tok[p.i + 1].n, tok[p.i + 1].s);
    }
    return NW_OK;
}

nw_status nw_template_parse(const char *name, const char *src, size_t n, nw_template **out,
                            nw_error *err)
{
    *out = NULL;
    if (n > NW_TEMPLATE_MAX_SOURCE) {
        return nw_fail(err, NW_E_RANGE, "%s: a template of %zu bytes, limit %zu", name, n,
                       NW_TEMPLATE_MAX_SOURCE);
    }
    nw_template *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a template", name);
    }
    t->name = nw_arena_strndup(&t->arena, name, strlen(name));
    t->src = src;
    t->n_src = n;
    if (t->name == NULL || parse(t, err) != NW_OK) {
        const nw_status st = t->name == NULL
                                 ? nw_fail(err, NW_E_NOMEM, "%s: no memory for a template", name)
                                 : err->code;
        nw_template_free(t);
        return st;
    }
    *out = t;
    return NW_OK;
}

void nw_template_free(nw_template *t)
{
    if (t != NULL) {
        nw_arena_release(&t->arena);
        free(t);
    }
}
