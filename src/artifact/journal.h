/* What a killed writer has finished: a file in its partial folder, one line of JSON each,
 *
 *   {"format": "narrow-journal", "version": 1, "of": {"tool", "source", "calibration", "recipe"}}
 *   {"tensor": <its row of the manifest>, "note": <what the maker said of it, or null>}
 *
 * the first for what is being made, as digests and names, the others for finished tensors, in order.
 * A line that a kill cut short ends the journal. Whoever goes on holds every tensor to its hash: a
 * line may have reached the disk where the tensor's bytes did not.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_JOURNAL_H
#define NW_ARTIFACT_JOURNAL_H

#include "artifact/manifest.h"

#define NW_JOURNAL_NAME "journal.jsonl"

/* What is made, from a manifest whose tensors are not written yet; owned by the caller, NULL without
 * memory. */
json_t *nw_journal_identity(nw_manifest *m, nw_error *err);

/* The rows of a folder's journal: an array of {"tensor", "note"}, owned by the caller. *found: there
 * is one. Where it is of something else, NW_E_FORMAT says in one sentence what differs. */
NW_MUST_USE nw_status nw_journal_load(const char *dir, const json_t *identity, bool *found,
                                      json_t **rows, nw_error *err);

typedef struct nw_journal nw_journal;

/* Writes the journal anew with the first n rows, for more to follow. */
NW_MUST_USE nw_status nw_journal_open(const char *dir, const json_t *identity, const json_t *rows,
                                      size_t n, nw_journal **out, nw_error *err);
NW_MUST_USE nw_status nw_journal_add(nw_journal *j, const nw_manifest_tensor *t, const json_t *note,
                                     nw_error *err);
void nw_journal_close(nw_journal *j); /* takes NULL */
/* Removes the journal: its folder is whole. */
NW_MUST_USE nw_status nw_journal_remove(const char *dir, nw_error *err);

#endif
