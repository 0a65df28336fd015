/* The stages of a study, each one command line of narrow. Internal to study.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STUDY_STAGES_H
#define NW_STUDY_STAGES_H

#include "base/hash.h"
#include "study/file.h"

typedef struct {
    nw_study study; /* with the overrides applied */
    bool stop_at_gate, json;
    char *record, *log, *report;              /* paths, owned */
    char *calibration;                        /* folder of statistics, owned; NULL: none is made */
    bool calibrated[NW_STUDY_MAX_CANDIDATES]; /* its recipe wants them */
    char *artifact[NW_STUDY_MAX_CANDIDATES];  /* what is measured; owned; NULL: dropped */
    nw_digest stats_hash;                     /* of the statistics, once they are there */
    nw_digest model;                          /* of the study's model; "" without one */
    char load_tag[9];                         /* names capacity and arrival files by their plan */
    bool rejected[NW_STUDY_MAX_CANDIDATES];   /* by a quality gate; set by an early decide */
    unsigned step, n_steps;                   /* for "[3/14]" */
} nw_stages;

/* Folders, paths, and a look at every input before work begins. */
NW_MUST_USE nw_status nw_stages_open(nw_stages *st, nw_error *err);
void nw_stages_close(nw_stages *st);
unsigned nw_stages_batch1_steps(const nw_study *s); /* of one candidate */
/* Takes candidate i out of the stages that come: all but its artifact, or its speed only. */
void nw_stages_drop(nw_stages *st, size_t i, bool with_quality);

/* Statistics for the recipes that want them, from the study's log, where they are not there already. */
NW_MUST_USE nw_status nw_stage_calibrate(nw_stages *st, nw_error *err);
/* Makes the artifact of candidate i where it is not there already. A recipe that does not fit the
 * model drops the candidate, with a warning; the baseline's is an error. */
NW_MUST_USE nw_status nw_stage_quantize(nw_stages *st, size_t i, nw_error *err);
NW_MUST_USE nw_status nw_stage_quality(nw_stages *st, size_t i, nw_error *err);
NW_MUST_USE nw_status nw_stage_batch1(nw_stages *st, size_t i, nw_error *err);
/* Makes the arrival files from the baseline's measured capacity, once. */
NW_MUST_USE nw_status nw_stage_arrivals(nw_stages *st, nw_error *err);
NW_MUST_USE nw_status nw_stage_load(nw_stages *st, size_t i, nw_error *err);
/* Gates, frontier, recommendation, on stdout; early (before speed): to the log, and sets rejected. */
NW_MUST_USE nw_status nw_stage_decide(nw_stages *st, bool early, nw_error *err);
NW_MUST_USE nw_status nw_stage_report(nw_stages *st, nw_error *err);

#endif
