/* A progress line on stderr: rate and time left. A terminal sees one line redrawn at most ten times
 * a second; a pipe sees at most ten lines, five seconds apart, so that short work leaves none; with
 * --quiet (log level WARN) nothing is shown.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_PROGRESS_H
#define NW_BASE_PROGRESS_H

#include "base/status.h"

typedef struct {
    const char *what; /* borrowed: "quantize", "perplexity" */
    const char *unit; /* borrowed: "tensors", "tokens" */
    uint64_t total;
    double start_s, drawn_s;
    uint64_t tenth;
    bool tty, quiet;
} nw_progress;

void nw_progress_begin(nw_progress *p, const char *what, const char *unit, uint64_t total);
void nw_progress_step(nw_progress *p, uint64_t done); /* done == total ends the line */

#endif
