/* Status codes and the error object: see status.h. The message has a fixed size, so that reporting
 * an error needs no memory; what does not fit is cut at the end, where the detail is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int exit_code;
    const char *text;
} statuses[] = {
#define STATUS_ROW(name, exit_code, text) {exit_code, text},
    NW_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

#undef nw_fail
#undef nw_context

nw_status nw_fail(nw_error *err, nw_status code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    err->code = code;
    return code;
}

nw_status nw_context(nw_error *err, const char *fmt, ...)
{
    char text[sizeof err->message];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);

    /* "text: message", the tail cut where both do not fit; the last byte stays the NUL */
    const size_t len = strlen(text);
    const size_t room = sizeof text - 1 - len;
    if (room > 2) {
        const size_t n_message = strlen(err->message);
        const size_t kept = n_message < room - 2 ? n_message : room - 2;
        memcpy(text + len, ": ", 2);
        memcpy(text + len + 2, err->message, kept);
        text[len + 2 + kept] = '\0';
    }
    memcpy(err->message, text, sizeof text);
    return err->code;
}

const char *nw_status_text(nw_status code)
{
    return (size_t)code < NW_COUNT(statuses) ? statuses[code].text : "unknown status";
}

int nw_status_exit_code(nw_status code)
{
    return (size_t)code < NW_COUNT(statuses) ? statuses[code].exit_code : 4;
}
