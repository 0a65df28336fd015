/* The frame of the page, and what all sections share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static const struct {
    const char *id, *title;
    void (*write)(const nw_page *p);
} sections[] = {
    {"recommendation", "Recommendation", nw_section_decision},
    {"gates", "Gates", nw_section_gates},
    {"figures", "All figures in one table", nw_section_table},
    {"latency", "Latency", nw_section_latency},
    {"load", "Goodput under load", nw_section_load},
    {"frontier", "Frontier", nw_section_frontier},
    {"divergence", "Divergence by token", nw_section_divergence},
    {"tasks", "Tasks", nw_section_tasks},
    {"kernels", "Kernels", nw_section_kernels},
    {"memory", "Memory", nw_section_memory},
    {"terms", "Terms", nw_section_terms},
    {"protocol", "Protocol and provenance", nw_section_protocol},
    {"raw", "Raw data", nw_section_raw},
};

size_t nw_page_index(const nw_page *p, const char *candidate)
{
    for (size_t i = 0; candidate != NULL && i < p->f->n; i++) {
        if (strcmp(p->f->c[i].row.name, candidate) == 0) {
            return i;
        }
    }
    return p->f->n;
}

const char *nw_page_short(const char *hash, char buf[16])
{
    (void)snprintf(buf, 16, "%.12s", hash != NULL ? hash : "\xE2\x80\x93");
    return buf;
}

json_t *nw_page_decision(const nw_page *p, const char *regime, const nw_rec_decision **row)
{
    nw_error ignored = {0};
    json_t *doc = NULL;

    *row = NULL;
    for (size_t i = 0; i < p->f->n_decisions; i++) {
        const nw_rec_decision *d = &p->f->decisions[i];
        if (strcmp(d->regime, regime) == 0) {
            *row = d;
            return nw_json_parse("decision", d->json, strlen(d->json), &doc, &ignored) == NW_OK
                       ? doc
                       : NULL;
        }
    }
    return NULL;
}

void nw_page_figure(const nw_page *p, const char *id, const char *alt, const char *caption)
{
    const char *svg = nw_figures_svg(p->g, id);

    if (json_object_get(p->g->specs, id) == NULL) {
        return; /* nothing of it was measured: the table beside it says so */
    }
    (void)nw_html(p->out, "<figure id=\"fig-%s\">\n", id);
    if (svg != NULL && strncmp(svg, "<svg ", 5) == 0) {
        (void)nw_html(p->out, "<svg role=\"img\" aria-label=\"%s\" ", alt);
        (void)nw_buf_puts(p->out, svg + 5);
    } else {
        (void)nw_html(p->out, "<p class=\"none\">Not drawn: %s.</p>", p->g->why_none);
    }
    (void)nw_html(p->out, "\n<figcaption>%s</figcaption>\n</figure>\n", caption);
}

void nw_page_table_open(const nw_page *p, const char *classes, const char *caption)
{
    (void)nw_html(p->out,
                  "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"%s\">\n"
                  "<table class=\"%s\">\n<caption>%s</caption>\n",
                  caption, classes, caption);
}

void nw_page_table_close(const nw_page *p)
{
    (void)nw_buf_puts(p->out, "</table>\n</div>\n");
}

void nw_page_mark(const nw_page *p, size_t i)
{
    static const struct {
        const char *shape, *path;
    } paths[] = {
        {"circle", "M5 0a5 5 0 1 0 .01 0z"},   {"square", "M.5 .5h9v9h-9z"},
        {"diamond", "M5 0l4.5 5L5 10 .5 5z"},  {"triangle-up", "M5 .5l5 9H0z"},
        {"triangle-down", "M0 .5h10l-5 9z"},   {"triangle-right", "M.5 0l9 5-9 5z"},
        {"triangle-left", "M9.5 0l-9 5 9 5z"},
    };
    const char *path = paths[0].path;

    for (size_t k = 0; k < NW_COUNT(paths); k++) {
        path = strcmp(paths[k].shape, nw_figure_shape(i)) == 0 ? paths[k].path : path;
    }
    (void)nw_html(
        p->out,
        "<svg class=\"mark\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><path fill=\"%s\" "
        "d=\"%s\"/></svg>",
        nw_figure_color(i), path);
}

void nw_page_candidate_heads(const nw_page *p)
{
    for (size_t i = 0; i < p->f->n; i++) {
        (void)nw_buf_puts(p->out, "<th scope=\"col\">");
        nw_page_mark(p, i);
        (void)nw_html(p->out, "%s", p->f->c[i].row.name);
        (void)nw_buf_puts(p->out, p->f->c[i].baseline ? " <small>baseline</small></th>" : "</th>");
    }
}

void nw_page_estimate(const nw_page *p, const nw_estimate *e)
{
    nw_num v;
    nw_num range;

    (void)nw_html(p->out, "%s", nw_sig(e->value, &v));
    if (!isnan(e->lo) && !isnan(e->hi)) {
        (void)nw_html(p->out, " <small>%s</small>", nw_sig_range(e->lo, e->hi, &range));
    }
}

static void write_head(const nw_page *p)
{
    (void)nw_html(p->out,
                  "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<meta name=\"color-scheme\" content=\"light dark\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                  "style-src 'unsafe-inline'; img-src data:\">\n"
                  "<meta name=\"generator\" content=\"narrow %s\">\n"
                  "<link rel=\"icon\" href=\"data:,\">\n<title>%s</title>\n<style>\n",
                  NW_VERSION, p->title);
    (void)nw_buf_puts(p->out, nw_report_css);
    (void)nw_buf_puts(p->out, "</style>\n</head>\n<body>\n"
                              "<a class=\"skip\" href=\"#recommendation\">Skip to the "
                              "recommendation</a>\n");
}

/* What stands behind the first `c`, or the end. */
static const char *after(const char *s, char c)
{
    const char *at = strchr(s, c);
    return at != NULL ? at + 1 : s + strlen(s);
}

static void write_masthead(const nw_page *p)
{
    const nw_facts *f = p->f;
    char hash[16];

    (void)nw_html(p->out,
                  "<header>\n<p class=\"kicker\">narrow report</p>\n<h1>%s</h1>\n<p class=\"sub\">",
                  p->title);
    (void)nw_html(p->out, "%zu candidate%s against the baseline <strong>%s</strong>",
                  f->n - (f->c[0].baseline ? 1 : 0), f->n == 2 ? "" : "s",
                  f->c[0].baseline ? f->c[0].row.name : "(none)");
    if (f->policy != NULL) {
        (void)nw_html(p->out,
                      ", judged by the policy <strong>%s</strong> (<code>%s</code>) on <span "
                      "class=\"nb\">%.*s %.*s UTC</span>",
                      f->policy->name, nw_page_short(f->policy->policy_hash, hash), 10,
                      f->policy->decided, 5, after(f->policy->decided, 'T'));
    }
    (void)nw_html(p->out, ". Every figure is computed from the rows of <code>%s</code>.</p>\n",
                  p->record);
    (void)nw_buf_puts(p->out, "<nav aria-label=\"Sections\"><ul>\n");
    for (size_t i = 0; i < NW_COUNT(sections); i++) {
        (void)nw_html(p->out, "<li><a href=\"#%s\">%s</a></li>\n", sections[i].id,
                      sections[i].title);
    }
    (void)nw_buf_puts(p->out, "</ul></nav>\n</header>\n<main>\n");
}

void nw_page_write(const nw_page *p)
{
    write_head(p);
    write_masthead(p);
    for (size_t i = 0; i < NW_COUNT(sections); i++) {
        (void)nw_html(p->out,
                      "<section id=\"%s\" aria-labelledby=\"h-%s\">\n<h2 id=\"h-%s\">%s</h2>\n",
                      sections[i].id, sections[i].id, sections[i].id, sections[i].title);
        sections[i].write(p);
        (void)nw_buf_puts(p->out, "</section>\n");
    }
    (void)nw_html(
        p->out,
        "</main>\n<footer><p>Written by narrow %s. Intervals are 95%% and two-sided unless "
        "they belong to a gate, which is one-sided at the level of its policy.</p>"
        "</footer>\n</body>\n</html>\n",
        NW_VERSION);
}
