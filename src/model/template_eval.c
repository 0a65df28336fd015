/* Rendering: expressions to values, statements to marked output. Scopes as in Jinja2: a loop's body and
 * a macro have a scope of their own, an if has none; a macro sees the template's top level. Steps,
 * depth, memory and output are limited.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/template_internal.h"

#define MAX_EVAL_DEPTH 400
#define MAX_ARGS       16

static nw_status lookup(nwt_env *e, const char *name, nwt_value *out)
{
    const size_t n = strlen(name);

    for (const nwt_frame *f = e->frame; f != NULL; f = f->parent) {
        const nwt_value *v = nwt_dict_get(&f->vars, name, n);
        if (v != NULL) {
            *out = *v;
            return NW_OK;
        }
    }
    *out = nwt_function_find(name) != NULL ? (nwt_value){.type = NWT_MACRO} /* "is defined" */
                                           : nwt_undefined(name);
    return NW_OK;
}

static nw_status assign(nwt_env *e, const char *name, nwt_value value)
{
    nwt_value key = nwt_none();

    if (nwt_str(e, name, strlen(name), false, &key) != NW_OK) {
        return e->err->code;
    }
    return nwt_dict_set(e, &e->frame->vars, key, value);
}

static nw_status eval_list(nwt_env *e, const nwt_node *n, nwt_value *out)
{
    size_t count = 0;

    for (const nwt_node *x = n->first; x != NULL; x = x->next) {
        count++;
    }
    nwt_value *items = nwt_values(e, count);
    size_t i = 0;
    for (const nwt_node *x = n->first; items != NULL && x != NULL; x = x->next) {
        if (nwt_eval(e, x, &items[i++]) != NW_OK) {
            return e->err->code;
        }
    }
    *out = (nwt_value){.type = n->kind == N_LIST ? NWT_LIST : NWT_TUPLE, .u.list = {items, count}};
    return items == NULL ? e->err->code : NW_OK;
}

static nw_status eval_dict(nwt_env *e, const nwt_node *n, nwt_value *out)
{
    nwt_dict *d = nwt_dict_new(e);
    nwt_value key = nwt_none();
    nwt_value value = nwt_none();

    for (const nwt_node *x = n->first; d != NULL && x != NULL; x = x->next->next) {
        if (nwt_eval(e, x, &key) != NW_OK || nwt_eval(e, x->next, &value) != NW_OK) {
            return e->err->code;
        }
        if (key.type != NWT_STR) {
            return nwt_fail(e, NW_E_UNSUPPORTED, "%s as a key", nwt_type_name(&key));
        }
        if (nwt_dict_set(e, d, key, value) != NW_OK) {
            return e->err->code;
        }
    }
    *out = (nwt_value){.type = NWT_DICT, .u.dict = d};
    return d == NULL ? e->err->code : NW_OK;
}

typedef struct {
    nwt_value pos[MAX_ARGS], kw[MAX_ARGS];
    const char *names[MAX_ARGS];
    nwt_args args;
} arg_store;

static nw_status eval_args(nwt_env *e, const nwt_node *n, arg_store *s)
{
    s->args = (nwt_args){s->pos, 0, s->names, s->kw, 0};
    for (const nwt_node *x = n->first; x != NULL; x = x->next) {
        const bool named = x->kind == N_KWARG;
        size_t *count = named ? &s->args.n_kw : &s->args.n;
        if (*count == MAX_ARGS) {
            return nwt_fail(e, NW_E_RANGE, "more than %d arguments", MAX_ARGS);
        }
        if (nwt_eval(e, named ? x->a : x, named ? &s->kw[*count] : &s->pos[*count]) != NW_OK) {
            return e->err->code;
        }
        if (named) {
            s->names[*count] = x->name;
        }
        (*count)++;
    }
    return NW_OK;
}

static nw_status call_row(nwt_env *e, const nwt_node *n, const nwt_value *in, nwt_value *out)
{
    arg_store s;

    if (eval_args(e, n, &s) != NW_OK) {
        return e->err->code;
    }
    e->node = n;
    if (s.args.n < n->row->min || s.args.n > n->row->max) {
        const bool named = s.args.n < n->row->min && s.args.n + s.args.n_kw >= n->row->min;
        if (!named) {
            return nwt_fail(e, NW_E_FORMAT, "'%s' with %zu arguments, takes %u to %u", n->row->name,
                            s.args.n, n->row->min, n->row->max);
        }
    }
    return n->row->fn(e, in, &s.args, out);
}

/* The output of `list` as a value instead of output. */
static nw_status capture(nwt_env *e, const nwt_node *list, nwt_value *out)
{
    const size_t start = e->text.len;

    if (nwt_exec(e, list) != NW_OK) {
        return e->err->code;
    }
    const size_t n = e->text.len - start;
    nwt_value v;
    if (nwt_str(e, n == 0 ? "" : e->text.data + start, n, false, &v) != NW_OK) {
        return e->err->code;
    }
    uint8_t *mark = nw_arena_alloc(e->arena, n + 1);
    if (mark == NULL) {
        return nwt_fail(e, NW_E_NOMEM, "no memory for a text of %zu bytes", n);
    }
    if (n > 0) {
        memcpy(mark, e->marks.data + start, n);
    }
    v.u.str.mark = mark;
    e->text.len = e->marks.len = start;
    *out = v;
    return NW_OK;
}

static nw_status bind_params(nwt_env *e, const nwt_node *macro, const nwt_args *args)
{
    size_t i = 0;

    for (const nwt_node *p = macro->b; p != NULL; p = p->next, i++) {
        const nwt_value *given = nwt_arg(args, i, p->name);
        nwt_value v = given != NULL ? *given : nwt_undefined(p->name);
        if (given == NULL && p->a != NULL && nwt_eval(e, p->a, &v) != NW_OK) {
            return e->err->code;
        }
        if (assign(e, p->name, v) != NW_OK) {
            return e->err->code;
        }
    }
    if (args->n > i) {
        return nwt_fail(e, NW_E_FORMAT, "macro '%s' takes %zu arguments, not %zu", macro->name, i,
                        args->n);
    }
    return NW_OK;
}

static nw_status call_macro(nwt_env *e, const nwt_node *n, nwt_value *out)
{
    arg_store s;
    nwt_value m;
    nwt_frame frame = {.parent = e->top};
    nwt_frame *caller = e->frame;

    if (lookup(e, n->name, &m) != NW_OK || eval_args(e, n, &s) != NW_OK) {
        return e->err->code;
    }
    if (m.type != NWT_MACRO || m.u.macro == NULL) {
        return nwt_fail(e, NW_E_FORMAT, "'%s' is %s, not a macro", n->name, nwt_type_name(&m));
    }
    e->frame = &frame;
    nw_status st = bind_params(e, m.u.macro, &s.args);
    if (st == NW_OK) {
        st = capture(e, m.u.macro->first, out);
    }
    e->frame = caller;
    return st;
}

static nw_status eval_compare(nwt_env *e, const nwt_node *n, nwt_value *out)
{
    nwt_value left;
    nwt_value right;

    if (nwt_eval(e, n->a, &left) != NW_OK) {
        return e->err->code;
    }
    *out = nwt_bool(true);
    for (const nwt_node *x = n->first; x != NULL && nwt_truth(out); x = x->next) {
        if (nwt_eval(e, x->b, &right) != NW_OK) {
            return e->err->code;
        }
        e->node = n;
        if (nwt_binary(e, (nwt_op)x->op, &left, &right, out) != NW_OK) {
            return e->err->code;
        }
        left = right;
    }
    return NW_OK;
}

static nw_status eval_slice(nwt_env *e, const nwt_node *n, const nwt_value *a, nwt_value *out)
{
    nwt_value bounds[3];
    size_t i = 0;

    for (const nwt_node *x = n->first; x != NULL; x = x->next) {
        if (nwt_eval(e, x, &bounds[i++]) != NW_OK) {
            return e->err->code;
        }
    }
    e->node = n;
    return nwt_slice(e, a, bounds, out);
}

static nw_status negate(nwt_env *e, const nwt_node *n, const nwt_value *a, nwt_value *out)
{
    const nwt_value zero = nwt_int(0);

    e->node = n;
    return nwt_binary(e, n->op ? OP_SUB : OP_ADD, &zero, a, out);
}

/* Nodes that begin with the value of n->a. */
static nw_status eval_on(nwt_env *e, const nwt_node *n, nwt_value *out)
{
    nwt_value a;
    nwt_value b;

    if (nwt_eval(e, n->a, &a) != NW_OK) {
        return e->err->code;
    }
    e->node = n;
    switch ((int)n->kind) {
    case N_ATTR:
        return nwt_attr(e, &a, n->name, out);
    case N_SLICE:
        return eval_slice(e, n, &a, out);
    case N_METHOD:
    case N_FILTER:
        return call_row(e, n, &a, out);
    case N_TEST:
        if (call_row(e, n, &a, out) != NW_OK) {
            return e->err->code;
        }
        *out = nwt_bool(nwt_truth(out) != (n->op == 1));
        return NW_OK;
    case N_NEG:
        return negate(e, n, &a, out);
    default:
        break;
    }
    if (nwt_eval(e, n->b, &b) != NW_OK) {
        return e->err->code;
    }
    e->node = n;
    return n->kind == N_INDEX ? nwt_index(e, &a, &b, out)
                              : nwt_binary(e, (nwt_op)n->op, &a, &b, out);
}

/* not, and, or, if-else: what they evaluate depends on a truth. */
static nw_status eval_logic(nwt_env *e, const nwt_node *n, nwt_value *out)
{
    if (nwt_eval(e, n->a, out) != NW_OK) {
        return e->err->code;
    }
    const bool yes = nwt_truth(out);
    if (n->kind == N_NOT) {
        *out = nwt_bool(!yes);
        return NW_OK;
    }
    if (n->kind == N_COND) {
        if (!yes && n->c == NULL) {
            *out = nwt_undefined("the missing else");
            return NW_OK;
        }
        return nwt_eval(e, yes ? n->b : n->c, out);
    }
    return yes == (n->kind == N_AND) ? nwt_eval(e, n->b, out) : NW_OK;
}

static nw_status eval_node(nwt_env *e, const nwt_node *n, nwt_value *out)
{
    switch ((int)n->kind) {
    case N_CONST:
        *out = n->value;
        return NW_OK;
    case N_NAME:
        return lookup(e, n->name, out);
    case N_LIST:
    case N_TUPLE:
        return eval_list(e, n, out);
    case N_DICT:
        return eval_dict(e, n, out);
    case N_CALL:
        return n->row != NULL ? call_row(e, n, NULL, out) : call_macro(e, n, out);
    case N_COMPARE:
        return eval_compare(e, n, out);
    case N_NOT:
    case N_AND:
    case N_OR:
    case N_COND:
        return eval_logic(e, n, out);
    default:
        return eval_on(e, n, out);
    }
}

static nw_status enter(nwt_env *e, const nwt_node *n)
{
    e->node = n;
    if (e->depth >= MAX_EVAL_DEPTH) {
        return nwt_fail(e, NW_E_RANGE, "evaluated deeper than %d levels", MAX_EVAL_DEPTH);
    }
    return nwt_step(e);
}

nw_status nwt_eval(nwt_env *e, const nwt_node *n, nwt_value *out)
{
    if (enter(e, n) != NW_OK) {
        return e->err->code;
    }
    e->depth++;
    const nw_status st = eval_node(e, n, out);
    e->depth--;
    return st;
}

/* ---- statements ---- */

static nw_status emit(nwt_env *e, const nwt_value *v)
{
    nwt_value s;

    if (nwt_to_str(e, v, &s) != NW_OK) {
        return e->err->code;
    }
    if (!nw_buf_add(&e->text, s.u.str.s, s.u.str.n) ||
        !nw_buf_add(&e->marks, s.u.str.mark, s.u.str.n)) {
        return nwt_fail(e, NW_E_RANGE, "more than %zu bytes of output", NW_TEMPLATE_MAX_OUTPUT);
    }
    return NW_OK;
}

static nw_status exec_output(nwt_env *e, const nwt_node *n)
{
    nwt_value v;

    return nwt_eval(e, n->a, &v) != NW_OK ? e->err->code : emit(e, &v);
}

/* The chain of elif is walked here, so that its length costs no stack. */
static nw_status exec_if(nwt_env *e, const nwt_node *n)
{
    for (;;) {
        nwt_value v;
        if (nwt_eval(e, n->a, &v) != NW_OK) {
            return e->err->code;
        }
        if (nwt_truth(&v)) {
            return nwt_exec(e, n->first);
        }
        if (n->b == NULL || n->b->kind != N_IF || n->b->next != NULL || n->b->op != 1) {
            return nwt_exec(e, n->b);
        }
        n = n->b;
    }
}

/* Gives one value to one name, or the items of a value to as many names. */
static nw_status assign_to(nwt_env *e, const nwt_node *names, const nwt_value *v)
{
    const nwt_value *items = NULL;
    size_t n = 0;
    size_t i = 0;

    if (names->next == NULL) {
        return assign(e, names->name, *v);
    }
    if (nwt_items(e, v, &items, &n) != NW_OK) {
        return e->err->code;
    }
    for (const nwt_node *x = names; x != NULL; x = x->next, i++) {
        if (i >= n) {
            return nwt_fail(e, NW_E_FORMAT, "%zu values for more names", n);
        }
        if (assign(e, x->name, items[i]) != NW_OK) {
            return e->err->code;
        }
    }
    return i == n ? NW_OK : nwt_fail(e, NW_E_FORMAT, "%zu values for %zu names", n, i);
}

static nw_status loop_var(nwt_env *e, const nwt_value *items, size_t n, size_t i)
{
    nwt_dict *d = nwt_dict_new(e);
    const struct {
        const char *name;
        nwt_value value;
    } vars[] = {
        {"index", nwt_int((int64_t)i + 1)},
        {"index0", nwt_int((int64_t)i)},
        {"revindex", nwt_int((int64_t)(n - i))},
        {"revindex0", nwt_int((int64_t)(n - i) - 1)},
        {"first", nwt_bool(i == 0)},
        {"last", nwt_bool(i + 1 == n)},
        {"length", nwt_int((int64_t)n)},
        {"previtem", i == 0 ? nwt_undefined("loop.previtem") : items[i - 1]},
        {"nextitem", i + 1 == n ? nwt_undefined("loop.nextitem") : items[i + 1]},
    };

    for (size_t k = 0; d != NULL && k < NW_COUNT(vars); k++) {
        nwt_value key;
        if (nwt_str(e, vars[k].name, strlen(vars[k].name), false, &key) != NW_OK ||
            nwt_dict_set(e, d, key, vars[k].value) != NW_OK) {
            return e->err->code;
        }
    }
    return d == NULL ? e->err->code : assign(e, "loop", (nwt_value){.type = NWT_DICT, .u.dict = d});
}

/* "for ... if": the items that pass, before the loop counts them. */
static nw_status keep(nwt_env *e, const nwt_node *n, const nwt_value **items, size_t *count)
{
    nwt_value *kept = nwt_values(e, *count);
    size_t n_kept = 0;
    nwt_value yes;

    for (size_t i = 0; kept != NULL && i < *count; i++) {
        if (assign_to(e, n->names, &(*items)[i]) != NW_OK || nwt_eval(e, n->b, &yes) != NW_OK) {
            return e->err->code;
        }
        if (nwt_truth(&yes)) {
            kept[n_kept++] = (*items)[i];
        }
    }
    *items = kept;
    *count = n_kept;
    return kept == NULL ? e->err->code : NW_OK;
}

static nw_status run_loop(nwt_env *e, const nwt_node *n, const nwt_value *items, size_t count)
{
    nwt_frame *frame = e->frame;

    for (size_t i = 0; i < count && e->flow != NWT_BREAK; i++) {
        e->flow = NWT_RUN;
        frame->vars = (nwt_dict){0};
        if (nwt_step(e) != NW_OK || assign_to(e, n->names, &items[i]) != NW_OK ||
            loop_var(e, items, count, i) != NW_OK || nwt_exec(e, n->first) != NW_OK) {
            return e->err->code;
        }
    }
    e->flow = NWT_RUN;
    return NW_OK;
}

static nw_status exec_for(nwt_env *e, const nwt_node *n)
{
    nwt_value over;
    const nwt_value *items = NULL;
    size_t count = 0;
    nwt_frame frame = {.parent = e->frame};

    if (nwt_eval(e, n->a, &over) != NW_OK) {
        return e->err->code;
    }
    e->node = n;
    if (nwt_items(e, &over, &items, &count) != NW_OK) {
        return e->err->code;
    }
    e->frame = &frame;
    nw_status st = n->b == NULL ? NW_OK : keep(e, n, &items, &count);
    if (st == NW_OK) {
        st = run_loop(e, n, items, count);
    }
    e->frame = frame.parent;
    return st == NW_OK && count == 0 ? nwt_exec(e, n->c) : st;
}

static nw_status exec_set(nwt_env *e, const nwt_node *n)
{
    nwt_value v = nwt_none();
    nwt_value target = nwt_none();
    nwt_value key = nwt_none();

    if (n->kind == N_SETBLOCK) {
        return capture(e, n->first, &v) != NW_OK ? e->err->code : assign(e, n->names->name, v);
    }
    if (nwt_eval(e, n->a, &v) != NW_OK) {
        return e->err->code;
    }
    e->node = n;
    if (n->attr == NULL) {
        return assign_to(e, n->names, &v);
    }
    if (lookup(e, n->names->name, &target) != NW_OK) {
        return e->err->code;
    }
    if (target.type != NWT_DICT || !target.u.dict->is_mutable) {
        return nwt_fail(e, NW_E_FORMAT, "'%s' is %s, not a namespace", n->names->name,
                        nwt_type_name(&target));
    }
    return nwt_str(e, n->attr, strlen(n->attr), false, &key) != NW_OK
               ? e->err->code
               : nwt_dict_set(e, target.u.dict, key, v);
}

static nw_status exec_one(nwt_env *e, const nwt_node *n)
{
    switch ((int)n->kind) {
    case N_TEXT:
        return emit(e, &n->value);
    case N_OUTPUT:
        return exec_output(e, n);
    case N_IF:
        return exec_if(e, n);
    case N_FOR:
        return exec_for(e, n);
    case N_MACRO:
        return assign(e, n->name, (nwt_value){.type = NWT_MACRO, .u.macro = n});
    case N_BREAK:
    case N_CONTINUE:
        e->flow = n->kind == N_BREAK ? NWT_BREAK : NWT_CONTINUE;
        return NW_OK;
    case N_GROUP:
        return nwt_exec(e, n->first);
    default:
        return exec_set(e, n);
    }
}

nw_status nwt_exec(nwt_env *e, const nwt_node *list)
{
    nw_status st = NW_OK;

    for (const nwt_node *n = list; n != NULL && st == NW_OK && e->flow == NWT_RUN; n = n->next) {
        st = enter(e, n);
        if (st == NW_OK) {
            e->depth++;
            st = exec_one(e, n);
            e->depth--;
        }
    }
    return st;
}
