/* A progress line: see progress.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define REDRAW_S 0.1

void nw_progress_begin(nw_progress *p, const char *what, const char *unit, uint64_t total)
{
    *p = (nw_progress){
        .what = what,
        .unit = unit,
        .total = total,
        .start_s = nw_now_s(),
        .tty = isatty(STDERR_FILENO) == 1,
        .quiet = nw_log_get_level() < NW_LOG_INFO,
    };
}

void nw_progress_step(nw_progress *p, uint64_t done)
{
    const double now = nw_now_s();
    const uint64_t tenth = done / (p->total / 10 + 1);
    const bool last = done >= p->total;

    if (p->quiet || (!last && (p->tty ? now - p->drawn_s < REDRAW_S : tenth == p->tenth))) {
        return;
    }
    const double rate = (double)done / fmax(now - p->start_s, 1e-9);
    const double left = last ? 0 : (double)(p->total - done) / fmax(rate, 1e-9);

    (void)fprintf(stderr, "%s%s %" PRIu64 "/%" PRIu64 " %s  %.1f/s  %.0f s left%s",
                  p->tty ? "\r\033[K" : "", p->what, done, p->total, p->unit, rate, left,
                  p->tty && !last ? "" : "\n");
    p->drawn_s = now;
    p->tenth = tenth;
}
