/* As much of cmocka as the tests of formats and kernels use, for processors whose libcmocka is not at
 * hand: a failed assertion prints where and what, ends its test, and counts.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_ARM_CMOCKA_H
#define NW_TESTS_ARM_CMOCKA_H

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};

static jmp_buf nw_shim_end; /* of the test that runs */

#define fail_msg(...)                                                          \
    (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), printf("\n"), \
     longjmp(nw_shim_end, 1))

#define assert_true(x)         ((x) ? (void)0 : fail_msg("%s", #x))
#define assert_false(x)        assert_true(!(x))
#define assert_null(p)         assert_true((p) == NULL)
#define assert_non_null(p)     assert_true((p) != NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b)        \
    ((long long)(a) == (long long)(b) \
         ? (void)0                    \
         : fail_msg("%s is %lld, not %lld", #a, (long long)(a), (long long)(b)))
#define assert_string_equal(a, b) \
    (strcmp(a, b) == 0 ? (void)0 : fail_msg("%s is \"%s\", not \"%s\"", #a, a, b))
#define assert_memory_equal(a, b, n) \
    (memcmp(a, b, n) == 0 ? (void)0 : fail_msg("%s differs from %s", #a, #b))

/* The tests that failed. */
static inline int _cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests,
                                          size_t n, CMFixtureFunction setup,
                                          CMFixtureFunction teardown)
{
    volatile int failed = 0;

    (void)setup;
    (void)teardown;
    for (volatile size_t i = 0; i < n; i++) {
        void *state = tests[i].initial_state;
        if (setjmp(nw_shim_end) == 0) {
            tests[i].test_func(&state);
        } else {
            printf("FAILED: %s, %s\n", group, tests[i].name);
            failed++;
        }
    }
    printf("%s: %zu tests, %d failed\n", group, n, failed);
    return failed;
}

#define cmocka_unit_test(f)     \
    {                           \
#f, f, NULL, NULL, NULL \
    }
#define cmocka_run_group_tests_name(group, tests, setup, teardown) \
    _cmocka_run_group_tests(group, tests, sizeof(tests) / sizeof(tests)[0], setup, teardown)
#define cmocka_run_group_tests(tests, setup, teardown) \
    cmocka_run_group_tests_name(#tests, tests, setup, teardown)

#endif
