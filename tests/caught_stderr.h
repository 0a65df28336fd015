/* What a piece of work says on stderr, for tests of warnings.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_CAUGHT_STDERR_H
#define NW_TESTS_CAUGHT_STDERR_H

#include <stdio.h>
#include <unistd.h>

#include "table.h"

/* Sends stderr to a file of its own; *kept gets what it was. */
static inline FILE *catch_stderr(int *kept)
{
    FILE *file = tmpfile();

    assert_non_null(file);
    *kept = dup(STDERR_FILENO);
    assert_true(*kept >= 0);
    assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
    return file;
}

/* Puts stderr back; text gets what was written in between. */
static inline void caught(FILE *file, int kept, char *text, size_t size)
{
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    (void)close(kept);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    (void)fclose(file);
}

#endif
