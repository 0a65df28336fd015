/* The study: makes the artifacts of all candidates, measures quality, then speed, decides and writes
 * the report. Stages are child processes that meet in the record; a stage whose result is there
 * already is not run again, so a study that was stopped goes on where it was.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STUDY_STUDY_H
#define NW_STUDY_STUDY_H

#include "base/status.h"

typedef struct {
    const char *path;                         /* study file */
    const char *model, *work, *text, *policy; /* replace what the file says; NULL: as it says */
    bool stop_at_gate; /* a candidate that failed a quality gate is not benchmarked */
    bool json;         /* the decision as decide prints it with --json; places go to the log */
} nw_study_options;

/* Prints the decision and the places of report and record on stdout. NW_E_CANCELLED on ^C. */
NW_MUST_USE nw_status nw_study_run(const nw_study_options *o, nw_error *err);

#endif
