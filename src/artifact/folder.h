/* A result folder that appears whole or not at all: built beside its final name under
 * "<name>.partial-XXXXXX", synced, and renamed by commit. Closing without commit removes it; one
 * that a killed process left behind is removed, or gone on with, when the next result of that name is
 * begun. Whoever builds a folder holds a lock on it, so that folders of running processes are left
 * alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_FOLDER_H
#define NW_ARTIFACT_FOLDER_H

#include "base/status.h"

typedef struct {
    char *path; /* final name */
    char *tmp;  /* name while it is being built */
    bool open, replace;
    bool inside; /* of another's making (nw_folder_inside) */
    int lock;    /* while open: descriptor of tmp, which holds the lock */
} nw_folder;

/* An existing, non-empty `path` is refused unless `replace` is set and it holds a manifest.json or
 * narrow.json, that is, an earlier result; commit then replaces it. What a stopped run could go on with
 * (it has a journal) is refused as well, and removed with `replace`. */
NW_MUST_USE nw_status nw_folder_open(nw_folder *f, const char *path, bool replace, nw_error *err);
#define NW_FOLDER_JOURNAL "journal.jsonl"

/* A folder that the caller has made and locked, who also gives it its name: commit only syncs it, and
 * closing removes nothing. */
NW_MUST_USE nw_status nw_folder_inside(nw_folder *f, const char *dir, nw_error *err);

/* What becomes of a folder that a killed process left. */
typedef enum {
    NW_PARTIAL_REMOVE, /* nothing of use is in it */
    NW_PARTIAL_TAKE,   /* this result's own: it is built on */
    NW_PARTIAL_REFUSE  /* another's work, which is not thrown away unasked: *err says so */
} nw_partial;
typedef nw_partial (*nw_partial_fn)(void *ctx, const char *folder, nw_error *err);

/* As open; `judge` sees each left folder of this name. *taken: whether f is one of them. With `replace`
 * what it refuses is removed. */
NW_MUST_USE nw_status nw_folder_resume(nw_folder *f, const char *path, bool replace,
                                       nw_partial_fn judge, void *ctx, bool *taken, nw_error *err);
NW_MUST_USE nw_status nw_folder_commit(nw_folder *f, nw_error *err);
void nw_folder_close(nw_folder *f); /* all zero, committed or half-open objects too */
void nw_folder_keep(nw_folder *f);  /* closes without removing: a later resume may take it */

/* What open would refuse, told without making anything. */
NW_MUST_USE nw_status nw_folder_check(const char *path, bool replace, nw_error *err);
/* Bytes in what killed processes left of earlier attempts at `path`. */
uint64_t nw_folder_left_bytes(const char *path);

/* Is `path` the folder itself, or a file that lies in it? False where either does not exist. */
bool nw_folder_holds(const char *folder, const char *path);

/* Removes a folder and the plain files in it (no deeper levels). */
NW_MUST_USE nw_status nw_folder_remove(const char *path, nw_error *err);

/* Removes the plain files in it but those of these names [n]. */
NW_MUST_USE nw_status nw_folder_clear(const char *path, const char *const *keep, size_t n,
                                      nw_error *err);

#endif
