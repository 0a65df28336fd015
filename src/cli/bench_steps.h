/* narrow bench --regime steps: the engine alone. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_BENCH_STEPS_H
#define NW_CLI_BENCH_STEPS_H

#include "cli/bench_run.h"

/* The longest prompt and output of the ranges count. */
NW_MUST_USE nw_status nw_bench_steps(const nw_args *args, nw_token_range prompt,
                                     nw_token_range output, nw_error *err);

#endif
