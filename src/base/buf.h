/* A growing byte buffer with a cap set at init, so that no input grows it without bound.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_BUF_H
#define NW_BASE_BUF_H

#include "base/status.h"

typedef struct {
    char *data; /* NUL-terminated once anything was appended; NULL before */
    size_t len; /* bytes, without the NUL */
    size_t cap;
    size_t max;  /* bytes; an append past it fails and leaves the buffer as it was */
    bool failed; /* sticky: an append did not fit or there was no memory */
    bool full;   /* sticky: it did not fit */
} nw_buf;

void nw_buf_init(nw_buf *b, size_t max_bytes);
void nw_buf_release(nw_buf *b);
void nw_buf_clear(nw_buf *b); /* keeps the memory; clears `failed` and `full` */

/* Each returns false, and sets `failed`, when the bytes do not fit. */
bool nw_buf_add(nw_buf *b, const void *bytes, size_t n);
bool nw_buf_puts(nw_buf *b, const char *s);
bool nw_buf_printf(nw_buf *b, const char *fmt, ...) NW_PRINTF(2, 3);

/* Moves the string out; the caller frees it with free(). Never NULL unless `failed`. */
char *nw_buf_take(nw_buf *b);

#endif
