/* Processor time, memory and energy from the kernel's counters.
 * Sources: proc(5) for status and clear_refs; Documentation/power/powercap for the energy zones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/usage.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

double nw_client_cpu_s(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

bool nw_process_memory(pid_t pid, uint64_t *peak_rss_bytes, uint64_t *rss_bytes)
{
    char path[64];
    char line[256];
    int found = 0;

    (void)snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            *peak_rss_bytes = strtoull(line + 6, NULL, 10) * 1024;
            found++;
        } else if (strncmp(line, "VmRSS:", 6) == 0) {
            *rss_bytes = strtoull(line + 6, NULL, 10) * 1024;
            found++;
        }
    }
    (void)fclose(f);
    return found == 2;
}

bool nw_process_peak_reset(pid_t pid)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%ld/clear_refs", (long)pid);
    FILE *f = fopen(path, "we");
    if (f == NULL) {
        return false;
    }
    const bool ok = fputs("5", f) >= 0;
    return fclose(f) == 0 && ok;
}

static bool read_u64(const char *path, uint64_t *out)
{
    char text[32] = "";
    FILE *f = fopen(path, "re");

    if (f == NULL) {
        return false;
    }
    const bool ok = fgets(text, sizeof text, f) != NULL && text[0] >= '0' && text[0] <= '9';
    (void)fclose(f);
    if (ok) {
        *out = strtoull(text, NULL, 10);
    }
    return ok;
}

/* Zones "intel-rapl:N" are whole packages; their children are parts of them and not added. */
void nw_energy_begin(nw_energy *e, const char *root)
{
    const char *base = root != NULL ? root : "/sys/class/powercap";

    *e = (nw_energy){.why_not = "no RAPL"};
    for (int i = 0; i < (int)NW_COUNT(e->zones); i++) {
        char path[160];
        uint64_t now = 0;
        uint64_t range = 0;
        (void)snprintf(path, sizeof path, "%s/intel-rapl:%d/max_energy_range_uj", base, i);
        if (!read_u64(path, &range)) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/intel-rapl:%d/energy_uj", base, i);
        if (strlen(path) >= sizeof e->zones[0].path || !read_u64(path, &now)) {
            e->why_not = "RAPL not readable";
            continue;
        }
        memcpy(e->zones[e->n_zones].path, path, strlen(path) + 1);
        e->zones[e->n_zones].last_uj = now;
        e->zones[e->n_zones].range_uj = range;
        e->n_zones++;
    }
    if (e->n_zones > 0) {
        e->why_not = NULL;
    }
}

void nw_energy_sample(nw_energy *e)
{
    for (size_t i = 0; i < e->n_zones; i++) {
        uint64_t now = 0;
        if (!read_u64(e->zones[i].path, &now)) {
            e->why_not = "RAPL not readable";
            continue;
        }
        const uint64_t last = e->zones[i].last_uj;
        e->zones[i].sum_uj += now >= last ? now - last : e->zones[i].range_uj - last + now;
        e->zones[i].last_uj = now;
    }
}

double nw_energy_joules(const nw_energy *e)
{
    double sum = 0;

    if (e->why_not != NULL) {
        return (double)NAN;
    }
    for (size_t i = 0; i < e->n_zones; i++) {
        sum += 1e-6 * (double)e->zones[i].sum_uj;
    }
    return sum;
}
