/* Log lines: see log.h. A line is formatted first and written in one call, so that lines of several
 * threads do not mix.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define MAX_LINE_BYTES 4096

static atomic_int threshold = NW_LOG_INFO;

static const char *const names[] = {"error", "warning", "info", "debug"};

void nw_log_set_level(nw_log_level level)
{
    atomic_store(&threshold, (int)level);
}

nw_log_level nw_log_get_level(void)
{
    return (nw_log_level)atomic_load(&threshold);
}

static void write_json(nw_log_level level, const char *text)
{
    char when[21];
    json_t *row = json_pack("{s:s, s:s, s:s}", "time", nw_utc_now(when), "level", names[level],
                            "message", text);
    char *line = row == NULL ? NULL : json_dumps(row, JSON_COMPACT);

    (void)fprintf(stderr, "%s\n", line == NULL ? "{\"level\":\"error\"}" : line);
    free(line);
    json_decref(row);
}

void nw_log(nw_log_level level, const char *fmt, ...)
{
    char text[MAX_LINE_BYTES];
    va_list ap;

    if (level > nw_log_get_level()) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);

    const char *format = getenv("NW_LOG");
    if (format != NULL && strcmp(format, "json") == 0) {
        write_json(level, text);
    } else if (level == NW_LOG_INFO) {
        (void)fprintf(stderr, "%s\n", text);
    } else {
        (void)fprintf(stderr, "%s: %s\n", names[level], text);
    }
}
