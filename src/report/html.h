/* Writing HTML so that escaping cannot be forgotten: the text of every %s is escaped, and markup only
 * ever stands in the format itself. Texts of a record are hostile (names, outputs of models, messages
 * of servers): invalid UTF-8 and control characters become U+FFFD, the five characters of markup
 * become entities.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_REPORT_HTML_H
#define NW_REPORT_HTML_H

#include "base/arena.h"
#include "base/buf.h"

/* For text and for attribute values in quotes. NULL is written as an en dash. */
bool nw_html_escape(nw_buf *b, const char *s, size_t n);

/* The same without entities, for JSON: the text is valid UTF-8 then. NULL: no memory. */
const char *nw_text_clean(nw_arena *arena, const char *s);

/* printf with %s (escaped, precision in bytes allowed as %.*s), %c-free, and d i u x with z, ll; f g
 * with flags, width and precision; %%. */
bool nw_html(nw_buf *b, const char *fmt, ...) NW_PRINTF(2, 3);

/* Numbers for people, in storage of the caller, which is returned. NaN is an en dash, a minus is
 * U+2212; never "-0.0". */
typedef struct {
    char s[48];
} nw_num;
const char *nw_fixed(double v, int decimals, nw_num *out);
const char *nw_signed(double v, int decimals, nw_num *out); /* with its plus */
/* Three significant digits: 0.0123, 1.23, 12.3, 123, 1234; below 1e-5 "3.1e-06". */
const char *nw_sig(double v, nw_num *out);
const char *nw_sig_range(double lo, double hi, nw_num *out); /* "1.2 to 3.4" */
const char *nw_mib(double bytes, nw_num *out);               /* number of MiB */
const char *nw_count(int64_t n, nw_num *out);                /* 12,345; negative: en dash */

/* What stands where there is no value. */
#define NW_EN_DASH "\xE2\x80\x93"

#endif
