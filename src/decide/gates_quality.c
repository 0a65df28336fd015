/* Quality gates: the same items, or the same windows of text, seen by a candidate and its baseline.
 * Runs that do not pair are refused, a slice that is missing fails, and a baseline that cannot do the
 * task decides nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decide/gates.h"
#include "decide/pairs.h"
#include "stats/dist.h"
#include "stats/interval.h"

/* One slice under one gate. */
typedef struct {
    nw_record *rec;
    nw_decision *d;
    const nw_gate *g;
    size_t candidate;
    const nw_rec_run *base, *cand;
    double margin;
    nw_ni_options opt;
    nw_error *err;
} slice;

static nw_status no_memory(nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "no memory for the gates");
}

static nw_dec_verdict *add(const slice *s, const char *what)
{
    const size_t n = strlen(s->base->suite) + strlen(what) + 1;
    char *name = nw_arena_alloc(&s->d->arena, n);
    nw_dec_verdict *v = NULL;

    if (name != NULL) { /* whole: the slice is found again by it */
        (void)snprintf(name, n, "%s%s", s->base->suite, what);
        v = nw_gates_add(s->d, s->candidate, s->g, name);
    }
    if (v == NULL) {
        (void)no_memory(s->err);
    }
    return v;
}

static const char *advice(const slice *s, nw_verdict v)
{
    return v == NW_VERDICT_FAIL && s->g->advice != NULL ? s->g->advice : "";
}

/* How many more items, in words; "" where nothing is open. */
static const char *lacking(char buf[160], const nw_ni_result *r, const char *what)
{
    buf[0] = '\0';
    if (r->one_cluster) {
        (void)snprintf(buf, 160, "; one cluster has no variance");
    } else if (r->verdict == NW_VERDICT_INCONCLUSIVE && r->n_needed > r->n) {
        (void)snprintf(buf, 160, "; %zu more %s needed (%zu in all)", r->n_needed - r->n, what,
                       r->n_needed);
    } else if (r->verdict == NW_VERDICT_INCONCLUSIVE) {
        (void)snprintf(
            buf, 160,
            "; %zu %s tell no loss from the margin, but what was measured lies too close "
            "to it",
            r->n, what);
        const size_t n = strlen(buf);
        if (r->n_at_estimate > r->n && r->n_at_estimate < (size_t)1e9) {
            (void)snprintf(buf + n, 160 - n, ": about %zu would, if that is the truth",
                           r->n_at_estimate);
        }
    }
    return buf;
}

/* Copies a result in the unit that is printed; `sign` -1 turns "higher is better" into a loss. */
static void fill(nw_dec_verdict *v, const nw_ni_result *r, double scale, int sign, double margin)
{
    v->row.estimate = scale * (sign < 0 ? -r->estimate : r->estimate);
    v->row.lo = scale * (sign < 0 ? -r->hi : r->lo);
    v->row.hi = scale * (sign < 0 ? -r->lo : r->hi);
    v->row.margin = fabs(scale) * margin;
    v->row.p = r->p;
    v->row.n = (int64_t)r->n;
    v->row.n_needed = r->verdict == NW_VERDICT_INCONCLUSIVE ? (int64_t)r->n_needed : -1;
    v->p_fail = r->p_fail;
    v->headroom = fmin(1, 1 + r->lo / margin);
}

/* ---- tasks ---- */

/* Says why nothing can be computed, when that is so. */
static bool refused(const slice *s, const nw_paired_items *p, nw_dec_verdict *v)
{
    if (p->differs != NULL) {
        nw_gates_set(s->d, v, NW_VERDICT_INCONCLUSIVE,
                     "refused: the item sets differ ('%.60s' is in one of them only)", p->differs);
    } else if (p->pairs.n == 0) {
        nw_gates_set(s->d, v, NW_VERDICT_FAIL, "missing: no item was scored by both (%zu left out)",
                     p->n_left_out);
    } else {
        return false;
    }
    return true;
}

/* A baseline that does not beat a blind guess, or hardly ever succeeds, has nothing to lose. */
static bool at_chance(const slice *s, const nw_paired_items *p, nw_dec_verdict *v)
{
    const double n = (double)p->pairs.n;
    double right = 0;
    double chance = 0;

    for (size_t i = 0; i < p->pairs.n; i++) {
        right += p->base[i];
        chance += p->chance[i] / n;
    }
    const double z = nw_normal_quantile(1 - s->d->policy->alpha);
    const double lo = nw_wilson((uint64_t)fmin(right, n), p->pairs.n, z).lo;
    const double need = chance + s->d->policy->floor;
    if (lo > need && right > 0) {
        return false;
    }
    v->row.n = (int64_t)p->pairs.n;
    nw_gates_set(
        s->d, v, NW_VERDICT_INCONCLUSIVE,
        "baseline at chance: %.1f%% right of %zu, a guess gets %.1f%%; use an easier suite",
        100 * right / n, p->pairs.n, 100 * chance);
    return true;
}

static nw_status task_gate(const slice *s)
{
    const bool ratio = s->g->kind == NW_GATE_RELATIVE;
    nw_dec_verdict *v = add(s, "");
    nw_paired_items p;
    nw_ni_result r;
    char lack[160];

    if (v == NULL ||
        nw_pair_items(s->rec, s->base, s->cand, nw_item_score, &s->d->arena, &p, s->err) != NW_OK) {
        return s->err->code;
    }
    if (refused(s, &p, v) || at_chance(s, &p, v)) {
        return NW_OK;
    }
    const nw_status st = ratio ? nw_ni_ratio(&p.pairs, s->margin, &s->opt, &r, s->err)
                               : nw_ni_difference(&p.pairs, s->margin, &s->opt, &r, s->err);
    if (st != NW_OK) {
        return st;
    }
    fill(v, &r, 100, 1, s->margin);
    char left[64] = "";
    if (p.n_left_out > 0) {
        (void)snprintf(left, sizeof left, "; %zu items without a score left out", p.n_left_out);
    }
    nw_gates_set(s->d, v, r.verdict,
                 "%.1f%% to %.1f%%, %" PRIu64 " lost and %" PRIu64
                 " gained of %zu, design effect %.1f%s%s%s%s",
                 100 * r.base, 100 * r.cand, r.loss, r.gain, r.n, r.design_effect, left,
                 lacking(lack, &r, "items"), *advice(s, r.verdict) ? "; " : "",
                 advice(s, r.verdict));
    return NW_OK;
}

/* ---- length: two one-sided tests of a ratio ---- */

/* Sum of a over sum of b, candidate over baseline, must lie in 1 +- margin on both sides: the upper
 * side is the same test with the sides exchanged and the margin m/(1+m). */
static nw_status band(const slice *s, const nw_paired_items *p, double most, nw_dec_verdict *v,
                      const char *what)
{
    nw_ni_result low;
    nw_ni_result high;
    const nw_pairs turned = {p->pairs.n, p->pairs.n_clusters, p->cand, p->base, p->cluster};
    const double up = s->margin / (1 + s->margin);
    char lack[160];

    if (nw_ni_ratio(&p->pairs, s->margin, &s->opt, &low, s->err) != NW_OK ||
        nw_ni_ratio(&turned, up, &s->opt, &high, s->err) != NW_OK) {
        return s->err->code;
    }
    fill(v, &low, 100, 1, s->margin);
    v->headroom = fmin(v->headroom, fmin(1, 1 + high.lo / up));
    v->row.p = fmax(low.p, high.p);
    v->p_fail = fmin(1, 2 * fmin(low.p_fail, high.p_fail)); /* either of two sides fails */
    nw_verdict verdict = low.verdict == NW_VERDICT_FAIL || high.verdict == NW_VERDICT_FAIL
                             ? NW_VERDICT_FAIL
                             : NW_VERDICT_INCONCLUSIVE;
    if (low.verdict == NW_VERDICT_PASS && high.verdict == NW_VERDICT_PASS) {
        verdict = NW_VERDICT_PASS;
    }
    const nw_ni_result *open = low.verdict == NW_VERDICT_INCONCLUSIVE ? &low : &high;
    v->row.n_needed = verdict == NW_VERDICT_INCONCLUSIVE ? (int64_t)open->n_needed : -1;
    nw_gates_set(s->d, v, verdict, "%s %.3g to %.3g a reply, %zu replies%s%s%s", what,
                 most * low.base, most * low.cand, low.n,
                 verdict == NW_VERDICT_INCONCLUSIVE ? lacking(lack, open, "replies") : "",
                 *advice(s, verdict) ? "; " : "", advice(s, verdict));
    return NW_OK;
}

/* nw_ni_ratio takes values in [0, 1]: both sides are divided by the longest reply, which is returned;
 * 0 where there is no ratio. */
static double scale_to_unit(nw_paired_items *p)
{
    double most = 0;
    double base = 0;
    double cand = 0;

    for (size_t i = 0; i < p->pairs.n; i++) {
        most = fmax(most, fmax(p->base[i], p->cand[i]));
        base += p->base[i];
        cand += p->cand[i];
    }
    if (!(most > 0 && base > 0 && cand > 0)) {
        return 0;
    }
    for (size_t i = 0; i < p->pairs.n; i++) {
        p->base[i] /= most;
        p->cand[i] /= most;
    }
    return most;
}

static nw_status length_gate(const slice *s)
{
    static const struct {
        const char *slice, *what;
        nw_item_value value;
    } parts[] = {{" tokens", "tokens", nw_item_tokens},
                 {" bytes", "bytes", nw_item_bytes},
                 {" stops", "stops", nw_item_stop}};
    /* tokens of two tokenizers are two units */
    const size_t skipped = nw_data_other_tokenizer(s->base, s->cand) ? 0 : 1;

    for (size_t i = 0; i < NW_COUNT(parts); i++) {
        if (i == skipped) {
            continue;
        }
        nw_dec_verdict *v = add(s, parts[i].slice);
        nw_paired_items p;
        if (v == NULL || nw_pair_items(s->rec, s->base, s->cand, parts[i].value, &s->d->arena, &p,
                                       s->err) != NW_OK) {
            return s->err->code;
        }
        if (refused(s, &p, v)) {
            continue;
        }
        const double most = scale_to_unit(&p);
        if (most <= 0) {
            nw_gates_set(s->d, v, NW_VERDICT_INCONCLUSIVE, "no %s on one side: no ratio of them",
                         parts[i].what);
        } else if (band(s, &p, most, v, parts[i].what) != NW_OK) {
            return s->err->code;
        }
    }
    return NW_OK;
}

/* ---- windows of text ---- */

typedef struct {
    double *base, *cand, *count;
    size_t n;
    bool differs;
} window_sums;

static nw_status pair_windows(const slice *s, window_sums *w)
{
    nw_arena *arena = &s->d->arena;
    nw_dec_windows b;
    nw_dec_windows c;

    *w = (window_sums){0};
    if (nw_data_windows(s->rec, s->base->id, arena, &b, s->err) != NW_OK ||
        nw_data_windows(s->rec, s->cand->id, arena, &c, s->err) != NW_OK) {
        return s->err->code;
    }
    w->base = nw_arena_array(arena, c.n + 1, sizeof(double));
    w->cand = nw_arena_array(arena, c.n + 1, sizeof(double));
    w->count = nw_arena_array(arena, c.n + 1, sizeof(double));
    if (!w->base || !w->cand || !w->count) {
        return no_memory(s->err);
    }
    w->differs = b.n != c.n;
    for (size_t i = 0; i < c.n && !w->differs; i++) {
        w->differs =
            b.windows[i].window != c.windows[i].window || b.windows[i].count != c.windows[i].count;
        w->count[i] = c.windows[i].count;
        w->base[i] = s->g->kind == NW_GATE_PERPLEXITY ? b.windows[i].nll : 0;
        w->cand[i] = s->g->kind == NW_GATE_PERPLEXITY ? c.windows[i].nll
                     : s->g->kind == NW_GATE_KL       ? c.windows[i].kl
                                                      : c.windows[i].flips;
        w->n += isfinite(w->cand[i]) && isfinite(w->base[i]);
    }
    w->differs = w->differs || (w->n > 0 && w->n != c.n);
    return NW_OK;
}

static void say_window(const slice *s, nw_dec_verdict *v, const nw_ni_result *r, size_t n)
{
    char lack[160] = "";
    char common[96] = "";

    if (r->verdict == NW_VERDICT_INCONCLUSIVE && r->n_needed > n) {
        (void)snprintf(lack, sizeof lack, "; %zu more windows needed", r->n_needed - n);
    }
    if (s->g->kind != NW_GATE_PERPLEXITY) {
        nw_gates_set(s->d, v, r->verdict, "mean over %zu tokens in %zu windows%s", r->n, n, lack);
        return;
    }
    const double rise = exp(r->cand) - exp(r->base);
    const double allowed = nw_gates_margin(&s->d->candidates[s->candidate], s->g->increase);
    if (!isnan(allowed)) {
        (void)snprintf(common, sizeof common, ", the common rule allows +%.2f: %s", allowed,
                       rise <= allowed ? "met" : "not met");
    }
    nw_gates_set(s->d, v, r->verdict, "PPL %.3f to %.3f (%+.3f%s), %zu windows%s%s%s", exp(r->base),
                 exp(r->cand), rise, common, n, lack, *advice(s, r->verdict) ? "; " : "",
                 advice(s, r->verdict));
}

/* Perplexity, divergence and top-1 are figures of the tokens of one tokenizer. */
static nw_status not_comparable(const slice *s, nw_dec_verdict *v)
{
    double bits[2] = {(double)NAN, (double)NAN};

    if (nw_record_metric(s->rec, s->base->id, "bits_per_byte", &bits[0], s->err) != NW_OK ||
        nw_record_metric(s->rec, s->cand->id, "bits_per_byte", &bits[1], s->err) != NW_OK) {
        return s->err->code;
    }
    char figures[96] = "; no bits per byte in the record";
    if (!isnan(bits[0]) && !isnan(bits[1])) {
        (void)snprintf(figures, sizeof figures, ": bits per byte %.4f to %.4f (%+.4f)", bits[0],
                       bits[1], bits[1] - bits[0]);
    }
    nw_gates_set(s->d, v, NW_VERDICT_INCONCLUSIVE, "not comparable across two tokenizers%s",
                 figures);
    return NW_OK;
}

static nw_status window_gate(const slice *s)
{
    nw_dec_verdict *v = add(s, "");
    window_sums w;
    nw_ni_result r;

    if (v != NULL && nw_data_other_tokenizer(s->base, s->cand)) {
        return not_comparable(s, v);
    }
    if (v == NULL || pair_windows(s, &w) != NW_OK) {
        return s->err->code;
    }
    if (w.differs) {
        nw_gates_set(s->d, v, NW_VERDICT_INCONCLUSIVE,
                     "refused: the two runs did not score the same windows and tokens");
        return NW_OK;
    }
    if (w.n == 0) {
        nw_gates_set(s->d, v, NW_VERDICT_FAIL, "missing: no token of this run has a %s",
                     nw_gate_kind_name(s->g->kind));
        return NW_OK;
    }
    if (nw_ni_loss(w.base, w.cand, w.count, w.n, s->margin, &s->opt, &r, s->err) != NW_OK) {
        return s->err->code;
    }
    fill(v, &r, s->g->kind == NW_GATE_TOP1 ? 100 : 1, -1, s->margin);
    say_window(s, v, &r, w.n);
    return NW_OK;
}

/* ---- all slices of a gate ---- */

static nw_status missing(nw_decision *d, size_t candidate, const nw_gate *g, const char *name,
                         const char *why, nw_error *err)
{
    nw_dec_verdict *v = nw_gates_add(d, candidate, g, name);

    if (v == NULL) {
        return no_memory(err);
    }
    nw_gates_set(d, v, NW_VERDICT_FAIL, "missing: %s", why);
    return NW_OK;
}

/* What forbids the comparison; NULL: nothing. Windows of one text under two tokenizers have an answer of
 * their own (not_comparable), whose bits per byte can be set side by side. */
static const char *mismatch_of(const slice *s)
{
    const bool windows =
        s->g->kind == NW_GATE_PERPLEXITY || s->g->kind == NW_GATE_KL || s->g->kind == NW_GATE_TOP1;

    return windows && nw_data_same_data(s->base, s->cand) &&
                   nw_data_other_tokenizer(s->base, s->cand)
               ? NULL
               : nw_data_mismatch(s->base, s->cand);
}

static nw_status one_slice(slice *s)
{
    const char *why = s->base == NULL   ? "the baseline was not measured"
                      : s->cand == NULL ? "the candidate was not measured"
                                        : NULL;
    if (why != NULL) {
        const char *suite = s->base != NULL ? s->base->suite : s->cand->suite;
        const size_t absent = s->base == NULL ? 0 : s->candidate;
        char reason[256];
        const char *said = nw_data_absent(&s->d->candidates[absent], suite, reason, sizeof reason);
        why = said != NULL ? said : why;
        return missing(s->d, s->candidate, s->g, suite, why, s->err);
    }
    const char *mismatch = mismatch_of(s);
    if (mismatch != NULL) {
        nw_dec_verdict *v = add(s, "");
        if (v == NULL) {
            return s->err->code;
        }
        nw_gates_set(s->d, v, NW_VERDICT_INCONCLUSIVE, "refused: %s than the baseline's run",
                     mismatch);
        return NW_OK;
    }
    switch (s->g->kind) {
    case NW_GATE_ACCURACY:
    case NW_GATE_RELATIVE:
        return task_gate(s);
    case NW_GATE_LENGTH:
        return length_gate(s);
    case NW_GATE_PERPLEXITY:
    case NW_GATE_KL:
    case NW_GATE_TOP1:
        return window_gate(s);
    case NW_GATE_TTFT:
    case NW_GATE_TPOT:
    case NW_GATE_ATTAINMENT:
    case NW_GATE_SCALAR:
    case NW_GATE_COUNT:
        break;
    }
    return NW_OK;
}

/* Suites of the baseline and of the candidate that the gate names, each once, oldest first. */
static bool first_of_suite(const nw_decision *d, size_t i, const char *candidate)
{
    for (size_t k = 0; k < i; k++) {
        const nw_rec_run *r = &d->runs[k];
        if (strcmp(r->stage, "quality") == 0 && strcmp(r->suite, d->runs[i].suite) == 0 &&
            (strcmp(r->candidate, candidate) == 0 ||
             strcmp(r->candidate, d->candidates[0].name) == 0)) {
            return false;
        }
    }
    return true;
}

/* No run of the gate's suites on either side: what one of them says of that, or that there is none. */
static nw_status no_slice(const slice *s)
{
    char reason[256];
    const char *said =
        nw_data_absent(&s->d->candidates[s->candidate], s->g->suites, reason, sizeof reason);

    if (said == NULL) {
        said = nw_data_absent(&s->d->candidates[0], s->g->suites, reason, sizeof reason);
    }
    return missing(s->d, s->candidate, s->g, s->g->suites,
                   said != NULL ? said : "no run of such a suite", s->err);
}

static nw_status gate_of_candidate(slice *s)
{
    const nw_decision *d = s->d;
    const char *name = d->candidates[s->candidate].name;
    size_t n = 0;

    for (size_t i = 0; i < d->n_runs; i++) {
        const nw_rec_run *r = &d->runs[i];
        const bool ours =
            strcmp(r->candidate, name) == 0 || strcmp(r->candidate, d->candidates[0].name) == 0;
        if (!ours || strcmp(r->stage, "quality") != 0 || !nw_glob_match(s->g->suites, r->suite) ||
            !first_of_suite(d, i, name)) {
            continue;
        }
        n++;
        s->base = nw_gates_run(d, 0, "quality", r->suite);
        s->cand = nw_gates_run(d, s->candidate, "quality", r->suite);
        if (one_slice(s) != NW_OK) {
            return s->err->code;
        }
    }
    if (n == 0 && !s->g->optional) {
        return no_slice(s);
    }
    return NW_OK;
}

nw_status nw_gates_quality(nw_record *rec, nw_decision *d, nw_error *err)
{
    const nw_policy *p = d->policy;

    for (size_t c = 1; c < d->n_candidates; c++) {
        for (size_t i = 0; i < p->n_gates; i++) {
            slice s = {.rec = rec,
                       .d = d,
                       .g = &p->gates[i],
                       .candidate = c,
                       .margin = nw_gates_margin(&d->candidates[c], p->gates[i].margin),
                       .opt = {p->alpha, p->power, p->seed, p->draws},
                       .err = err};
            if (!nw_gate_is_speed(s.g->kind) && !isnan(s.margin) &&
                gate_of_candidate(&s) != NW_OK) {
                return nw_context(err, "gate '%s' of '%s'", s.g->name, d->candidates[c].name);
            }
        }
    }
    return NW_OK;
}
