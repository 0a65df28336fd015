/* A folder of its own for a test, removed with its files at the end.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_TMPDIR_H
#define NW_TESTS_TMPDIR_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char path[256];
} nw_tmpdir;

/* Ends the test program where there is no folder to be had. */
static inline nw_tmpdir nw_tmpdir_make(void)
{
    nw_tmpdir d;
    const char *base = getenv("TMPDIR");

    (void)snprintf(d.path, sizeof d.path, "%.200s/nw-test-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(d.path) == NULL) {
        perror("mkdtemp");
        exit(1);
    }
    return d;
}

/* The path of `name` in the folder, in storage of the caller. */
static inline const char *nw_tmpdir_file(const nw_tmpdir *d, const char *name, char *buf, size_t n)
{
    (void)snprintf(buf, n, "%s/%s", d->path, name);
    return buf;
}

/* Writes n bytes to `name` in the folder and puts the path into buf. */
static inline const char *nw_tmpdir_put(const nw_tmpdir *d, const char *name, const void *bytes,
                                        size_t n, char *buf, size_t n_buf)
{
    FILE *fp = fopen(nw_tmpdir_file(d, name, buf, n_buf), "wb");

    if (fp == NULL || fwrite(bytes, 1, n, fp) != n || fclose(fp) != 0) {
        perror(buf);
        exit(1);
    }
    return buf;
}

/* How many entries the folder holds, which shows what a failed writer left behind. */
static inline int nw_tmpdir_count(const nw_tmpdir *d)
{
    DIR *dir = opendir(d->path);
    int n = 0;

    for (struct dirent *e = NULL; dir != NULL && (e = readdir(dir)) != NULL;) {
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 ? 1 : 0;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return n;
}

static inline void nw_tmpdir_remove_at(const char *path, int depth)
{
    DIR *dir = depth < 8 ? opendir(path) : NULL;

    for (struct dirent *e = NULL; dir != NULL && (e = readdir(dir)) != NULL;) {
        char sub[4096];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        const int len = snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        if (len > 0 && (size_t)len < sizeof sub && unlink(sub) != 0) {
            nw_tmpdir_remove_at(sub, depth + 1);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    (void)rmdir(path);
}

static inline void nw_tmpdir_remove(const nw_tmpdir *d)
{
    nw_tmpdir_remove_at(d->path, 0);
}

#endif
