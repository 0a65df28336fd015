/* The filters that templates use, one row each. A filter that is not here is refused when the template
 * is parsed.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "model/template_internal.h"
#include "model/unicode.h"

static nw_status through_method(nwt_env *e, const char *name, const nwt_value *in,
                                const nwt_args *a, nwt_value *out)
{
    nwt_value s;

    if (nwt_to_str(e, in, &s) != NW_OK) {
        return e->err->code;
    }
    return nwt_method_find(name)->fn(e, &s, a, out);
}

static nw_status f_trim(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return through_method(e, "strip", in, a, out);
}

static nw_status f_upper(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return through_method(e, "upper", in, a, out);
}

static nw_status f_lower(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return through_method(e, "lower", in, a, out);
}

static nw_status f_capitalize(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return through_method(e, "capitalize", in, a, out);
}

static nw_status f_replace(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return through_method(e, "replace", in, a, out);
}

static nw_status f_tojson(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_value *indent = nwt_arg(a, 0, "indent");
    int width = -1;

    if (indent != NULL && indent->type == NWT_INT) {
        if (indent->u.i < 0 || indent->u.i > 16) {
            return nwt_fail(e, NW_E_RANGE, "tojson with an indent of %lld, limit 16",
                            (long long)indent->u.i);
        }
        width = (int)indent->u.i;
    }
    return nwt_to_json(e, in, width, out);
}

static nw_status f_length(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_value *items = NULL;
    size_t n = 0;

    (void)a;
    if (nwt_items(e, in, &items, &n) != NW_OK) {
        return e->err->code;
    }
    *out = nwt_int((int64_t)n);
    return NW_OK;
}

static nw_status f_string(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)a;
    return nwt_to_str(e, in, out);
}

static nw_status f_safe(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)e, (void)a;
    *out = *in; /* nothing is escaped, so nothing has to be marked as safe */
    return NW_OK;
}

static nw_status f_list(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_value *items = NULL;
    size_t n = 0;

    (void)a;
    if (nwt_items(e, in, &items, &n) != NW_OK) {
        return e->err->code;
    }
    *out = (nwt_value){.type = NWT_LIST, .u.list = {items, n}};
    return NW_OK;
}

static nw_status f_items(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    if (in->type == NWT_UNDEFINED) {
        *out = (nwt_value){.type = NWT_LIST, .u.list = {NULL, 0}};
        return NW_OK;
    }
    return nwt_method_find("items")->fn(e, in, a, out);
}

static nw_status f_join(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_value *items = NULL;
    const nwt_value *given = nwt_arg(a, 0, "d");
    nwt_value sep;
    size_t n = 0;

    if (nwt_items(e, in, &items, &n) != NW_OK) {
        return e->err->code;
    }
    if ((given != NULL ? nwt_to_str(e, given, &sep) : nwt_str(e, "", 0, false, &sep)) != NW_OK) {
        return e->err->code;
    }
    nwt_value *parts = nwt_values(e, n * 2);
    size_t k = 0;
    for (size_t i = 0; parts != NULL && i < n; i++) {
        if (i > 0) {
            parts[k++] = sep;
        }
        if (nwt_to_str(e, &items[i], &parts[k++]) != NW_OK) {
            return e->err->code;
        }
    }
    return parts == NULL ? e->err->code : nwt_concat(e, parts, k, out);
}

static nw_status f_default(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_value *value = nwt_arg(a, 0, "default_value");
    const nwt_value *falsy = nwt_arg(a, 1, "boolean");
    const bool missing =
        in->type == NWT_UNDEFINED || (falsy != NULL && nwt_truth(falsy) && !nwt_truth(in));

    if (!missing) {
        *out = *in;
        return NW_OK;
    }
    if (value == NULL) {
        return nwt_str(e, "", 0, false, out);
    }
    *out = *value;
    return NW_OK;
}

static nw_status edge(nwt_env *e, const nwt_value *in, bool last, nwt_value *out)
{
    const nwt_value *items = NULL;
    size_t n = 0;

    if (nwt_items(e, in, &items, &n) != NW_OK) {
        return e->err->code;
    }
    *out =
        n == 0 ? nwt_undefined(last ? "the last item" : "the first item") : items[last ? n - 1 : 0];
    return NW_OK;
}

static nw_status f_first(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)a;
    return edge(e, in, false, out);
}

static nw_status f_last(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)a;
    return edge(e, in, true, out);
}

static nw_status f_int(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_value *fallback = nwt_arg(a, 0, "default");

    (void)e;
    *out = fallback != NULL ? *fallback : nwt_int(0);
    if (in->type == NWT_INT) {
        *out = *in;
    } else if (in->type == NWT_BOOL) {
        *out = nwt_int(in->u.b);
    } else if (in->type == NWT_FLOAT && in->u.f > -9e18 && in->u.f < 9e18) {
        *out = nwt_int((int64_t)in->u.f);
    } else if (in->type == NWT_STR && in->u.str.n > 0 && in->u.str.n < 19) {
        char text[20] = "";
        char *end = NULL;
        memcpy(text, in->u.str.s, in->u.str.n);
        const long long v = strtoll(text, &end, 10);
        if (*end == '\0') {
            *out = nwt_int(v);
        }
    }
    return NW_OK;
}

/* The text cut into lines, each with its line end and the pad before it where it wants one. */
static size_t indent_lines(const nwt_value *s, nwt_value pad, bool first, nwt_value *parts)
{
    size_t k = 0;
    size_t start = 0;

    for (size_t i = 0; i <= s->u.str.n; i++) {
        if (i < s->u.str.n && s->u.str.s[i] != '\n') {
            continue;
        }
        if (start == 0 ? first : i > start) {
            parts[k++] = pad;
        }
        parts[k++] = nwt_slice_str(*s, start, (i < s->u.str.n ? i + 1 : i) - start);
        start = i + 1;
    }
    return k;
}

/* indent(width=4, first=false): blank lines stay blank. */
static nw_status f_indent(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_value *width = nwt_arg(a, 0, "width");
    const nwt_value *first = nwt_arg(a, 1, "first");
    const int64_t w = width != NULL && width->type == NWT_INT ? width->u.i : 4;
    nwt_value s;
    nwt_value pad;
    char spaces[64];

    if (w < 0 || w > (int64_t)sizeof spaces) {
        return nwt_fail(e, NW_E_RANGE, "indent by %lld, limit %zu", (long long)w, sizeof spaces);
    }
    memset(spaces, ' ', sizeof spaces);
    if (nwt_to_str(e, in, &s) != NW_OK || nwt_str(e, spaces, (size_t)w, false, &pad) != NW_OK) {
        return e->err->code;
    }
    size_t lines = 1;
    for (size_t i = 0; i < s.u.str.n; i++) {
        lines += s.u.str.s[i] == '\n';
    }
    nwt_value *parts = nwt_values(e, lines * 2);
    return parts == NULL
               ? e->err->code
               : nwt_concat(e, parts,
                            indent_lines(&s, pad, first != NULL && nwt_truth(first), parts), out);
}

static const nwt_row rows[] = {
    {"trim", 0, 1, f_trim},
    {"tojson", 0, 1, f_tojson},
    {"length", 0, 0, f_length},
    {"count", 0, 0, f_length},
    {"string", 0, 0, f_string},
    {"list", 0, 0, f_list},
    {"items", 0, 0, f_items},
    {"join", 0, 1, f_join},
    {"select", 0, 3, nwt_filter_select},
    {"reject", 0, 3, nwt_filter_reject},
    {"selectattr", 1, 4, nwt_filter_selectattr},
    {"map", 0, 3, nwt_filter_map},
    {"default", 0, 2, f_default},
    {"d", 0, 2, f_default},
    {"upper", 0, 0, f_upper},
    {"lower", 0, 0, f_lower},
    {"capitalize", 0, 0, f_capitalize},
    {"replace", 2, 3, f_replace},
    {"first", 0, 0, f_first},
    {"last", 0, 0, f_last},
    {"int", 0, 1, f_int},
    {"indent", 0, 2, f_indent},
    {"safe", 0, 0, f_safe},
};

const nwt_row *nwt_filter_find(const char *name)
{
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}
