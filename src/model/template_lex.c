/* Tokens of a template: text, {{ }}, {% %}, {# #}, with Jinja2's white space rules for
 * trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False (jinja2/lexer.py, 3.1):
 * "-" at a tag's border strips all white space there; a line end right after a block or comment is
 * dropped; blanks between a line's start and a block or comment are dropped.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/template_internal.h"
#include "model/unicode.h"

typedef struct {
    nw_template *t;
    nwt_token *tok;
    size_t n, cap;
    size_t i;        /* offset in the source */
    bool line_start; /* the last thing lexed ended a line, or there was none */
    nw_error *err;
} lexer;

nw_status nwt_fail_at(const nw_template *t, size_t at, nw_status code, nw_error *err,
                      const char *fmt, ...)
{
    char what[512];
    size_t line = 1;
    size_t start = 0;
    va_list ap;

    for (size_t i = 0; i < at && i < t->n_src; i++) {
        if (t->src[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return nw_fail(err, code, "%s:%zu:%zu: %s", t->name, line, at - start + 1, what);
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool at_text(const lexer *x, size_t i, const char *s)
{
    const size_t n = strlen(s);

    return x->t->n_src - i >= n && memcmp(x->t->src + i, s, n) == 0;
}

static nw_status add(lexer *x, nwt_token token)
{
    if (x->n == x->cap) {
        const size_t cap = x->cap == 0 ? 64 : x->cap * 2;
        nwt_token *tok = nw_arena_array(&x->t->arena, cap, sizeof *tok);
        if (tok == NULL) {
            return nw_fail(x->err, NW_E_NOMEM, "%s: no memory for a template", x->t->name);
        }
        if (x->n > 0) {
            memcpy(tok, x->tok, x->n * sizeof *tok);
        }
        x->tok = tok;
        x->cap = cap;
    }
    x->tok[x->n++] = token;
    return NW_OK;
}

/* Adds the text before a tag that opens at `end` with sign `sign` ('-', '+' or 0). */
static nw_status add_text(lexer *x, size_t start, size_t end, char sign, bool block)
{
    const char *s = x->t->src;
    size_t stop = end;

    if (sign == '-') {
        while (stop > start && is_blank(s[stop - 1])) {
            stop--;
        }
    } else if (sign != '+' && block) {
        size_t k = end;
        while (k > start && is_blank(s[k - 1]) && s[k - 1] != '\n') {
            k--;
        }
        if ((k > start && s[k - 1] == '\n') || (k == start && x->line_start)) {
            stop = k;
        }
    }
    return stop == start ? NW_OK
                         : add(x, (nwt_token){T_TEXT, s + start, stop - start, start, 0, 0});
}

/* Steps over a tag's end at x->i: "-" and its white space, or the line end that blocks swallow. */
static void skip_end(lexer *x, bool trims_line)
{
    const char *s = x->t->src;
    const size_t n = x->t->n_src;
    const char sign = s[x->i] == '-' || s[x->i] == '+' ? s[x->i] : 0;

    x->i += sign != 0 ? 3 : 2;
    while (sign == '-' && x->i < n && is_blank(s[x->i])) {
        x->i++;
    }
    if (trims_line && sign == 0 && x->i < n && s[x->i] == '\n') {
        x->i++;
    }
    x->line_start = s[x->i - 1] == '\n';
}

static nw_status comment(lexer *x)
{
    const size_t start = x->i;
    const char *end = nw_bytes_find(x->t->src + start + 2, x->t->n_src - start - 2, "#}", 2);

    if (end == NULL) {
        return nwt_fail_at(x->t, start, NW_E_FORMAT, x->err, "a comment without its end");
    }
    x->i = (size_t)(end - x->t->src);
    if (x->i > start + 2 && (end[-1] == '-' || end[-1] == '+')) {
        x->i--;
    }
    skip_end(x, true);
    return NW_OK;
}

/* Hex digits of an escape to a code point; -1: not that many. */
static int64_t hex(const char *s, size_t n, size_t digits)
{
    int64_t v = 0;

    for (size_t i = 0; i < digits; i++) {
        const char c = i < n ? s[i] : ' ';
        const char low = (char)(c | 0x20);
        if (!is_digit(c) && !(low >= 'a' && low <= 'f')) {
            return -1;
        }
        v = v * 16 + (is_digit(c) ? c - '0' : low - 'a' + 10);
    }
    return v;
}

/* One escape at s[0] = '\\' of a string: writes its bytes, returns the bytes read; 0: malformed. */
static size_t escape(const char *s, size_t n, char out[4], size_t *n_out)
{
    static const char from[] = "nrtabfv0\\'\"";
    static const char to[] = "\n\r\t\a\b\f\v\0\\'\"";

    *n_out = 0;
    if (n < 2) {
        return 0;
    }
    const char *known = memchr(from, s[1], sizeof from - 1);
    if (known != NULL) {
        out[(*n_out)++] = to[known - from];
        return 2;
    }
    const size_t digits = s[1] == 'x' ? 2 : s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 0;
    if (s[1] == '\n') {
        return 2; /* a continued line */
    }
    if (digits == 0) { /* Python keeps the backslash of an escape it does not know */
        out[(*n_out)++] = '\\';
        return 1;
    }
    const int64_t cp = hex(s + 2, n - 2, digits);
    if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) {
        return 0;
    }
    *n_out = nw_utf8_encode((uint32_t)cp, out);
    return 2 + digits;
}

static nw_status string(lexer *x)
{
    const char *s = x->t->src;
    const size_t start = x->i;
    const char quote = s[x->i++];
    size_t stop = x->i;
    size_t n = 0;

    while (stop < x->t->n_src && s[stop] != quote) {
        stop += s[stop] == '\\' ? 2 : 1;
    }
    if (stop >= x->t->n_src) {
        return nwt_fail_at(x->t, start, NW_E_FORMAT, x->err, "a string without its end");
    }
    char *out =
        nw_arena_alloc(&x->t->arena, stop - start + 4); /* no escape is shorter than it says */

    if (out == NULL) {
        return nw_fail(x->err, NW_E_NOMEM, "%s: no memory for a template", x->t->name);
    }
    while (x->i < stop) {
        if (s[x->i] != '\\') {
            out[n++] = s[x->i++];
            continue;
        }
        size_t n_out = 0;
        const size_t used = escape(s + x->i, x->t->n_src - x->i, out + n, &n_out);
        if (used == 0) {
            return nwt_fail_at(x->t, x->i, NW_E_FORMAT, x->err, "a malformed escape in a string");
        }
        n += n_out;
        x->i += used;
    }
    x->i = stop + 1;
    return add(x, (nwt_token){T_STRING, out, n, start, 0, 0});
}

/* Digits, "_" between them and one point before a digit, copied without "_" to text[n_text]. */
static bool digits(lexer *x, char *text, size_t n_text)
{
    const char *s = x->t->src;
    size_t n = 0;
    bool is_float = false;

    while (x->i < x->t->n_src && n + 1 < n_text) {
        const char c = s[x->i];
        const bool point = c == '.' && !is_float && x->i + 1 < x->t->n_src && is_digit(s[x->i + 1]);
        if (!is_digit(c) && c != '_' && !point) {
            break;
        }
        is_float = is_float || point;
        if (c != '_') {
            text[n++] = c;
        }
        x->i++;
    }
    text[n] = '\0';
    return is_float;
}

static nw_status number(lexer *x)
{
    const char *s = x->t->src;
    const size_t start = x->i;
    char text[64];
    const bool is_float = digits(x, text, sizeof text);

    errno = 0;
    const nwt_token token = {is_float ? T_FLOAT : T_INT,
                             s + start,
                             x->i - start,
                             start,
                             is_float ? 0 : strtoll(text, NULL, 10),
                             strtod(text, NULL)};
    if (errno != 0 || (x->i < x->t->n_src && is_name_start(s[x->i]))) {
        return nwt_fail_at(x->t, start, NW_E_FORMAT, x->err, "'%.*s' is no number",
                           (int)(x->i - start), s + start);
    }
    return add(x, token);
}

static nw_status op(lexer *x)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*",
                                      "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                      "]",  "{",  "}",  ",",  ":",  ".",  "|"};

    for (size_t k = 0; k < NW_COUNT(ops); k++) {
        if (at_text(x, x->i, ops[k])) {
            const size_t at = x->i;
            x->i += strlen(ops[k]);
            return add(x, (nwt_token){T_OP, ops[k], strlen(ops[k]), at, 0, 0});
        }
    }
    return nwt_fail_at(x->t, x->i, NW_E_FORMAT, x->err, "unexpected character '%c' in a tag",
                       x->t->src[x->i]);
}

static nw_status name(lexer *x)
{
    const size_t start = x->i;

    while (x->i < x->t->n_src && (is_name_start(x->t->src[x->i]) || is_digit(x->t->src[x->i]))) {
        x->i++;
    }
    return add(x, (nwt_token){T_NAME, x->t->src + start, x->i - start, start, 0, 0});
}

static bool at_end(const lexer *x, const char *end)
{
    return at_text(x, x->i, end) ||
           ((x->t->src[x->i] == '-' || x->t->src[x->i] == '+') && at_text(x, x->i + 1, end));
}

/* How a token changes the depth of open brackets: inside brackets a tag does not end. */
static int nesting(const nwt_token *t)
{
    if (t->kind != T_OP || t->n != 1) {
        return 0;
    }
    return strchr("([{", t->s[0]) != NULL ? 1 : strchr(")]}", t->s[0]) != NULL ? -1 : 0;
}

/* The token that begins with c, at x->i. */
static nw_status token(lexer *x, char c)
{
    if (c == '"' || c == '\'') {
        return string(x);
    }
    if (is_digit(c)) {
        return number(x);
    }
    return is_name_start(c) ? name(x) : op(x);
}

/* The inside of a tag, from behind "{{" or "{%" to behind its end. */
static nw_status tag(lexer *x, bool block, size_t start)
{
    const char *end = block ? "%}" : "}}";
    int open = 0;

    while (x->i < x->t->n_src) {
        const char c = x->t->src[x->i];
        if (is_blank(c)) {
            x->i++;
            continue;
        }
        if (open == 0 && at_end(x, end)) {
            const size_t at = x->i;
            skip_end(x, block);
            return add(x, (nwt_token){block ? T_BLOCK_END : T_VAR_END, end, 2, at, 0, 0});
        }
        if (token(x, c) != NW_OK) {
            return x->err->code;
        }
        open += nesting(&x->tok[x->n - 1]);
        open = open < 0 ? 0 : open;
    }
    return nwt_fail_at(x->t, start, NW_E_FORMAT, x->err, "a tag without its end '%s'", end);
}

/* The next "{{", "{%" or "{#" at or after x->i; n_src: none. */
static size_t next_tag(const lexer *x)
{
    for (size_t i = x->i; i + 1 < x->t->n_src; i++) {
        if (x->t->src[i] == '{' && memchr("{%#", x->t->src[i + 1], 3) != NULL) {
            return i;
        }
    }
    return x->t->n_src;
}

static nw_status lex_one(lexer *x)
{
    const size_t from = x->i;
    const size_t at = next_tag(x);

    if (at == x->t->n_src) {
        x->i = at;
        return add_text(x, from, at, 0, false);
    }
    const char kind = x->t->src[at + 1];
    const char after = at + 2 < x->t->n_src ? x->t->src[at + 2] : 0;
    const char sign = after == '-' || after == '+' ? after : 0;
    if (add_text(x, from, at, sign, kind != '{') != NW_OK) {
        return x->err->code;
    }
    x->i = at;
    if (kind == '#') {
        return comment(x);
    }
    x->i += sign != 0 ? 3 : 2;
    if (add(x, (nwt_token){kind == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, "", 0, at, 0, 0}) != NW_OK) {
        return x->err->code;
    }
    return tag(x, kind == '%', at);
}

/* Line ends become '\n', and one at the very end is dropped, as Jinja2 does before lexing. */
static nw_status normalize_lines(nw_template *t, nw_error *err)
{
    char *out = nw_arena_alloc(&t->arena, t->n_src + 1);
    size_t n = 0;

    if (out == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a template", t->name);
    }
    for (size_t i = 0; i < t->n_src; i++) {
        if (t->src[i] == '\r') {
            out[n++] = '\n';
            i += i + 1 < t->n_src && t->src[i + 1] == '\n';
        } else {
            out[n++] = t->src[i];
        }
    }
    t->n_src = n > 0 && out[n - 1] == '\n' ? n - 1 : n;
    t->src = out;
    return NW_OK;
}

nw_status nwt_lex(nw_template *t, nwt_token **out, size_t *n, nw_error *err)
{
    lexer x = {.t = t, .line_start = true, .err = err};

    if (normalize_lines(t, err) != NW_OK) {
        return err->code;
    }
    while (x.i < t->n_src) {
        if (lex_one(&x) != NW_OK) {
            return err->code;
        }
    }
    if (add(&x, (nwt_token){T_END, "", 0, t->n_src, 0, 0}) != NW_OK) {
        return err->code;
    }
    *out = x.tok;
    *n = x.n;
    return NW_OK;
}
