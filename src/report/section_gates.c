/* The gate strip: a row is a gate on a slice, a column is a candidate, a cell is the verdict with the
 * estimate, its interval drawn against the margin, and the n it lacks. The bars of a row share a
 * scale. Symbol and word stand beside the colour.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"

typedef struct {
    const nw_rec_verdict *first; /* of the row: gate, metric, slice, unit, advisory */
} gate_row;

typedef struct {
    double lo, hi;
} span;

/* Where a value is allowed to lie: between these, by the metric. */
static span allowed(const nw_rec_verdict *v)
{
    static const struct {
        const char *metric;
        double lo, hi; /* in margins; infinite: no bound */
    } rows[] = {
        {"accuracy", -1, (double)INFINITY},
        {"relative", -1, (double)INFINITY},
        {"perplexity", -(double)INFINITY, 1},
        {"kl", -(double)INFINITY, 1},
        {"top1", -(double)INFINITY, 1},
        {"ttft", -(double)INFINITY, 1},
        {"tpot", -(double)INFINITY, 1},
        {"attainment", 1, (double)INFINITY},
        {"length", -1, 1},
    };

    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        if (strcmp(v->metric, rows[i].metric) == 0 && !isnan(v->margin)) {
            return (span){isinf(rows[i].lo) ? rows[i].lo : rows[i].lo * v->margin,
                          isinf(rows[i].hi) ? rows[i].hi : rows[i].hi * v->margin};
        }
    }
    return (span){-(double)INFINITY, (double)INFINITY};
}

static bool same_row(const nw_rec_verdict *a, const nw_rec_verdict *b)
{
    return strcmp(a->gate, b->gate) == 0 && strcmp(a->slice, b->slice) == 0;
}

static void widen(double v, span *s)
{
    if (isfinite(v)) {
        s->lo = fmin(s->lo, v);
        s->hi = fmax(s->hi, v);
    }
}

/* What the bars of a row must show: estimates, bounds and margins of all candidates. */
static span scale_of(const nw_facts *f, const nw_rec_verdict *row)
{
    span s = {(double)INFINITY, -(double)INFINITY};

    for (size_t i = 0; i < f->n_verdicts; i++) {
        const nw_rec_verdict *v = &f->verdicts[i];
        if (same_row(v, row)) {
            const span ok = allowed(v);
            widen(v->estimate, &s);
            widen(v->lo, &s);
            widen(v->hi, &s);
            widen(ok.lo, &s);
            widen(ok.hi, &s);
        }
    }
    const double pad = s.hi > s.lo ? 0.08 * (s.hi - s.lo) : fmax(fabs(s.hi), 1);
    return (span){s.lo - pad, s.hi + pad};
}

static double percent(double v, span s)
{
    return 100 * fmin(1, fmax(0, (v - s.lo) / (s.hi - s.lo)));
}

/* Interval, estimate and the allowed region in percent of the width. */
static void write_bar(const nw_page *p, const nw_rec_verdict *v, span s)
{
    const span ok = allowed(v);
    const double lo = isnan(v->lo) ? v->estimate : v->lo;
    const double hi = isnan(v->hi) ? v->estimate : v->hi;

    if (isnan(v->estimate) || !(s.hi > s.lo)) {
        return;
    }
    (void)nw_buf_puts(p->out, "<span class=\"bar\" aria-hidden=\"true\">");
    if (isfinite(ok.lo) || isfinite(ok.hi)) {
        const double from = percent(ok.lo, s);
        const double to = percent(ok.hi, s);
        (void)nw_html(p->out, "<i class=\"ok%s%s\" style=\"left:%.1f%%;width:%.1f%%\"></i>",
                      isfinite(ok.lo) ? " from" : "", isfinite(ok.hi) ? " to" : "", from,
                      to - from);
    }
    (void)nw_html(p->out,
                  "<i class=\"ci\" style=\"left:%.1f%%;width:%.1f%%\"></i>"
                  "<i class=\"at\" style=\"left:%.1f%%\"></i></span>",
                  percent(lo, s), percent(hi, s) - percent(lo, s), percent(v->estimate, s));
}

/* As many as the larger bound has three digits. */
static int decimals_of(const nw_rec_verdict *v)
{
    double size = fabs(v->estimate);

    size = isnan(v->lo) ? size : fmax(size, fabs(v->lo));
    size = isnan(v->hi) ? size : fmax(size, fabs(v->hi));
    return size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4;
}

static bool is_change(const nw_rec_verdict *v)
{
    return strcmp(v->metric, "accuracy") == 0 || strcmp(v->metric, "relative") == 0 ||
           strcmp(v->metric, "perplexity") == 0 || strcmp(v->metric, "length") == 0;
}

static void write_value(const nw_page *p, const nw_rec_verdict *v)
{
    const int d = decimals_of(v);
    nw_num a;
    nw_num b;
    nw_num c;

    if (isnan(v->estimate)) {
        return;
    }
    (void)nw_html(p->out, "<span class=\"value\">%s %s</span>",
                  is_change(v) ? nw_signed(v->estimate, d, &a) : nw_fixed(v->estimate, d, &a),
                  v->unit != NULL ? v->unit : "");
    if (!isnan(v->lo) && !isnan(v->hi)) {
        (void)nw_html(p->out, "<small>%s to %s</small>",
                      is_change(v) ? nw_signed(v->lo, d, &b) : nw_fixed(v->lo, d, &b),
                      is_change(v) ? nw_signed(v->hi, d, &c) : nw_fixed(v->hi, d, &c));
    }
}

/* "n 96; 133 needed" */
static void write_n(const nw_page *p, const nw_rec_verdict *v)
{
    nw_num n;
    nw_num need;

    if (v->n >= 0 && v->n_needed > v->n) {
        (void)nw_html(p->out, "<small class=\"n\">n = %s, <b>%s needed</b></small>",
                      nw_count(v->n, &n), nw_count(v->n_needed, &need));
    } else if (v->n < 0 || strcmp(v->verdict, "PASS") != 0) {
        (void)nw_html(p->out, "<small class=\"n\">%s</small>", v->why);
    } else {
        (void)nw_html(p->out, "<small class=\"n\">n = %s</small>", nw_count(v->n, &n));
    }
}

static void write_cell(const nw_page *p, const nw_rec_verdict *v, span s)
{
    const bool pass = strcmp(v->verdict, "PASS") == 0;
    const bool fail = strcmp(v->verdict, "FAIL") == 0;

    (void)nw_html(p->out, "<td class=\"cell %s\"><span class=\"verdict\">%s %s</span>",
                  pass   ? "pass"
                  : fail ? "fail"
                         : "open",
                  pass   ? "\xE2\x9C\x93"
                  : fail ? "\xE2\x9C\x95"
                         : "?",
                  v->verdict);
    write_value(p, v);
    write_bar(p, v, s);
    write_n(p, v);
    (void)nw_buf_puts(p->out, "</td>");
}

static const nw_rec_verdict *verdict_of(const nw_facts *f, const nw_rec_verdict *row,
                                        const char *candidate)
{
    for (size_t i = 0; i < f->n_verdicts; i++) {
        if (same_row(&f->verdicts[i], row) && strcmp(f->verdicts[i].candidate, candidate) == 0) {
            return &f->verdicts[i];
        }
    }
    return NULL;
}

/* "at most −1 pp", or both margins where candidates have different ones. */
static void write_margin(const nw_page *p, const nw_rec_verdict *row)
{
    double lo = (double)INFINITY;
    double hi = -(double)INFINITY;

    for (size_t i = 0; i < p->f->n_verdicts; i++) {
        const nw_rec_verdict *v = &p->f->verdicts[i];
        if (same_row(v, row) && !isnan(v->margin)) {
            lo = fmin(lo, v->margin);
            hi = fmax(hi, v->margin);
        }
    }
    if (hi < lo) {
        return;
    }
    const char *unit = row->unit != NULL ? row->unit : "";
    if (hi > lo) {
        (void)nw_html(p->out, "<small>margin %g or %g %s, by format</small>", lo, hi, unit);
    } else {
        (void)nw_html(p->out, "<small>margin %g %s</small>", lo, unit);
    }
}

/* Does the baseline have verdicts of its own (speed gates)? */
static bool shown(const nw_facts *f, size_t i)
{
    bool has = false;

    for (size_t k = 0; k < f->n_verdicts && !has; k++) {
        has = strcmp(f->verdicts[k].candidate, f->c[i].row.name) == 0;
    }
    return has || !f->c[i].baseline;
}

static void write_row(const nw_page *p, const nw_rec_verdict *row)
{
    const span s = scale_of(p->f, row);

    (void)nw_html(p->out, "<tr><th scope=\"row\">%s<small>%s</small>", row->gate, row->slice);
    write_margin(p, row);
    (void)nw_buf_puts(p->out, "</th>");
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_rec_verdict *v = verdict_of(p->f, row, p->f->c[i].row.name);
        if (!shown(p->f, i)) {
            continue;
        }
        if (v != NULL) {
            write_cell(p, v, s);
        } else {
            (void)nw_buf_puts(p->out, "<td class=\"cell\"><small>no such gate</small></td>");
        }
    }
    (void)nw_buf_puts(p->out, "</tr>\n");
}

static void write_body(const nw_page *p, bool advisory, const char *title)
{
    const nw_facts *f = p->f;
    bool open = false;

    for (size_t i = 0; i < f->n_verdicts; i++) {
        bool seen = f->verdicts[i].advisory != advisory;
        for (size_t k = 0; k < i && !seen; k++) {
            seen = same_row(&f->verdicts[k], &f->verdicts[i]);
        }
        if (seen) {
            continue;
        }
        if (!open) {
            (void)nw_html(p->out,
                          "<tbody><tr class=\"group\"><th scope=\"rowgroup\" "
                          "colspan=\"%zu\">%s</th></tr>\n",
                          f->n + 1, title);
            open = true;
        }
        write_row(p, &f->verdicts[i]);
    }
    (void)nw_buf_puts(p->out, open ? "</tbody>\n" : "");
}

static void write_words(const nw_page *p)
{
    (void)nw_buf_puts(p->out, "<details><summary>Every verdict in words</summary>\n<ul>\n");
    for (size_t i = 0; i < p->f->n_verdicts; i++) {
        const nw_rec_verdict *v = &p->f->verdicts[i];
        (void)nw_html(p->out, "<li><strong>%s</strong>, %s on %s: %s%s. %s.</li>\n", v->candidate,
                      v->gate, v->slice, v->verdict, v->advisory ? " (advisory)" : "", v->why);
    }
    (void)nw_buf_puts(p->out, "</ul></details>\n");
}

void nw_section_gates(const nw_page *p)
{
    if (p->f->n_verdicts == 0) {
        (void)nw_buf_puts(p->out, "<p>No gate has been evaluated on this record.</p>\n");
        return;
    }
    (void)nw_buf_puts(
        p->out,
        "<p>A gate passes when the whole interval lies inside the margin, fails when the whole "
        "interval lies outside, and is INCONCLUSIVE in between: then the number of items says what "
        "would decide it. Each end of an interval is a one-sided bound at the level of the policy "
        "(95% unless it says otherwise). In each bar the shaded part is allowed, the thick line is "
        "the interval, the tick is the estimate.</p>\n");
    nw_page_table_open(p, "gates", "Verdicts by gate and candidate");
    (void)nw_buf_puts(p->out, "<thead><tr><th scope=\"col\">Gate</th>");
    for (size_t i = 0; i < p->f->n; i++) {
        if (shown(p->f, i)) {
            (void)nw_buf_puts(p->out, "<th scope=\"col\">");
            nw_page_mark(p, i);
            (void)nw_html(p->out, "%s</th>", p->f->c[i].row.name);
        }
    }
    (void)nw_buf_puts(p->out, "</tr></thead>\n");
    write_body(p, false, "These decide");
    write_body(p, true, "Advisory: printed, never decide");
    nw_page_table_close(p);
    write_words(p);
}
