/* Monotonic time for measurements, wall clock for records: see clock.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define NS_PER_S 1000000000

int64_t nw_now_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

double nw_now_s(void)
{
    return (double)nw_now_ns() / NS_PER_S;
}

double nw_thread_cpu_s(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / NS_PER_S;
}

void nw_sleep_until_ns(int64_t t_ns)
{
    if (t_ns <= 0) {
        return;
    }
    const struct timespec t = {.tv_sec = t_ns / NS_PER_S, .tv_nsec = t_ns % NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
        /* a signal came first; the deadline is absolute, so waiting again is exact */
    }
}

const char *nw_utc_now(char buf[21])
{
    const time_t now = time(NULL);
    struct tm utc = {0};

    if (gmtime_r(&now, &utc) == NULL || strftime(buf, 21, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) {
        memcpy(buf, "1970-01-01T00:00:00Z", 21);
    }
    return buf;
}
