/* Files: read-only maps, whole small files, and writers that never leave a half-written output
 * under the final name (temporary name in the same folder, fsync, rename).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_FILE_H
#define NW_BASE_FILE_H

#include "base/status.h"

/* A read-only mapping. All zero is unmapped and may be passed to nw_file_unmap. */
typedef struct {
    char *path;          /* owned copy */
    const uint8_t *data; /* NULL when size is 0 */
    size_t size;
} nw_file;

/* NW_E_IO names the path and the reason; a directory or a device is refused. */
NW_MUST_USE nw_status nw_file_map(const char *path, nw_file *out, nw_error *err);
void nw_file_unmap(nw_file *f);
/* Bytes of a mapping that will be read soon: the system begins to fetch them, and nobody waits. */
void nw_file_ahead(const uint8_t *bytes, size_t n);
/* Bytes of a mapping that are done with: this process lets them go. Read again they come back, from the
 * system's memory or, after nw_file_forget, from the disk. */
void nw_file_leave(const uint8_t *bytes, size_t n);
/* Bytes [at, at + n) of a file, which the system need not keep in memory: those that no process has mapped
 * leave it. */
void nw_file_forget(const char *path, uint64_t at, uint64_t n);

/* What changes when a file does, without reading it. */
typedef struct {
    uint64_t size;
    int64_t modified_ns; /* since 1970 */
} nw_file_stamp;
NW_MUST_USE nw_status nw_file_stamp_of(const char *path, nw_file_stamp *out, nw_error *err);

/* Reads a whole file of at most max_bytes; *data is NUL-terminated, the caller frees it. */
NW_MUST_USE nw_status nw_file_read(const char *path, size_t max_bytes, char **data, size_t *len,
                                   nw_error *err);

bool nw_file_exists(const char *path);
bool nw_file_is_dir(const char *path);
NW_MUST_USE nw_status nw_file_mkdirs(const char *path, nw_error *err); /* like mkdir -p */

/* dir + "/" + name; the caller frees it; NULL when there is no memory. */
char *nw_path_join(const char *dir, const char *name);

/* Writer. Usage: open, write..., commit. close without commit removes the temporary file; close
 * after commit only frees. All zero may be closed. Bytes go to the system in blocks of the size of a
 * huge page, which file systems with large folios then keep as huge pages: whoever maps the file
 * next reads it without missing the TLB. Each block is on its way to the disk at once, so that commit
 * has little left to wait for. */
typedef struct {
    char *path;     /* final name */
    char *tmp_path; /* name while writing */
    char *block;    /* what was not handed to the system yet */
    size_t n_block;
    size_t block_room; /* what fits `block` until the file reaches a multiple of its size */
    int fd;
    uint64_t written_bytes;
    bool open;
} nw_writer;

NW_MUST_USE nw_status nw_writer_open(nw_writer *w, const char *path, nw_error *err);
/* The same with a temporary file of a name that an earlier writer used (made where there is none):
 * its first `keep` bytes stay, of which it has at least so many, and writing goes on behind them. */
NW_MUST_USE nw_status nw_writer_resume(nw_writer *w, const char *path, const char *tmp_path,
                                       uint64_t keep, nw_error *err);
NW_MUST_USE nw_status nw_writer_write(nw_writer *w, const void *bytes, size_t n, nw_error *err);
NW_MUST_USE nw_status nw_writer_pad(nw_writer *w, size_t alignment, nw_error *err); /* zeros */
NW_MUST_USE nw_status nw_writer_commit(nw_writer *w, nw_error *err); /* fsync, rename */
/* A commit in two halves, for a file of a folder that gets its name later: first the file has its name, then,
 * by any thread, it is on the disk. */
NW_MUST_USE nw_status nw_writer_place(nw_writer *w, nw_error *err);
NW_MUST_USE nw_status nw_writer_sync(nw_writer *w, nw_error *err);
void nw_writer_close(nw_writer *w);
/* Closes without commit and leaves the temporary file, as far as it was written, to a later resume. */
void nw_writer_keep(nw_writer *w);

/* open + write + commit of a whole small file. */
NW_MUST_USE nw_status nw_file_write(const char *path, const void *bytes, size_t n, nw_error *err);

#endif
