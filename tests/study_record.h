/* A small study as a record, without a model: a baseline and three candidates with known errors, and
 * rows of every table that a page shows. Seeded: the same bytes each time but for the dates.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_STUDY_RECORD_H
#define NW_TESTS_STUDY_RECORD_H

#include "record/record.h"

typedef struct {
    const char *name;       /* of the second candidate; NULL: "int4-g64" */
    bool hostile;           /* outputs, notes and errors hold markup */
    bool decided;           /* policy, verdicts and decisions too, as decide would leave them */
    size_t n_micro, n_load; /* requests at batch 1, of a load run */
    size_t n_items;         /* of the task suite; 0: 48 */
} nw_study_record;

/* Ends the test program where something fails. */
void nw_study_record_make(const char *path, const nw_study_record *o);

#endif
