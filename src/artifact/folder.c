/* Result folders that appear whole: see folder.h. rename(2) is atomic inside a file system, hence
 * the temporary folder beside the final one. Like base/file.c, this file reads errno: it does to
 * folders what that one does to files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static nw_status io_fail(nw_error *err, const char *path, const char *what)
{
    const int saved = errno;
    char reason[128] = "";

    if (strerror_r(saved, reason, sizeof reason) != 0) {
        (void)snprintf(reason, sizeof reason, "error %d", saved);
    }
    return nw_fail(err, NW_E_IO, "%s: cannot %s: %s", path, what, reason);
}

/* Its entries apart from "." and "..": 0, 1 (at least one), or -1 when it cannot be read. */
static int has_entries(const char *path)
{
    DIR *d = opendir(path);
    int found = 0;

    if (d == NULL) {
        return -1;
    }
    for (const struct dirent *e = readdir(d); e != NULL && found == 0; e = readdir(d)) {
        found = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    (void)closedir(d);
    return found;
}

static bool is_kept(const char *name, const char *const *keep, size_t n)
{
    size_t i = 0;

    while (i < n && strcmp(keep[i], name) != 0) {
        i++;
    }
    return i < n;
}

nw_status nw_folder_clear(const char *path, const char *const *keep, size_t n, nw_error *err)
{
    DIR *d = opendir(path);

    if (d == NULL) {
        return io_fail(err, path, "open");
    }
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            !is_kept(e->d_name, keep, n) && unlinkat(dirfd(d), e->d_name, 0) != 0) {
            const nw_status st = io_fail(err, path, "empty");
            (void)closedir(d);
            return st;
        }
    }
    (void)closedir(d);
    return NW_OK;
}

nw_status nw_folder_remove(const char *path, nw_error *err)
{
    const nw_status st = nw_folder_clear(path, NULL, 0, err);

    if (st != NW_OK) {
        return st;
    }
    return rmdir(path) == 0 ? NW_OK : io_fail(err, path, "remove");
}

/* `path` without trailing slashes; NULL when there is no memory. */
static char *trimmed(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    return strndup(path, n);
}

/* Makes the folder that will hold `path`, so that a result may be asked for in a new place. */
static nw_status make_parent(const char *path, nw_error *err)
{
    const char *slash = strrchr(path, '/');
    char *parent = NULL;
    nw_status st = NW_OK;

    if (slash == NULL || slash == path) {
        return NW_OK;
    }
    parent = strndup(path, (size_t)(slash - path));
    if (parent == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its parent's name", path);
    }
    st = nw_file_mkdirs(parent, err);
    free(parent);
    return st;
}

static bool holds(const char *dir, const char *name)
{
    char *path = nw_path_join(dir, name);
    const bool found = path != NULL && nw_file_exists(path);

    free(path);
    return found;
}

/* Only an empty folder, or one that narrow made and the user wants replaced, may be in the way. */
static nw_status refuse_existing(const char *path, bool replace, nw_error *err)
{
    if (!nw_file_exists(path)) {
        return NW_OK;
    }
    if (!nw_file_is_dir(path)) {
        return nw_fail(err, NW_E_IO, "%s: exists and is not a folder", path);
    }
    if (has_entries(path) == 0) {
        return NW_OK;
    }
    if (!replace) {
        return nw_fail(err, NW_E_IO, "%s: exists and is not empty (--force replaces it)", path);
    }
    if (!holds(path, "manifest.json") && !holds(path, "narrow.json")) {
        return nw_fail(err, NW_E_IO, "%s: is not a result of narrow, and is not replaced", path);
    }
    return NW_OK;
}

static bool same_place(const char *a, const char *b)
{
    struct stat x;
    struct stat y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool nw_folder_holds(const char *folder, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = NULL;
    bool held = same_place(folder, path);

    if (!held && !nw_file_is_dir(path)) {
        parent = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
        held = parent != NULL && same_place(folder, parent);
    }
    free(parent);
    return held;
}

static const char partial[] = ".partial-";

/* Opens a folder and takes its lock; -1 where it cannot, or where another process holds it. */
static int lock_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Walks over what killed processes left of earlier attempts at a path. */
typedef struct {
    nw_partial_fn judge;
    void *ctx;
    bool replace;
    char *taken; /* the folder that is built on, whose lock is `lock`; NULL: none */
    int lock;
    nw_status status;
    nw_error *err;
} leftovers;

/* A partial folder that this process has locked. What cannot be removed is left: it is in nobody's
 * way. */
static void settle(void *ctx, const char *path, int fd)
{
    leftovers *l = ctx;
    nw_error why = {0};
    const nw_partial verdict = l->judge(l->ctx, path, &why);

    if (verdict == NW_PARTIAL_TAKE && l->taken == NULL) {
        l->taken = strdup(path);
        l->lock = fd;
        if (l->taken != NULL) {
            return;
        }
        l->status = nw_fail(l->err, NW_E_NOMEM, "%s: no memory for its name", path);
    } else if (verdict == NW_PARTIAL_REFUSE && !l->replace) {
        *l->err = why;
        l->status = why.code;
    } else if (verdict != NW_PARTIAL_TAKE) {
        (void)(nw_folder_remove(path, &why) == NW_OK);
    }
    (void)close(fd);
}

nw_status nw_folder_check(const char *path, bool replace, nw_error *err)
{
    char *plain = trimmed(path);
    const nw_status st = plain != NULL
                             ? refuse_existing(plain, replace, err)
                             : nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", path);

    free(plain);
    return st;
}

/* Calls `each` for the partial folders of a path, with the lock that nobody else holds. */
static void for_each_left(const char *path, void (*each)(void *ctx, const char *left, int fd),
                          void *ctx)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const size_t n = strlen(name);
    char *parent = slash != NULL ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    DIR *d = parent == NULL ? NULL : opendir(parent);

    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, name, n) != 0 ||
            strncmp(e->d_name + n, partial, sizeof partial - 1) != 0) {
            continue;
        }
        char *left = nw_path_join(parent, e->d_name);
        const int fd = left == NULL ? -1 : lock_folder(left);
        if (fd >= 0) {
            each(ctx, left, fd);
        }
        free(left);
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    free(parent);
}

static void add_bytes(void *ctx, const char *left, int fd)
{
    uint64_t *sum = ctx;
    struct stat st;
    DIR *d = opendir(left);

    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;) {
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
            *sum += (uint64_t)st.st_size;
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    (void)close(fd);
}

uint64_t nw_folder_left_bytes(const char *path)
{
    char *plain = trimmed(path);
    uint64_t sum = 0;

    if (plain != NULL) {
        for_each_left(plain, add_bytes, &sum);
    }
    free(plain);
    return sum;
}

static nw_status make_folder(nw_folder *f, nw_error *err)
{
    static const char random_part[] = "XXXXXX";
    const size_t room = strlen(f->path) + sizeof partial + sizeof random_part;

    f->tmp = calloc(1, room);
    if (f->tmp == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", f->path);
    }
    (void)snprintf(f->tmp, room, "%s%s%s", f->path, partial, random_part);
    if (mkdtemp(f->tmp) == NULL) {
        return io_fail(err, f->tmp, "make a folder");
    }
    f->lock = lock_folder(f->tmp);
    if (f->lock < 0) {
        return io_fail(err, f->tmp, "lock");
    }
    f->open = true;
    /* mkdtemp gives 0700; a result is as readable as the umask of its maker allows */
    const mode_t mask = umask(0);
    (void)umask(mask);
    return chmod(f->tmp, (mode_t)0777 & ~mask) == 0 ? NW_OK : io_fail(err, f->tmp, "set the mode");
}

nw_status nw_folder_resume(nw_folder *f, const char *path, bool replace, nw_partial_fn judge,
                           void *ctx, bool *taken, nw_error *err)
{
    leftovers l = {.judge = judge, .ctx = ctx, .replace = replace, .err = err};
    nw_status st = NW_OK;

    *taken = false;
    *f = (nw_folder){.path = trimmed(path), .replace = replace};
    if (f->path == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", path);
        goto out;
    }
    st = refuse_existing(f->path, replace, err);
    if (st == NW_OK) {
        st = make_parent(f->path, err);
    }
    if (st != NW_OK) {
        goto out;
    }
    for_each_left(f->path, settle, &l);
    if (l.taken != NULL) {
        *f = (nw_folder){
            .path = f->path, .tmp = l.taken, .replace = replace, .lock = l.lock, .open = true};
        *taken = true;
        if (l.status != NW_OK) { /* another one is in the way: this one stays for later */
            nw_folder_keep(f);
            return l.status;
        }
        return NW_OK;
    }
    st = l.status == NW_OK ? make_folder(f, err) : l.status;
out:
    if (st != NW_OK) {
        nw_folder_close(f);
    }
    return st;
}

/* Work that could be gone on with, or what is of no use to anybody. */
static nw_partial keep_work(void *ctx, const char *folder, nw_error *err)
{
    (void)ctx;
    if (!holds(folder, NW_FOLDER_JOURNAL)) {
        return NW_PARTIAL_REMOVE;
    }
    (void)nw_fail(err, NW_E_IO,
                  "%s: unfinished work of narrow quantize stands there; finish it by its own "
                  "command, or remove it with --force",
                  folder);
    return NW_PARTIAL_REFUSE;
}

nw_status nw_folder_open(nw_folder *f, const char *path, bool replace, nw_error *err)
{
    bool taken = false;
    return nw_folder_resume(f, path, replace, keep_work, NULL, &taken, err);
}

nw_status nw_folder_inside(nw_folder *f, const char *dir, nw_error *err)
{
    *f = (nw_folder){.path = strdup(dir), .tmp = strdup(dir), .inside = true};
    if (f->path == NULL || f->tmp == NULL) {
        nw_folder_keep(f);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", dir);
    }
    return NW_OK;
}

/* Directory entries reach the disk only when the directory itself is synced. */
static nw_status sync_folder(const char *path, nw_error *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    nw_status st = NW_OK;

    if (fd < 0) {
        return io_fail(err, path, "open");
    }
    if (fsync(fd) != 0) {
        st = io_fail(err, path, "sync");
    }
    (void)close(fd);
    return st;
}

/* Its folder is built, or is to go: the lock has done its work. */
static void unlock(nw_folder *f)
{
    (void)close(f->lock);
    f->open = false;
}

/* Puts an existing folder aside, renames, removes the old one; puts it back if renaming fails. */
static nw_status swap_in(nw_folder *f, nw_error *err)
{
    const size_t n = strlen(f->tmp) + sizeof ".old";
    char *aside = calloc(1, n);
    nw_status st = NW_OK;

    if (aside == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", f->path);
    }
    (void)snprintf(aside, n, "%s.old", f->tmp);
    if (rename(f->path, aside) != 0) {
        st = io_fail(err, f->path, "put aside");
    } else if (rename(f->tmp, f->path) != 0) {
        st = io_fail(err, f->path, "rename into place");
        (void)rename(aside, f->path);
    } else {
        unlock(f);
        st = nw_folder_remove(aside, err);
    }
    free(aside);
    return st;
}

nw_status nw_folder_commit(nw_folder *f, nw_error *err)
{
    nw_status st = sync_folder(f->tmp, err);

    if (f->inside) {
        return st;
    }
    if (st == NW_OK) {
        st = refuse_existing(f->path, f->replace, err); /* it may have come while we worked */
    }
    if (st != NW_OK) {
        return st;
    }
    if (f->replace && nw_file_exists(f->path)) {
        return swap_in(f, err);
    }
    if (rename(f->tmp, f->path) != 0) {
        return io_fail(err, f->path, "rename into place");
    }
    unlock(f);
    return NW_OK;
}

void nw_folder_close(nw_folder *f)
{
    if (f->open) {
        nw_error ignored = {0};
        /* what cannot be removed stays under its .partial name, which nobody takes for a result */
        (void)(nw_folder_remove(f->tmp, &ignored) == NW_OK);
    }
    nw_folder_keep(f);
}

void nw_folder_keep(nw_folder *f)
{
    if (f->open) {
        unlock(f);
    }
    free(f->path);
    free(f->tmp);
    *f = (nw_folder){0};
}
