/* Escaping and numbers: see html.h. UTF-8 is checked by RFC 3629's table: no overlong forms, no
 * surrogates, nothing above U+10FFFF.
 * SPDX-License-Identifier: Apache-2.0 */
#include "report/html.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */
#define MINUS       "\xE2\x88\x92"

/* Bytes of the well-formed character at s[0..n), or 0. */
static size_t utf8_char(const unsigned char *s, size_t n)
{
    static const struct {
        unsigned char first_lo, first_hi, second_lo, second_hi, len;
    } rows[] = {
        {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
        {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
        {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };

    if (s[0] < 0x80) {
        return 1;
    }
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        if (s[0] < rows[i].first_lo || s[0] > rows[i].first_hi) {
            continue;
        }
        if (n < rows[i].len || s[1] < rows[i].second_lo || s[1] > rows[i].second_hi) {
            return 0;
        }
        for (size_t k = 2; k < rows[i].len; k++) {
            if ((s[k] & 0xC0) != 0x80) {
                return 0;
            }
        }
        return rows[i].len;
    }
    return 0;
}

/* What stands for an ASCII character; NULL: itself. */
static const char *entity(unsigned char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* Is the well-formed character of `len` bytes a control? C1 controls are two bytes: C2 80 to C2 9F. */
static bool is_control(const unsigned char *u, size_t len)
{
    return len == 1 ? (u[0] < 0x20 && u[0] != '\t' && u[0] != '\n') || u[0] == 0x7F
                    : len == 2 && u[0] == 0xC2 && u[1] < 0xA0;
}

static bool put_clean(nw_buf *b, const char *s, size_t n, bool entities)
{
    const unsigned char *u = (const unsigned char *)s;

    for (size_t i = 0, len = 0; i < n && !b->failed; i += len) {
        len = utf8_char(u + i, n - i);
        const char *instead = len == 0 || is_control(u + i, len) ? REPLACEMENT
                              : len == 1 && entities             ? entity(u[i])
                                                                 : NULL;
        if (instead != NULL) {
            (void)nw_buf_puts(b, instead);
        } else {
            (void)nw_buf_add(b, s + i, len);
        }
        len = len == 0 ? 1 : len;
    }
    return !b->failed;
}

bool nw_html_escape(nw_buf *b, const char *s, size_t n)
{
    return put_clean(b, s, n, true);
}

const char *nw_text_clean(nw_arena *arena, const char *s)
{
    nw_buf b;
    const char *text = NULL;

    nw_buf_init(&b, SIZE_MAX);
    if (put_clean(&b, s, strlen(s), false)) {
        text = nw_arena_strndup(arena, b.data != NULL ? b.data : "", b.len);
    }
    nw_buf_release(&b);
    return text;
}

static void put_text(nw_buf *b, const char *s, int precision)
{
    if (s == NULL) {
        (void)nw_buf_puts(b, NW_EN_DASH);
    } else {
        (void)nw_html_escape(b, s, precision >= 0 ? strnlen(s, (size_t)precision) : strlen(s));
    }
}

/* One conversion as it stands in a format: "%-6.3f". */
typedef struct {
    char text[24]; /* of numbers, for printf */
    char kind;     /* the last letter */
    int n_long;    /* of "ll" */
    bool size;     /* z */
    bool star;     /* ".*" */
} conversion;

/* Reads the conversion at f ("%..."), returns its length. */
static size_t read_conversion(const char *f, conversion *c)
{
    size_t n = 1;

    *c = (conversion){.kind = '%'};
    while (f[n] != '\0' && strchr("-+ #0123456789.*lz", f[n]) != NULL) {
        c->n_long += f[n] == 'l' ? 1 : 0;
        c->size = c->size || f[n] == 'z';
        c->star = c->star || f[n] == '*';
        n++;
    }
    c->kind = f[n];
    n += f[n] != '\0' ? 1 : 0;
    (void)snprintf(c->text, sizeof c->text, "%.*s", (int)n, f);
    return n;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* checked where nw_html is called */
static void put_number(nw_buf *b, const conversion *c, va_list *ap)
{
    if (c->kind == 'f' || c->kind == 'g' || c->kind == 'e') {
        (void)nw_buf_printf(b, c->text, va_arg(*ap, double));
    } else if (c->size) {
        (void)nw_buf_printf(b, c->text, va_arg(*ap, size_t));
    } else if (c->n_long == 2) {
        (void)nw_buf_printf(b, c->text, va_arg(*ap, long long));
    } else if (c->n_long == 1) {
        (void)nw_buf_printf(b, c->text, va_arg(*ap, long));
    } else {
        (void)nw_buf_printf(b, c->text, va_arg(*ap, int));
    }
}
#pragma GCC diagnostic pop

bool nw_html(nw_buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    while (*fmt != '\0') {
        const size_t plain = strcspn(fmt, "%");
        conversion c;
        (void)nw_buf_add(b, fmt, plain);
        fmt += plain;
        if (*fmt == '\0') {
            break;
        }
        fmt += read_conversion(fmt, &c);
        if (c.kind == '%') {
            (void)nw_buf_add(b, "%", 1);
        } else if (c.kind == 's') {
            const int precision = c.star ? va_arg(ap, int) : -1;
            put_text(b, va_arg(ap, const char *), precision);
        } else {
            put_number(b, &c, &ap);
        }
    }
    va_end(ap);
    return !b->failed;
}

/* Puts the typographic minus in, and takes the sign of a zero away. */
static const char *typeset(const char *ascii, nw_num *out)
{
    const bool zero = strspn(ascii, "-+0.") == strlen(ascii);
    const bool negative = ascii[0] == '-';

    if (zero && (negative || ascii[0] == '+')) {
        (void)snprintf(out->s, sizeof out->s, "%s", ascii + 1);
    } else {
        (void)snprintf(out->s, sizeof out->s, "%s%s", negative ? MINUS : "", ascii + negative);
    }
    return out->s;
}

static const char *absent(nw_num *out)
{
    (void)snprintf(out->s, sizeof out->s, NW_EN_DASH);
    return out->s;
}

const char *nw_fixed(double v, int decimals, nw_num *out)
{
    char ascii[40];

    if (isnan(v)) {
        return absent(out);
    }
    if (isinf(v)) {
        (void)snprintf(out->s, sizeof out->s, "%s", v > 0 ? "\xE2\x88\x9E" : MINUS "\xE2\x88\x9E");
        return out->s;
    }
    (void)snprintf(ascii, sizeof ascii, fabs(v) < 1e15 ? "%.*f" : "%.*e", decimals, v);
    return typeset(ascii, out);
}

const char *nw_signed(double v, int decimals, nw_num *out)
{
    char ascii[40];

    if (!isfinite(v)) {
        return nw_fixed(v, decimals, out);
    }
    (void)snprintf(ascii, sizeof ascii, fabs(v) < 1e15 ? "%+.*f" : "%+.*e", decimals, v);
    return typeset(ascii, out);
}

const char *nw_sig(double v, nw_num *out)
{
    const double a = fabs(v);
    int decimals = 0;

    if (!isfinite(v) || a == 0) {
        return nw_fixed(v, 0, out);
    }
    if (a < 1e-5) {
        char ascii[40];
        (void)snprintf(ascii, sizeof ascii, "%.1e", v);
        return typeset(ascii, out);
    }
    for (double top = 100; a * (1 + 0.5e-3) < top && decimals < 7; top /= 10) {
        decimals++;
    }
    return nw_fixed(v, decimals, out);
}

const char *nw_sig_range(double lo, double hi, nw_num *out)
{
    nw_num a;
    nw_num b;

    if (isnan(lo) && isnan(hi)) {
        return absent(out);
    }
    (void)snprintf(out->s, sizeof out->s, "%.20s to %.20s", nw_sig(lo, &a), nw_sig(hi, &b));
    return out->s;
}

const char *nw_mib(double bytes, nw_num *out)
{
    return nw_sig(bytes < 0 ? (double)NAN : bytes / 1048576.0, out);
}

const char *nw_count(int64_t n, nw_num *out)
{
    char digits[24];
    size_t at = 0;

    if (n < 0) {
        return absent(out);
    }
    const int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0) {
            out->s[at++] = ',';
        }
        out->s[at++] = digits[i];
    }
    out->s[at] = '\0';
    return out->s;
}
