/* What long work has finished, kept so that a killed run is gone on with: a file of JSON lines,
 *
 *   {"format": NAME, "version": 1, "of": {...}}     what the work is, by names and digests
 *   {...}                                           a line each for what is finished, in order
 *
 * A line is handed to the system at once; one that a kill cut short ends the journal.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_JOURNAL_H
#define NW_BASE_JOURNAL_H

#include "base/json.h"

typedef struct nw_journal nw_journal;

/* *rows: the lines that are whole, an array that the caller owns; NULL where there is no such journal.
 * Where it is of other work, NW_E_FORMAT, and *differs names the first key of `of` that has another
 * value (of the caller's own strings). */
NW_MUST_USE nw_status nw_journal_load(const char *path, const char *format, const json_t *of,
                                      json_t **rows, const char **differs, nw_error *err);

/* Writes the journal anew with the first n rows, for more to follow. */
NW_MUST_USE nw_status nw_journal_open(const char *path, const char *format, const json_t *of,
                                      const json_t *rows, size_t n, nw_journal **out,
                                      nw_error *err);
NW_MUST_USE nw_status nw_journal_add(nw_journal *j, const json_t *row, nw_error *err);
void nw_journal_close(nw_journal *j); /* takes NULL */

#endif
