/* The steps of the search, and what holds: see stable.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/stable.h"

#include <stdio.h>

#include "stats/interval.h"

#define MAX_DRIFT     0.10
#define MIN_COMPLETED 0.98
#define CLOSE         1.05
#define HIGHEST       1e5 /* requests/s that are tried at most */
#define LOWEST        8   /* and at least the first rate over this */
#define Z_95          1.644854

double nw_stable_most_attainment(double n)
{
    return n >= 1 ? nw_wilson((uint64_t)n, (uint64_t)n, Z_95).lo : 0;
}

bool nw_stable_held(const nw_load_result *r, double attainment, char why[160])
{
    const nw_bench_summary *s = &r->summary;
    const nw_steady d = nw_load_steady(r);
    const double completed =
        s->n_scheduled > 0 ? (double)s->received_completions / (double)s->n_scheduled : 0;
    const double least = s->n_scheduled > 0 ? nw_wilson(s->n_good, s->n_scheduled, Z_95).lo : 0;

    why[0] = '\0';
    if (!s->valid) {
        (void)snprintf(why, 160, "%.150s", s->why_invalid);
    } else if (d.steady < 0) {
        (void)snprintf(why, 160, "too few answers to tell: %zu", s->n_ok);
    } else if (!(completed >= MIN_COMPLETED)) {
        (void)snprintf(why, 160, "completions are %.3f of the arrivals, %g are needed", completed,
                       MIN_COMPLETED);
    } else if (!(d.in_flight_drift_hi <= MAX_DRIFT)) {
        (void)snprintf(why, 160, "requests in flight drift by up to %.2f of their mean, %g may be",
                       d.in_flight_drift_hi, MAX_DRIFT);
    } else if (!(d.ttft_drift_hi <= MAX_DRIFT)) {
        (void)snprintf(why, 160, "TTFT drifts by up to %.2f of its mean, %g may be",
                       d.ttft_drift_hi, MAX_DRIFT);
    } else if (!(least >= attainment)) {
        (void)snprintf(why, 160, "attainment is at least %.3f, %g is asked for", least, attainment);
    }
    return why[0] == '\0';
}

void nw_stable_begin(nw_stable_search *s, double first)
{
    *s = (nw_stable_search){.first = first, .next = first};
}

/* The highest held rate below hi; 0: none. */
static double best_below(const nw_stable_search *s)
{
    double best = 0;

    for (unsigned i = 0; i < s->n_held; i++) {
        if (s->held[i] < s->hi && s->held[i] > best) {
            best = s->held[i];
        }
    }
    return best;
}

static void choose(nw_stable_search *s, double tried)
{
    if (s->hi <= 0) {
        s->next = 2 * tried <= HIGHEST ? 2 * tried : 0;
    } else if (s->lo <= 0) {
        s->next = s->hi / 2 >= s->first / LOWEST ? s->hi / 2 : 0;
    } else if (s->hi / s->lo > CLOSE) {
        s->next = (s->lo + s->hi) / 2;
    } else {
        s->next = s->lo;
        s->confirming = true;
        s->n_confirmed = 0;
    }
}

void nw_stable_tell(nw_stable_search *s, bool held)
{
    const double tried = s->next;
    const bool confirming = s->confirming;

    s->n_tries++;
    if (confirming && held) {
        s->n_confirmed++;
        s->found = s->n_confirmed == NW_STABLE_CONFIRMATIONS;
    } else if (held) {
        s->held[s->n_held++] = tried;
        s->lo = tried;
    } else {
        s->confirming = false;
        s->hi = tried;
        s->lo = best_below(s);
    }
    if (s->found) {
        s->next = 0;
    } else if (!(confirming && held)) {
        choose(s, tried);
    }
    if (s->n_tries == NW_STABLE_MAX_TRIES) {
        s->next = 0;
    }
}
