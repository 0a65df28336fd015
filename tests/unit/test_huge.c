/* A mapped file whose pages are replaced by huge ones has the same bytes at the same addresses.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <sys/mman.h>

#include "base/huge.h"
#include "base/rng.h"
#include "suite_dir.h"

enum { SIZE = (9 << 20) + 12345 };

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
    assert_int_equal(nw_file_to_huge(&f, SIZE + 1, pool), 0);        /* smaller than asked for */
    assert_int_equal(madvise(map_of(&f), SIZE, MADV_NOHUGEPAGE), 0); /* mapped in small pages */
    const size_t n = nw_file_to_huge(&f, 1, pool);
    assert_true(n % ((size_t)2 << 20) == 0 && n > 0 && n <= SIZE);
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
