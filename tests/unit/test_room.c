/* What a control group has left: pages of files are there for whoever needs them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/room.h"
#include "base/status.h"
#include "table.h"
#include "tmpdir.h"

#define MIB ((uint64_t)1 << 20)

static struct row {
    const char *name;
    const char *max, *current, *stat; /* NULL: no such file */
    uint64_t want;
} rows[] = {
    {"no_limit", "max\n", "1048576\n", "file 0\n", UINT64_MAX},
    {"no_group", NULL, NULL, NULL, UINT64_MAX},
    {"no_use_told", "4194304\n", NULL, NULL, UINT64_MAX},
    {"rest", "8388608\n", "3145728\n", "anon 3145728\nactive_file 0\ninactive_file 0\n", 5 * MIB},
    {"no_stat", "8388608\n", "3145728\n", NULL, 5 * MIB},
    {"page_cache_is_free", "8388608\n", "7340032\n",
     "anon 1048576\nfile 6291456\ninactive_file 4194304\nactive_file 2097152\n", 7 * MIB},
    {"cache_of_more_than_there_is", "8388608\n", "1048576\n",
     "inactive_file 4194304\nactive_file 4194304\n", 8 * MIB},
    {"over_the_limit", "1048576\n", "3145728\n", "inactive_file 0\n", 0},
};

static void room_of_a_group(void **state)
{
    const struct row *r = *state;
    const nw_tmpdir dir = nw_tmpdir_make();
    const struct {
        const char *name, *text;
    } files[] = {{"memory.max", r->max}, {"memory.current", r->current}, {"memory.stat", r->stat}};
    char path[512];

    for (size_t i = 0; i < NW_COUNT(files); i++) {
        if (files[i].text != NULL) {
            (void)nw_tmpdir_put(&dir, files[i].name, files[i].text, strlen(files[i].text), path,
                                sizeof path);
        }
    }
    (void)nw_tmpdir_file(&dir, "", path, sizeof path);
    assert_true(nw_room_group(path) == r->want);
    nw_tmpdir_remove(&dir);
}

static void this_machine_has_some(void **state)
{
    (void)state;
    assert_true(nw_room_memory() > MIB);
    assert_true(nw_room_disk("no/such/folder") != UINT64_MAX); /* by the folder that exists */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(this_machine_has_some)};
    return NW_RUN_TABLE("room", rows, room_of_a_group) + cmocka_run_group_tests(tests, NULL, NULL);
}
