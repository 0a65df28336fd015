/* Data that is shared with the tests and is no part of the sources: below $NARROW_SHARED, or beside
 * the source tree. A test that needs it and does not find it says so and is skipped.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_SHARED_H
#define NW_TESTS_SHARED_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NW_TEST_SKIPPED 77 /* exit code that ctest counts as skipped */

/* Writes the path of shared file `rel` to buf[n]. False, with the reason on stdout, where it is
 * absent: return NW_TEST_SKIPPED from main, or call skip() in a cmocka test. */
static inline bool nw_shared_path(const char *rel, char *buf, size_t n)
{
    const char *root = getenv("NARROW_SHARED");
    const int len = snprintf(buf, n, "%s/%s", root != NULL ? root : NW_SHARED_DIR, rel);

    if (len > 0 && (size_t)len < n && access(buf, R_OK) == 0) {
        return true;
    }
    (void)printf("skipped: no shared file %s (set NARROW_SHARED)\n", rel);
    return false;
}

#endif
