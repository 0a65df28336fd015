/* What the stage files share. Internal to study. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_STUDY_STAGES_PARTS_H
#define NW_STUDY_STAGES_PARTS_H

#include "study/child.h"
#include "study/stages.h"

enum { NW_STAGE_REFUSED = 3 }; /* exit code: what the user gave cannot be used */

/* Runs a child as the next step, telling what and how long. Its stdout goes to the file `out`, or to
 * ours where that is NULL. */
NW_MUST_USE nw_status nw_stage_child(nw_stages *st, nw_child_args *args, const char *what,
                                     const char *out, int *exit_code, nw_error *err);
/* The same, where any exit code but 0 is an error. */
NW_MUST_USE nw_status nw_stage_must(nw_stages *st, nw_child_args *args, const char *what,
                                    nw_error *err);
/* The error for a child that ended with this code: a refusal of what the user gave stays one. */
NW_MUST_USE nw_status nw_stage_failed(const char *what, const nw_child_args *args, int code,
                                      nw_error *err);
/* --kv, --act, --record, --candidate of candidate i. */
void nw_stage_engine_options(const nw_stages *st, size_t i, nw_child_args *a);

#endif
