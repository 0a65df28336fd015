/* The functions that transformers gives to templates, and Jinja2's own that they use.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <time.h>

#include "model/template_internal.h"

/* The template's own words, without its position: they are meant for who wrote the messages. */
static nw_status g_raise(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    nwt_value s;

    (void)in, (void)out;
    if (nwt_to_str(e, &a->pos[0], &s) != NW_OK) {
        return e->err->code;
    }
    return nw_fail(e->err, NW_E_FORMAT, "%.*s", s.u.str.n > 900 ? 900 : (int)s.u.str.n, s.u.str.s);
}

static nw_status dict_of(nwt_env *e, const nwt_args *a, bool is_mutable, nwt_value *out)
{
    nwt_dict *d = nwt_dict_new(e);
    nwt_value key;

    if (d == NULL) {
        return e->err->code;
    }
    d->is_mutable = is_mutable;
    for (size_t i = 0; i < a->n_kw; i++) {
        if (nwt_str(e, a->names[i], strlen(a->names[i]), false, &key) != NW_OK ||
            nwt_dict_set(e, d, key, a->kw[i]) != NW_OK) {
            return e->err->code;
        }
    }
    *out = (nwt_value){.type = NWT_DICT, .u.dict = d};
    return NW_OK;
}

static nw_status g_namespace(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)in;
    return dict_of(e, a, true, out);
}

static nw_status g_dict(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)in;
    return dict_of(e, a, false, out);
}

static nw_status g_strftime(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    char text[256] = "";
    struct tm tm;
    const time_t t = time(NULL);

    (void)in;
    if (a->pos[0].type != NWT_STR || a->pos[0].u.str.n > 64 || localtime_r(&t, &tm) == NULL) {
        return nwt_fail(e, NW_E_FORMAT, "strftime_now with %s, wanted a text of at most 64 bytes",
                        nwt_type_name(&a->pos[0]));
    }
    char format[65] = "";
    memcpy(format, a->pos[0].u.str.s, a->pos[0].u.str.n);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* strftime reads no arguments */
    const size_t n = strftime(text, sizeof text, format, &tm);
#pragma GCC diagnostic pop
    return nwt_str(e, text, n, false, out);
}

/* range(stop), range(start, stop), range(start, stop, step). */
static nw_status g_range(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    int64_t v[3] = {0, 0, 1};

    (void)in;
    for (size_t i = 0; i < a->n; i++) {
        if (a->pos[i].type != NWT_INT) {
            return nwt_fail(e, NW_E_FORMAT, "range of %s", nwt_type_name(&a->pos[i]));
        }
        v[a->n == 1 ? 1 : i] = a->pos[i].u.i;
    }
    const int64_t limit = 100000; /* as Jinja2's sandbox */
    for (size_t i = 0; i < 3; i++) {
        if (v[i] > limit || v[i] < -limit || (i == 2 && v[i] == 0)) {
            return nwt_fail(e, NW_E_RANGE, "range with %lld, limit %lld", (long long)v[i],
                            (long long)limit);
        }
    }
    const int64_t span = v[2] > 0 ? v[1] - v[0] : v[0] - v[1];
    const int64_t stride = v[2] > 0 ? v[2] : -v[2];
    const size_t n = span <= 0 ? 0 : (size_t)((span + stride - 1) / stride);
    nwt_value *items = nwt_values(e, n);
    for (size_t i = 0; items != NULL && i < n; i++) {
        items[i] = nwt_int(v[0] + (int64_t)i * v[2]);
    }
    *out = (nwt_value){.type = NWT_LIST, .u.list = {items, n}};
    return items == NULL ? e->err->code : NW_OK;
}

static const nwt_row rows[] = {
    {"raise_exception", 1, 1, g_raise}, {"namespace", 0, 0, g_namespace}, {"dict", 0, 0, g_dict},
    {"strftime_now", 1, 1, g_strftime}, {"range", 1, 3, g_range},
};

const nwt_row *nwt_function_find(const char *name)
{
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}
