/* tojson as transformers defines it: json.dumps(x, ensure_ascii=False, indent=indent), and str() of a
 * list or mapping as Python writes it. Separators are Python's: ", " and ": ", with an indent "," and
 * a line end.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/template_internal.h"
#include "model/unicode.h"

typedef struct {
    nwt_env *e;
    nw_buf out;
    int indent;  /* -1: one line */
    bool python; /* str() instead of JSON */
} dumper;

/* One character of a repr(), whose bytes are s[0..len). */
static void dump_repr_char(dumper *d, uint32_t cp, const char *s, size_t len, char quote)
{
    static const char from[] = "\\\n\r\t";
    static const char to[] = "\\nrt";
    const char *known = cp == 0 || cp >= 0x80 ? NULL : strchr(from, (int)cp);

    if (known != NULL || cp == (unsigned char)quote) {
        (void)nw_buf_printf(&d->out, "\\%c", known != NULL ? to[known - from] : quote);
        return;
    }
    if (nw_is_printable(cp)) {
        (void)nw_buf_add(&d->out, s, len);
        return;
    }
    const int digits = cp < 0x100 ? 2 : cp < 0x10000 ? 4 : 8;
    const char letter = cp < 0x100 ? 'x' : cp < 0x10000 ? 'u' : 'U';
    (void)nw_buf_printf(&d->out, "\\%c%0*x", letter, digits, (unsigned)cp);
}

/* repr() of a Python string: single quotes unless there are only such in it. */
static void dump_repr(dumper *d, const nwt_value *v)
{
    const bool twice =
        memchr(v->u.str.s, '\'', v->u.str.n) != NULL && memchr(v->u.str.s, '"', v->u.str.n) == NULL;
    const char quote = twice ? '"' : '\'';
    uint32_t cp = 0;

    (void)nw_buf_add(&d->out, &quote, 1);
    for (size_t i = 0; i < v->u.str.n;) {
        const size_t len = nw_utf8_decode(v->u.str.s + i, v->u.str.n - i, &cp, NULL);
        dump_repr_char(d, cp, v->u.str.s + i, len, quote);
        i += len;
    }
    (void)nw_buf_add(&d->out, &quote, 1);
}

static void dump_string(dumper *d, const nwt_value *v)
{
    if (d->python) {
        dump_repr(d, v);
        return;
    }
    (void)nw_buf_puts(&d->out, "\"");
    for (size_t i = 0; i < v->u.str.n; i++) {
        static const char from[] = "\"\\\n\r\t\b\f";
        static const char to[] = "\"\\nrtbf";
        const char c = v->u.str.s[i];
        const char *known = c == '\0' ? NULL : strchr(from, c);
        if (known != NULL) {
            (void)nw_buf_printf(&d->out, "\\%c", to[known - from]);
        } else if ((unsigned char)c < 0x20) {
            (void)nw_buf_printf(&d->out, "\\u%04x", (unsigned)c);
        } else {
            (void)nw_buf_add(&d->out, &c, 1);
        }
    }
    (void)nw_buf_puts(&d->out, "\"");
}

static void line(dumper *d, unsigned depth)
{
    if (d->indent >= 0) {
        (void)nw_buf_puts(&d->out, "\n");
        for (size_t i = 0; i < (size_t)d->indent * depth; i++) {
            (void)nw_buf_add(&d->out, " ", 1);
        }
    }
}

static nw_status dump(dumper *d, const nwt_value *v, unsigned depth);

static nw_status dump_member(dumper *d, const nwt_value *v, size_t i, unsigned depth)
{
    if (i > 0) {
        (void)nw_buf_puts(&d->out, d->indent >= 0 ? "," : ", ");
    }
    line(d, depth);
    if (v->type != NWT_DICT) {
        return dump(d, &v->u.list.items[i], depth);
    }
    dump_string(d, &v->u.dict->pairs[i].key);
    (void)nw_buf_puts(&d->out, ": ");
    return dump(d, &v->u.dict->pairs[i].value, depth);
}

static nw_status dump_members(dumper *d, const nwt_value *v, unsigned depth)
{
    const bool dict = v->type == NWT_DICT;
    const bool tuple = v->type == NWT_TUPLE && d->python;
    const size_t n = dict ? v->u.dict->n : v->u.list.n;

    (void)nw_buf_puts(&d->out, dict ? "{" : tuple ? "(" : "[");
    for (size_t i = 0; i < n; i++) {
        if (dump_member(d, v, i, depth + 1) != NW_OK) {
            return d->e->err->code;
        }
    }
    if (n > 0) {
        line(d, depth);
    }
    (void)nw_buf_puts(&d->out, dict ? "}" : !tuple ? "]" : n == 1 ? ",)" : ")");
    return NW_OK;
}

static nw_status dump(dumper *d, const nwt_value *v, unsigned depth)
{
    nwt_value text;

    if (depth > NW_TEMPLATE_MAX_DEPTH) {
        return nwt_fail(d->e, NW_E_RANGE, "tojson nested deeper than %d levels",
                        NW_TEMPLATE_MAX_DEPTH);
    }
    switch (v->type) {
    case NWT_NONE:
        (void)nw_buf_puts(&d->out, d->python ? "None" : "null");
        break;
    case NWT_BOOL:
        if (!d->python) {
            (void)nw_buf_puts(&d->out, v->u.b ? "true" : "false");
            break;
        }
        (void)nw_buf_puts(&d->out, v->u.b ? "True" : "False");
        break;
    case NWT_INT:
    case NWT_FLOAT:
        if (nwt_to_str(d->e, v, &text) != NW_OK) {
            return d->e->err->code;
        }
        (void)nw_buf_add(&d->out, text.u.str.s, text.u.str.n);
        break;
    case NWT_STR:
        dump_string(d, v);
        break;
    case NWT_LIST:
    case NWT_TUPLE:
    case NWT_DICT:
        return dump_members(d, v, depth);
    case NWT_UNDEFINED:
    case NWT_MACRO:
        return nwt_fail(d->e, NW_E_FORMAT, "%s inside of what is written out", nwt_type_name(v));
    }
    return NW_OK;
}

static nw_status write_out(dumper *d, const nwt_value *v, nwt_value *out)
{
    nw_buf_init(&d->out, NW_TEMPLATE_MAX_OUTPUT);
    nw_status st = dump(d, v, 0);
    if (st == NW_OK && d->out.failed) {
        st = nwt_fail(d->e, NW_E_RANGE, "a value written out gives more than %zu bytes",
                      NW_TEMPLATE_MAX_OUTPUT);
    }
    if (st == NW_OK) { /* all of it counts as content: nothing of it may become a control token */
        st = nwt_str(d->e, d->out.data, d->out.len, true, out);
    }
    nw_buf_release(&d->out);
    return st;
}

nw_status nwt_to_json(nwt_env *e, const nwt_value *v, int indent, nwt_value *out)
{
    dumper d = {.e = e, .indent = indent};

    return write_out(&d, v, out);
}

nw_status nwt_to_repr(nwt_env *e, const nwt_value *v, nwt_value *out)
{
    dumper d = {.e = e, .indent = -1, .python = true};

    return write_out(&d, v, out);
}
