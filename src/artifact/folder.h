/* A result folder that appears whole or not at all: built beside its final name under
 * "<name>.partial-XXXXXX", synced, and renamed by commit. Closing without commit removes it; one
 * that a killed process left behind is removed when the next result of that name is begun. Whoever
 * builds a folder holds a lock on it, so that folders of running processes are left alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_FOLDER_H
#define NW_ARTIFACT_FOLDER_H

#include "base/status.h"

typedef struct {
    char *path; /* final name */
    char *tmp;  /* name while it is being built */
    bool open, replace;
    int lock; /* while open: descriptor of tmp, which holds the lock */
} nw_folder;

/* An existing, non-empty `path` is refused unless `replace` is set and it holds a manifest.json or
 * narrow.json, that is, an earlier result; commit then replaces it. */
NW_MUST_USE nw_status nw_folder_open(nw_folder *f, const char *path, bool replace, nw_error *err);
NW_MUST_USE nw_status nw_folder_commit(nw_folder *f, nw_error *err);
void nw_folder_close(nw_folder *f); /* all zero, committed or half-open objects too */

/* Is `path` the folder itself, or a file that lies in it? False where either does not exist. */
bool nw_folder_holds(const char *folder, const char *path);

/* Removes a folder and the plain files in it (no deeper levels). */
NW_MUST_USE nw_status nw_folder_remove(const char *path, nw_error *err);

#endif
