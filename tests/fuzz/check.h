/* What a fuzz target asserts: the caller's invariants, in every build.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_FUZZ_CHECK_H
#define NW_TESTS_FUZZ_CHECK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define NW_CHECK(cond)                                                                 \
    do {                                                                               \
        if (!(cond)) {                                                                 \
            (void)fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond); \
            abort();                                                                   \
        }                                                                              \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
