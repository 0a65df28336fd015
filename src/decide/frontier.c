/* Points of a frontier with their uncertainty. What is drawn with replacement are arrival files when
 * there are five or more, and otherwise the requests of the run, whose interval leaves out how much
 * one run differs from the next; the draws are the same for all candidates.
 * SPDX-License-Identifier: Apache-2.0 */
#include "decide/frontier.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decide/gates.h"
#include "stats/bootstrap.h"
#include "stats/summary.h"

#define MIN_FILES    5
#define BYTES_PER_MB 1e6

enum { OBJ_FIRST, OBJ_TTFT, OBJ_TPOT, OBJ_MEMORY, OBJ_QUALITY, OBJ_COUNT };

typedef struct {
    nw_decision *d;
    nw_dec_frontier *f;
    nw_dec_speed *speed; /* [n_candidates] over the common workload */
    nw_dec_speed *best;  /* [n_candidates] at the measured rate of most goodput: what a machine can
                          * earn with this candidate, where the common rate is what the baseline can */
    double *imputed;     /* [n_candidates] success rate multiplied into the goodput; 1: none */
    double *imputed_by;  /* [n_draws][n_candidates] the same in each draw of the clusters */
    double q;            /* percentile of TTFT and TPOT */
    bool graded;         /* requests carry their own grade */
    bool memory_known;   /* of all that are measured; otherwise memory is no objective */
    double *scratch;     /* values of one draw, of the longest run */
    uint32_t *idx, *files;
} regime_ctx;

static nw_status no_memory(nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "no memory for a frontier");
}

/* ---- one draw of one candidate ---- */

static double percentile_of(double *x, size_t n, double q)
{
    if (n == 0) {
        return (double)INFINITY;
    }
    nw_sort(x, n);
    return nw_percentile(x, n, q);
}

static double percentile_by(const regime_ctx *c, const nw_dec_speed *s, size_t n, bool tpot)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        const nw_dec_request *q = &s->requests[c->idx[i]];
        const double ms = tpot ? q->tpot_ms : q->ttft_ms;
        if (q->ok && !isnan(ms)) {
            c->scratch[k++] = ms;
        }
    }
    return percentile_of(c->scratch, k, c->q);
}

/* Latency over requests idx[0..n) of the common workload; the first objective at batch 1 as well. */
static void latencies(const regime_ctx *c, size_t candidate, size_t n, double *value)
{
    const nw_dec_speed *s = &c->speed[candidate];
    double e2e = 0;
    double n_ok = 0;

    for (size_t i = 0; i < n; i++) {
        const nw_dec_request *q = &s->requests[c->idx[i]];
        if (q->ok && !isnan(q->e2e_ms)) {
            e2e += q->e2e_ms;
            n_ok += 1;
        }
    }
    value[OBJ_TTFT] = percentile_by(c, s, n, false);
    value[OBJ_TPOT] = percentile_by(c, s, n, true);
    value[OBJ_FIRST] = n_ok > 0 ? e2e / n_ok : (double)INFINITY;
}

/* Useful requests a second over requests idx[0..n) of run s; imputed: success rate of those that carry
 * no grade. */
static double goodput(const regime_ctx *c, const nw_dec_speed *s, size_t n, double imputed)
{
    const nw_regime_rule *slo = &c->d->policy->regimes[c->f->regime];
    double good = 0;

    for (size_t i = 0; i < n; i++) {
        const nw_dec_request *q = &s->requests[c->idx[i]];
        if (nw_request_good(q, slo)) {
            good += c->graded ? q->correct == 1 : imputed;
        }
    }
    return s->window_s > 0 ? good / s->window_s : 0;
}

/* Indices of draw b: requests, or all requests of the files drawn; at most 4 n of them, which a draw
 * of equal files never reaches. */
static size_t draw_indices(const regime_ctx *c, const nw_dec_speed *s, size_t b)
{
    const uint64_t seed = c->d->policy->seed;
    size_t n = 0;

    if (s->n_files < MIN_FILES) {
        nw_boot_indices(seed, b, s->n, c->idx);
        return s->n;
    }
    nw_boot_indices(seed, b, s->n_files, c->files);
    for (size_t k = 0; k < s->n_files; k++) {
        size_t file = 0;
        for (size_t i = 0; i < s->n && n < 4 * s->n; i++) {
            file += i > 0 && s->requests[i].file_no != s->requests[i - 1].file_no;
            if (file == c->files[k]) {
                c->idx[n++] = (uint32_t)i;
            }
        }
    }
    return n;
}

static size_t all_indices(const regime_ctx *c, const nw_dec_speed *s)
{
    for (size_t i = 0; i < s->n; i++) {
        c->idx[i] = (uint32_t)i;
    }
    return s->n;
}

static double cost_of(nw_regime r, double first)
{
    if (r == NW_REGIME_BATCH1) {
        return first;
    }
    return first > 0 ? 1 / first : (double)INFINITY;
}

static void draw_candidate(const regime_ctx *c, size_t candidate, nw_dec_draws *w)
{
    const size_t m = c->d->n_candidates;
    const bool batch1 = c->f->regime == NW_REGIME_BATCH1;
    nw_dec_point *p = &c->f->points[candidate];
    const nw_dec_speed *s = &c->speed[candidate];
    const nw_dec_speed *best = &c->best[candidate];
    double value[OBJ_COUNT];

    latencies(c, candidate, all_indices(c, s), value);
    if (!batch1) {
        value[OBJ_FIRST] = goodput(c, best, all_indices(c, best), c->imputed[candidate]);
        p->goodput_at_rps = best->offered_rps;
    }
    p->cost = cost_of(c->f->regime, value[OBJ_FIRST]);
    for (size_t k = 0; k < OBJ_MEMORY; k++) {
        p->objectives[k].value = value[k];
    }
    for (size_t b = 0; b < w->n_draws; b++) {
        double *at = w->values + (b * m + candidate) * OBJ_COUNT;
        latencies(c, candidate, draw_indices(c, s, b), at);
        if (!batch1) {
            const double imputed = c->imputed_by[b * m + candidate];
            at[OBJ_FIRST] = goodput(c, best, draw_indices(c, best, b), imputed);
        }
        w->cost[b * m + candidate] = cost_of(c->f->regime, at[OBJ_FIRST]);
        at[OBJ_MEMORY] = c->memory_known ? p->objectives[OBJ_MEMORY].value : 0;
    }
}

/* ---- what does not change from draw to draw ---- */

static void name_objectives(const regime_ctx *c, nw_dec_point *p)
{
    const bool batch1 = c->f->regime == NW_REGIME_BATCH1;
    const bool p99 = c->q > 0.95;
    const char *first = batch1      ? "time per request"
                        : c->graded ? "useful goodput"
                                    : "useful goodput (imputed)";

    if (!batch1 && !c->graded && c->imputed[0] >= 1) {
        first = "goodput";
    }
    p->objectives[OBJ_FIRST] = (nw_dec_objective){first, batch1 ? "ms" : "1/s", !batch1, 0, 0, 0};
    p->objectives[OBJ_TTFT] = (nw_dec_objective){
        batch1 ? "p50 TTFT" : p99 ? "p99 TTFT" : "p90 TTFT", "ms", false, 0, 0, 0};
    p->objectives[OBJ_TPOT] = (nw_dec_objective){
        batch1 ? "p50 TPOT" : p99 ? "p99 TPOT" : "p90 TPOT", "ms", false, 0, 0, 0};
    p->objectives[OBJ_MEMORY] = (nw_dec_objective){"memory", "MB", false, 0, 0, 0};
    p->objectives[OBJ_QUALITY] = (nw_dec_objective){"worst slice", "%", true, 0, 0, 0};
}

/* Resident memory at its peak where it was measured, the weights where it was not. */
static nw_status memory_of(nw_record *rec, const nw_rec_run *run, const nw_rec_candidate *cand,
                           double *mb, nw_error *err)
{
    double bytes = (double)NAN;
    nw_status st = nw_record_metric(rec, run->id, "peak_rss_bytes", &bytes, err);

    if (isnan(bytes) && cand->weight_bytes > 0) {
        bytes = (double)cand->weight_bytes;
    }
    *mb = bytes / BYTES_PER_MB; /* NaN: not known */
    return st;
}

static void add_interval(const nw_dec_draws *w, size_t m, size_t candidate, size_t k,
                         double *column, double *lo, double *hi)
{
    for (size_t b = 0; b < w->n_draws; b++) {
        column[b] = k < OBJ_COUNT ? w->values[(b * m + candidate) * OBJ_COUNT + k]
                                  : w->cost[b * m + candidate];
    }
    const nw_interval ci = nw_boot_bounds(column, w->n_draws, 0.025);
    *lo = ci.lo;
    *hi = ci.hi;
}

static nw_status quality_of(nw_record *rec, const regime_ctx *c, size_t candidate, nw_dec_draws *w,
                            double *column, nw_error *err)
{
    const size_t m = c->d->n_candidates;
    double value = 0;

    memset(column, 0, w->n_draws * sizeof *column); /* the baseline is what is compared with */
    if (candidate > 0 &&
        nw_gates_quality_draws(rec, c->d, candidate, w->n_draws, column, &value, err) != NW_OK) {
        return err->code;
    }
    for (size_t b = 0; b < w->n_draws; b++) {
        /* a draw without a right answer of the baseline has no ratio */
        const double x = isfinite(column[b]) ? column[b] : value;
        w->values[(b * m + candidate) * OBJ_COUNT + OBJ_QUALITY] = isnan(value) ? 0 : 100 * x;
    }
    c->f->points[candidate].objectives[OBJ_QUALITY].value = 100 * value;
    return NW_OK;
}

/* ---- the regime ---- */

/* What the intervals leave out and what the figures rest on. */
static const char *note_of(const nw_dec_speed *base)
{
#define FEW                                                                                  \
    "fewer than 5 arrival files: intervals leave out how runs differ, a lower bound on the " \
    "uncertainty"
#define UNSTEADY                                                                                 \
    "the windows of the baseline at this rate were not all steady: it may not hold for longer, " \
    "or they were too short to tell"
    static const char *const notes[2][2] = {{NULL, UNSTEADY}, {FEW, FEW "; " UNSTEADY}};
#undef FEW
#undef UNSTEADY
    return notes[base->n_files < MIN_FILES][base->steady == 0];
}

static nw_status describe(regime_ctx *c, const nw_dec_speed *base, nw_error *err)
{
    char text[256];
    nw_dec_frontier *f = c->f;

    if (f->regime == NW_REGIME_BATCH1) {
        (void)snprintf(text, sizeof text, "%s, one request at a time, %zu requests",
                       base->run->suite, base->n);
    } else {
        (void)snprintf(
            text, sizeof text,
            "%s, latency at %.2f requests/s (%zu requests, %zu arrival file%s), goodput at "
            "each one's best measured rate",
            base->run->suite, base->offered_rps, base->n, base->n_files,
            base->n_files == 1 ? "" : "s");
    }
    f->operating = nw_arena_strndup(&c->d->arena, text, strlen(text));
    f->cost_name = f->regime == NW_REGIME_BATCH1 ? "time per request" : "machine time per request";
    f->cost_unit = f->regime == NW_REGIME_BATCH1 ? "ms" : "s";
    if (f->regime == NW_REGIME_SATURATED) {
        f->note = note_of(base);
    }
    return f->operating == NULL ? no_memory(err) : NW_OK;
}

/* The load run of most goodput among the candidate's newest of each workload. */
static nw_status best_run(nw_record *rec, regime_ctx *c, size_t candidate, nw_error *err)
{
    const nw_decision *d = c->d;
    const nw_regime_rule *slo = &d->policy->regimes[c->f->regime];
    double most = -1;

    c->best[candidate] = c->speed[candidate];
    for (size_t i = 0; c->f->regime == NW_REGIME_SATURATED && i < d->n_runs; i++) {
        const nw_rec_run *r = &d->runs[i];
        nw_dec_speed s;
        double good = 0;
        if (strcmp(r->candidate, d->candidates[candidate].name) != 0 ||
            strcmp(r->stage, "load") != 0 || nw_gates_same_load(d, candidate, r) != r) {
            continue;
        }
        if (nw_data_speed(rec, r, &c->d->arena, &s, err) != NW_OK) {
            return err->code;
        }
        for (size_t k = 0; k < s.n; k++) {
            good += nw_request_good(&s.requests[k], slo);
        }
        if (s.window_s > 0 && good / s.window_s > most) {
            most = good / s.window_s;
            c->best[candidate] = s;
        }
    }
    return NW_OK;
}

/* Of every candidate that is compared; a value that is not there must not look like the least. */
static bool memory_is_known(const regime_ctx *c)
{
    bool known = true;

    for (size_t i = 0; i < c->d->n_candidates; i++) {
        const nw_dec_point *p = &c->f->points[i];
        known = known && !(p->measured && isnan(p->objectives[OBJ_MEMORY].value));
    }
    return known;
}

static nw_status read_runs(nw_record *rec, regime_ctx *c, const nw_rec_run *operating,
                           nw_error *err)
{
    size_t least = SIZE_MAX;

    c->graded = true;
    for (size_t i = 0; i < c->d->n_candidates; i++) {
        const nw_rec_run *run = nw_gates_same_load(c->d, i, operating);
        nw_dec_speed *s = &c->speed[i];
        if (run == NULL) {
            continue;
        }
        if (nw_data_speed(rec, run, &c->d->arena, s, err) != NW_OK ||
            nw_gates_success_draws(rec, c->d, i, c->d->policy->frontier_draws, c->imputed_by + i,
                                   &c->imputed[i], err) != NW_OK ||
            best_run(rec, c, i, err) != NW_OK ||
            memory_of(rec, run, &c->d->candidates[i], &c->f->points[i].objectives[OBJ_MEMORY].value,
                      err) != NW_OK) {
            return err->code;
        }
        c->f->points[i].measured = s->n > 0;
        least = s->n > 0 && s->n < least ? s->n : least;
        for (size_t k = 0; k < c->best[i].n; k++) {
            c->graded = c->graded && c->best[i].requests[k].correct >= 0;
        }
    }
    c->memory_known = memory_is_known(c);
    c->q = c->f->regime == NW_REGIME_BATCH1 ? 0.5 : least >= NW_P99_MIN_N ? 0.99 : 0.9;
    return NW_OK;
}

static nw_status measure_points(nw_record *rec, regime_ctx *c, nw_dec_draws *w, nw_error *err)
{
    const size_t m = c->d->n_candidates;
    double *column = calloc(w->n_draws, sizeof *column);
    nw_status st = column == NULL ? no_memory(err) : NW_OK;

    for (size_t i = 0; st == NW_OK && i < m; i++) {
        nw_dec_point *p = &c->f->points[i];
        const double mb = p->objectives[OBJ_MEMORY].value;
        if (!p->measured) {
            continue;
        }
        name_objectives(c, p);
        p->objectives[OBJ_MEMORY].value = mb;
        draw_candidate(c, i, w);
        st = quality_of(rec, c, i, w, column, err);
        for (size_t k = 0; st == NW_OK && k < OBJ_COUNT; k++) {
            add_interval(w, m, i, k, column, &p->objectives[k].lo, &p->objectives[k].hi);
        }
        add_interval(w, m, i, OBJ_COUNT, column, &p->cost_lo, &p->cost_hi);
    }
    free(column);
    return st;
}

static bool room_for_draws(regime_ctx *c)
{
    size_t most = 1;
    for (size_t i = 0; i < c->d->n_candidates; i++) {
        most = c->speed[i].n > most ? c->speed[i].n : most;
        most = c->best[i].n > most ? c->best[i].n : most;
    }
    c->scratch = nw_arena_array(&c->d->arena, most, 4 * sizeof *c->scratch);
    c->idx = nw_arena_array(&c->d->arena, most, 4 * sizeof *c->idx);
    c->files = nw_arena_array(&c->d->arena, most, sizeof *c->files);
    return c->scratch != NULL && c->idx != NULL && c->files != NULL;
}

/* Room for points, runs and draws; all but the draws in the arena. */
static bool room_for_points(regime_ctx *c, nw_dec_draws *w)
{
    nw_arena *arena = &c->d->arena;
    const size_t m = c->d->n_candidates;

    c->f->missing = json_array();
    c->f->points = nw_arena_array(arena, m, sizeof *c->f->points);
    c->speed = nw_arena_array(arena, m, sizeof *c->speed);
    c->best = nw_arena_array(arena, m, sizeof *c->best);
    c->imputed = nw_arena_array(arena, m, sizeof *c->imputed);
    c->imputed_by = nw_arena_array(arena, w->n_draws, m * sizeof *c->imputed_by);
    w->values = calloc(w->n_draws, m * OBJ_COUNT * sizeof *w->values);
    w->cost = calloc(w->n_draws, m * sizeof *w->cost);
    return c->f->missing && c->f->points && c->speed && c->best && c->imputed && c->imputed_by &&
           w->values && w->cost;
}

nw_status nw_frontier_measure(nw_record *rec, nw_decision *d, nw_regime r, nw_dec_draws *draws,
                              nw_error *err)
{
    const size_t m = d->n_candidates;
    nw_dec_frontier *f = &d->regimes[r];
    const nw_rec_run *operating = NULL;
    regime_ctx c = {.d = d, .f = f};

    *draws = (nw_dec_draws){.n_draws = d->policy->frontier_draws};
    f->regime = r;
    f->n_objectives = OBJ_COUNT;
    if (!room_for_points(&c, draws)) {
        return no_memory(err);
    }
    for (size_t i = 0; i < m; i++) {
        f->points[i] = (nw_dec_point){.candidate = i,
                                      .p_frontier = (double)NAN,
                                      .dominated_by = SIZE_MAX,
                                      .fallback_share = (double)NAN};
        c.imputed[i] = 1;
    }
    nw_status st = nw_gates_operating(rec, d, r, &operating, err);
    if (st != NW_OK || operating == NULL) {
        return st;
    }
    st = read_runs(rec, &c, operating, err);
    st = st == NW_OK ? describe(&c, &c.speed[0], err) : st;
    if (st == NW_OK && !room_for_draws(&c)) {
        st = no_memory(err);
    }
    return st == NW_OK ? measure_points(rec, &c, draws, err) : st;
}

void nw_dec_draws_release(nw_dec_draws *draws)
{
    free(draws->values);
    free(draws->cost);
    *draws = (nw_dec_draws){0};
}
