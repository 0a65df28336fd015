/* What the files of the template engine share: values, nodes, the environment of a rendering, and the
 * tables of filters, tests, methods and functions. A construct is a row of one of the tables or a
 * case of the parser; the parser refuses what is neither.
 *
 *   source -> template_lex.c -> tokens -> template_parse.c -> nodes -> template_eval.c -> marked text
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_TEMPLATE_INTERNAL_H
#define NW_MODEL_TEMPLATE_INTERNAL_H

#include "base/arena.h"
#include "base/buf.h"
#include "model/template.h"

/* ---- values ---- */

typedef enum {
    NWT_UNDEFINED,
    NWT_NONE,
    NWT_BOOL,
    NWT_INT,
    NWT_FLOAT,
    NWT_STR,
    NWT_LIST,
    NWT_TUPLE,
    NWT_DICT, /* namespaces too: `mutable` */
    NWT_MACRO,
} nwt_type;

typedef struct nwt_value nwt_value;
typedef struct nwt_dict nwt_dict;
typedef struct nwt_node nwt_node;

struct nwt_value {
    nwt_type type;
    union {
        bool b;
        int64_t i;
        double f;
        struct {
            const char *s;
            const uint8_t *mark; /* [n] 1: the byte came out of a message */
            size_t n;
        } str;
        struct {
            const nwt_value *items;
            size_t n;
        } list;
        nwt_dict *dict;
        const nwt_node *macro;
        const char *name; /* UNDEFINED: what was not there, for messages; may be NULL */
    } u;
};

typedef struct {
    nwt_value key, value; /* key: STR */
} nwt_pair;

struct nwt_dict {
    nwt_pair *pairs;
    size_t n, cap;
    bool is_mutable;
};

/* ---- tokens and nodes ---- */

typedef enum {
    T_TEXT, /* outside of tags */
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP, /* s, n: the operator as written */
    T_END,
} nwt_token_kind;

typedef struct {
    nwt_token_kind kind;
    const char *s; /* text, name, operator, or the string's value */
    size_t n;
    size_t at; /* byte offset in the source */
    int64_t i;
    double f;
} nwt_token;

typedef enum {
    N_TEXT,     /* value */
    N_OUTPUT,   /* a */
    N_IF,       /* a condition, first: body, b: else part (list) */
    N_FOR,      /* names target(s), a iterable, b condition, first: body, c: else part */
    N_SET,      /* names or name.attr, a value */
    N_SETBLOCK, /* name, first: body */
    N_MACRO,    /* name, params (N_PARAM list in b), first: body */
    N_PARAM,    /* name, a default or NULL */
    N_BREAK,
    N_CONTINUE,
    N_GROUP, /* first: body; {% generation %} */
    N_CONST, /* value */
    N_NAME,  /* name */
    N_LIST,  /* first */
    N_TUPLE,
    N_DICT,   /* first: key, value, key, value... */
    N_ATTR,   /* a, name */
    N_INDEX,  /* a, b */
    N_SLICE,  /* a, first: start, stop, step (N_CONST none where absent) */
    N_CALL,   /* name or a, first: arguments */
    N_METHOD, /* a, method, first: arguments */
    N_FILTER, /* a, filter, first: arguments */
    N_TEST,   /* a, test, first: arguments; op 1: negated */
    N_KWARG,  /* name, a */
    N_NOT,
    N_NEG,
    N_BINARY,  /* op, a, b */
    N_COMPARE, /* a, first: N_BINARY list with op and b only */
    N_AND,
    N_OR,
    N_COND, /* b if a else c */
} nwt_kind;

typedef enum {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_CONCAT,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
} nwt_op;

typedef struct nwt_env nwt_env;

typedef struct {
    const nwt_value *pos; /* [n] */
    size_t n;
    const char *const *names; /* [n_kw] */
    const nwt_value *kw;
    size_t n_kw;
} nwt_args;

/* One row of a table. min..max: positional arguments (the value itself not counted). */
typedef struct {
    const char *name;
    unsigned min, max;
    nw_status (*fn)(nwt_env *e, const nwt_value *in, const nwt_args *args, nwt_value *out);
} nwt_row;

struct nwt_node {
    nwt_kind kind;
    unsigned op;
    size_t at;
    const char *name;   /* NUL-terminated */
    const char *attr;   /* N_SET of name.attr */
    const nwt_row *row; /* N_FILTER, N_TEST, N_METHOD, N_CALL of a function */
    nwt_value value;
    nwt_node *a, *b, *c;
    nwt_node *first, *next;
    nwt_node *names; /* N_FOR, N_SET: N_NAME list */
};

struct nw_template {
    nw_arena arena;
    const char *name;
    const char *src; /* with line ends normalized */
    size_t n_src;
    nwt_node *body; /* list along next */
};

/* ---- rendering ---- */

typedef struct nwt_frame {
    struct nwt_frame *parent;
    nwt_dict vars;
} nwt_frame;

struct nwt_env {
    const nw_template *t;
    nw_arena *arena; /* of the rendering */
    nw_error *err;
    const nwt_node *node; /* being evaluated, for messages */
    nwt_frame *frame, *top;
    nw_buf text, marks; /* output; same length */
    size_t n_steps;
    unsigned depth;
    enum { NWT_RUN, NWT_BREAK, NWT_CONTINUE } flow;
};

/* template_lex.c: [*n] tokens, the last T_END. */
NW_MUST_USE nw_status nwt_lex(nw_template *t, nwt_token **out, size_t *n, nw_error *err);
/* "name:line:column" of a source offset, for messages. */
nw_status nwt_fail_at(const nw_template *t, size_t at, nw_status code, nw_error *err,
                      const char *fmt, ...) NW_PRINTF(5, 6);
/* template_expr.c and template_parse.c */
typedef struct {
    nw_template *t;
    const nwt_token *tok;
    size_t i;
    unsigned depth;
    const char *macros[64]; /* names defined so far */
    size_t n_macros;
    nw_error *err;
} nwt_parser;

nwt_node *nwt_parse_expr(nwt_parser *p); /* NULL: failed, err set */
nwt_node *nwt_parse_expr_or_tuple(nwt_parser *p);
nwt_node *nwt_parse_for_iterable(nwt_parser *p); /* stops before a conditional's `if` */
nwt_node *nwt_parse_postfix(nwt_parser *p);      /* a primary, its attributes, indexes and calls */
nwt_node *nwt_parse_filters(nwt_parser *p, nwt_node *n);
nwt_node *nwt_node_new(nwt_parser *p, nwt_kind kind);
bool nwt_is_op(const nwt_parser *p, const char *op);
bool nwt_is_name(const nwt_parser *p, const char *name);
const char *nwt_take_name(nwt_parser *p); /* NULL: not a name, err set */
bool nwt_expect_op(nwt_parser *p, const char *op);
void nwt_unexpected(nwt_parser *p, const char *wanted);

/* template_value.c */
nwt_value nwt_none(void);
nwt_value nwt_undefined(const char *name);
nwt_value nwt_bool(bool b);
nwt_value nwt_int(int64_t i);
nwt_value nwt_float(double f);
/* A copy whose bytes all have the mark; type UNDEFINED and err set where there is no memory. */
NW_MUST_USE nw_status nwt_str(nwt_env *e, const char *s, size_t n, bool content, nwt_value *out);
NW_MUST_USE nw_status nwt_str_raw(nw_arena *a, const char *s, size_t n, bool content,
                                  nwt_value *out, nw_error *err);
nwt_value nwt_slice_str(nwt_value s, size_t start, size_t n);
NW_MUST_USE nw_status nwt_concat(nwt_env *e, const nwt_value *parts, size_t n, nwt_value *out);
NW_MUST_USE nw_status nwt_from_json(nwt_env *e, json_t *v, unsigned depth, nwt_value *out);
bool nwt_truth(const nwt_value *v);
bool nwt_equal(const nwt_value *a, const nwt_value *b);
/* str() of Python. */
NW_MUST_USE nw_status nwt_to_str(nwt_env *e, const nwt_value *v, nwt_value *out);
bool nwt_has_content(const nwt_value *s);
const nwt_value *nwt_dict_get(const nwt_dict *d, const char *key, size_t n);
NW_MUST_USE nw_status nwt_dict_set(nwt_env *e, nwt_dict *d, nwt_value key, nwt_value value);
nwt_dict *nwt_dict_new(nwt_env *e); /* NULL: err set */
const char *nwt_type_name(const nwt_value *v);
/* Items of a list, tuple, keys of a dict, characters of a string; UNDEFINED: none. */
NW_MUST_USE nw_status nwt_items(nwt_env *e, const nwt_value *v, const nwt_value **items, size_t *n);
nw_status nwt_fail(nwt_env *e, nw_status code, const char *fmt, ...) NW_PRINTF(3, 4);
nwt_value *nwt_values(nwt_env *e, size_t n); /* zeroed array; NULL: err set */
/* Counts a step and holds memory against the limits. */
NW_MUST_USE nw_status nwt_step(nwt_env *e);

/* template_json.c: json.dumps(ensure_ascii=False, indent=...) as in transformers' tojson. */
NW_MUST_USE nw_status nwt_to_json(nwt_env *e, const nwt_value *v, int indent, nwt_value *out);

/* str() of a list, tuple or mapping. */
NW_MUST_USE nw_status nwt_to_repr(nwt_env *e, const nwt_value *v, nwt_value *out);

/* template_eval.c, template_ops.c */
NW_MUST_USE nw_status nwt_eval(nwt_env *e, const nwt_node *n, nwt_value *out);
NW_MUST_USE nw_status nwt_exec(nwt_env *e, const nwt_node *list);
NW_MUST_USE nw_status nwt_binary(nwt_env *e, nwt_op op, const nwt_value *a, const nwt_value *b,
                                 nwt_value *out);
NW_MUST_USE nw_status nwt_index(nwt_env *e, const nwt_value *a, const nwt_value *key,
                                nwt_value *out);
NW_MUST_USE nw_status nwt_attr(nwt_env *e, const nwt_value *a, const char *name, nwt_value *out);
NW_MUST_USE nw_status nwt_slice(nwt_env *e, const nwt_value *a, const nwt_value bounds[3],
                                nwt_value *out);

/* Tables; NULL: no such row. */
const nwt_row *nwt_filter_find(const char *name); /* template_filters.c */
/* Rows of template_filters_items.c. */
nw_status nwt_filter_select(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out);
nw_status nwt_filter_reject(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out);
nw_status nwt_filter_selectattr(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out);
nw_status nwt_filter_map(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out);
const nwt_row *nwt_test_find(const char *name);     /* template_tests.c */
const nwt_row *nwt_method_find(const char *name);   /* template_methods.c */
const nwt_row *nwt_function_find(const char *name); /* template_functions.c */

/* The positional or named argument, or NULL. */
const nwt_value *nwt_arg(const nwt_args *a, size_t i, const char *name);

#endif
