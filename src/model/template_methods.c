/* Methods of texts and mappings that templates call, one row each.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/template_internal.h"
#include "model/unicode.h"

static nw_status want(nwt_env *e, const nwt_value *in, nwt_type type, const char *method)
{
    if (in->type == NWT_UNDEFINED) {
        return nwt_fail(e, NW_E_FORMAT, "'%.60s' is undefined",
                        in->u.name == NULL ? "" : in->u.name);
    }
    return in->type == type
               ? NW_OK
               : nwt_fail(e, NW_E_FORMAT, "%s has no method '%s'", nwt_type_name(in), method);
}

static nw_status want_args(nwt_env *e, const nwt_args *a, const char *method)
{
    for (size_t i = 0; i < a->n; i++) {
        if (a->pos[i].type != NWT_STR && a->pos[i].type != NWT_INT && a->pos[i].type != NWT_NONE) {
            return nwt_fail(e, NW_E_FORMAT, "'%s' with %s", method, nwt_type_name(&a->pos[i]));
        }
    }
    return NW_OK;
}

/* Whether Python strips the character: white space, or one of `set`. */
static bool stripped(uint32_t cp, const nwt_value *set)
{
    if (set == NULL || set->type != NWT_STR) {
        return nw_is_space(cp) || (cp >= 0x1C && cp <= 0x1F);
    }
    char c[4];
    return nw_bytes_find(set->u.str.s, set->u.str.n, c, nw_utf8_encode(cp, c)) != NULL;
}

static nw_status strip(nwt_env *e, const nwt_value *in, const nwt_args *a, bool left, bool right,
                       nwt_value *out)
{
    const nwt_value *set = nwt_arg(a, 0, "chars");
    uint32_t cp = 0;

    if (want(e, in, NWT_STR, "strip") != NW_OK || want_args(e, a, "strip") != NW_OK) {
        return e->err->code;
    }
    const char *s = in->u.str.s;
    size_t start = 0;
    size_t end = in->u.str.n;
    while (left && start < end) {
        const size_t len = nw_utf8_decode(s + start, end - start, &cp, NULL);
        if (!stripped(cp, set)) {
            break;
        }
        start += len;
    }
    while (right && end > start) {
        size_t at = end - 1;
        while (at > start && ((unsigned char)s[at] & 0xC0U) == 0x80U) {
            at--;
        }
        (void)nw_utf8_decode(s + at, end - at, &cp, NULL);
        if (!stripped(cp, set)) {
            break;
        }
        end = at;
    }
    *out = nwt_slice_str(*in, start, end - start);
    return NW_OK;
}

static nw_status m_strip(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return strip(e, in, a, true, true, out);
}

static nw_status m_lstrip(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return strip(e, in, a, true, false, out);
}

static nw_status m_rstrip(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return strip(e, in, a, false, true, out);
}

/* One cut of split(): the next separator at or after `from`; for white space the run of it. */
static bool next_cut(const nwt_value *s, const nwt_value *sep, size_t from, size_t *start,
                     size_t *end)
{
    uint32_t cp = 0;

    if (sep != NULL) {
        const char *at =
            nw_bytes_find(s->u.str.s + from, s->u.str.n - from, sep->u.str.s, sep->u.str.n);
        *start = at == NULL ? 0 : (size_t)(at - s->u.str.s);
        *end = *start + sep->u.str.n;
        return at != NULL;
    }
    for (size_t i = from; i < s->u.str.n;) {
        size_t len = nw_utf8_decode(s->u.str.s + i, s->u.str.n - i, &cp, NULL);
        if (stripped(cp, NULL)) {
            *start = i;
            while (i < s->u.str.n && stripped(cp, NULL)) {
                i += len;
                len =
                    i < s->u.str.n ? nw_utf8_decode(s->u.str.s + i, s->u.str.n - i, &cp, NULL) : 0;
            }
            *end = i;
            return true;
        }
        i += len;
    }
    return false;
}

/* The parts of s between separators, at most `left` cuts. */
static nw_status cut_text(nwt_env *e, const nwt_value *s, const nwt_value *sep, int64_t left,
                          nwt_value *out)
{
    size_t start = 0;
    size_t end = 0;
    size_t n = 0;
    size_t from = 0;
    nwt_value *parts = nwt_values(e, s->u.str.n + 1);

    if (parts == NULL) {
        return e->err->code;
    }
    while (left-- > 0 && next_cut(s, sep, from, &start, &end)) {
        parts[n++] = nwt_slice_str(*s, from, start - from);
        from = end;
    }
    if (sep != NULL || from < s->u.str.n) {
        parts[n++] = nwt_slice_str(*s, from, s->u.str.n - from);
    }
    *out = (nwt_value){.type = NWT_LIST, .u.list = {parts, n}};
    return NW_OK;
}

static nw_status m_split(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_args none = {NULL, 0, NULL, NULL, 0};
    const nwt_value *given = nwt_arg(a, 0, "sep");
    const nwt_value *sep = given != NULL && given->type == NWT_STR ? given : NULL;
    const nwt_value *max = nwt_arg(a, 1, "maxsplit");
    const bool limited = max != NULL && max->type == NWT_INT && max->u.i >= 0;
    nwt_value s = *in;

    if (want(e, in, NWT_STR, "split") != NW_OK || want_args(e, a, "split") != NW_OK) {
        return e->err->code;
    }
    if (sep != NULL && sep->u.str.n == 0) {
        return nwt_fail(e, NW_E_FORMAT, "split by an empty text");
    }
    if (sep == NULL && m_lstrip(e, in, &none, &s) != NW_OK) {
        return e->err->code;
    }
    return cut_text(e, &s, sep, limited ? max->u.i : INT64_MAX, out);
}

/* startswith and endswith take a text or a tuple of texts. */
static nw_status affix(nwt_env *e, const nwt_value *in, const nwt_args *a, bool end, nwt_value *out)
{
    const nwt_value *x = &a->pos[0];
    const nwt_value *items = x->type == NWT_TUPLE ? x->u.list.items : x;
    const size_t n = x->type == NWT_TUPLE ? x->u.list.n : 1;

    if (want(e, in, NWT_STR, end ? "endswith" : "startswith") != NW_OK) {
        return e->err->code;
    }
    *out = nwt_bool(false);
    for (size_t i = 0; i < n; i++) {
        if (items[i].type != NWT_STR) {
            return nwt_fail(e, NW_E_FORMAT, "startswith or endswith with %s",
                            nwt_type_name(&items[i]));
        }
        const size_t k = items[i].u.str.n;
        if (k <= in->u.str.n &&
            memcmp(in->u.str.s + (end ? in->u.str.n - k : 0), items[i].u.str.s, k) == 0) {
            *out = nwt_bool(true);
        }
    }
    return NW_OK;
}

static nw_status m_startswith(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return affix(e, in, a, false, out);
}

static nw_status m_endswith(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    return affix(e, in, a, true, out);
}

static nw_status m_replace(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    const nwt_value *from = &a->pos[0];
    const nwt_value *to = &a->pos[1];
    int64_t left = a->n > 2 && a->pos[2].type == NWT_INT ? a->pos[2].u.i : INT64_MAX;
    size_t start = 0;
    size_t end = 0;
    size_t at = 0;
    size_t n = 0;

    if (want(e, in, NWT_STR, "replace") != NW_OK) {
        return e->err->code;
    }
    if (a->n < 2 || from->type != NWT_STR || to->type != NWT_STR || from->u.str.n == 0) {
        return nwt_fail(e, NW_E_FORMAT, "replace wants two texts, the first not empty");
    }
    size_t room = 0;
    if (!nw_size_mul(in->u.str.n / from->u.str.n + 1, 2, &room)) {
        return nwt_fail(e, NW_E_RANGE, "a text that is too long");
    }
    nwt_value *parts = nwt_values(e, room);
    while (parts != NULL && left-- > 0 && next_cut(in, from, at, &start, &end)) {
        parts[n++] = nwt_slice_str(*in, at, start - at);
        parts[n++] = *to;
        at = end;
    }
    if (parts == NULL) {
        return e->err->code;
    }
    parts[n++] = nwt_slice_str(*in, at, in->u.str.n - at);
    return nwt_concat(e, parts, n, out);
}

/* ASCII letters only: the templates that change case do so to role and type names. */
static nw_status change_case(nwt_env *e, const nwt_value *in, const char *method, bool first_upper,
                             bool rest_upper, nwt_value *out)
{
    if (want(e, in, NWT_STR, method) != NW_OK) {
        return e->err->code;
    }
    for (size_t i = 0; i < in->u.str.n; i++) {
        if ((unsigned char)in->u.str.s[i] >= 0x80) {
            return nwt_fail(e, NW_E_UNSUPPORTED, "'%s' of a text that is not ASCII", method);
        }
    }
    char *s = nw_arena_strndup(e->arena, in->u.str.s, in->u.str.n);
    if (s == NULL) {
        return nwt_fail(e, NW_E_NOMEM, "no memory for a text");
    }
    for (size_t i = 0; i < in->u.str.n; i++) {
        const bool up = i == 0 ? first_upper : rest_upper;
        if (up ? s[i] >= 'a' && s[i] <= 'z' : s[i] >= 'A' && s[i] <= 'Z') {
            s[i] = (char)(s[i] ^ 0x20);
        }
    }
    *out = *in;
    out->u.str.s = s;
    return NW_OK;
}

static nw_status m_upper(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)a;
    return change_case(e, in, "upper", true, true, out);
}

static nw_status m_lower(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)a;
    return change_case(e, in, "lower", false, false, out);
}

static nw_status m_capitalize(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)a;
    return change_case(e, in, "capitalize", true, false, out);
}

/* keys(), values(), items(): what 0, 1 and 2 of a pair. */
static nw_status members(nwt_env *e, const nwt_value *in, const char *method, unsigned what,
                         nwt_value *out)
{
    if (want(e, in, NWT_DICT, method) != NW_OK) {
        return e->err->code;
    }
    const size_t n = in->u.dict->n;
    nwt_value *items = nwt_values(e, n);
    for (size_t i = 0; items != NULL && i < n; i++) {
        const nwt_pair *p = &in->u.dict->pairs[i];
        if (what < 2) {
            items[i] = what == 0 ? p->key : p->value;
            continue;
        }
        nwt_value *pair = nwt_values(e, 2);
        if (pair == NULL) {
            return e->err->code;
        }
        pair[0] = p->key;
        pair[1] = p->value;
        items[i] = (nwt_value){.type = NWT_TUPLE, .u.list = {pair, 2}};
    }
    *out = (nwt_value){.type = NWT_LIST, .u.list = {items, n}};
    return items == NULL ? e->err->code : NW_OK;
}

static nw_status m_keys(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)a;
    return members(e, in, "keys", 0, out);
}

static nw_status m_values(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)a;
    return members(e, in, "values", 1, out);
}

static nw_status m_items(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    (void)a;
    return members(e, in, "items", 2, out);
}

static nw_status m_get(nwt_env *e, const nwt_value *in, const nwt_args *a, nwt_value *out)
{
    if (want(e, in, NWT_DICT, "get") != NW_OK) {
        return e->err->code;
    }
    const nwt_value *key = &a->pos[0];
    const nwt_value *v =
        key->type == NWT_STR ? nwt_dict_get(in->u.dict, key->u.str.s, key->u.str.n) : NULL;
    *out = v != NULL ? *v : a->n > 1 ? a->pos[1] : nwt_none();
    return NW_OK;
}

static const nwt_row rows[] = {
    {"strip", 0, 1, m_strip},
    {"lstrip", 0, 1, m_lstrip},
    {"rstrip", 0, 1, m_rstrip},
    {"split", 0, 2, m_split},
    {"startswith", 1, 1, m_startswith},
    {"endswith", 1, 1, m_endswith},
    {"replace", 2, 3, m_replace},
    {"upper", 0, 0, m_upper},
    {"lower", 0, 0, m_lower},
    {"capitalize", 0, 0, m_capitalize},
    {"keys", 0, 0, m_keys},
    {"values", 0, 0, m_values},
    {"items", 0, 0, m_items},
    {"get", 1, 2, m_get},
};

const nwt_row *nwt_method_find(const char *name)
{
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}
