/* A mapped file whose pages are replaced by huge ones has the same bytes at the same addresses.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <sys/mman.h>

#include "base/huge.h"
#include "base/rng.h"
#include "suite_dir.h"

enum { SIZE = (21 << 20) + 12345, IN_FIRST_RUN = 5 << 20 };

static int setup(void **state)
{
    (void)state;
    dir = nw_tmpdir_make();
    return 0;
}

/* madvise takes a plain pointer, and writes nothing through it. */
static void *map_of(const nw_file *f)
{
    void *map = NULL;

    memcpy(&map, &f->data, sizeof map);
    return map;
}

static void same_bytes_same_place(void **state)
{
    uint8_t *bytes = malloc(SIZE);
    char path[512];
    nw_file f = {0};
    nw_pool *pool = NULL;
    nw_error err = {0};

    (void)state;
    assert_non_null(bytes);
    nw_rng rng = nw_rng_seed(7);
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (uint8_t)nw_rng_u64(&rng);
    }
    (void)nw_tmpdir_put(&dir, "f", bytes, SIZE, path, sizeof path);
    must(nw_file_map(path, &f, &err), &err);
    must(nw_pool_open(2, &pool, &err), &err);
    const void *const at = f.data;
    nw_huge h = {0};
    assert_false(nw_huge_go_on(&h, &f, SIZE + 1, 0, pool)); /* smaller than asked for */
    assert_true(h.decided && h.next == 0 && h.n_pages == 0);
    assert_int_equal(madvise(map_of(&f), SIZE, MADV_NOHUGEPAGE), 0); /* mapped in small pages */
    assert_memory_equal(f.data, bytes, SIZE);
    h = (nw_huge){0};
    (void)nw_huge_go_on(&h, &f, 1, 0,
                        NULL); /* a run of pages, and no more where it has no huge ones */
    assert_true(h.n_pages >= 9 && (h.next == 4 || h.next == h.n_pages));
    assert_memory_equal(f.data, bytes, SIZE);
    assert_false(nw_huge_go_on(&h, &f, 1, 1e9, pool));
    assert_true(h.next == h.n_pages);
    FILE *fp = fopen(path, "r+b"); /* what was copied does not see the file change */
    assert_non_null(fp);
    assert_int_equal(fseek(fp, IN_FIRST_RUN, SEEK_SET), 0);
    assert_int_equal(fputc(bytes[IN_FIRST_RUN] ^ 1, fp), bytes[IN_FIRST_RUN] ^ 1);
    assert_int_equal(fclose(fp), 0);
    assert_ptr_equal(f.data, at);
    assert_memory_equal(f.data, bytes, SIZE);
    nw_file_unmap(&f);
    nw_pool_close(pool);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bytes_same_place)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
