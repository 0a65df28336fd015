/* Expressions of a template, by precedence (jinja2/parser.py): conditional, or, and, not, comparison,
 * + -, ~, * / // %, unary, then filters and tests behind a primary. What is not in a table is refused
 * here, with its name and position.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/template_internal.h"

static const nwt_token *now(const nwt_parser *p)
{
    return &p->tok[p->i];
}

nwt_node *nwt_node_new(nwt_parser *p, nwt_kind kind)
{
    nwt_node *n = nw_arena_alloc(&p->t->arena, sizeof *n);

    if (n == NULL) {
        (void)nw_fail(p->err, NW_E_NOMEM, "%s: no memory for a template", p->t->name);
        return NULL;
    }
    n->kind = kind;
    n->at = now(p)->at;
    return n;
}

bool nwt_is_op(const nwt_parser *p, const char *op)
{
    const nwt_token *t = now(p);

    return t->kind == T_OP && t->n == strlen(op) && memcmp(t->s, op, t->n) == 0;
}

bool nwt_is_name(const nwt_parser *p, const char *name)
{
    const nwt_token *t = now(p);

    return t->kind == T_NAME && t->n == strlen(name) && memcmp(t->s, name, t->n) == 0;
}

void nwt_unexpected(nwt_parser *p, const char *wanted)
{
    const nwt_token *t = now(p);
    const bool end = t->kind == T_END || t->kind == T_BLOCK_END || t->kind == T_VAR_END;

    (void)nwt_fail_at(p->t, t->at, NW_E_FORMAT, p->err, "expected %s, found %s%.*s%s", wanted,
                      end ? "the end" : "'",
                      end         ? 0
                      : t->n > 40 ? 40
                                  : (int)t->n,
                      t->s, end ? "" : "'");
}

bool nwt_expect_op(nwt_parser *p, const char *op)
{
    char wanted[16] = "'";

    if (nwt_is_op(p, op)) {
        p->i++;
        return true;
    }
    memcpy(wanted + 1, op, strlen(op));
    wanted[1 + strlen(op)] = '\'';
    nwt_unexpected(p, wanted);
    return false;
}

const char *nwt_take_name(nwt_parser *p)
{
    const nwt_token *t = now(p);

    if (t->kind != T_NAME) {
        nwt_unexpected(p, "a name");
        return NULL;
    }
    const char *s = nw_arena_strndup(&p->t->arena, t->s, t->n);
    if (s == NULL) {
        (void)nw_fail(p->err, NW_E_NOMEM, "%s: no memory for a template", p->t->name);
        return NULL;
    }
    p->i++;
    return s;
}

/* Appends to a list whose last link is *tail. */
static nwt_node **append(nwt_node **tail, nwt_node *n)
{
    *tail = n;
    return &n->next;
}

static bool deeper(nwt_parser *p)
{
    if (++p->depth <= NW_TEMPLATE_MAX_DEPTH) {
        return true;
    }
    (void)nwt_fail_at(p->t, now(p)->at, NW_E_RANGE, p->err, "nested deeper than %d levels",
                      NW_TEMPLATE_MAX_DEPTH);
    return false;
}

static nwt_node *unary(nwt_parser *p, bool with_filter)
{
    nwt_node *n = NULL;

    if (nwt_is_op(p, "-") || nwt_is_op(p, "+")) {
        const bool negate = nwt_is_op(p, "-");
        n = nwt_node_new(p, N_NEG);
        p->i++;
        if (n == NULL || !deeper(p)) {
            return NULL;
        }
        n->op = negate;
        n->a = unary(p, false);
        p->depth--;
        n = n->a == NULL ? NULL : n;
    } else {
        n = nwt_parse_postfix(p);
    }
    return with_filter ? nwt_parse_filters(p, n) : n;
}

typedef struct {
    const char *text;
    nwt_op op;
    unsigned level; /* binds tighter when higher */
} binary_row;

static const binary_row binaries[] = {
    {"+", OP_ADD, 0}, {"-", OP_SUB, 0},       {"~", OP_CONCAT, 1}, {"*", OP_MUL, 2},
    {"/", OP_DIV, 2}, {"//", OP_FLOORDIV, 2}, {"%", OP_MOD, 2},
};

static const binary_row *binary_at(nwt_parser *p, unsigned level)
{
    for (size_t i = 0; i < NW_COUNT(binaries); i++) {
        if (binaries[i].level == level && nwt_is_op(p, binaries[i].text)) {
            return &binaries[i];
        }
    }
    return NULL;
}

static nwt_node *arithmetic(nwt_parser *p, unsigned level)
{
    nwt_node *left = level == 3 ? unary(p, true) : arithmetic(p, level + 1);
    const binary_row *row = NULL;

    while (level < 3 && left != NULL && (row = binary_at(p, level)) != NULL) {
        nwt_node *n = nwt_node_new(p, N_BINARY);
        p->i++;
        if (n == NULL) {
            return NULL;
        }
        n->op = row->op;
        n->a = left;
        n->b = arithmetic(p, level + 1);
        left = n->b == NULL ? NULL : n;
    }
    return left;
}

static bool comparison(nwt_parser *p, unsigned *op)
{
    static const binary_row rows[] = {{"==", OP_EQ, 0}, {"!=", OP_NE, 0}, {"<", OP_LT, 0},
                                      {"<=", OP_LE, 0}, {">", OP_GT, 0},  {">=", OP_GE, 0}};

    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        if (nwt_is_op(p, rows[i].text)) {
            *op = rows[i].op;
            p->i++;
            return true;
        }
    }
    if (nwt_is_name(p, "in")) {
        *op = OP_IN;
        p->i++;
        return true;
    }
    if (nwt_is_name(p, "not") && p->tok[p->i + 1].kind == T_NAME && p->tok[p->i + 1].n == 2 &&
        memcmp(p->tok[p->i + 1].s, "in", 2) == 0) {
        *op = OP_NOT_IN;
        p->i += 2;
        return true;
    }
    return false;
}

static nwt_node *compare(nwt_parser *p)
{
    nwt_node *left = arithmetic(p, 0);
    nwt_node *n = NULL;
    nwt_node **tail = NULL;
    unsigned op = 0;
    const size_t at = now(p)->at;

    while (left != NULL && comparison(p, &op)) {
        if (n == NULL) {
            n = nwt_node_new(p, N_COMPARE);
            if (n == NULL) {
                return NULL;
            }
            n->a = left;
            n->at = at;
            tail = &n->first;
        }
        nwt_node *x = nwt_node_new(p, N_BINARY);
        if (x == NULL || (x->b = arithmetic(p, 0)) == NULL) {
            return NULL;
        }
        x->op = op;
        tail = append(tail, x);
    }
    return n == NULL ? left : n;
}

static nwt_node *negation(nwt_parser *p)
{
    if (!nwt_is_name(p, "not")) {
        return compare(p);
    }
    nwt_node *n = nwt_node_new(p, N_NOT);
    p->i++;
    if (n == NULL || !deeper(p)) {
        return NULL;
    }
    n->a = negation(p);
    p->depth--;
    return n->a == NULL ? NULL : n;
}

/* level 0: or, 1: and */
static nwt_node *logic(nwt_parser *p, unsigned level)
{
    nwt_node *left = level == 0 ? logic(p, 1) : negation(p);

    while (left != NULL && nwt_is_name(p, level == 0 ? "or" : "and")) {
        nwt_node *n = nwt_node_new(p, level == 0 ? N_OR : N_AND);
        p->i++;
        if (n == NULL) {
            return NULL;
        }
        n->a = left;
        n->b = level == 0 ? logic(p, 1) : negation(p);
        left = n->b == NULL ? NULL : n;
    }
    return left;
}

nwt_node *nwt_parse_for_iterable(nwt_parser *p)
{
    nwt_node *n = deeper(p) ? logic(p, 0) : NULL;

    p->depth--;
    return n;
}

nwt_node *nwt_parse_expr(nwt_parser *p)
{
    nwt_node *value = deeper(p) ? logic(p, 0) : NULL;

    while (value != NULL && nwt_is_name(p, "if")) {
        nwt_node *n = nwt_node_new(p, N_COND);
        p->i++;
        if (n == NULL || (n->a = logic(p, 0)) == NULL) {
            return NULL;
        }
        n->b = value;
        if (nwt_is_name(p, "else")) {
            p->i++;
            n->c = nwt_parse_expr(p);
            if (n->c == NULL) {
                return NULL;
            }
        }
        value = n;
    }
    p->depth--;
    return value;
}

nwt_node *nwt_parse_expr_or_tuple(nwt_parser *p)
{
    nwt_node *first = nwt_parse_expr(p);
    nwt_node *n = NULL;
    nwt_node **tail = NULL;

    if (first == NULL || !nwt_is_op(p, ",")) {
        return first;
    }
    n = nwt_node_new(p, N_TUPLE);
    if (n == NULL) {
        return NULL;
    }
    tail = append(&n->first, first);
    while (nwt_is_op(p, ",")) {
        p->i++;
        if (nwt_is_op(p, ")") || now(p)->kind == T_BLOCK_END || now(p)->kind == T_VAR_END) {
            break;
        }
        nwt_node *item = nwt_parse_expr(p);
        if (item == NULL) {
            return NULL;
        }
        tail = append(tail, item);
    }
    return n;
}
