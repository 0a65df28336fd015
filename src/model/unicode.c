/* UTF-8 decoding and repair, character classes over utf8proc's tables, normalization forms.
 * Sources: Unicode 15.0 chapter 3 (D92, table 3-7 well-formed sequences, table 3-8 replacement by
 * maximal subparts); PropList White_Space.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Length of the sequence that this lead byte opens and the range of its second byte (table 3-7);
 * 0 for a byte that cannot lead. */
static size_t lead_of(unsigned char b, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (b >= 0xC2 && b <= 0xDF) {
        return 2;
    }
    if (b >= 0xE0 && b <= 0xEF) {
        *lo = b == 0xE0 ? 0xA0 : 0x80;
        *hi = b == 0xED ? 0x9F : 0xBF;
        return 3;
    }
    if (b >= 0xF0 && b <= 0xF4) {
        *lo = b == 0xF0 ? 0x90 : 0x80;
        *hi = b == 0xF4 ? 0x8F : 0xBF;
        return 4;
    }
    return 0;
}

size_t nw_utf8_decode(const char *s, size_t n, uint32_t *cp, bool *valid)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char lo = 0;
    unsigned char hi = 0;
    bool ok = true;
    size_t used = 1;

    *cp = p[0];
    if (p[0] >= 0x80) {
        const size_t len = lead_of(p[0], &lo, &hi);
        uint32_t c = len == 2 ? p[0] & 0x1FU : len == 3 ? p[0] & 0x0FU : p[0] & 0x07U;
        while (used < len && used < n && p[used] >= lo && p[used] <= hi) {
            c = c << 6 | (p[used] & 0x3FU);
            lo = 0x80;
            hi = 0xBF;
            used++;
        }
        ok = len != 0 && used == len;
        *cp = ok ? c : NW_REPLACEMENT_CHAR;
    }
    if (valid != NULL) {
        *valid = ok;
    }
    return used;
}

size_t nw_utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    const size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    const unsigned lead = len == 2 ? 0xC0 : len == 3 ? 0xE0 : 0xF0;

    for (size_t i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80U | (cp & 0x3FU));
        cp >>= 6;
    }
    out[0] = (char)(lead | cp);
    return len;
}

bool nw_utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        bool valid = true;
        i += nw_utf8_decode(s + i, n - i, &cp, &valid);
        if (!valid) {
            return false;
        }
    }
    return true;
}

bool nw_utf8_repair(const char *s, size_t n, nw_buf *out)
{
    size_t start = 0; /* of the well-formed run not yet copied */

    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        bool valid = true;
        const size_t used = nw_utf8_decode(s + i, n - i, &cp, &valid);
        if (!valid) {
            if (!nw_buf_add(out, s + start, i - start) || !nw_buf_puts(out, "\xEF\xBF\xBD")) {
                return false;
            }
            start = i + used;
        }
        i += used;
    }
    return nw_buf_add(out, s + start, n - start);
}

void nw_utf8_mend(char *text)
{
    const size_t n = strlen(text);
    size_t kept = 0;

    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        bool valid = true;
        const size_t used = nw_utf8_decode(text + i, n - i, &cp, &valid);
        if (valid) {
            memmove(text + kept, text + i, used);
            kept += used;
        } else if (i + used < n) {
            text[kept++] = '?';
        }
        i += used;
    }
    text[kept] = '\0';
}

const char *nw_bytes_find(const char *s, size_t n, const char *what, size_t n_what)
{
    const char *end = s + n;

    while ((size_t)(end - s) >= n_what) {
        const char *at = memchr(s, what[0], (size_t)(end - s) - n_what + 1);
        if (at == NULL || memcmp(at, what, n_what) == 0) {
            return at;
        }
        s = at + 1;
    }
    return NULL;
}

bool nw_is_letter(uint32_t cp)
{
    if (cp < 0x80) {
        return (cp | 0x20U) >= 'a' && (cp | 0x20U) <= 'z';
    }
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool nw_is_number(uint32_t cp)
{
    if (cp < 0x80) {
        return cp >= '0' && cp <= '9';
    }
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool nw_is_space(uint32_t cp)
{
    if (cp < 0x80) {
        return cp == ' ' || (cp >= 9 && cp <= 13);
    }
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool nw_is_printable(uint32_t cp)
{
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    return cp == ' ' || (c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS);
}

bool nw_is_word(uint32_t cp)
{
    if (cp < 0x80) {
        return nw_is_letter(cp) || nw_is_number(cp) || cp == '_';
    }
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC;
}

/* Orders one run of combining marks by class, stably, in linear time (utf8proc's own ordering is
 * quadratic in the run, and a hostile text is one run). */
static void order_marks(int32_t *cp, size_t n, int32_t *tmp)
{
    size_t first[256] = {0};
    size_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        first[utf8proc_get_property(cp[i])->combining_class & 255]++;
    }
    for (size_t c = 0; c < 256; c++) {
        const size_t count = first[c];
        first[c] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++) {
        tmp[first[utf8proc_get_property(cp[i])->combining_class & 255]++] = cp[i];
    }
    memcpy(cp, tmp, n * sizeof *cp);
}

/* Canonical ordering (Unicode 3.11, D109) of the whole array; tmp holds as many. */
static void order_canonically(int32_t *cp, size_t n, int32_t *tmp)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && utf8proc_get_property(cp[end])->combining_class != 0) {
            end++;
        }
        if (end - i > 1) {
            order_marks(cp + i, end - i, tmp);
        }
        i = end + 1;
    }
}

/* Decomposes s into *cps (room for `cap`); the number of code points, or -1 where they do not fit. */
static ptrdiff_t decompose(const char *s, size_t n, utf8proc_option_t options, int32_t *cps,
                           size_t cap)
{
    size_t len = 0;

    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        int boundary = 0;
        i += nw_utf8_decode(s + i, n - i, &cp, NULL);
        const utf8proc_ssize_t got = utf8proc_decompose_char(
            (utf8proc_int32_t)cp, cps + len, (utf8proc_ssize_t)(cap - len), options, &boundary);
        if (got < 0 || (size_t)got > cap - len) {
            return -1;
        }
        len += (size_t)got;
    }
    return (ptrdiff_t)len;
}

/* One character decomposes into at most this many code points (U+FDFA in NFKD: 18). */
#define MAX_EXPANSION 18

static nw_status normalize_wide(const char *s, size_t n, nw_normal_form form, nw_buf *out,
                                nw_error *err)
{
    static const utf8proc_option_t options[] = {
        [NW_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [NW_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [NW_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [NW_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    size_t cap = 0;
    nw_status st = NW_OK;

    if (!nw_size_mul(n, 2, &cap) || !nw_size_add(cap, MAX_EXPANSION, &cap)) {
        return nw_fail(err, NW_E_RANGE, "text of %zu bytes is too long to normalize", n);
    }
    /* Every code point takes up to 4 bytes, and utf8proc re-encodes in place. */
    int32_t *cps = malloc(cap * sizeof *cps);
    int32_t *tmp = malloc(cap * sizeof *tmp);
    ptrdiff_t len = cps == NULL || tmp == NULL ? 0 : decompose(s, n, options[form], cps, cap - 1);

    if (cps == NULL || tmp == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory to normalize %zu bytes of text", n);
    } else if (len < 0) {
        st = nw_fail(err, NW_E_RANGE, "text of %zu bytes grows beyond %zu characters", n, cap);
    } else {
        order_canonically(cps, (size_t)len, tmp);
        len = utf8proc_reencode(cps, len, options[form]);
        if (len < 0 || !nw_buf_add(out, cps, (size_t)len)) {
            st = nw_fail(err, NW_E_RANGE, "normalized text of %zu bytes is too long", n);
        }
    }
    free(cps);
    free(tmp);
    return st;
}

nw_status nw_unicode_normalize(const char *s, size_t n, nw_normal_form form, nw_buf *out,
                               nw_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] >= 0x80) {
            return normalize_wide(s, n, form, out, err);
        }
    }
    return nw_buf_add(out, s, n) ? NW_OK
                                 : nw_fail(err, NW_E_RANGE, "text of %zu bytes is too long", n);
}
