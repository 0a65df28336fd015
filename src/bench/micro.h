/* Batch 1: one request after the other, alone on the service. Closed loop, so s = d.
 * decode tokens/s of a request = (n - 1) / (l - f); prefill tokens/s = prompt tokens / (f - d), which
 * is meaningful at batch 1 only and includes the first token's step. Reported: medians over requests.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_MICRO_H
#define NW_BENCH_MICRO_H

#include "bench/prompts.h"
#include "bench/rows.h"

typedef struct {
    uint32_t n_prompt, n_output; /* tokens of each request */
    uint32_t n_warmup, n_requests;
    uint64_t seed;
    bool natural_stop; /* false: ignore_eos, for speed; true: for equality of service */
    void (*on_tick)(void *ctx, size_t n_done, size_t n_total); /* NULL: not wanted */
    void *ctx;
} nw_micro_options;

typedef struct {
    nw_bench_rows rows; /* measured requests, without the warm-up */
    nw_bench_dist decode_tokens_per_s, prefill_tokens_per_s; /* p50 is the headline */
    nw_bench_summary summary; /* the window is the whole measured span */
    double wall_s, client_cpu_s;
} nw_micro_result; /* all zero may be released */

NW_MUST_USE nw_status nw_micro_run(nw_target *t, const nw_micro_options *opt, nw_micro_result *out,
                                   nw_error *err);
void nw_micro_result_release(nw_micro_result *r);

#endif
