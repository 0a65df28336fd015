/* Files: see file.h. The only place of the library that reads errno. A writer's temporary file lies
 * beside the final one, because rename is atomic only inside a file system.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_PAGE     ((size_t)2 << 20) /* of x86-64, and of AArch64 with pages of 4 KiB */
#define START_WRITING 2U /* SYNC_FILE_RANGE_WRITE, which glibc shows to _GNU_SOURCE alone */

/* NW_E_IO with the reason of errno, which is read first. */
static nw_status io_fail(nw_error *err, const char *path, const char *what)
{
    const int saved = errno;
    char reason[128] = "";

    if (strerror_r(saved, reason, sizeof reason) != 0) {
        (void)snprintf(reason, sizeof reason, "error %d", saved);
    }
    return nw_fail(err, NW_E_IO, "%s: cannot %s: %s", path, what, reason);
}

/* Opens a regular file for reading. */
static nw_status open_regular(const char *path, int *fd, size_t *size, nw_error *err)
{
    struct stat st;
    /* not blocking, since opening a named pipe would wait for a writer for ever */
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (opened < 0) {
        return io_fail(err, path, "open");
    }
    if (fstat(opened, &st) != 0) {
        const nw_status status = io_fail(err, path, "read its size");
        (void)close(opened);
        return status;
    }
    if (!S_ISREG(st.st_mode)) {
        (void)close(opened);
        return nw_fail(err, NW_E_IO, "%s: a %s, where a file is needed", path,
                       S_ISDIR(st.st_mode) ? "directory" : "device or pipe");
    }
    *fd = opened;
    *size = (size_t)st.st_size;
    return NW_OK;
}

nw_status nw_file_map(const char *path, nw_file *out, nw_error *err)
{
    nw_file f = {0};
    int fd = -1;
    nw_status st = open_regular(path, &fd, &f.size, err);

    if (st != NW_OK) {
        return st;
    }
    f.path = strdup(path);
    if (f.path == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", path);
    } else if (f.size > 0) {
        void *p = mmap(NULL, f.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            st = io_fail(err, path, "map");
        } else {
            f.data = p;
            if (f.size >= HUGE_PAGE) {
                (void)madvise(p, f.size, MADV_HUGEPAGE); /* only faster */
            }
        }
    }
    (void)close(fd);
    if (st == NW_OK) {
        *out = f;
    } else {
        free(f.path);
    }
    return st;
}

void nw_file_unmap(nw_file *f)
{
    if (f->data != NULL) {
        void *map = NULL; /* munmap takes a plain pointer, and writes nothing through it */
        memcpy(&map, &f->data, sizeof map);
        (void)munmap(map, f->size);
    }
    free(f->path);
    *f = (nw_file){0};
}

/* Of the pages that hold them; what it does changes no byte. */
static void advise(const uint8_t *bytes, size_t n, int advice)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t before = (uintptr_t)bytes % page;
    void *begin = NULL; /* madvise takes a plain pointer, and writes nothing through it */
    const uint8_t *first = bytes - before;

    memcpy(&begin, &first, sizeof begin);
    (void)madvise(begin, n + before, advice);
}

void nw_file_ahead(const uint8_t *bytes, size_t n)
{
    advise(bytes, n, MADV_WILLNEED);
}

void nw_file_leave(const uint8_t *bytes, size_t n)
{
    advise(bytes, n, MADV_DONTNEED);
}

void nw_file_forget(const char *path, uint64_t at, uint64_t n)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)posix_fadvise(fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
}

nw_status nw_file_stamp_of(const char *path, nw_file_stamp *out, nw_error *err)
{
    struct stat st;

    if (stat(path, &st) != 0) {
        return io_fail(err, path, "read its size");
    }
    *out = (nw_file_stamp){.size = (uint64_t)st.st_size,
                           .modified_ns =
                               (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
    return NW_OK;
}

/* Fills buf[n]; *got falls short only where the file ends first. */
static nw_status read_all(int fd, const char *path, char *buf, size_t n, size_t *got, nw_error *err)
{
    size_t have = 0;

    while (have < n) {
        const ssize_t r = read(fd, buf + have, n - have);
        if (r == 0) {
            break;
        }
        if (r < 0 && errno != EINTR) {
            return io_fail(err, path, "read");
        }
        have += r > 0 ? (size_t)r : 0;
    }
    *got = have;
    return NW_OK;
}

nw_status nw_file_read(const char *path, size_t max_bytes, char **data, size_t *len, nw_error *err)
{
    int fd = -1;
    size_t size = 0;
    size_t got = 0;
    char *buf = NULL;
    nw_status st = open_regular(path, &fd, &size, err);

    if (st != NW_OK) {
        return st;
    }
    if (size > max_bytes) {
        st = nw_fail(err, NW_E_RANGE, "%s: %zu bytes, at most %zu allowed", path, size, max_bytes);
        goto out;
    }
    buf = malloc(size + 1);
    if (buf == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu bytes", path, size);
        goto out;
    }
    st = read_all(fd, path, buf, size, &got, err);
    if (st == NW_OK) {
        buf[got] = '\0';
        *data = buf;
        *len = got;
        buf = NULL;
    }
out:
    free(buf);
    (void)close(fd);
    return st;
}

bool nw_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool nw_file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

nw_status nw_file_mkdirs(const char *path, nw_error *err)
{
    char *partial = strdup(path);
    nw_status st = NW_OK;

    if (partial == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", path);
    }
    for (char *p = partial; st == NW_OK && *p != '\0'; p++) {
        const char *end = strchr(p + 1, '/');
        const size_t len = end == NULL ? strlen(partial) : (size_t)(end - partial);
        const char kept = partial[len];

        partial[len] = '\0';
        if (mkdir(partial, 0777) != 0) {
            const int reason = errno;
            /* EEXIST is not enough: the name may belong to a file */
            if (!nw_file_is_dir(partial)) {
                errno = reason;
                st = io_fail(err, partial, "make the directory");
            }
        }
        partial[len] = kept;
        p = partial + len - (kept == '\0' ? 1 : 0);
    }
    free(partial);
    return st;
}

char *nw_path_join(const char *dir, const char *name)
{
    const size_t n_dir = strlen(dir);
    const bool slash = n_dir > 0 && dir[n_dir - 1] != '/';
    size_t size = 0;

    if (!nw_size_add(n_dir, strlen(name) + 2, &size)) {
        return NULL;
    }
    char *path = malloc(size);
    if (path != NULL) {
        (void)snprintf(path, size, "%s%s%s", dir, slash ? "/" : "", name);
    }
    return path;
}

/* A name nobody else uses: the process and a counter make it unique on one machine, and O_EXCL
 * holds against the rest. mkstemp would make the file private whatever the umask says. */
static int open_temporary(const char *path, char **tmp_path)
{
    static atomic_uint counter;
    const size_t size = strlen(path) + 48;
    char *tmp = malloc(size);

    if (tmp == NULL) {
        errno = ENOMEM;
        return -1;
    }
    for (int attempt = 0; attempt < 100; attempt++) {
        (void)snprintf(tmp, size, "%s.tmp-%ld-%u", path, (long)getpid(),
                       atomic_fetch_add(&counter, 1));
        const int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            *tmp_path = tmp;
            return fd;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    free(tmp);
    return -1;
}

/* All but the temporary file. */
static nw_status init_writer(nw_writer *w, const char *path, nw_error *err)
{
    *w = (nw_writer){.fd = -1, .block_room = HUGE_PAGE};
    if (nw_file_is_dir(path)) {
        return nw_fail(err, NW_E_IO, "%s: a directory, where a file is to be written", path);
    }
    w->path = strdup(path);
    w->block = malloc(HUGE_PAGE);
    if (w->path == NULL || w->block == NULL) {
        nw_writer_close(w);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory to write it", path);
    }
    return NW_OK;
}

nw_status nw_writer_open(nw_writer *w, const char *path, nw_error *err)
{
    nw_status st = init_writer(w, path, err);

    if (st != NW_OK) {
        return st;
    }
    w->fd = open_temporary(path, &w->tmp_path);
    if (w->fd < 0) {
        st = io_fail(err, path, "create");
        nw_writer_close(w);
        return st;
    }
    w->open = true;
    return NW_OK;
}

nw_status nw_writer_resume(nw_writer *w, const char *path, const char *tmp_path, uint64_t keep,
                           nw_error *err)
{
    nw_status st = init_writer(w, path, err);

    if (st != NW_OK) {
        return st;
    }
    w->tmp_path = strdup(tmp_path);
    if (w->tmp_path == NULL) {
        nw_writer_close(w);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory to write it", path);
    }
    w->fd = open(tmp_path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (w->fd < 0 || ftruncate(w->fd, (off_t)keep) != 0 || lseek(w->fd, 0, SEEK_END) < 0) {
        st = io_fail(err, tmp_path, "go on with it");
        nw_writer_keep(w);
        return st;
    }
    w->open = true;
    w->written_bytes = keep;
    w->block_room = HUGE_PAGE - (size_t)(keep % HUGE_PAGE);
    return NW_OK;
}

/* Everything, however the system cuts it. */
static nw_status write_all(const nw_writer *w, const char *p, size_t n, nw_error *err)
{
    while (n > 0) {
        const ssize_t r = write(w->fd, p, n);
        if (r < 0 && errno != EINTR) {
            return io_fail(err, w->path, "write");
        }
        if (r > 0) {
            p += r;
            n -= (size_t)r;
        }
    }
    return NW_OK;
}

static nw_status write_through(nw_writer *w, const char *p, size_t n, nw_error *err)
{
    const nw_status st = write_all(w, p, n, err);

    if (st == NW_OK && n > 0) { /* file systems that cannot do it write later */
        (void)syscall(SYS_sync_file_range, w->fd, (off_t)0, (off_t)0, START_WRITING);
    }
    return st;
}

static nw_status flush_block(nw_writer *w, nw_error *err)
{
    const size_t n = w->n_block;

    w->n_block = 0;
    w->block_room = HUGE_PAGE;
    return write_through(w, w->block, n, err);
}

nw_status nw_writer_write(nw_writer *w, const void *bytes, size_t n, nw_error *err)
{
    const char *p = bytes;

    w->written_bytes += n;
    while (n > 0) {
        const size_t room = w->block_room - w->n_block;
        const bool whole = w->n_block == 0 && n >= room; /* needs no copy */
        const size_t part = n < room ? n : room;
        if (!whole) {
            memcpy(w->block + w->n_block, p, part);
            w->n_block += part;
        } else if (write_through(w, p, part, err) != NW_OK) {
            return err->code;
        } else {
            w->block_room = HUGE_PAGE;
        }
        p += part;
        n -= part;
        if (w->n_block == w->block_room && flush_block(w, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

nw_status nw_writer_pad(nw_writer *w, size_t alignment, nw_error *err)
{
    static const char zeros[4096];
    size_t n = (size_t)((alignment - w->written_bytes % alignment) % alignment);

    while (n > 0) {
        const size_t part = n < sizeof zeros ? n : sizeof zeros;
        const nw_status st = nw_writer_write(w, zeros, part, err);
        if (st != NW_OK) {
            return st;
        }
        n -= part;
    }
    return NW_OK;
}

/* A rename survives a power cut only once its directory is on the disk. File systems that cannot
 * sync a directory say EINVAL, and have nothing to sync. */
static nw_status sync_parent(const char *path, nw_error *err)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);

    if (dir == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its folder's name", path);
    }
    nw_status st = NW_OK;
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) {
        st = io_fail(err, dir, "sync");
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(dir);
    return st;
}

static nw_status sync_and_close(nw_writer *w, nw_error *err)
{
    if (fsync(w->fd) != 0) {
        return io_fail(err, w->path, "sync");
    }
    const int fd = w->fd;
    w->fd = -1;
    return close(fd) == 0 ? NW_OK : io_fail(err, w->path, "close");
}

static nw_status rename_file(const nw_writer *w, nw_error *err)
{
    return rename(w->tmp_path, w->path) == 0
               ? NW_OK
               : io_fail(err, w->path, "rename the temporary file to it");
}

nw_status nw_writer_commit(nw_writer *w, nw_error *err)
{
    nw_status st = flush_block(w, err);

    st = st == NW_OK ? sync_and_close(w, err) : st;
    st = st == NW_OK ? rename_file(w, err) : st;
    if (st != NW_OK) {
        return st;
    }
    w->open = false;
    return sync_parent(w->path, err);
}

nw_status nw_writer_place(nw_writer *w, nw_error *err)
{
    nw_status st = flush_block(w, err);

    st = st == NW_OK ? rename_file(w, err) : st;
    if (st == NW_OK) {
        free(w->tmp_path); /* nothing to unlink any more */
        w->tmp_path = NULL;
    }
    return st;
}

nw_status nw_writer_sync(nw_writer *w, nw_error *err)
{
    const nw_status st = sync_and_close(w, err);

    return st == NW_OK ? sync_parent(w->path, err) : st;
}

static void release_writer(nw_writer *w)
{
    free(w->path);
    free(w->tmp_path);
    free(w->block);
    *w = (nw_writer){.fd = -1};
}

void nw_writer_close(nw_writer *w)
{
    if (w->open) {
        if (w->fd >= 0) {
            (void)close(w->fd);
        }
        if (w->tmp_path != NULL) {
            (void)unlink(w->tmp_path);
        }
    }
    release_writer(w);
}

void nw_writer_keep(nw_writer *w)
{
    nw_error ignored = {0};

    if (w->path != NULL && w->fd >= 0) {
        /* what does not reach the file is missed by whoever goes on with it, and made again */
        (void)(flush_block(w, &ignored) == NW_OK);
        (void)close(w->fd);
    }
    release_writer(w);
}

nw_status nw_file_write(const char *path, const void *bytes, size_t n, nw_error *err)
{
    nw_writer w = {0};
    nw_status st = nw_writer_open(&w, path, err);

    if (st == NW_OK) {
        st = nw_writer_write(&w, bytes, n, err);
    }
    if (st == NW_OK) {
        st = nw_writer_commit(&w, err);
    }
    nw_writer_close(&w);
    return st;
}
