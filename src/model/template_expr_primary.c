/* Primaries of a template's expressions and what follows them: literals, lists, attributes, indexes,
 * calls, filters, tests. A method, function, filter or test that is in no table is refused here, with
 * its name and position.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/template_internal.h"

static const nwt_token *now(const nwt_parser *p)
{
    return &p->tok[p->i];
}

static nwt_node *refuse(nwt_parser *p, size_t at, const char *what, const char *name)
{
    (void)nwt_fail_at(p->t, at, NW_E_UNSUPPORTED, p->err, "%s '%.60s' is not supported", what,
                      name);
    return NULL;
}

/* Appends to a list whose last link is *tail. */
static nwt_node **append(nwt_node **tail, nwt_node *n)
{
    *tail = n;
    return &n->next;
}

/* "name=" at the front of a call's argument. */
static bool is_keyword(const nwt_parser *p)
{
    const nwt_token *t = now(p);

    return t->kind == T_NAME && t[1].kind == T_OP && t[1].n == 1 && t[1].s[0] == '=';
}

/* Arguments behind "(", through ")"; *first is NULL when there are none. */
static bool arguments(nwt_parser *p, nwt_node **first)
{
    nwt_node **tail = first;

    while (!nwt_is_op(p, ")")) {
        nwt_node *arg = NULL;
        if (is_keyword(p)) {
            arg = nwt_node_new(p, N_KWARG);
            if (arg == NULL || (arg->name = nwt_take_name(p)) == NULL) {
                return false;
            }
            p->i++;
            arg->a = nwt_parse_expr(p);
            if (arg->a == NULL) {
                return false;
            }
        } else {
            arg = nwt_parse_expr(p);
            if (arg == NULL) {
                return false;
            }
        }
        tail = append(tail, arg);
        if (!nwt_is_op(p, ",")) {
            break;
        }
        p->i++;
    }
    return nwt_expect_op(p, ")");
}

/* Items up to the closing bracket `close`. */
static nwt_node *items(nwt_parser *p, nwt_kind kind, const char *close)
{
    nwt_node *n = nwt_node_new(p, kind);
    nwt_node **tail = n == NULL ? NULL : &n->first;

    p->i++;
    while (n != NULL && !nwt_is_op(p, close)) {
        nwt_node *item = nwt_parse_expr(p);
        if (item == NULL) {
            return NULL;
        }
        tail = append(tail, item);
        if (kind == N_DICT) {
            if (!nwt_expect_op(p, ":") || (item = nwt_parse_expr(p)) == NULL) {
                return NULL;
            }
            tail = append(tail, item);
        }
        if (!nwt_is_op(p, ",")) {
            break;
        }
        p->i++;
    }
    return n != NULL && nwt_expect_op(p, close) ? n : NULL;
}

/* "(a)" is a, "(a, b)" and "(a,)" and "()" are tuples. */
static nwt_node *parenthesis(nwt_parser *p)
{
    p->i++;
    if (nwt_is_op(p, ")")) {
        p->i++;
        return nwt_node_new(p, N_TUPLE);
    }
    nwt_node *n = nwt_parse_expr_or_tuple(p);
    return n != NULL && nwt_expect_op(p, ")") ? n : NULL;
}

static nwt_node *constant(nwt_parser *p, nwt_value v)
{
    nwt_node *n = nwt_node_new(p, N_CONST);

    if (n != NULL) {
        n->value = v;
        p->i++;
    }
    return n;
}

/* Neighbouring string literals join, as in Python. */
static nwt_node *string(nwt_parser *p)
{
    nwt_value v;
    const nwt_token *t = now(p);
    size_t n = 0;
    size_t total = 0;

    for (size_t k = 0; t[k].kind == T_STRING; k++) {
        total += t[k].n;
    }
    char *text = nw_arena_alloc(&p->t->arena, total + 1);
    for (; text != NULL && now(p)->kind == T_STRING; p->i++) {
        memcpy(text + n, now(p)->s, now(p)->n);
        n += now(p)->n;
    }
    if (text == NULL || nwt_str_raw(&p->t->arena, text, n, false, &v, p->err) != NW_OK) {
        (void)nw_fail(p->err, NW_E_NOMEM, "%s: no memory for a template", p->t->name);
        return NULL;
    }
    p->i--;
    return constant(p, v);
}

static nwt_node *name(nwt_parser *p)
{
    static const struct {
        const char *name;
        nwt_type type;
        bool b;
    } known[] = {{"true", NWT_BOOL, true},   {"True", NWT_BOOL, true},  {"false", NWT_BOOL, false},
                 {"False", NWT_BOOL, false}, {"none", NWT_NONE, false}, {"None", NWT_NONE, false}};

    for (size_t i = 0; i < NW_COUNT(known); i++) {
        if (nwt_is_name(p, known[i].name)) {
            return constant(p, known[i].type == NWT_NONE ? nwt_none() : nwt_bool(known[i].b));
        }
    }
    nwt_node *n = nwt_node_new(p, N_NAME);
    if (n != NULL) {
        n->name = nwt_take_name(p);
    }
    return n;
}

static nwt_node *primary(nwt_parser *p)
{
    const nwt_token *t = now(p);

    if (t->kind == T_NAME) {
        return name(p);
    }
    if (t->kind == T_STRING) {
        return string(p);
    }
    if (t->kind == T_INT || t->kind == T_FLOAT) {
        return constant(p, t->kind == T_INT ? nwt_int(t->i) : nwt_float(t->f));
    }
    if (nwt_is_op(p, "(")) {
        return parenthesis(p);
    }
    if (nwt_is_op(p, "[")) {
        return items(p, N_LIST, "]");
    }
    if (nwt_is_op(p, "{")) {
        return items(p, N_DICT, "}");
    }
    nwt_unexpected(p, "an expression");
    return NULL;
}

/* Up to three expressions parted by ":" and the "]" behind them; *n_colons tells index from slice. */
static bool subscript_parts(nwt_parser *p, nwt_node *part[3], size_t *n_colons)
{
    while (!nwt_is_op(p, "]")) {
        if (nwt_is_op(p, ":") && *n_colons < 2) {
            p->i++;
            (*n_colons)++;
            continue;
        }
        if (nwt_is_op(p, ":") || part[*n_colons] != NULL) {
            nwt_unexpected(p, "']'");
            return false;
        }
        part[*n_colons] = nwt_parse_expr(p);
        if (part[*n_colons] == NULL) {
            return false;
        }
    }
    p->i++;
    return true;
}

/* The three parts of a slice as children of n; a missing one is none. */
static bool add_slice_parts(nwt_parser *p, nwt_node *n, nwt_node *part[3])
{
    nwt_node **tail = &n->first;

    for (size_t k = 0; k < 3; k++) {
        nwt_node *x = part[k] != NULL ? part[k] : nwt_node_new(p, N_CONST);
        if (x == NULL) {
            return false;
        }
        if (part[k] == NULL) {
            x->value = nwt_none();
        }
        tail = append(tail, x);
    }
    return true;
}

/* "[...]" behind a value: an index or a slice. */
static nwt_node *subscript(nwt_parser *p, nwt_node *of)
{
    nwt_node *n = nwt_node_new(p, N_INDEX);
    nwt_node *part[3] = {NULL, NULL, NULL};
    size_t n_colons = 0;

    p->i++;
    if (n == NULL || !subscript_parts(p, part, &n_colons)) {
        return NULL;
    }
    n->a = of;
    if (n_colons > 0) {
        n->kind = N_SLICE;
        return add_slice_parts(p, n, part) ? n : NULL;
    }
    n->b = part[0];
    if (n->b == NULL) {
        nwt_unexpected(p, "an index");
        return NULL;
    }
    return n;
}

/* ".name", with arguments a method of the table. */
static nwt_node *attribute(nwt_parser *p, nwt_node *of)
{
    nwt_node *n = nwt_node_new(p, N_ATTR);
    const size_t at = now(p)->at;

    p->i++;
    if (n == NULL) {
        return NULL;
    }
    n->a = of;
    if (now(p)->kind == T_INT) {
        n->kind = N_INDEX;
        n->b = constant(p, nwt_int(now(p)->i));
        return n->b == NULL ? NULL : n;
    }
    n->name = nwt_take_name(p);
    if (n->name == NULL || !nwt_is_op(p, "(")) {
        return n->name == NULL ? NULL : n;
    }
    n->kind = N_METHOD;
    n->row = nwt_method_find(n->name);
    if (n->row == NULL) {
        return refuse(p, at, "method", n->name);
    }
    p->i++;
    return arguments(p, &n->first) ? n : NULL;
}

static bool is_macro(const nwt_parser *p, const char *s)
{
    for (size_t i = 0; i < p->n_macros; i++) {
        if (strcmp(p->macros[i], s) == 0) {
            return true;
        }
    }
    return false;
}

/* "name(...)": a macro defined before, or a function of the table. */
static nwt_node *call(nwt_parser *p, nwt_node *of)
{
    if (of->kind != N_NAME) {
        return refuse(p, now(p)->at, "calling", "what is no name");
    }
    nwt_node *n = nwt_node_new(p, N_CALL);
    if (n == NULL) {
        return NULL;
    }
    n->name = of->name;
    n->at = of->at;
    n->row = is_macro(p, of->name) ? NULL : nwt_function_find(of->name);
    if (n->row == NULL && !is_macro(p, of->name)) {
        return refuse(p, of->at, "function", of->name);
    }
    p->i++;
    return arguments(p, &n->first) ? n : NULL;
}

static nwt_node *filter(nwt_parser *p, nwt_node *of)
{
    nwt_node *n = NULL;

    p->i++;
    n = nwt_node_new(p, N_FILTER);
    if (n == NULL || (n->name = nwt_take_name(p)) == NULL) {
        return NULL;
    }
    n->a = of;
    n->row = nwt_filter_find(n->name);
    if (n->row == NULL) {
        return refuse(p, n->at, "filter", n->name);
    }
    if (nwt_is_op(p, "(")) {
        p->i++;
        return arguments(p, &n->first) ? n : NULL;
    }
    return n;
}

static bool starts_argument(const nwt_parser *p)
{
    static const char *const not [] = {"else", "or", "and", "is", "if", "in", "not"};
    const nwt_token *t = now(p);

    for (size_t i = 0; i < NW_COUNT(not ); i++) {
        if (nwt_is_name(p, not [i])) {
            return false;
        }
    }
    return t->kind == T_NAME || t->kind == T_STRING || t->kind == T_INT || t->kind == T_FLOAT;
}

/* "is name", "is not name", with one bare argument or a list in parentheses. */
static nwt_node *test(nwt_parser *p, nwt_node *of)
{
    nwt_node *n = nwt_node_new(p, N_TEST);

    p->i++;
    if (n == NULL) {
        return NULL;
    }
    n->a = of;
    if (nwt_is_name(p, "not")) {
        n->op = 1;
        p->i++;
    }
    n->at = now(p)->at;
    if ((n->name = nwt_take_name(p)) == NULL) {
        return NULL;
    }
    n->row = nwt_test_find(n->name);
    if (n->row == NULL) {
        return refuse(p, n->at, "test", n->name);
    }
    if (nwt_is_op(p, "(")) {
        p->i++;
        return arguments(p, &n->first) ? n : NULL;
    }
    if (n->row->max > 0 && starts_argument(p)) {
        n->first = primary(p);
        return n->first == NULL ? NULL : n;
    }
    return n;
}

nwt_node *nwt_parse_postfix(nwt_parser *p)
{
    nwt_node *n = primary(p);

    while (n != NULL) {
        if (nwt_is_op(p, ".")) {
            n = attribute(p, n);
        } else if (nwt_is_op(p, "[")) {
            n = subscript(p, n);
        } else if (nwt_is_op(p, "(")) {
            n = call(p, n);
        } else {
            break;
        }
    }
    return n;
}

nwt_node *nwt_parse_filters(nwt_parser *p, nwt_node *n)
{
    while (n != NULL) {
        if (nwt_is_op(p, "|")) {
            n = filter(p, n);
        } else if (nwt_is_name(p, "is")) {
            n = test(p, n);
        } else if (nwt_is_op(p, "(")) {
            n = call(p, n);
        } else {
            break;
        }
    }
    return n;
}
