/* How the vector tiers write loops that vanish: functions that are always inlined with constant
 * tile sizes, and loops over those sizes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_UNROLL_H
#define NW_KERNELS_UNROLL_H

#define NW_INLINE static inline __attribute__((always_inline))

/* A loop over 0 .. n - 1 that is unrolled whole: n is a constant where the function is inlined. */
#if defined(__clang__)
#define NW_EACH(i, n) _Pragma("unroll") for (unsigned i = 0; i < (n); i++)
#else
#define NW_EACH(i, n) _Pragma("GCC unroll 24") for (unsigned i = 0; i < (n); i++)
#endif

#endif
