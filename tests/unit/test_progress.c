/* What a terminal and a file see of a progress line. SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* posix_openpt; NOLINT(bugprone-reserved-identifier) */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/progress.h"
#include "table.h"

/* Runs one piece of work with stderr at `fd`, which is closed. */
static void work(int fd, uint64_t total, uint64_t first)
{
    const int kept = dup(STDERR_FILENO);
    nw_progress p;

    assert_true(fd >= 0 && kept >= 0);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    nw_progress_begin(&p, "count", "things", total);
    nw_progress_step(&p, first);
    nw_progress_step(&p, total);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    (void)close(kept);
    (void)close(fd);
}

static void terminal(void **state)
{
    char text[512] = "";
    size_t used = 0;
    const int master = posix_openpt(O_RDWR | O_NOCTTY);

    (void)state;
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        skip();
    }
    work(open(ptsname(master), O_RDWR | O_NOCTTY), 16800000, 837);
    for (ssize_t n = 1; n > 0 && used < sizeof text - 1;) { /* until the other end is closed */
        n = read(master, text + used, sizeof text - 1 - used);
        used += n > 0 ? (size_t)n : 0;
    }
    (void)close(master);
    assert_non_null(strstr(text, "count 837/16.8M things  "));
    assert_non_null(strstr(text, "count 16.8M/16.8M things  "));
    assert_non_null(strstr(text, "  0 s left\r\n"));
}

static void short_work_leaves_nothing_in_a_file(void **state)
{
    FILE *file = tmpfile();

    (void)state;
    assert_non_null(file);
    work(dup(fileno(file)), 1000, 600);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    assert_int_equal(ftell(file), 0);
    (void)fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terminal),
        cmocka_unit_test(short_work_leaves_nothing_in_a_file),
    };

    nw_log_set_level(NW_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
