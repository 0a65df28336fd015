/* NW_CLONES before a function: it is compiled for AVX-512, for AVX2 and for what every processor of the
 * family has, and the program takes the best that the processor knows when it starts. For straight
 * arithmetic on rows of floats: products and sums are IEEE ones and are never contracted
 * (-ffp-contract=off), so that all copies give the same bits. Helpers that are to be copied along are
 * NW_INLINE. Nothing under sanitizers, whose run-time is not there yet when the choice is made, nor
 * with other compilers than gcc: the plain copy alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_CLONES_H
#define NW_BASE_CLONES_H

#include <stddef.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define NW_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define NW_CLONES
#endif

#if defined(__GNUC__)
#define NW_INLINE static inline __attribute__((always_inline))
#else
#define NW_INLINE static inline
#endif

#endif
