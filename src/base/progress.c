/* A progress line: see progress.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define REDRAW_S 0.1
#define LINE_S   5.0 /* between lines of a pipe */

/* "837", "16.8M": four digits at most, so that a line keeps its width. */
static const char *count_text(double n, char buf[16])
{
    static const char units[] = " kMGTPE";
    size_t unit = 0;

    for (; n >= 999.5 && unit + 2 < sizeof units; unit++) {
        n /= 1000;
    }
    (void)snprintf(buf, 16, "%.*f%.1s", unit > 0 && n < 99.95 ? 1 : 0, n,
                   unit > 0 ? &units[unit] : "");
    return buf;
}

void nw_progress_begin(nw_progress *p, const char *what, const char *unit, uint64_t total)
{
    const double now = nw_now_s();

    *p = (nw_progress){
        .what = what,
        .unit = unit,
        .total = total,
        .start_s = now,
        .tty = isatty(STDERR_FILENO) == 1,
        .quiet = nw_log_get_level() < NW_LOG_INFO,
    };
    p->drawn_s = p->tty ? 0 : now;
}

/* Whether this step is shown. The last ends a terminal's line; a pipe that saw no line needs none. */
static bool is_due(const nw_progress *p, uint64_t done, double now)
{
    const bool last = done >= p->total;

    if (p->tty) {
        return last || now - p->drawn_s >= REDRAW_S;
    }
    return (last && p->tenth > 0) ||
           (done / (p->total / 10 + 1) != p->tenth && now - p->drawn_s >= LINE_S);
}

void nw_progress_step(nw_progress *p, uint64_t done)
{
    const double now = nw_now_s();
    const bool last = done >= p->total;
    char of[3][16];

    if (p->quiet || !is_due(p, done, now)) {
        return;
    }
    const double rate = (double)done / fmax(now - p->start_s, 1e-9);
    const double left = last ? 0 : (double)(p->total - done) / fmax(rate, 1e-9);

    (void)fprintf(stderr, "%s%s %s/%s %s  %s/s  %.0f s left%s", p->tty ? "\r\033[K" : "", p->what,
                  count_text((double)done, of[0]), count_text((double)p->total, of[1]), p->unit,
                  count_text(rate, of[2]), left, p->tty && !last ? "" : "\n");
    p->drawn_s = now;
    p->tenth = done / (p->total / 10 + 1);
}
