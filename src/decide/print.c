/* A decision for people and for machines. Each gate is a row with its figure, its bounds, what is
 * allowed and how many items stand behind it, and under it the reason in words.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "decide/decide.h"

/* ---- text ---- */

/* "-1.23", or "-" where there is no figure. */
static const char *number(char buf[32], double v, const char *fmt)
{
    if (isnan(v)) {
        (void)snprintf(buf, 32, "-");
    } else if (isinf(v)) {
        (void)snprintf(buf, 32, v > 0 ? "no bound" : "-no bound");
    } else if (strcmp(fmt, "%+.*f") == 0) {
        (void)snprintf(buf, 32, "%+.*f", fabs(v) < 0.1 ? 4 : 2, v);
    } else {
        (void)snprintf(buf, 32, "%.*f", fabs(v) < 0.1 ? 4 : fabs(v) < 100 ? 2 : 1, v);
    }
    return buf;
}

/* How a gate's margin reads: a loss of at most, a band, a limit. */
static void allowed(char buf[48], const nw_dec_verdict *v)
{
    char m[32];

    if (isnan(v->row.margin)) {
        (void)snprintf(buf, 48, "-");
        return;
    }
    (void)number(m, v->row.margin, "%.*f");
    switch (v->gate->kind) {
    case NW_GATE_ACCURACY:
    case NW_GATE_RELATIVE:
        (void)snprintf(buf, 48, "> -%s %s", m, v->row.unit);
        break;
    case NW_GATE_LENGTH:
        (void)snprintf(buf, 48, "+- %s %s", m, v->row.unit);
        break;
    case NW_GATE_ATTAINMENT:
        (void)snprintf(buf, 48, ">= %s %s", m, v->row.unit);
        break;
    case NW_GATE_SCALAR:
        (void)snprintf(buf, 48, "%s %s", isnan(v->gate->min) ? "<=" : ">=", m);
        break;
    case NW_GATE_PERPLEXITY:
    case NW_GATE_KL:
    case NW_GATE_TOP1:
    case NW_GATE_TTFT:
    case NW_GATE_TPOT:
    case NW_GATE_COUNT:
        (void)snprintf(buf, 48, "< %s %s", m, v->row.unit);
        break;
    }
}

/* Room for the names of slices. */
static int slice_width(const nw_decision *d)
{
    size_t width = 20;

    for (size_t i = 0; i < d->n_verdicts; i++) {
        const size_t n = strlen(d->verdicts[i].row.slice);
        width = n > width ? n : width;
    }
    return width < 40 ? (int)width : 40;
}

static void gate_row(const nw_dec_verdict *v, int width, nw_buf *out)
{
    const bool diff = !nw_gate_is_speed(v->gate->kind);
    const char *fmt = diff ? "%+.*f" : "%.*f";
    char est[32];
    char lo[32];
    char hi[32];
    char bounds[72];
    char limit[48];
    char n[24] = "-";

    if (isnan(v->row.lo) && isnan(v->row.hi)) {
        (void)snprintf(bounds, sizeof bounds, "-");
    } else {
        (void)snprintf(bounds, sizeof bounds, "[%s, %s]", number(lo, v->row.lo, fmt),
                       number(hi, v->row.hi, fmt));
    }
    allowed(limit, v);
    if (v->row.n >= 0) {
        (void)snprintf(n, sizeof n, "%lld", (long long)v->row.n);
    }
    (void)nw_buf_printf(out, "  %-19s %-*s %8s  %-19s %-11s %7s  %s%s\n", v->row.gate, width,
                        v->row.slice, number(est, v->row.estimate, fmt), bounds, limit, n,
                        v->row.verdict, v->row.advisory ? " (advisory)" : "");
    (void)nw_buf_printf(out, "      %s\n", v->row.why);
}

static bool names_quality(const nw_policy *p)
{
    for (size_t g = 0; g < p->n_gates; g++) {
        if (!nw_gate_is_speed(p->gates[g].kind)) {
            return true;
        }
    }
    return false;
}

/* PASS, or what stands against it. */
static void sum_up(const nw_decision *d, size_t i, nw_buf *out)
{
    (void)nw_buf_printf(out, "%s: quality %s", d->candidates[i].name,
                        names_quality(d->policy) ? nw_verdict_name(d->quality[i])
                                                 : "not judged (the policy has no gate of it)");
    if (i > 0 && d->policy->holm && d->n_candidates > 2) {
        char coarse[128];
        (void)nw_buf_printf(out, ", p %.2g after Holm over %zu candidates%s", d->p_holm[i],
                            d->n_candidates - 1,
                            nw_decision_coarse(d->policy, d->n_candidates - 1, coarse));
    }
    for (size_t r = 0; r < NW_REGIME_COUNT; r++) {
        for (size_t k = 0; k < d->n_verdicts; k++) {
            const nw_dec_verdict *v = &d->verdicts[k];
            if (nw_gate_is_speed(v->gate->kind) && v->gate->regime == (nw_regime)r) {
                (void)nw_buf_printf(out, ", %s %s", nw_regime_name((nw_regime)r),
                                    nw_verdict_name(d->speed[r][i]));
                break;
            }
        }
    }
    (void)nw_buf_puts(out, "\n");
}

static void print_gates(const nw_decision *d, nw_buf *out)
{
    (void)nw_buf_printf(out, "Gates: policy '%s' (%.12s), one-sided %.0f%% bounds\n\n",
                        d->policy->name, d->policy->hash.hex, 100 * (1 - d->policy->alpha));
    const int width = slice_width(d);
    (void)nw_buf_printf(out, "  %-19s %-*s %8s  %-19s %-11s %7s  %s\n", "gate", width, "slice",
                        "measured", "bounds", "allowed", "n", "verdict");
    for (size_t i = 0; i < d->n_candidates; i++) {
        sum_up(d, i, out);
        for (size_t k = 0; k < d->n_verdicts; k++) {
            if (strcmp(d->verdicts[k].row.candidate, d->candidates[i].name) == 0) {
                gate_row(&d->verdicts[k], width, out);
            }
        }
    }
}

static const char *standing(const nw_decision *d, const nw_dec_frontier *f, size_t i, char buf[96])
{
    const nw_dec_point *p = &f->points[i];

    if (!nw_decision_eligible(d, f->regime, i)) {
        const bool failed =
            d->quality[i] == NW_VERDICT_FAIL || d->speed[f->regime][i] == NW_VERDICT_FAIL;
        (void)snprintf(buf, 96, failed ? "rejected" : "open (hollow): not ranked");
    } else if (p->dominated_by != SIZE_MAX) {
        (void)snprintf(buf, 96, "dominated by %.32s (P %.2f)", d->candidates[p->dominated_by].name,
                       p->p_dominated);
    } else {
        (void)snprintf(buf, 96, "P(on frontier) %.2f", p->p_frontier);
    }
    return buf;
}

static void print_point(const nw_decision *d, const nw_dec_frontier *f, size_t i, nw_buf *out)
{
    const nw_dec_point *p = &f->points[i];
    char a[32];
    char b[32];
    char c[32];
    char text[96];

    (void)nw_buf_printf(out, "  %-16s %s%s\n", d->candidates[i].name, standing(d, f, i, text),
                        i == f->chosen ? "   <- recommended" : "");
    for (size_t k = 0; k < f->n_objectives; k++) {
        const nw_dec_objective *o = &p->objectives[k];
        if (i == 0 && strcmp(o->name, "worst slice") == 0) {
            continue;
        }
        if (isnan(o->value)) {
            if (p->measured && o->name != NULL) {
                (void)nw_buf_printf(out, "      %-26s not measured\n", o->name);
            }
            continue;
        }
        (void)nw_buf_printf(out, "      %-26s %10s %-4s", o->name, number(a, o->value, "%.*f"),
                            o->unit);
        if (o->lo < o->hi) {
            (void)nw_buf_printf(out, " 95%% [%s, %s]", number(b, o->lo, "%.*f"),
                                number(c, o->hi, "%.*f"));
        }
        if (k == 0 && p->goodput_at_rps > 0) {
            (void)nw_buf_printf(out, " at %.2f requests/s offered", p->goodput_at_rps);
        }
        (void)nw_buf_puts(out, "\n");
    }
    if (!isnan(p->fallback_share) && p->fallback_share > 0) {
        (void)nw_buf_printf(out, "      fallback: %s: %.0f%% of the time in matrix kernels\n",
                            p->fallback, 100 * p->fallback_share);
    }
}

static void print_frontier(const nw_decision *d, const nw_dec_frontier *f, nw_buf *out)
{
    (void)nw_buf_printf(out, "\nFrontier, %s: %s\n", nw_regime_name(f->regime),
                        f->operating != NULL ? f->operating : "not measured");
    for (size_t i = 0; i < d->n_candidates; i++) {
        if (f->points[i].measured) {
            print_point(d, f, i, out);
        }
    }
    if (f->note != NULL) {
        (void)nw_buf_printf(out, "  note: %s\n", f->note);
    }
}

static void print_choice(const nw_decision *d, const nw_dec_frontier *f, nw_buf *out)
{
    (void)nw_buf_printf(out, "\nRecommendation, %s: %s%s\n  why: %s\n  mechanism: %s\n",
                        nw_regime_name(f->regime), d->candidates[f->chosen].name,
                        f->fallback ? " (fallback: baseline)" : "", f->why, f->mechanism);
    const size_t n = json_array_size(f->missing);
    for (size_t i = 0; i < n; i++) {
        (void)nw_buf_printf(out, "  %s%s\n", i == 0 ? "open: " : "      ",
                            json_string_value(json_array_get(f->missing, i)));
    }
}

void nw_decision_print(const nw_decision *d, nw_buf *out)
{
    print_gates(d, out);
    for (size_t r = 0; r < NW_REGIME_COUNT; r++) {
        print_frontier(d, &d->regimes[r], out);
    }
    for (size_t r = 0; r < NW_REGIME_COUNT; r++) {
        print_choice(d, &d->regimes[r], out);
    }
}

/* ---- JSON: what is not finite is null ---- */

static json_t *real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *text(const char *s)
{
    json_t *j = s == NULL ? NULL : json_string(s);
    return j == NULL ? json_null() : j;
}

static json_t *verdict_json(const nw_dec_verdict *v)
{
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o}",
        "candidate", text(v->row.candidate), "gate", text(v->row.gate), "metric",
        text(v->row.metric), "slice", text(v->row.slice), "advisory", v->row.advisory, "unit",
        text(v->row.unit), "estimate", real(v->row.estimate), "lo", real(v->row.lo), "hi",
        real(v->row.hi), "margin", real(v->row.margin), "p", real(v->row.p), "p_fail",
        real(v->p_fail), "n", (json_int_t)v->row.n, "n_needed", (json_int_t)v->row.n_needed,
        "verdict", text(v->row.verdict), "why", text(v->row.why));
}

static json_t *point_json(const nw_decision *d, const nw_dec_frontier *f, size_t i)
{
    const nw_dec_point *p = &f->points[i];
    const bool eligible = nw_decision_eligible(d, f->regime, i);
    json_t *objectives = json_array();

    for (size_t k = 0; k < f->n_objectives; k++) {
        const nw_dec_objective *o = &p->objectives[k];
        (void)json_array_append_new(
            objectives, json_pack("{s:s, s:s, s:b, s:o, s:o, s:o}", "name", o->name, "unit",
                                  o->unit, "higher_is_better", o->higher, "value", real(o->value),
                                  "lo", real(o->lo), "hi", real(o->hi)));
    }
    return json_pack(
        "{s:o, s:b, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "candidate",
        text(d->candidates[i].name), "eligible", eligible, "quality",
        nw_verdict_name(d->quality[i]), "hollow",
        !eligible && d->quality[i] != NW_VERDICT_FAIL && d->speed[f->regime][i] != NW_VERDICT_FAIL,
        "objectives", objectives, "cost", real(p->cost), "cost_lo", real(p->cost_lo), "cost_hi",
        real(p->cost_hi), "p_frontier", real(p->p_frontier), "dominated_by",
        p->dominated_by == SIZE_MAX ? json_null() : text(d->candidates[p->dominated_by].name),
        "p_dominated", real(p->p_dominated), "fallback_share", real(p->fallback_share), "fallback",
        text(p->fallback), "goodput_at_rps", real(p->goodput_at_rps));
}

json_t *nw_frontier_json(const nw_decision *d, const nw_dec_frontier *f)
{
    json_t *points = json_array();
    json_t *quality = json_object();

    for (size_t i = 0; i < d->n_candidates; i++) {
        (void)json_object_set_new(quality, d->candidates[i].name,
                                  json_string(nw_verdict_name(d->quality[i])));
    }
    for (size_t i = 0; i < d->n_candidates; i++) {
        if (f->points[i].measured) {
            (void)json_array_append_new(points, point_json(d, f, i));
        }
    }
    return json_pack("{s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:O, s:o, s:o}", "regime",
                     nw_regime_name(f->regime), "recommended", text(d->candidates[f->chosen].name),
                     "fallback", f->fallback, "why", text(f->why), "mechanism", text(f->mechanism),
                     "operating", text(f->operating), "note", text(f->note), "cost_name",
                     text(f->cost_name), "cost_unit", text(f->cost_unit), "missing", f->missing,
                     "quality", quality, "points", points);
}

json_t *nw_decision_json(const nw_decision *d)
{
    json_t *verdicts = json_array();
    json_t *candidates = json_array();
    json_t *regimes = json_object();

    for (size_t i = 0; i < d->n_verdicts; i++) {
        (void)json_array_append_new(verdicts, verdict_json(&d->verdicts[i]));
    }
    for (size_t i = 0; i < d->n_candidates; i++) {
        (void)json_array_append_new(
            candidates,
            json_pack("{s:o, s:o, s:s, s:s, s:s, s:o}", "name", text(d->candidates[i].name), "role",
                      text(d->candidates[i].role), "quality", nw_verdict_name(d->quality[i]),
                      "batch1", nw_verdict_name(d->speed[NW_REGIME_BATCH1][i]), "saturated",
                      nw_verdict_name(d->speed[NW_REGIME_SATURATED][i]), "p_holm",
                      real(d->p_holm[i])));
    }
    for (size_t r = 0; r < NW_REGIME_COUNT; r++) {
        (void)json_object_set_new(regimes, nw_regime_name((nw_regime)r),
                                  nw_frontier_json(d, &d->regimes[r]));
    }
    return json_pack("{s:o, s:s, s:b, s:o, s:o, s:o}", "policy", text(d->policy->name),
                     "policy_hash", d->policy->hash.hex, "all_pass", d->all_pass, "candidates",
                     candidates, "verdicts", verdicts, "regimes", regimes);
}
