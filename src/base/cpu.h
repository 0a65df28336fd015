/* What this processor and container may use: instruction sets by cpuid + xgetbv (or HWCAP), threads
 * by affinity and cgroup quota. NW_CPU_MASK in the environment hides features by name, so that one
 * machine can test every path it is able to run: a comma list such as "avx512vnni,avx512bf16", or
 * "ref" to hide all.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_CPU_H
#define NW_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#define NW_CPU_FEATURE_MAP(X)                                       \
    X(AVX2, 0, "avx2")       /* AVX2 + FMA + F16C */                \
    X(AVXVNNI, 1, "avxvnni") /* 256-bit vpdpbusd without AVX-512 */ \
    X(AVX512, 2, "avx512")   /* F + BW + DQ + VL */                 \
    X(AVX512VNNI, 3, "avx512vnni")                                  \
    X(AVX512VBMI, 4, "avx512vbmi")                                  \
    X(AVX512BF16, 5, "avx512bf16")                                  \
    X(NEON, 6, "neon")                                              \
    X(DOTPROD, 7, "dotprod")                                        \
    X(I8MM, 8, "i8mm")                                              \
    X(AMX, 9, "amx") /* tiles, of INT8 and of BF16; Linux lets this process use them */

typedef enum {
#define NW_CPU_ENUM(name, bit, text) NW_CPU_##name = 1 << (bit),
    NW_CPU_FEATURE_MAP(NW_CPU_ENUM)
#undef NW_CPU_ENUM
} nw_cpu_feature;

/* Features the CPU and the OS both support, less those in NW_CPU_MASK. Read once, cached. */
uint32_t nw_cpu_features(void);
/* "AMD EPYC (avx2 avx512 ...)"; static storage. */
const char *nw_cpu_describe(void);
/* Removes the features that a comma list names ("ref" removes all). False, and *features untouched,
 * where a name is unknown. */
bool nw_cpu_mask(const char *list, uint32_t *features);
/* Processors' worth of time that the cgroup of this process may use, 0 where there is no limit.
 * root is "/sys/fs/cgroup" and self "/proc/self/cgroup" outside of tests. */
double nw_cpu_quota(const char *root, const char *self);
/* min(affinity, floor(cgroup cpu quota)), at least 1. *why is a static sentence ("2 by affinity"). */
unsigned nw_cpu_threads(const char **why);

#endif
