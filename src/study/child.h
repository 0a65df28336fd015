/* A stage runs as a child process of the same binary: it crashes, leaks or is killed alone, and what
 * it leaves is in the record. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STUDY_CHILD_H
#define NW_STUDY_CHILD_H

#include "base/status.h"

#define NW_CHILD_MAX_ARGS 128

typedef struct {
    const char *argv[NW_CHILD_MAX_ARGS + 2]; /* argv[0] is set by nw_child_run; NULL-terminated */
    size_t n;
} nw_child_args;

void nw_child_arg(nw_child_args *a, const char *arg); /* borrowed; asserts that it fits */
void nw_child_option(nw_child_args *a, const char *name, const char *value); /* NULL: left out */

/* Runs `narrow ARGS...` (with --quiet where this process is quiet) and waits. stdout goes to the file
 * `out` (appended), or stays the caller's where that is NULL; stderr stays the caller's, so that
 * progress is seen. *exit_code is the child's. After ^C or SIGTERM the child is told to stop and
 * waited for, and the result is NW_E_CANCELLED. A child ended by a signal is NW_E_IO naming it. The
 * child does not outlive this process. */
NW_MUST_USE nw_status nw_child_run(nw_child_args *a, const char *out, int *exit_code,
                                   nw_error *err);

#endif
