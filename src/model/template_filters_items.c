/* Filters that work on the items of a list: select, reject, selectattr, map.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/template_internal.h"

/* select, reject, selectattr: the test named by an argument on each item or on its attribute. */
typedef struct {
    const char *attr;    /* NULL: the item itself */
    const nwt_row *test; /* NULL: truth */
    nwt_args rest;       /* the test's arguments */
    bool wanted;
} condition;

static nw_status read_condition(nwt_env *e, const nwt_args *a, bool by_attr, condition *c)
{
    const size_t at = by_attr ? 1 : 0;

    for (size_t i = 0; i < a->n && i <= at; i++) {
        if (a->pos[i].type != NWT_STR) {
            return nwt_fail(e, NW_E_FORMAT, "%s as the name of an attribute or test",
                            nwt_type_name(&a->pos[i]));
        }
    }
    c->attr = by_attr ? a->pos[0].u.str.s : NULL;
    if (a->n <= at) {
        return NW_OK;
    }
    c->test = nwt_test_find(a->pos[at].u.str.s);
    c->rest = (nwt_args){a->pos + at + 1, a->n - at - 1, NULL, NULL, 0};
    if (c->test == NULL) {
        return nwt_fail(e, NW_E_UNSUPPORTED, "test '%.60s' is not supported", a->pos[at].u.str.s);
    }
    if (c->rest.n < c->test->min || c->rest.n > c->test->max) {
        return nwt_fail(e, NW_E_FORMAT, "test '%s' with %zu arguments", c->test->name, c->rest.n);
    }
    return NW_OK;
}

static nw_status passes(nwt_env *e, const condition *c, const nwt_value *item, bool *out)
{
    nwt_value v = *item;

    if (nwt_step(e) != NW_OK || (c->attr != NULL && nwt_attr(e, item, c->attr, &v) != NW_OK)) {
        return e->err->code;
    }
    nwt_value yes = v;
    if (c->test != NULL && c->test->fn(e, &v, &c->rest, &yes) != NW_OK) {
        return e->err->code;
    }
    *out = nwt_truth(&yes) == c->wanted;
    return NW_OK;
}

static nw_status filter_items(nwt_env *e, const nwt_value *in, const nwt_args *a, bool by_attr,
                              bool wanted, nwt_value *out)
{
    condition c = {.wanted = wanted};
    const nwt_value *items = NULL;
    size_t n = 0;
    size_t n_kept = 0;

    if (read_condition(e, a, by_attr, &c) != NW_OK || nwt_items(e, in, &items, &n) != NW_OK) {
        return e->err->code;
    }
    nwt_value *kept = nwt_values(e, n);
    for (size_t i = 0; kept != NULL && i < n; i++) {
        bool yes = false;
        if (passes(e, &c, &items[i], &yes) != NW_OK) {
            return e->err->code;
        }
        if (yes) {
            kept[n_kept++] = items[i];
        }
    }
    *out = (nwt_value){.type = NWT_LIST, .u.list = {kept, n_kept}};
    return kept == NULL ? e->err->code : NW_OK;
}

nw_status nwt_filter_select(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return filter_items(e, in, a, false, true, out);
}

nw_status nwt_filter_reject(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return filter_items(e, in, a, false, false, out);
}

nw_status nwt_filter_selectattr(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return filter_items(e, in, a, true, true, out);
}

/* What map() applies: an attribute's name, or a filter with its arguments. */
static nw_status read_map(nwt_env *e, const nwt_args *a, const char **attr, const nwt_row **row)
{
    const nwt_value *attribute = a->n == 0 ? nwt_arg(a, 0, "attribute") : NULL;
    const nwt_value *what = attribute != NULL ? attribute : nwt_arg(a, 0, NULL);

    if (what == NULL || what->type != NWT_STR) {
        return nwt_fail(e, NW_E_UNSUPPORTED, "map without the name of an attribute or a filter");
    }
    if (attribute != NULL) {
        *attr = what->u.str.s;
        return NW_OK;
    }
    *row = nwt_filter_find(what->u.str.s);
    if (*row == NULL || a->n - 1 < (*row)->min || a->n - 1 > (*row)->max) {
        return nwt_fail(e, NW_E_UNSUPPORTED, "filter '%.60s' is not supported in map",
                        what->u.str.s);
    }
    return NW_OK;
}

/* map(attribute="x") or map("filter", arguments...). */
nw_status nwt_filter_map(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_args rest = {a->pos + 1, a->n > 0 ? a->n - 1 : 0, NULL, NULL, 0};
    const nwt_value *items = NULL;
    const nwt_row *row = NULL;
    const char *attr = NULL;
    size_t n = 0;

    if (read_map(e, a, &attr, &row) != NW_OK || nwt_items(e, in, &items, &n) != NW_OK) {
        return e->err->code;
    }
    nwt_value *mapped = nwt_values(e, n);
    for (size_t i = 0; mapped != NULL && i < n; i++) {
        const nw_status st = row != NULL ? row->fn(e, &items[i], &rest, &mapped[i])
                                         : nwt_attr(e, &items[i], attr, &mapped[i]);
        if (st != NW_OK || nwt_step(e) != NW_OK) {
            return e->err->code;
        }
    }
    *out = (nwt_value){.type = NWT_LIST, .u.list = {mapped, n}};
    return mapped == NULL ? e->err->code : NW_OK;
}
