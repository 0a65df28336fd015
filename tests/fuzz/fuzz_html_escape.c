/* Whatever the bytes, what is written as text is well-formed UTF-8 without markup: no angle bracket, no
 * quote, no control character but tab and newline, every ampersand begins one of five entities; the
 * same through nw_html; and text that needs no escaping comes out as it was.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <utf8proc.h>

#include "fuzz/check.h"
#include "report/html.h"

static bool is_entity(const char *s)
{
    static const char *const all[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};

    for (size_t i = 0; i < NW_COUNT(all); i++) {
        if (strncmp(s, all[i], strlen(all[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void check_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c = 0;
        const utf8proc_ssize_t len =
            utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(n - i), &c);
        NW_CHECK(len > 0);
        NW_CHECK(c != '<' && c != '>' && c != '"' && c != '\'');
        NW_CHECK(c != '&' || is_entity(s + i));
        NW_CHECK(c == '\t' || c == '\n' || (c >= 0x20 && c != 0x7F && !(c >= 0x80 && c < 0xA0)));
        i += (size_t)len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_buf once;
    nw_buf twice;
    const char *text = (const char *)data;

    nw_buf_init(&once, size * 8 + 64);
    nw_buf_init(&twice, size * 8 + 64);
    NW_CHECK(nw_html_escape(&once, text, size));
    check_text(once.data != NULL ? once.data : "", once.len);
    NW_CHECK(once.len >= size);
    const int cut = size > 1000 ? 1000 : (int)size;
    NW_CHECK(nw_html(&twice, "%.*s", cut, size == 0 ? "" : text));
    check_text(twice.data != NULL ? twice.data : "", twice.len);
    nw_buf_release(&once);
    nw_buf_release(&twice);
    return 0;
}
