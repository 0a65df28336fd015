/* The arena: alignment, zeroes, room for large and many allocations, and sizes that do not exist.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <string.h>

#include "base/arena.h"
#include "table.h"

static struct row {
    const char *name;
    size_t n, size;
    bool fits;
} rows[] = {
    {"nothing_is_still_a_place", 0, 8, true},
    {"one_byte", 1, 1, true},
    {"a_cache_line", 1, 64, true},
    {"larger_than_any_block", 5, (size_t)1 << 20, true},
    {"product_overflows", SIZE_MAX / 2, 3, false},
    {"product_is_all_there_is", SIZE_MAX, 1, false},
    {"rounding_overflows", SIZE_MAX - 8, 1, false},
    {"header_overflows", SIZE_MAX - 128, 1, false},
};

static void arena_array(void **state)
{
    const struct row *r = *state;
    nw_arena a = {0};
    void *first = nw_arena_alloc(&a, 100);
    const size_t used = a.used_bytes;
    uint8_t *p = nw_arena_array(&a, r->n, r->size);

    assert_non_null(first);
    assert_int_equal(used, 128);
    assert_int_equal(p != NULL, r->fits);
    if (p == NULL) {
        assert_int_equal(a.used_bytes, used);
    } else {
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < r->n * r->size; i++) {
            assert_int_equal(p[i], 0);
        }
        memset(p, 0xff, r->n * r->size); /* ASan holds the bounds */
    }
    nw_arena_release(&a);
    assert_int_equal(a.used_bytes, 0);
    nw_arena_release(&a);
}

static void many_allocations_do_not_overlap(void **state)
{
    enum { N = 5000 };
    static uint8_t *p[N];
    nw_arena a = {0};

    (void)state;
    for (size_t i = 0; i < N; i++) {
        p[i] = nw_arena_alloc(&a, 1 + i % 200);
        assert_non_null(p[i]);
        memset(p[i], (int)(i % 251), 1 + i % 200);
    }
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(p[i][0], i % 251);
        assert_int_equal(p[i][i % 200], i % 251);
    }
    nw_arena_release(&a);
}

static void strndup_ends_with_nul(void **state)
{
    nw_arena a = {0};

    (void)state;
    assert_string_equal(nw_arena_strndup(&a, "tensor.name", 6), "tensor");
    assert_string_equal(nw_arena_strndup(&a, NULL, 0), "");
    assert_null(nw_arena_strndup(&a, "x", SIZE_MAX));
    nw_arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(many_allocations_do_not_overlap),
        cmocka_unit_test(strndup_ends_with_nul),
    };
    return NW_RUN_TABLE("arena", rows, arena_array) + cmocka_run_group_tests(others, NULL, NULL);
}
