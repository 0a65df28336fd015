/* What a run costs the machine: processor time of the client, memory of the server's process, energy
 * by RAPL. Each is measured or says why not; nothing is guessed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_USAGE_H
#define NW_BENCH_USAGE_H

#include <sys/types.h>

#include "base/status.h"

double nw_client_cpu_s(void); /* user + system time of this process */

/* VmHWM and VmRSS of a process of this machine, in bytes. False: no such process, or not ours. */
bool nw_process_memory(pid_t pid, uint64_t *peak_rss_bytes, uint64_t *rss_bytes);
/* The peak from here on: clears VmHWM. False where the kernel refuses. */
bool nw_process_peak_reset(pid_t pid);

/* Package energy counters of the powercap tree; wrap-around is accounted for. */
typedef struct {
    struct {
        char path[96];
        uint64_t last_uj, range_uj, sum_uj;
    } zones[16];
    size_t n_zones;
    const char *why_not; /* NULL when it measures: "no RAPL", "RAPL not readable" */
} nw_energy;

void nw_energy_begin(nw_energy *e, const char *root); /* NULL: /sys/class/powercap */
void nw_energy_sample(nw_energy *e);         /* at least once a minute, so that no wrap is missed */
double nw_energy_joules(const nw_energy *e); /* since begin; NaN when it does not measure */

#endif
