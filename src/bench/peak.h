/* Peak of multiply-adds: independent chains of the instruction that the kernels are made of, with
 * nothing to load. The roof of prefill and of large batches, as bandwidth is that of decoding.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_PEAK_H
#define NW_BENCH_PEAK_H

#include "base/pool.h"

/* instruction, text */
#define NW_PEAK_MAP(X) \
    X(F32, "f32")      \
    X(BF16, "bf16")    \
    X(INT8, "int8")

typedef enum {
#define NW_PEAK_ENUM(name, text) NW_PEAK_##name,
    NW_PEAK_MAP(NW_PEAK_ENUM)
#undef NW_PEAK_ENUM
        NW_PEAK_COUNT
} nw_peak_kind;

const char *nw_peak_name(nw_peak_kind kind);
/* The instruction measured here ("vpdpbusd zmm"), NULL where this processor has none that is known. */
const char *nw_peak_instruction(nw_peak_kind kind);
/* Multiply-adds a second of the calling thread, by its CPU time: the best of several short rounds.
 * 0 without an instruction. Takes some milliseconds. */
double nw_peak_thread(nw_peak_kind kind);
/* The same of all threads of a pool together, each busy at the same time. */
double nw_peak_pool(nw_pool *pool, nw_peak_kind kind);

#endif
