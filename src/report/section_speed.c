/* Speed in figures, each with the table that says the same in numbers: latencies, goodput, frontier.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "report/page.h"

static void pair_open(const nw_page *p)
{
    (void)nw_buf_puts(p->out, "<div class=\"pair\">\n");
}

static void pair_close(const nw_page *p)
{
    (void)nw_buf_puts(p->out, "</div>\n");
}

static size_t n_micro(const nw_facts *f)
{
    return f->c[0].ttft1.n > f->c[0].tpot1.n ? f->c[0].ttft1.n : f->c[0].tpot1.n;
}

/* "11.2, 97% of the baseline's" and whether that lies in the band of equal service. */
static void write_length(const nw_page *p, const nw_natural *n, const nw_natural *base)
{
    const double ratio = n->mean_tokens / base->mean_tokens;
    nw_num a;
    nw_num b;

    (void)nw_html(p->out, "<td>%s", nw_sig(n->mean_tokens, &a));
    if (n != base && isfinite(ratio)) {
        (void)nw_html(p->out, " <small>%s%% of the baseline's</small>",
                      nw_fixed(100 * ratio, 0, &b));
    }
    (void)nw_html(p->out, "</td><td>%s</td><td class=\"t\">",
                  nw_fixed(n->n > 0 ? 100 * (double)n->n_stop / (double)n->n : (double)NAN, 0, &a));
    (void)nw_buf_puts(p->out, n == base || !isfinite(ratio)  ? NW_EN_DASH
                              : ratio >= 0.9 && ratio <= 1.1 ? "yes"
                                                             : "<b>no</b>");
    (void)nw_buf_puts(p->out, "</td></tr>\n");
}

/* Answers of equal length measure speed; these say whether the answers are as long as before. */
static void write_natural(const nw_page *p)
{
    const nw_natural *base = &p->f->c[0].natural;

    if (base->n == 0) {
        return;
    }
    (void)nw_html(
        p->out,
        "<h3>One request at a time, answers that end by themselves, n = %zu</h3>\n"
        "<p>Above, every answer has the same length, so that speed is compared. Here each "
        "model stops when it wants to: a candidate that is faster a token and talks "
        "longer is not faster. Between 90%% and 110%% of the baseline's mean length counts "
        "as equal service.</p>\n",
        base->n);
    nw_page_figure(p, "natural-batch1", "Time to the last token, answers that end by themselves",
                   "From the request to the last token of its answer.");
    nw_page_table_open(p, "numbers", "Answers that end by themselves");
    (void)nw_buf_puts(
        p->out, "<thead><tr><th scope=\"col\">Candidate</th><th scope=\"col\">time per "
                "request <small>ms, median</small></th><th scope=\"col\">tokens <small>a "
                "reply, mean</small></th><th scope=\"col\">stopped by itself <small>%</small>"
                "</th><th scope=\"col\" class=\"t\">equal length</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_natural *n = &p->f->c[i].natural;
        const nw_estimate e2e = nw_facts_median(n->e2e.ms, n->e2e.n);
        (void)nw_buf_puts(p->out, "<tr><th scope=\"row\">");
        nw_page_mark(p, i);
        (void)nw_html(p->out, "%s</th><td>", p->f->c[i].row.name);
        nw_page_estimate(p, &e2e);
        (void)nw_buf_puts(p->out, "</td>");
        write_length(p, n, base);
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
    nw_page_table_close(p);
}

void nw_section_latency(const nw_page *p)
{
    const nw_facts *f = p->f;
    char at[160];

    if (n_micro(f) == 0 && !f->has_load) {
        (void)nw_buf_puts(p->out, "<p>Speed has not been measured yet.</p>\n");
        return;
    }
    (void)nw_buf_puts(p->out,
                      "<p>Each row is a candidate. The circle is the median, in milliseconds; the "
                      "thick line holds the middle half, the thin line the middle 80%. The ticks "
                      "below are the requests themselves, or hundredths of them where there are "
                      "more than a hundred.</p>\n");
    if (n_micro(f) > 0) {
        (void)nw_html(p->out, "<h3>One request at a time, n = %zu</h3>\n", n_micro(f));
        pair_open(p);
        nw_page_figure(p, "ttft-batch1", "Time to first token at batch 1 by candidate",
                       "Time to first token: the prompt is read. Compute counts here.");
        nw_page_figure(p, "tpot-batch1", "Time per output token at batch 1 by candidate",
                       "Time per output token: the weights are read once for each. Bytes count.");
        pair_close(p);
    }
    write_natural(p);
    if (f->has_load) {
        const nw_load_point *base = &f->c[0].load[f->operating];
        (void)snprintf(at, sizeof at, "%.3g requests/s offered, n = %zu", base->offered_rps,
                       base->n);
        (void)nw_html(p->out, "<h3>Under load, %s</h3>\n", at);
        pair_open(p);
        nw_page_figure(p, "ttft-load", "Time to first token under load by candidate",
                       "From the scheduled arrival: waiting in the queue counts.");
        nw_page_figure(p, "tpot-load", "Time per output token under load by candidate",
                       "Between tokens, while other requests share the machine.");
        pair_close(p);
        (void)nw_html(p->out,
                      "<p class=\"note\">Shown at the highest rate at which the baseline still "
                      "serves %.0f%% of the requests within its limits, or at the lowest rate "
                      "measured.</p>\n",
                      100 * (f->attainment > 0 ? f->attainment : 0.9));
    }
}

static void write_load_row(const nw_page *p, const nw_load_point *q)
{
    nw_num a;
    nw_num b;

    (void)nw_html(p->out, "<td>%s</td><td>", nw_sig(q->offered_rps, &a));
    nw_page_estimate(p, &q->goodput_rps);
    (void)nw_html(p->out, "</td><td>%s</td><td>%s</td>", nw_fixed(100 * q->attainment, 1, &a),
                  nw_sig(q->throughput_tps, &b));
    (void)nw_html(p->out, "<td>%s</td><td>%zu of %zu</td><td>%s</td></tr>\n",
                  nw_sig(q->mean_in_flight, &a), q->n_ok, q->n,
                  q->steady > 0    ? "yes"
                  : q->steady == 0 ? "no"
                                   : "not tested");
}

static void write_load_table(const nw_page *p)
{
    nw_page_table_open(p, "numbers", "Every load run");
    (void)nw_buf_puts(
        p->out, "<thead><tr><th scope=\"col\">Candidate</th><th scope=\"col\">offered "
                "<small>requests/s</small></th><th scope=\"col\">goodput <small>requests/s</small>"
                "</th><th scope=\"col\">within limits <small>%</small></th><th scope=\"col\">"
                "throughput <small>tokens/s</small></th><th scope=\"col\">in flight <small>mean"
                "</small></th><th scope=\"col\">answered</th><th scope=\"col\">steady</th></tr>"
                "</thead>\n<tbody>\n");
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_facts_candidate *c = &p->f->c[i];
        for (size_t k = 0; k < c->n_load; k++) {
            (void)nw_buf_puts(p->out, "<tr><th scope=\"row\">");
            nw_page_mark(p, i);
            (void)nw_html(p->out, "%s</th>", c->row.name);
            write_load_row(p, &c->load[k]);
        }
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
    nw_page_table_close(p);
    (void)nw_buf_puts(
        p->out,
        "<p class=\"note\">Steady: the two halves of the window have medians of the time to "
        "first token within 5%, and neither that time nor the requests in flight drift by "
        "more than 10% of their mean (upper 95% bound). \"No\" means that the rate may not "
        "hold for longer, or that the window was too short to tell.</p>\n");
}

static void write_limits(const nw_page *p)
{
    const double ttft = p->f->slo_ttft_ms;
    const double tpot = p->f->slo_tpot_ms;

    (void)nw_buf_puts(p->out, "<p>Goodput counts the requests that were answered");
    if (ttft > 0) {
        (void)nw_html(p->out,
                      ", whose first token came within <strong>%g ms</strong> of the scheduled "
                      "arrival",
                      ttft);
    }
    if (tpot > 0) {
        (void)nw_html(p->out, ", and whose tokens followed within <strong>%g ms</strong> each",
                      tpot);
    }
    (void)nw_buf_puts(p->out, ". Errors, refusals and timeouts count as not good.</p>\n");
}

void nw_section_load(const nw_page *p)
{
    const nw_facts *f = p->f;

    if (!f->has_load) {
        (void)nw_buf_puts(p->out, "<p>No load run is in the record.</p>\n");
        return;
    }
    write_limits(p);
    nw_page_figure(p, "goodput", "Goodput by offered rate, one line a candidate",
                   "Offered rate and goodput. On the dotted line every request is good. Whiskers: "
                   "Wilson 95% intervals of independent requests, a lower bound on the "
                   "uncertainty.");
    write_load_table(p);
}

static double number(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static const char *stand_of(const json_t *row)
{
    if (json_is_true(json_object_get(row, "eligible"))) {
        return "\xE2\x9C\x93 eligible";
    }
    return json_is_true(json_object_get(row, "hollow")) ? "? not decided"
                                                        : "\xE2\x9C\x95 failed a gate";
}

static void write_point(const nw_page *p, const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "candidate"));
    const char *by = json_string_value(json_object_get(row, "dominated_by"));
    const nw_estimate cost = {number(row, "cost"), number(row, "cost_lo"), number(row, "cost_hi")};
    const size_t i = nw_page_index(p, name);
    nw_num a;

    (void)nw_buf_puts(p->out, "<tr><th scope=\"row\">");
    if (i < p->f->n) {
        nw_page_mark(p, i);
    }
    (void)nw_html(p->out, "%s</th><td class=\"t\">%s</td><td>", name, stand_of(row));
    nw_page_estimate(p, &cost);
    (void)nw_html(p->out, "</td><td>%s</td><td class=\"t\">",
                  nw_fixed(100 * number(row, "p_frontier"), 0, &a));
    if (by != NULL) {
        (void)nw_html(p->out, "by %s, in %s%% of the draws", by,
                      nw_fixed(100 * number(row, "p_dominated"), 0, &a));
    } else if (number(row, "p_frontier") >= 0.95) {
        (void)nw_buf_puts(p->out, "no");
    } else if (json_is_true(json_object_get(row, "eligible"))) {
        (void)nw_buf_puts(p->out, "not distinguishable");
    } else {
        (void)nw_buf_puts(p->out, NW_EN_DASH);
    }
    (void)nw_buf_puts(p->out, "</td></tr>\n");
}

static void write_points(const nw_page *p, const json_t *doc, const char *caption)
{
    const char *cost = json_string_value(json_object_get(doc, "cost_name"));
    const char *unit = json_string_value(json_object_get(doc, "cost_unit"));
    size_t i = 0;
    json_t *row = NULL;

    if (json_array_size(json_object_get(doc, "points")) == 0) {
        return;
    }
    nw_page_table_open(p, "numbers", caption);
    (void)nw_html(
        p->out,
        "<thead><tr><th scope=\"col\">Candidate</th><th scope=\"col\" class=\"t\">Gates</th>"
        "<th scope=\"col\">%s <small>%s</small></th><th scope=\"col\">on the frontier "
        "<small>%% of draws</small></th><th scope=\"col\" class=\"t\">Dominated</th></tr></thead>\n"
        "<tbody>\n",
        cost, unit);
    json_array_foreach(json_object_get(doc, "points"), i, row)
    {
        write_point(p, row);
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
    nw_page_table_close(p);
}

void nw_section_frontier(const nw_page *p)
{
    static const struct {
        const char *regime, *id, *alt, *caption, *table;
    } rows[] = {
        {"batch1", "frontier-batch1", "Cost of a request against quality, one request at a time",
         "One request at a time. Further left is cheaper, further up loses less.",
         "Frontier, one request at a time"},
        {"saturated", "frontier-saturated", "Cost of a good request against quality, under load",
         "Under load: machine time for one good request.", "Frontier under load"},
    };
    json_t *docs[2] = {NULL, NULL};
    const nw_rec_decision *d = NULL;

    if (p->f->n_decisions == 0) {
        (void)nw_buf_puts(p->out, "<p>The frontier is drawn once a decision is made.</p>\n");
        return;
    }
    (void)nw_buf_puts(
        p->out, "<p>Filled marks pass every gate, hollow ones are not decided, crosses failed "
                "a gate. Quality is the change of the worst task suite that decides, as a "
                "share of the baseline's score. Whiskers are 95% intervals; a candidate is called "
                "dominated only where 95% "
                "of the draws agree.</p>\n");
    pair_open(p);
    for (size_t r = 0; r < NW_COUNT(rows); r++) {
        nw_page_figure(p, rows[r].id, rows[r].alt, rows[r].caption);
    }
    pair_close(p);
    for (size_t r = 0; r < NW_COUNT(rows); r++) {
        docs[r] = nw_page_decision(p, rows[r].regime, &d);
        write_points(p, docs[r], rows[r].table);
        json_decref(docs[r]);
    }
}
