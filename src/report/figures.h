/* Figures: Vega-Lite specifications written here, rendered to SVG by the script that the build bundles
 * (web/render.mjs), run under node. Colours stand in the SVG as hexadecimal words; the style sheet of
 * the page replaces them in the dark. Without node there are no figures, the reason is kept, and the
 * page says it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_REPORT_FIGURES_H
#define NW_REPORT_FIGURES_H

#include <jansson.h>

#include "report/facts.h"

typedef struct {
    json_t *specs; /* id: specification */
    json_t *svgs;  /* id: text of the SVG; NULL before rendering, or where it was not possible */
    char why_none[512]; /* why there are no SVGs */
} nw_figures;

void nw_figures_release(nw_figures *g);
/* Takes the spec over; NULL is left out. */
void nw_figures_add(nw_figures *g, const char *id, json_t *spec);
/* NULL: there is no such figure. */
const char *nw_figures_svg(const nw_figures *g, const char *id);

/* script NULL: $NARROW_RENDER, or narrow-render.mjs beside the program, or in ../share/narrow. What is
 * missing or fails ends up in why_none; only a lack of memory is an error. */
NW_MUST_USE nw_status nw_figures_render(nw_figures *g, const char *script, nw_error *err);
/* Writes DIR/<id>.svg for each. */
NW_MUST_USE nw_status nw_figures_write(const nw_figures *g, const char *dir, nw_error *err);

/* All figures of a record. */
NW_MUST_USE nw_status nw_figures_build(const nw_facts *f, nw_figures *g, nw_error *err);

/* How candidate i looks: colours of Okabe and Ito, and a shape and a dash so that colour is never
 * alone. Candidate 0, the baseline, is grey. */
const char *nw_figure_color(size_t i);
const char *nw_figure_shape(size_t i);
json_t *nw_figure_dash(size_t i);

#define NW_INK   "#222222" /* of texts and rules in figures */
#define NW_FAINT "#8a8a8a" /* of reference lines */
#define NW_GRID  "#e4e4e0"
#define NW_PAPER "#ffffff" /* inside of hollow marks */

/* A specification with the common look: width and height of the plot itself, in pixels. */
json_t *nw_figure_spec(int width, int height, json_t *layers);
/* One row a candidate: raw values as ticks, bars p25 to p75 and p10 to p90, the median in words. */
typedef struct {
    const char *name;
    size_t look; /* index of the candidate */
    const double *sorted;
    size_t n;
} nw_strip_row;
typedef struct {
    const char *title; /* of the x axis, with its unit */
    bool log;
    double floor; /* of a log axis: smaller values are drawn there */
    double rule;  /* a vertical line: the limit; NaN none */
    const char *rule_text;
} nw_strip_style;
json_t *nw_figure_strip(const nw_strip_row *rows, size_t n, const nw_strip_style *style);

json_t *nw_figure_load(const nw_facts *f);                         /* offered rate, goodput */
json_t *nw_figure_frontier(const nw_facts *f, const char *regime); /* from the decision's points */
json_t *nw_figure_memory(const nw_facts *f);

/* Moves labels apart: y[i] in pixels, at least `gap` from each other, as near as may be to where they
 * were. */
void nw_figure_spread(double *y, size_t n, double gap);

#endif
