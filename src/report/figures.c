/* Which figures a record gives, and their life: specifications first, SVG once they are rendered.
 * SPDX-License-Identifier: Apache-2.0 */
#include "report/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MAX_ROWS 32 /* candidates drawn in one figure */

void nw_figures_release(nw_figures *g)
{
    json_decref(g->specs);
    json_decref(g->svgs);
    *g = (nw_figures){.specs = NULL};
}

void nw_figures_add(nw_figures *g, const char *id, json_t *spec)
{
    if (g->specs == NULL) {
        g->specs = json_object();
    }
    if (spec != NULL) {
        (void)json_object_set_new(g->specs, id, spec);
    }
}

const char *nw_figures_svg(const nw_figures *g, const char *id)
{
    return json_string_value(json_object_get(g->svgs, id));
}

nw_status nw_figures_write(const nw_figures *g, const char *dir, nw_error *err)
{
    const char *id = NULL;
    json_t *svg = NULL;
    nw_status st = nw_file_mkdirs(dir, err);

    json_object_foreach(g->svgs, id, svg)
    {
        char name[128];
        (void)snprintf(name, sizeof name, "%s.svg", id);
        char *path = nw_path_join(dir, name);
        if (path == NULL) {
            return nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", dir);
        }
        st = st == NW_OK ? nw_file_write(path, json_string_value(svg), json_string_length(svg), err)
                         : st;
        free(path);
    }
    return st;
}

/* The latency of candidate i that a figure shows. */
typedef const nw_latency *(*latency_of)(const nw_facts *f, size_t i);

static const nw_latency *ttft1(const nw_facts *f, size_t i)
{
    return &f->c[i].ttft1;
}

static const nw_latency *tpot1(const nw_facts *f, size_t i)
{
    return &f->c[i].tpot1;
}

static const nw_latency *natural(const nw_facts *f, size_t i)
{
    return &f->c[i].natural.e2e;
}

static const nw_latency *ttft_load(const nw_facts *f, size_t i)
{
    const nw_load_point *p = nw_facts_point(f, &f->c[i]);
    return p != NULL ? &p->ttft : NULL;
}

static const nw_latency *tpot_load(const nw_facts *f, size_t i)
{
    const nw_load_point *p = nw_facts_point(f, &f->c[i]);
    return p != NULL ? &p->tpot : NULL;
}

/* A logarithmic axis where one candidate is far from the others. */
static bool wide(const nw_strip_row *rows, size_t n)
{
    double lo = (double)INFINITY;
    double hi = 0;

    for (size_t i = 0; i < n; i++) {
        if (rows[i].n > 0) {
            lo = fmin(lo, rows[i].sorted[0]);
            hi = fmax(hi, rows[i].sorted[rows[i].n - 1]);
        }
    }
    return lo > 0 && hi > 20 * lo;
}

static void add_latency(const nw_facts *f, nw_figures *g, const char *id, const char *title,
                        latency_of get, double limit)
{
    nw_strip_row rows[MAX_ROWS];
    char text[48];
    size_t n = 0;

    for (size_t i = 0; i < f->n && n < MAX_ROWS; i++) {
        const nw_latency *l = get(f, i);
        if (l != NULL) {
            rows[n++] = (nw_strip_row){f->c[i].label, i, l->ms, l->n};
        }
    }
    (void)snprintf(text, sizeof text, "limit %g ms", limit);
    const nw_strip_style style = {.title = title,
                                  .log = wide(rows, n),
                                  .rule = limit > 0 ? limit : (double)NAN,
                                  .rule_text = text};
    nw_figures_add(g, id, nw_figure_strip(rows, n, &style));
}

static void add_divergence(const nw_facts *f, nw_figures *g)
{
    nw_strip_row rows[MAX_ROWS];
    size_t n = 0;

    for (size_t i = 0; i < f->n && n < MAX_ROWS; i++) {
        const nw_text_quality *q = &f->c[i].text;
        rows[n++] = (nw_strip_row){f->c[i].label, i, q->kl, q->n_kl};
    }
    const nw_strip_style style = {
        .title = "KL divergence of a token, nats", .log = true, .floor = 1e-7, .rule = (double)NAN};
    nw_figures_add(g, "kl", nw_figure_strip(rows, n, &style));
}

nw_status nw_figures_build(const nw_facts *f, nw_figures *g, nw_error *err)
{
    *g = (nw_figures){.specs = json_object()};
    if (g->specs == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for figures");
    }
    add_latency(f, g, "ttft-batch1", "time to first token, ms", ttft1, 0);
    add_latency(f, g, "tpot-batch1", "time per output token, ms", tpot1, 0);
    add_latency(f, g, "natural-batch1", "time to the last token, ms", natural, 0);
    add_latency(f, g, "ttft-load", "time to first token, ms", ttft_load, f->slo_ttft_ms);
    add_latency(f, g, "tpot-load", "time per output token, ms", tpot_load, f->slo_tpot_ms);
    add_divergence(f, g);
    nw_figures_add(g, "goodput", nw_figure_load(f));
    nw_figures_add(g, "frontier-batch1", nw_figure_frontier(f, "batch1"));
    nw_figures_add(g, "frontier-saturated", nw_figure_frontier(f, "saturated"));
    nw_figures_add(g, "memory", nw_figure_memory(f));
    return NW_OK;
}
