/* Result folders that appear whole: what stands under the final name, and what becomes of folders
 * that a killed process left behind.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "artifact/folder.h"
#include "base/file.h"
#include "suite_dir.h"
#include "table.h"

static void put(const char *folder, const char *name)
{
    nw_error err = {0};
    char *path = nw_path_join(folder, name);
    must(nw_file_write(path, "x", 1, &err), &err);
    free(path);
}

/* What a killed run left is removed by the next one of that name; what a running one holds stays,
 * and so does a folder of another name. */
static void a_killed_runs_folder_is_removed_by_the_next(void **state)
{
    static const char *const names[] = {"k.partial-dead00", "k.partial-alive0",
                                        "kk.partial-dead00"};
    nw_error err = {0};
    nw_folder f = {0};

    (void)state;
    for (size_t i = 0; i < NW_COUNT(names); i++) {
        must(nw_file_mkdirs(in_dir(names[i]), &err), &err);
        put(in_dir(names[i]), "model.safetensors");
    }
    const int held = open(in_dir(names[1]), O_RDONLY | O_DIRECTORY);
    assert_true(held >= 0 && flock(held, LOCK_EX | LOCK_NB) == 0);
    must(nw_folder_open(&f, in_dir("k"), false, &err), &err);
    assert_false(nw_file_exists(in_dir(names[0])));
    assert_true(nw_file_exists(in_dir(names[1])));
    assert_true(nw_file_exists(in_dir(names[2])));
    assert_int_equal(close(held), 0);
    nw_folder_close(&f);
}

/* Two at once under one name: the second leaves the first alone, and each can end. */
static void a_running_folder_is_left_alone(void **state)
{
    nw_error err = {0};
    nw_folder a = {0};
    nw_folder b = {0};

    (void)state;
    must(nw_folder_open(&a, in_dir("two"), false, &err), &err);
    must(nw_folder_open(&b, in_dir("two"), true, &err), &err);
    put(a.tmp, "manifest.json");
    assert_false(nw_file_exists(in_dir("two")));
    must(nw_folder_commit(&a, &err), &err);
    assert_true(nw_file_exists(in_dir("two")));
    put(b.tmp, "manifest.json");
    must(nw_folder_commit(&b, &err), &err);
    nw_folder_close(&a);
    nw_folder_close(&b);
    assert_true(nw_file_exists(in_dir("two")));
}

/* What a stopped quantize finished is not thrown away by the next command that writes there. */
static void finished_work_is_left_alone(void **state)
{
    nw_error err = {0};
    nw_folder f = {0};

    (void)state;
    must(nw_file_mkdirs(in_dir("w.partial-stoppd"), &err), &err);
    put(in_dir("w.partial-stoppd"), "journal.jsonl");
    assert_int_equal(nw_folder_open(&f, in_dir("w"), false, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "w.partial-stoppd: "));
    assert_non_null(strstr(err.message, "--force"));
    assert_true(nw_file_exists(in_dir("w.partial-stoppd")));
    must(nw_folder_open(&f, in_dir("w"), true, &err), &err);
    assert_false(nw_file_exists(in_dir("w.partial-stoppd")));
    nw_folder_close(&f);
}

static void closing_without_commit_leaves_nothing(void **state)
{
    nw_error err = {0};
    nw_folder f = {0};
    const int before = nw_tmpdir_count(&dir);

    (void)state;
    must(nw_folder_open(&f, in_dir("none"), false, &err), &err);
    put(f.tmp, "a");
    assert_int_equal(nw_tmpdir_count(&dir), before + 1);
    nw_folder_close(&f);
    assert_int_equal(nw_tmpdir_count(&dir), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_runs_folder_is_removed_by_the_next),
        cmocka_unit_test(a_running_folder_is_left_alone),
        cmocka_unit_test(finished_work_is_left_alone),
        cmocka_unit_test(closing_without_commit_leaves_nothing),
    };
    dir = nw_tmpdir_make();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nw_tmpdir_remove(&dir);
    return failed;
}
