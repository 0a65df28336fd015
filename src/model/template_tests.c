/* The tests ("x is defined") that templates use, one row each.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/template_internal.h"

/* For each test the types it holds for, as bits. */
#define BIT(t) (1U << (t))

static nw_status type_is(const nwt_value *in, unsigned types, nwt_value *out)
{
    *out = nwt_bool((BIT(in->type) & types) != 0);
    return NW_OK;
}

static nw_status t_defined(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    return type_is(in, ~BIT(NWT_UNDEFINED), out);
}

static nw_status t_undefined(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    return type_is(in, BIT(NWT_UNDEFINED), out);
}

static nw_status t_none(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    return type_is(in, BIT(NWT_NONE), out);
}

static nw_status t_string(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    return type_is(in, BIT(NWT_STR), out);
}

/* Jinja2's undefined value iterates, as an empty one. */
static nw_status t_iterable(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    return type_is(
        in, BIT(NWT_STR) | BIT(NWT_LIST) | BIT(NWT_TUPLE) | BIT(NWT_DICT) | BIT(NWT_UNDEFINED),
        out);
}

static nw_status t_sequence(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return t_iterable(e, in, a, out);
}

static nw_status t_mapping(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    return type_is(in, BIT(NWT_DICT), out);
}

static nw_status t_number(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    return type_is(in, BIT(NWT_INT) | BIT(NWT_FLOAT) | BIT(NWT_BOOL), out);
}

static nw_status t_integer(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    return type_is(in, BIT(NWT_INT), out);
}

static nw_status t_boolean(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    return type_is(in, BIT(NWT_BOOL), out);
}

static nw_status t_true(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    *out = nwt_bool(in->type == NWT_BOOL && in->u.b);
    return NW_OK;
}

static nw_status t_false(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    *out = nwt_bool(in->type == NWT_BOOL && !in->u.b);
    return NW_OK;
}

static nw_status t_equal(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return nwt_binary(e, OP_EQ, in, &a->pos[0], out);
}

static nw_status t_in(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return nwt_binary(e, OP_IN, in, &a->pos[0], out);
}

static const nwt_row rows[] = {
    {"defined", 0, 0, t_defined},   {"undefined", 0, 0, t_undefined},
    {"none", 0, 0, t_none},         {"string", 0, 0, t_string},
    {"iterable", 0, 0, t_iterable}, {"sequence", 0, 0, t_sequence},
    {"mapping", 0, 0, t_mapping},   {"number", 0, 0, t_number},
    {"integer", 0, 0, t_integer},   {"boolean", 0, 0, t_boolean},
    {"true", 0, 0, t_true},         {"false", 0, 0, t_false},
    {"equalto", 1, 1, t_equal},     {"eq", 1, 1, t_equal},
    {"==", 1, 1, t_equal},          {"in", 1, 1, t_in},
};

const nwt_row *nwt_test_find(const char *name)
{
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}
