/* The event-stream reader of sse.h. State is one half-read line and one half-read event; both are
 * capped, so that a server that never ends a line costs a fixed amount of memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "target/sse.h"

#include <string.h>

void nw_sse_init(nw_sse *s, size_t max_event_bytes)
{
    *s = (nw_sse){0};
    nw_buf_init(&s->line, max_event_bytes);
    nw_buf_init(&s->data, max_event_bytes);
}

void nw_sse_release(nw_sse *s)
{
    nw_buf_release(&s->line);
    nw_buf_release(&s->data);
}

/* A line of the field "data": "data:value", one space after the colon is not part of it. */
static bool add_data_line(nw_sse *s, const char *line, size_t n)
{
    if (n < 4 || memcmp(line, "data", 4) != 0 || (n > 4 && line[4] != ':')) {
        return true;
    }
    const size_t skip = n == 4 ? 4 : (n > 5 && line[5] == ' ' ? 6 : 5);
    if (s->has_data && !nw_buf_add(&s->data, "\n", 1)) {
        return false;
    }
    s->has_data = true;
    return nw_buf_add(&s->data, line + skip, n - skip);
}

static bool end_line(nw_sse *s, nw_sse_fn fn, void *ctx)
{
    const char *line = s->line.len > 0 ? s->line.data : "";
    size_t n = s->line.len;
    bool ok = true;

    if (!s->started) {
        s->started = true;
        if (n >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0) {
            line += 3;
            n -= 3;
        }
    }
    if (n > 0) {
        ok = add_data_line(s, line, n);
    } else if (s->has_data) {
        fn(ctx, s->data.len > 0 ? s->data.data : "", s->data.len);
        nw_buf_clear(&s->data);
        s->has_data = false;
    }
    nw_buf_clear(&s->line);
    return ok;
}

nw_status nw_sse_push(nw_sse *s, const char *bytes, size_t n, nw_sse_fn fn, void *ctx,
                      nw_error *err)
{
    size_t i = 0;
    bool ok = true;

    while (ok && i < n) {
        if (s->after_cr) {
            s->after_cr = false;
            if (bytes[i] == '\n') {
                i++;
                continue;
            }
        }
        size_t end = i;
        while (end < n && bytes[end] != '\n' && bytes[end] != '\r') {
            end++;
        }
        ok = end == i || nw_buf_add(&s->line, bytes + i, end - i);
        if (ok && end < n) {
            s->after_cr = bytes[end] == '\r';
            ok = end_line(s, fn, ctx);
            end++;
        }
        i = end;
    }
    if (!ok) {
        return nw_fail(err, NW_E_RANGE, "event stream: an event of more than %zu bytes",
                       s->line.max);
    }
    return NW_OK;
}
