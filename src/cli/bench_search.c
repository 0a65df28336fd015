/* narrow bench --regime load --search: windows at one rate after the other until the highest that the service
 * holds is known; what it means is said in bench/stable.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "bench/stable.h"
#include "cli/bench_print.h"
#include "cli/bench_run.h"

/* Of the last window that was held. */
typedef struct {
    double in_flight, rate_x_e2e; /* time mean; arrivals/s x mean E2E: the same by Little's law */
    char why[160];                /* of the lowest that was not held, or of the end of the search */
} facts;

static void take_facts(const nw_load_result *r, bool held, facts *f, const char *why)
{
    const nw_bench_summary *s = &r->summary;

    if (held) {
        f->in_flight = s->mean_in_flight;
        f->rate_x_e2e = s->request_rate_asked * s->e2e_ms.mean * 1e-3;
    } else {
        (void)snprintf(f->why, sizeof f->why, "%s", why);
    }
}

/* More arrivals than a schedule may hold, above rates that all were held: nothing higher can be tried. */
static nw_status at_the_top(nw_stable_search *s, facts *f, nw_error *err)
{
    if (err->code == NW_E_RANGE && s->n_held > 0 && s->hi <= 0) {
        (void)snprintf(f->why, sizeof f->why, "every rate was held; %.120s", err->message);
        s->next = 0;
        *err = (nw_error){0};
        return NW_OK;
    }
    return err->code;
}

static nw_status try_rate(nw_bench *b, nw_stable_search *s, facts *f, json_t *list, nw_error *err)
{
    nw_load_options o = nw_bench_load_options(b);
    nw_arrivals arrivals = {0};
    nw_load_result r;
    char name[96];
    char why[160];

    if (nw_bench_arrivals(b->args, s->next, s->n_tries, &o, &arrivals, &o.window_s, err) != NW_OK) {
        return at_the_top(s, f, err);
    }
    (void)snprintf(name, sizeof name, "%s %.3f", s->confirming ? "again" : "rate", s->next);
    nw_progress_begin(&b->progress, name, "requests", arrivals.n);
    const nw_status st = nw_load_run(b->service.target, &arrivals, &o, &r, err);
    nw_arrivals_release(&arrivals);
    if (st != NW_OK) {
        return nw_context(err, "%s", name);
    }
    if (r.summary.n_ok == 0 && s->n_held == 0) {
        nw_load_result_release(&r);
        return nw_fail(err, NW_E_NETWORK, "%s: no request was answered", name);
    }
    const bool held = nw_stable_held(&r, nw_args_double(b->args, "attainment"), why);
    if (b->args->json) {
        json_t *row = nw_load_json(&o, &r);
        (void)json_object_set_new(row, "name", json_string(name));
        (void)json_object_set_new(row, "held", json_boolean(held));
        (void)json_object_set_new(row, "why", json_string(why));
        (void)json_array_append_new(list, row);
    } else {
        nw_bench_print_load(name, &o, &r);
        (void)printf("  %s%s\n", held ? "held" : "not held: ", why);
    }
    take_facts(&r, held, f, why);
    nw_stable_tell(s, held);
    nw_load_result_release(&r);
    return NW_OK;
}

static void conclude(const nw_bench *b, const nw_stable_search *s, const facts *f, json_t *list)
{
    const double apart = fabs(f->rate_x_e2e / f->in_flight - 1);

    if (b->args->json) {
        json_t *costs = nw_bench_costs_json(&b->costs);
        (void)json_object_update(b->out, costs);
        json_decref(costs);
        (void)json_object_set_new(b->out, "regime", json_string("load"));
        (void)json_object_set_new(b->out, "stable_rps", s->found ? json_real(s->lo) : json_null());
        (void)json_object_set_new(b->out, "unstable_rps",
                                  s->hi > 0 ? json_real(s->hi) : json_null());
        (void)json_object_set_new(b->out, "in_flight",
                                  s->found ? json_real(f->in_flight) : json_null());
        (void)json_object_set_new(b->out, "rate_x_e2e",
                                  s->found ? json_real(f->rate_x_e2e) : json_null());
        (void)json_object_set_new(b->out, "why", json_string(f->why));
        (void)json_object_set(b->out, "windows", list);
        return;
    }
    if (s->found) {
        (void)printf(
            "highest stable rate %.3f requests/s, held on %u further arrival files; %.3f is not: "
            "%s\n  in flight %.2f in the mean; rate x E2E %.2f%s\n",
            s->lo, s->n_confirmed, s->hi, f->why, f->in_flight, f->rate_x_e2e,
            apart <= 0.02 ? "" : ": more than 2 % apart, so the window is no steady state");
    } else {
        (void)printf("highest stable rate INCONCLUSIVE after %u windows: %s\n", s->n_tries,
                     f->why[0] != '\0' ? f->why : "every rate was held");
    }
    nw_bench_print_costs(&b->costs);
}

/* Refuses what no window could show. */
static nw_status check_asked(const nw_args *a, double first, nw_error *err)
{
    const double duration = nw_args_double(a, "duration");
    const double n = duration > 0 ? duration * first : (double)nw_args_int(a, "requests");
    const double asked = nw_args_double(a, "attainment");
    const double most = nw_stable_most_attainment(n);
    const bool poisson =
        nw_args_given(a, "process") && strcmp(nw_args_str(a, "process"), "poisson") == 0;

    if (asked > most) {
        return nw_fail(err, NW_E_USAGE,
                       "--attainment %g: the lower bound of %.0f requests that are all good is "
                       "%.4f, and is below 1 for any number",
                       asked, n, most);
    }
    if (poisson && n < NW_STABLE_MIN_POISSON) {
        return nw_fail(err, NW_E_USAGE,
                       "--search with --process poisson: a window of %.0f requests drifts by "
                       "chance, at least %d are needed",
                       n, NW_STABLE_MIN_POISSON);
    }
    return NW_OK;
}

nw_status nw_bench_search(nw_bench *b, nw_error *err)
{
    const nw_load_options o = nw_bench_load_options(b);
    const double rate = nw_args_double(b->args, "rate");
    const double first = rate > 0 ? rate : 1;
    nw_stable_search s;
    facts f = {.why = ""};

    nw_status st = check_asked(b->args, first, err);
    if (st == NW_OK) {
        st = nw_bench_open_service(b, err);
    }
    json_t *list = json_array();
    if (!b->args->json && st == NW_OK) {
        nw_bench_print_load_head(&o);
    }
    nw_stable_begin(&s, first);
    while (st == NW_OK && s.next > 0) {
        st = try_rate(b, &s, &f, list, err);
    }
    if (st == NW_OK) {
        st = nw_bench_finish_run(b, err);
    }
    if (st == NW_OK) {
        conclude(b, &s, &f, list);
    }
    json_decref(list);
    return st;
}
