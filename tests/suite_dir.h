/* The folder that all tests of one program share, made by its setup and removed by its teardown.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_SUITE_DIR_H
#define NW_TESTS_SUITE_DIR_H

#include "base/file.h"
#include "base/hash.h"
#include "table.h"
#include "tmpdir.h"

static nw_tmpdir dir;

/* A path in the folder; the last eight stay good. */
static inline const char *in_dir(const char *name)
{
    static char paths[8][512];
    static int i;

    i = (i + 1) % 8;
    return nw_tmpdir_file(&dir, name, paths[i], sizeof paths[i]);
}

static inline void must(nw_status st, const nw_error *err)
{
    if (st != NW_OK) {
        fail_msg("%s", err->message);
    }
}

/* The file `name` has the same bytes in the folders a and b. */
static inline void assert_same_file(const char *a, const char *b, const char *name)
{
    char path[2][512];
    nw_error err = {0};
    nw_digest digest[2];

    (void)snprintf(path[0], sizeof path[0], "%s/%s/%s", dir.path, a, name);
    (void)snprintf(path[1], sizeof path[1], "%s/%s/%s", dir.path, b, name);
    must(nw_digest_file(path[0], &digest[0], &err), &err);
    must(nw_digest_file(path[1], &digest[1], &err), &err);
    assert_string_equal(digest[0].hex, digest[1].hex);
}

static inline int teardown(void **state)
{
    (void)state;
    nw_tmpdir_remove(&dir);
    return 0;
}

#endif
