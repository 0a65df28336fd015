/* Files: what is refused and with which words, writers that leave nothing unless they commit, and
 * the edges of path names.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "table.h"
#include "tmpdir.h"

static struct row {
    const char *name;
    const char *dir, *leaf, *want;
} rows[] = {
    {"plain", "a", "b", "a/b"},    {"slash_is_not_doubled", "a/", "b", "a/b"},
    {"root", "/", "b", "/b"},      {"empty_folder_is_here", "", "b", "b"},
    {"empty_name", "a", "", "a/"},
};

static void path_join(void **state)
{
    const struct row *r = *state;
    char *path = nw_path_join(r->dir, r->leaf);
    assert_string_equal(path, r->want);
    free(path);
}

static void map_shows_the_bytes(void **state)
{
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    nw_file f = {0};
    nw_error err;

    (void)state;
    nw_tmpdir_put(&d, "a", "x\0y", 3, path, sizeof path);
    assert_int_equal(nw_file_map(path, &f, &err), NW_OK);
    assert_int_equal(f.size, 3);
    assert_memory_equal(f.data, "x\0y", 3);
    assert_string_equal(f.path, path);
    nw_file_unmap(&f);
    nw_file_unmap(&f);

    nw_tmpdir_put(&d, "empty", "", 0, path, sizeof path);
    assert_int_equal(nw_file_map(path, &f, &err), NW_OK);
    assert_int_equal(f.size, 0);
    assert_null(f.data);
    nw_file_unmap(&f);
    nw_tmpdir_remove(&d);
}

static void what_is_no_file_is_refused(void **state)
{
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    nw_file f = {0};
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_file_map(d.path, &f, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "a directory, where a file is needed"));
    assert_int_equal(mkfifo(nw_tmpdir_file(&d, "pipe", path, sizeof path), 0600), 0);
    assert_int_equal(nw_file_map(path, &f, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "device or pipe"));
    assert_int_equal(nw_file_map(nw_tmpdir_file(&d, "none", path, sizeof path), &f, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "none: cannot open: No such file or directory"));
    assert_null(f.path);
    nw_tmpdir_remove(&d);
}

static void read_holds_its_limit(void **state)
{
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    char *data = NULL;
    size_t len = 0;
    nw_error err = {0};

    (void)state;
    nw_tmpdir_put(&d, "a", "12345", 5, path, sizeof path);
    assert_int_equal(nw_file_read(path, 5, &data, &len, &err), NW_OK);
    assert_int_equal(len, 5);
    assert_string_equal(data, "12345");
    free(data);
    data = NULL;
    assert_int_equal(nw_file_read(path, 4, &data, &len, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "5 bytes, at most 4 allowed"));
    assert_null(data);
    nw_tmpdir_remove(&d);
}

static void uncommitted_leaves_nothing(void **state)
{
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    nw_writer w = {0};
    nw_error err;

    (void)state;
    nw_tmpdir_file(&d, "out", path, sizeof path);
    assert_int_equal(nw_writer_open(&w, path, &err), NW_OK);
    assert_int_equal(nw_writer_write(&w, "half", 4, &err), NW_OK);
    assert_false(nw_file_exists(path));
    nw_writer_close(&w);
    nw_writer_close(&w);
    assert_int_equal(nw_tmpdir_count(&d), 0);
    nw_tmpdir_remove(&d);
}

static void uncommitted_keeps_the_old_file(void **state)
{
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    char *data = NULL;
    size_t len = 0;
    nw_writer w = {0};
    nw_error err;

    (void)state;
    nw_tmpdir_put(&d, "out", "old", 3, path, sizeof path);
    assert_int_equal(nw_writer_open(&w, path, &err), NW_OK);
    assert_int_equal(nw_writer_write(&w, "new", 3, &err), NW_OK);
    nw_writer_close(&w);
    assert_int_equal(nw_file_read(path, 100, &data, &len, &err), NW_OK);
    assert_string_equal(data, "old");
    free(data);
    nw_tmpdir_remove(&d);
}

static void committed_is_whole_and_alone(void **state)
{
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    char *data = NULL;
    size_t len = 0;
    nw_writer w = {0};
    nw_error err;

    (void)state;
    nw_tmpdir_put(&d, "out", "old", 3, path, sizeof path);
    assert_int_equal(nw_writer_open(&w, path, &err), NW_OK);
    assert_int_equal(nw_writer_write(&w, "abc", 3, &err), NW_OK);
    assert_int_equal(nw_writer_pad(&w, 8, &err), NW_OK);
    assert_int_equal(nw_writer_pad(&w, 8, &err), NW_OK);
    assert_int_equal(w.written_bytes, 8);
    assert_int_equal(nw_writer_pad(&w, 10000, &err), NW_OK);
    assert_int_equal(nw_writer_commit(&w, &err), NW_OK);
    nw_writer_close(&w);
    assert_int_equal(nw_tmpdir_count(&d), 1);
    assert_int_equal(nw_file_read(path, 20000, &data, &len, &err), NW_OK);
    assert_int_equal(len, 10000);
    assert_memory_equal(data, "abc\0\0\0\0\0", 8);
    free(data);
    nw_tmpdir_remove(&d);
}

static void writer_refuses_bad_places(void **state)
{
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    nw_writer w = {0};
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_writer_open(&w, d.path, &err), NW_E_IO);
    nw_writer_close(&w);
    nw_tmpdir_file(&d, "no/such/folder", path, sizeof path);
    assert_int_equal(nw_file_write(path, "x", 1, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "no/such/folder: cannot create: No such file"));
    nw_tmpdir_remove(&d);
}

static void mkdirs_makes_the_whole_path(void **state)
{
    const nw_tmpdir d = nw_tmpdir_make();
    char path[512];
    nw_error err = {0};

    (void)state;
    nw_tmpdir_file(&d, "a//b/c/", path, sizeof path);
    assert_int_equal(nw_file_mkdirs(path, &err), NW_OK);
    assert_true(nw_file_is_dir(path));
    assert_int_equal(nw_file_mkdirs(path, &err), NW_OK);
    nw_tmpdir_put(&d, "file", "", 0, path, sizeof path);
    nw_tmpdir_file(&d, "file/sub", path, sizeof path);
    assert_int_equal(nw_file_mkdirs(path, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "file: cannot make the directory: File exists"));
    nw_tmpdir_remove(&d);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(map_shows_the_bytes),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(read_holds_its_limit),
        cmocka_unit_test(uncommitted_leaves_nothing),
        cmocka_unit_test(uncommitted_keeps_the_old_file),
        cmocka_unit_test(committed_is_whole_and_alone),
        cmocka_unit_test(writer_refuses_bad_places),
        cmocka_unit_test(mkdirs_makes_the_whole_path),
    };
    return NW_RUN_TABLE("path_join", rows, path_join) + cmocka_run_group_tests(others, NULL, NULL);
}
