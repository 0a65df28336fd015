/* The tables of `narrow bench`. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_BENCH_PRINT_H
#define NW_CLI_BENCH_PRINT_H

#include "bench/result.h"

void nw_bench_print_micro(const nw_micro_options *o, const nw_micro_result *r,
                          const nw_bench_costs *c);
/* The head of the table of windows, then a line for each. */
void nw_bench_print_load_head(const nw_load_options *o);
void nw_bench_print_load(const char *name, const nw_load_options *o, const nw_load_result *r);
void nw_bench_print_costs(const nw_bench_costs *c);

#endif
