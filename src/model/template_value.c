/* Values of a rendering: strings whose every byte knows whether it came out of a message, numbers,
 * lists, dictionaries; truth, equality and str() as in Python. Everything lives in the rendering's
 * arena and is never changed, but for namespaces.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/template_internal.h"
#include "model/unicode.h"

#define MAX_MEMORY ((size_t)1 << 30) /* bytes of values in one rendering */

nw_status nwt_fail(nwt_env *e, nw_status code, const char *fmt, ...)
{
    char what[512];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return nwt_fail_at(e->t, e->node == NULL ? 0 : e->node->at, code, e->err, "%s", what);
}

nw_status nwt_step(nwt_env *e)
{
    if (++e->n_steps > NW_TEMPLATE_MAX_STEPS) {
        return nwt_fail(e, NW_E_RANGE, "more than %zu steps", NW_TEMPLATE_MAX_STEPS);
    }
    if (e->arena->used_bytes > MAX_MEMORY) {
        return nwt_fail(e, NW_E_RANGE, "more than %zu bytes of values", MAX_MEMORY);
    }
    return NW_OK;
}

nwt_value nwt_none(void)
{
    return (nwt_value){.type = NWT_NONE};
}

nwt_value nwt_undefined(const char *name)
{
    return (nwt_value){.type = NWT_UNDEFINED, .u.name = name};
}

nwt_value nwt_bool(bool b)
{
    return (nwt_value){.type = NWT_BOOL, .u.b = b};
}

nwt_value nwt_int(int64_t i)
{
    return (nwt_value){.type = NWT_INT, .u.i = i};
}

nwt_value nwt_float(double f)
{
    return (nwt_value){.type = NWT_FLOAT, .u.f = f};
}

nw_status nwt_str_raw(nw_arena *a, const char *s, size_t n, bool content, nwt_value *out,
                      nw_error *err)
{
    char *copy = nw_arena_strndup(a, s, n);
    uint8_t *mark = nw_arena_alloc(a, n + 1);

    if (copy == NULL || mark == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a text of %zu bytes", n);
    }
    memset(mark, content, n);
    *out = (nwt_value){.type = NWT_STR, .u.str = {copy, mark, n}};
    return NW_OK;
}

nw_status nwt_str(nwt_env *e, const char *s, size_t n, bool content, nwt_value *out)
{
    if (n > NW_TEMPLATE_MAX_OUTPUT) {
        return nwt_fail(e, NW_E_RANGE, "a text of %zu bytes, limit %zu", n, NW_TEMPLATE_MAX_OUTPUT);
    }
    return nwt_str_raw(e->arena, s, n, content, out, e->err);
}

nwt_value nwt_slice_str(nwt_value s, size_t start, size_t n)
{
    return (nwt_value){.type = NWT_STR, .u.str = {s.u.str.s + start, s.u.str.mark + start, n}};
}

nw_status nwt_concat(nwt_env *e, const nwt_value *parts, size_t n, nwt_value *out)
{
    size_t total = 0;

    for (size_t i = 0; i < n; i++) {
        if (!nw_size_add(total, parts[i].u.str.n, &total) || total > NW_TEMPLATE_MAX_OUTPUT) {
            return nwt_fail(e, NW_E_RANGE, "a text of %zu bytes or more, limit %zu", total,
                            NW_TEMPLATE_MAX_OUTPUT);
        }
    }
    char *s = nw_arena_alloc(e->arena, total + 1);
    uint8_t *mark = nw_arena_alloc(e->arena, total + 1);
    if (s == NULL || mark == NULL) {
        return nwt_fail(e, NW_E_NOMEM, "no memory for a text of %zu bytes", total);
    }
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].u.str.n > 0) {
            memcpy(s + at, parts[i].u.str.s, parts[i].u.str.n);
            memcpy(mark + at, parts[i].u.str.mark, parts[i].u.str.n);
        }
        at += parts[i].u.str.n;
    }
    *out = (nwt_value){.type = NWT_STR, .u.str = {s, mark, total}};
    return NW_OK;
}

nwt_value *nwt_values(nwt_env *e, size_t n)
{
    nwt_value *v = nw_arena_array(e->arena, n + 1, sizeof *v);

    if (v == NULL) {
        (void)nwt_fail(e, NW_E_NOMEM, "no memory for %zu values", n);
    }
    return v;
}

nwt_dict *nwt_dict_new(nwt_env *e)
{
    nwt_dict *d = nw_arena_alloc(e->arena, sizeof *d);

    if (d == NULL) {
        (void)nwt_fail(e, NW_E_NOMEM, "no memory for a dictionary");
    }
    return d;
}

const nwt_value *nwt_dict_get(const nwt_dict *d, const char *key, size_t n)
{
    for (size_t i = 0; i < d->n; i++) {
        const nwt_value *k = &d->pairs[i].key;
        if (k->u.str.n == n && memcmp(k->u.str.s, key, n) == 0) {
            return &d->pairs[i].value;
        }
    }
    return NULL;
}

nw_status nwt_dict_set(nwt_env *e, nwt_dict *d, nwt_value key, nwt_value value)
{
    for (size_t i = 0; i < d->n; i++) {
        const nwt_value *k = &d->pairs[i].key;
        if (k->u.str.n == key.u.str.n && memcmp(k->u.str.s, key.u.str.s, k->u.str.n) == 0) {
            d->pairs[i].value = value;
            return NW_OK;
        }
    }
    if (d->n == d->cap) {
        const size_t cap = d->cap == 0 ? 8 : d->cap * 2;
        nwt_pair *pairs = nw_arena_array(e->arena, cap, sizeof *pairs);
        if (pairs == NULL) {
            return nwt_fail(e, NW_E_NOMEM, "no memory for a dictionary");
        }
        if (d->n > 0) {
            memcpy(pairs, d->pairs, d->n * sizeof *pairs);
        }
        d->pairs = pairs;
        d->cap = cap;
    }
    d->pairs[d->n++] = (nwt_pair){key, value};
    return NW_OK;
}

static nw_status list_from_json(nwt_env *e, const json_t *v, unsigned depth, nwt_value *out)
{
    const size_t n = json_array_size(v);
    nwt_value *items = nwt_values(e, n);

    for (size_t i = 0; items != NULL && i < n; i++) {
        if (nwt_from_json(e, json_array_get(v, i), depth + 1, &items[i]) != NW_OK) {
            return e->err->code;
        }
    }
    *out = (nwt_value){.type = NWT_LIST, .u.list = {items, n}};
    return items == NULL ? e->err->code : NW_OK;
}

static nw_status dict_from_json(nwt_env *e, json_t *v, unsigned depth, nwt_value *out)
{
    nwt_dict *d = nwt_dict_new(e);
    const size_t n = json_object_size(v);
    const char *key = NULL;
    size_t n_key = 0;
    json_t *item = NULL;

    if (d == NULL) {
        return e->err->code;
    }
    d->pairs = nw_arena_array(e->arena, n + 1, sizeof *d->pairs);
    if (d->pairs == NULL) {
        return nwt_fail(e, NW_E_NOMEM, "no memory for a dictionary of %zu entries", n);
    }
    d->cap = n;
    json_object_keylen_foreach(v, key, n_key, item)
    {
        nwt_pair *p = &d->pairs[d->n];
        if (nwt_str(e, key, n_key, true, &p->key) != NW_OK ||
            nwt_from_json(e, item, depth + 1, &p->value) != NW_OK) {
            return e->err->code;
        }
        d->n++; /* keys are unique already */
    }
    *out = (nwt_value){.type = NWT_DICT, .u.dict = d};
    return NW_OK;
}

nw_status nwt_from_json(nwt_env *e, json_t *v, unsigned depth, nwt_value *out)
{
    if (depth > NW_TEMPLATE_MAX_DEPTH) {
        return nw_fail(e->err, NW_E_RANGE, "messages nested deeper than %d levels",
                       NW_TEMPLATE_MAX_DEPTH);
    }
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return dict_from_json(e, v, depth, out);
    case JSON_ARRAY:
        return list_from_json(e, v, depth, out);
    case JSON_STRING:
        return nwt_str(e, json_string_value(v), json_string_length(v), true, out);
    case JSON_INTEGER:
        *out = nwt_int(json_integer_value(v));
        return NW_OK;
    case JSON_REAL:
        *out = nwt_float(json_real_value(v));
        return NW_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = nwt_bool(json_is_true(v));
        return NW_OK;
    case JSON_NULL:
        break;
    }
    *out = nwt_none();
    return NW_OK;
}

bool nwt_truth(const nwt_value *v)
{
    switch (v->type) {
    case NWT_UNDEFINED:
    case NWT_NONE:
        return false;
    case NWT_BOOL:
        return v->u.b;
    case NWT_INT:
        return v->u.i != 0;
    case NWT_FLOAT:
        return v->u.f != 0;
    case NWT_STR:
        return v->u.str.n > 0;
    case NWT_LIST:
    case NWT_TUPLE:
        return v->u.list.n > 0;
    case NWT_DICT:
        return v->u.dict->is_mutable || v->u.dict->n > 0;
    case NWT_MACRO:
        break;
    }
    return true;
}

static bool as_number(const nwt_value *v, double *out)
{
    switch (v->type) {
    case NWT_BOOL:
        *out = v->u.b;
        return true;
    case NWT_INT:
        *out = (double)v->u.i;
        return true;
    case NWT_FLOAT:
        *out = v->u.f;
        return true;
    case NWT_UNDEFINED:
    case NWT_NONE:
    case NWT_STR:
    case NWT_LIST:
    case NWT_TUPLE:
    case NWT_DICT:
    case NWT_MACRO:
        break;
    }
    return false;
}

static bool equal_at(const nwt_value *a, const nwt_value *b, unsigned depth);

static bool equal_dicts(const nwt_dict *a, const nwt_dict *b, unsigned depth)
{
    for (size_t i = 0; i < a->n; i++) {
        const nwt_value *other = nwt_dict_get(b, a->pairs[i].key.u.str.s, a->pairs[i].key.u.str.n);
        if (other == NULL || !equal_at(&a->pairs[i].value, other, depth + 1)) {
            return false;
        }
    }
    return a->n == b->n;
}

static bool equal_at(const nwt_value *a, const nwt_value *b, unsigned depth)
{
    double x = 0;
    double y = 0;

    if (depth > NW_TEMPLATE_MAX_DEPTH * 4) {
        return false; /* deeper than any value can be built */
    }
    if (as_number(a, &x) && as_number(b, &y)) {
        return a->type == NWT_INT && b->type == NWT_INT ? a->u.i == b->u.i : x == y;
    }
    if (a->type != b->type) {
        return false;
    }
    if (a->type == NWT_STR) {
        return a->u.str.n == b->u.str.n && memcmp(a->u.str.s, b->u.str.s, a->u.str.n) == 0;
    }
    if (a->type == NWT_LIST || a->type == NWT_TUPLE) {
        for (size_t i = 0; a->u.list.n == b->u.list.n && i < a->u.list.n; i++) {
            if (!equal_at(&a->u.list.items[i], &b->u.list.items[i], depth + 1)) {
                return false;
            }
        }
        return a->u.list.n == b->u.list.n;
    }
    return a->type == NWT_DICT ? equal_dicts(a->u.dict, b->u.dict, depth) : true;
}

bool nwt_equal(const nwt_value *a, const nwt_value *b)
{
    return equal_at(a, b, 0);
}

const char *nwt_type_name(const nwt_value *v)
{
    static const char *const names[] = {[NWT_UNDEFINED] = "an undefined value",
                                        [NWT_NONE] = "none",
                                        [NWT_BOOL] = "a truth value",
                                        [NWT_INT] = "an integer",
                                        [NWT_FLOAT] = "a number",
                                        [NWT_STR] = "a text",
                                        [NWT_LIST] = "a list",
                                        [NWT_TUPLE] = "a tuple",
                                        [NWT_DICT] = "a mapping",
                                        [NWT_MACRO] = "a macro"};

    return names[v->type];
}

bool nwt_has_content(const nwt_value *s)
{
    return memchr(s->u.str.mark, 1, s->u.str.n) != NULL;
}

/* repr() of a Python float: the shortest text that reads back. */
static void float_text(double f, char *out, size_t n)
{
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, n, "%.*g", digits, f);
        if (strtod(out, NULL) == f) {
            break;
        }
    }
    if (isfinite(f) && strpbrk(out, ".e") == NULL) {
        (void)snprintf(out + strlen(out), n - strlen(out), ".0");
    }
}

nw_status nwt_to_str(nwt_env *e, const nwt_value *v, nwt_value *out)
{
    char text[64] = "";

    switch (v->type) {
    case NWT_STR:
        *out = *v;
        return NW_OK;
    case NWT_UNDEFINED:
        break;
    case NWT_NONE:
        (void)snprintf(text, sizeof text, "None");
        break;
    case NWT_BOOL:
        (void)snprintf(text, sizeof text, "%s", v->u.b ? "True" : "False");
        break;
    case NWT_INT:
        (void)snprintf(text, sizeof text, "%lld", (long long)v->u.i);
        break;
    case NWT_FLOAT:
        float_text(v->u.f, text, sizeof text);
        break;
    case NWT_LIST:
    case NWT_TUPLE:
    case NWT_DICT:
        return nwt_to_repr(e, v, out);
    case NWT_MACRO:
        return nwt_fail(e, NW_E_UNSUPPORTED, "%s written out as text", nwt_type_name(v));
    }
    return nwt_str(e, text, strlen(text), false, out);
}

static nw_status chars_of(nwt_env *e, const nwt_value *v, const nwt_value **items, size_t *n)
{
    nwt_value *chars = nwt_values(e, v->u.str.n);
    uint32_t cp = 0;

    *n = 0;
    for (size_t i = 0; chars != NULL && i < v->u.str.n;) {
        const size_t len = nw_utf8_decode(v->u.str.s + i, v->u.str.n - i, &cp, NULL);
        chars[(*n)++] = nwt_slice_str(*v, i, len);
        i += len;
    }
    *items = chars;
    return chars == NULL ? e->err->code : NW_OK;
}

nw_status nwt_items(nwt_env *e, const nwt_value *v, const nwt_value **items, size_t *n)
{
    *items = NULL;
    *n = 0;
    if (v->type == NWT_LIST || v->type == NWT_TUPLE) {
        *items = v->u.list.items;
        *n = v->u.list.n;
        return NW_OK;
    }
    if (v->type == NWT_STR) {
        return chars_of(e, v, items, n);
    }
    if (v->type == NWT_DICT && !v->u.dict->is_mutable) {
        nwt_value *keys = nwt_values(e, v->u.dict->n);
        for (size_t i = 0; keys != NULL && i < v->u.dict->n; i++) {
            keys[i] = v->u.dict->pairs[i].key;
        }
        *items = keys;
        *n = v->u.dict->n;
        return keys == NULL ? e->err->code : NW_OK;
    }
    if (v->type == NWT_UNDEFINED) {
        return NW_OK;
    }
    return nwt_fail(e, NW_E_FORMAT, "%s cannot be iterated over", nwt_type_name(v));
}

const nwt_value *nwt_arg(const nwt_args *a, size_t i, const char *name)
{
    if (i < a->n) {
        return &a->pos[i];
    }
    for (size_t k = 0; name != NULL && k < a->n_kw; k++) {
        if (strcmp(a->names[k], name) == 0) {
            return &a->kw[k];
        }
    }
    return NULL;
}
