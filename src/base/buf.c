/* A capped byte buffer: see buf.h. The cap counts bytes of content; one more is kept for the NUL.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 64

void nw_buf_init(nw_buf *b, size_t max_bytes)
{
    *b = (nw_buf){.max = max_bytes == SIZE_MAX ? SIZE_MAX - 1 : max_bytes};
}

void nw_buf_release(nw_buf *b)
{
    free(b->data);
    nw_buf_init(b, b->max);
}

void nw_buf_clear(nw_buf *b)
{
    b->len = 0;
    b->failed = b->full = false;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

/* Room for n more bytes and the NUL. */
static bool reserve(nw_buf *b, size_t n)
{
    if (n > b->max - b->len) {
        b->failed = b->full = true;
        return false;
    }
    const size_t need = b->len + n + 1;
    if (need <= b->cap) {
        assert(b->data != NULL);
        return true;
    }
    size_t cap = b->cap < FIRST_CAP ? FIRST_CAP : b->cap;
    while (cap < need) {
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    }
    cap = cap > b->max + 1 ? b->max + 1 : cap;
    char *data = realloc(b->data, cap);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

bool nw_buf_add(nw_buf *b, const void *bytes, size_t n)
{
    if (!reserve(b, n)) {
        return false;
    }
    if (n > 0) {
        memcpy(b->data + b->len, bytes, n);
    }
    b->len += n;
    b->data[b->len] = '\0';
    return true;
}

bool nw_buf_puts(nw_buf *b, const char *s)
{
    return nw_buf_add(b, s, strlen(s));
}

bool nw_buf_printf(nw_buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(b, (size_t)n)) {
        b->failed = true;
        return false;
    }
    va_start(ap, fmt);
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return true;
}

char *nw_buf_take(nw_buf *b)
{
    char *s = NULL;

    if (!b->failed && (b->data != NULL || nw_buf_add(b, "", 0))) {
        s = b->data;
        b->data = NULL;
    }
    const bool failed = s == NULL;
    nw_buf_release(b);
    b->failed = failed;
    return s;
}
