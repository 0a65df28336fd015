/* Time is CLOCK_MONOTONIC, or the thread's own. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_CLOCK_H
#define NW_BASE_CLOCK_H

#include <stdint.h>

int64_t nw_now_ns(void);
double nw_now_s(void);
/* CPU time of the calling thread, in seconds: what a neighbour on the machine takes is not in it. */
double nw_thread_cpu_s(void);
/* Sleeps until nw_now_ns() >= t_ns. */
void nw_sleep_until_ns(int64_t t_ns);
/* "2026-11-30T04:05:06Z" into buf[21]; wall clock, for records and logs only. */
const char *nw_utc_now(char buf[21]);

#endif
