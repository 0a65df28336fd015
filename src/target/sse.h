/* Server-sent events, as bytes come: splits a stream into the data of its events, wherever the bytes
 * were cut (WHATWG HTML, section 9.2.6: lines end with LF, CR or CRLF; a blank line ends an event;
 * lines of data are joined by LF; comments and other fields are skipped).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TARGET_SSE_H
#define NW_TARGET_SSE_H

#include "base/buf.h"

typedef struct {
    nw_buf line; /* the line being read */
    nw_buf data; /* data of the event being read */
    bool has_data;
    bool after_cr; /* a LF that comes next belongs to the line end before it */
    bool started;  /* past the place where a byte order mark may stand */
} nw_sse;

/* data is NUL-terminated and dies with the call. */
typedef void (*nw_sse_fn)(void *ctx, const char *data, size_t n);

void nw_sse_init(nw_sse *s, size_t max_event_bytes);
/* NW_E_RANGE when a line or an event exceeds the limit; the stream is then of no further use. */
NW_MUST_USE nw_status nw_sse_push(nw_sse *s, const char *bytes, size_t n, nw_sse_fn fn, void *ctx,
                                  nw_error *err);
void nw_sse_release(nw_sse *s);

#endif
