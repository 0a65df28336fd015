/* The answer: one recommendation for each regime, its mechanism, what stands behind it and what is
 * open. The two are never merged.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "report/page.h"

static const struct {
    const char *regime, *title, *what;
} regimes[] = {
    {"batch1", "One request at a time", "Batch 1: interactive use, one stream on the machine."},
    {"saturated", "Under load", "Saturated: many requests at once, arriving on their own clock."},
};

static const char *text_of(const json_t *doc, const char *key)
{
    return json_string_value(json_object_get(doc, key));
}

static const json_t *point_of(const json_t *doc, const char *candidate)
{
    const json_t *points = json_object_get(doc, "points");
    size_t i = 0;
    json_t *row = NULL;

    json_array_foreach(points, i, row)
    {
        const char *name = text_of(row, "candidate");
        if (name != NULL && strcmp(name, candidate) == 0) {
            return row;
        }
    }
    return NULL;
}

static void list_open(const nw_page *p, const json_t *doc)
{
    const json_t *missing = json_object_get(doc, "missing");
    size_t i = 0;
    json_t *row = NULL;

    if (json_array_size(missing) == 0) {
        return;
    }
    (void)nw_buf_puts(p->out, "<details><summary>What is open</summary><ul>\n");
    json_array_foreach(missing, i, row)
    {
        (void)nw_html(p->out, "<li>%s</li>\n", json_string_value(row));
    }
    (void)nw_buf_puts(p->out, "</ul></details>\n");
}

/* Cost beside the baseline's, with what the draws say. */
static void evidence(const nw_page *p, const json_t *doc, const nw_rec_decision *d)
{
    const json_t *chosen = point_of(doc, d->candidate);
    const json_t *base = point_of(doc, p->f->c[0].row.name);
    const double cost = json_number_value(json_object_get(chosen, "cost"));
    const double base_cost = json_number_value(json_object_get(base, "cost"));
    const json_t *on = json_object_get(chosen, "p_frontier");
    nw_num a;
    nw_num b;

    (void)nw_buf_puts(p->out, "<dl class=\"facts\">\n");
    if (cost > 0) {
        (void)nw_html(p->out, "<dt>%s</dt><dd>%s %s", text_of(doc, "cost_name"), nw_sig(cost, &a),
                      text_of(doc, "cost_unit"));
        if (base_cost > 0 && chosen != base) {
            (void)nw_html(p->out, " <small>baseline %s</small>", nw_sig(base_cost, &b));
        }
        (void)nw_buf_puts(p->out, "</dd>\n");
    }
    if (json_is_number(on)) {
        (void)nw_html(p->out, "<dt>on the frontier</dt><dd>in %s%% of the draws</dd>\n",
                      nw_fixed(100 * json_number_value(on), 0, &a));
    }
    if (text_of(doc, "operating") != NULL) {
        (void)nw_html(p->out, "<dt>measured at</dt><dd>%s</dd>\n", text_of(doc, "operating"));
    }
    (void)nw_buf_puts(p->out, "</dl>\n");
}

static void write_regime(const nw_page *p, size_t r)
{
    const nw_rec_decision *d = NULL;
    json_t *doc = nw_page_decision(p, regimes[r].regime, &d);

    (void)nw_html(p->out, "<article class=\"card\">\n<h3>%s</h3>\n<p class=\"what\">%s</p>\n",
                  regimes[r].title, regimes[r].what);
    if (d == NULL) {
        (void)nw_buf_puts(p->out, "<p class=\"choice none\">Not decided</p>\n<p>The record holds "
                                  "no decision for this regime: <code>narrow decide</code> "
                                  "makes one.</p>\n</article>\n");
        return;
    }
    const bool fallback = json_is_true(json_object_get(doc, "fallback"));
    const size_t i = nw_page_index(p, d->candidate);
    (void)nw_buf_puts(p->out, "<p class=\"choice\">");
    if (i < p->f->n) {
        nw_page_mark(p, i);
    }
    (void)nw_html(p->out, "<strong>%s</strong>", d->candidate);
    (void)nw_buf_puts(p->out, fallback ? " <span class=\"tag\">no recommendation: keep the "
                                         "baseline</span></p>\n"
                                       : "</p>\n");
    if (text_of(doc, "mechanism") != NULL) {
        (void)nw_html(p->out, "<p class=\"mechanism\">%s.</p>\n", text_of(doc, "mechanism"));
    }
    (void)nw_html(p->out, "<p class=\"why\">%s.</p>\n", d->why);
    evidence(p, doc, d);
    if (text_of(doc, "note") != NULL) {
        (void)nw_html(p->out, "<p class=\"note\">%s.</p>\n", text_of(doc, "note"));
    }
    list_open(p, doc);
    (void)nw_buf_puts(p->out, "</article>\n");
    json_decref(doc);
}

static void count_stands(const nw_page *p)
{
    static const char *const words[] = {"not judged", "with every deciding gate passed",
                                        "with a failed gate", "not decided yet"};
    size_t n[4] = {0, 0, 0, 0};
    bool first = true;

    for (size_t i = 0; i < p->f->n; i++) {
        n[nw_facts_stand(p->f, p->f->c[i].row.name)] += p->f->c[i].baseline ? 0 : 1;
    }
    (void)nw_buf_puts(p->out, "<p class=\"lead\">Candidates: ");
    for (size_t k = 0; k < NW_COUNT(n); k++) {
        const size_t at = (k + 1) % NW_COUNT(n); /* those that pass first */
        if (n[at] > 0) {
            (void)nw_html(p->out, "%s<strong>%zu</strong> %s", first ? "" : "; ", n[at], words[at]);
            first = false;
        }
    }
    (void)nw_buf_puts(p->out, first ? "none are there.</p>\n" : ".</p>\n");
}

/* What the baseline really is, where its manifest says something about it. */
static void baseline_note(const nw_page *p)
{
    const nw_rec_candidate *base = &p->f->c[0].row;
    nw_error ignored = {0};
    json_t *doc = NULL;

    if (base->json == NULL ||
        nw_json_parse("candidate", base->json, strlen(base->json), &doc, &ignored) != NW_OK) {
        return;
    }
    const char *note = text_of(doc, "note");
    if (note != NULL && note[0] != '\0') {
        (void)nw_html(p->out, "<p class=\"note\">About the baseline: %s.</p>\n", note);
    }
    json_decref(doc);
}

void nw_section_decision(const nw_page *p)
{
    if (p->f->policy == NULL) {
        (void)nw_buf_puts(p->out, "<p class=\"lead\">No policy has been applied to this record: "
                                  "<code>narrow decide</code> does it, without running anything "
                                  "again. What was measured follows.</p>\n");
        return;
    }
    count_stands(p);
    (void)nw_buf_puts(p->out, "<div class=\"cards\">\n");
    for (size_t r = 0; r < NW_COUNT(regimes); r++) {
        write_regime(p, r);
    }
    (void)nw_buf_puts(p->out, "</div>\n");
    baseline_note(p);
}
