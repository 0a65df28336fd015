/* The common look of all figures, and the two forms that several of them share.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "report/figures.h"
#include "report/html.h"
#include "stats/summary.h"

#define MAX_TICKS 100 /* raw values drawn in a row; more are shown as that many equal shares */
#define ROW_PX    46
#define STRIP_W   300

static const struct {
    const char *color, *shape;
    int dash[2]; /* 0: solid */
} looks[] = {
    {"#5f5f5f", "diamond", {0, 0}},       {"#0072B2", "circle", {0, 0}},
    {"#D55E00", "square", {7, 3}},        {"#009E73", "triangle-up", {2, 2}},
    {"#CC79A7", "triangle-down", {9, 2}}, {"#E69F00", "triangle-right", {4, 4}},
    {"#56B4E9", "triangle-left", {1, 3}},
};

/* After the last look they begin again with the first after the baseline. */
static size_t look_of(size_t i)
{
    return i < NW_COUNT(looks) ? i : 1 + (i - 1) % (NW_COUNT(looks) - 1);
}

const char *nw_figure_color(size_t i)
{
    return looks[look_of(i)].color;
}

const char *nw_figure_shape(size_t i)
{
    return looks[look_of(i)].shape;
}

json_t *nw_figure_dash(size_t i)
{
    const int *d = looks[look_of(i)].dash;
    return d[0] == 0 ? json_array() : json_pack("[i, i]", d[0], d[1]);
}

static json_t *config(void)
{
    return json_pack(
        "{s:s, s:s, s:b, s:{s:n}, s:{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:i, s:i, s:i},"
        " s:{s:s, s:i}}",
        "font", "system-ui, sans-serif", "background", "transparent", "aria", 0, "view", "stroke",
        "axis", "labelColor", NW_INK, "titleColor", NW_INK, "gridColor", NW_GRID, "domainColor",
        NW_FAINT, "tickColor", NW_FAINT, "labelFontSize", 11, "titleFontSize", 11,
        "titleFontWeight", "normal", "titleAlign", "center", "labelLimit", 120, "titlePadding", 8,
        "labelPadding", 4, "text", "color", NW_INK, "fontSize", 11);
}

json_t *nw_figure_spec(int width, int height, json_t *layers)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:o, s:o}", "$schema",
                     "https://vega.github.io/schema/vega-lite/v6.json", "width", width, "height",
                     height, "padding", 4, "config", config(), "layer", layers);
}

static double shown(const nw_strip_style *style, double v)
{
    return style->log && v < style->floor ? style->floor : v;
}

/* {"c": name, "v": value} of each drawn tick. */
static void add_ticks(json_t *list, const nw_strip_row *r, const nw_strip_style *style)
{
    const size_t n = r->n < MAX_TICKS ? r->n : MAX_TICKS;

    for (size_t i = 0; i < n; i++) {
        const double v = r->n <= MAX_TICKS
                             ? r->sorted[i]
                             : nw_percentile(r->sorted, r->n, ((double)i + 0.5) / MAX_TICKS);
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:f, s:s}", "c", r->name, "v", shown(style, v),
                                              "k", nw_figure_color(r->look)));
    }
}

static json_t *summary_row(const nw_strip_row *r, const nw_strip_style *style)
{
    static const struct {
        const char *key;
        double p;
    } q[] = {{"p10", 0.1}, {"p25", 0.25}, {"p50", 0.5}, {"p75", 0.75}, {"p90", 0.9}};
    json_t *row = json_pack("{s:s, s:s}", "c", r->name, "k", nw_figure_color(r->look));
    nw_num text;

    for (size_t i = 0; i < NW_COUNT(q); i++) {
        const double v = nw_percentile(r->sorted, r->n, q[i].p);
        (void)json_object_set_new(row, q[i].key, json_real(shown(style, v)));
    }
    (void)json_object_set_new(row, "label",
                              json_string(nw_sig(nw_percentile(r->sorted, r->n, 0.5), &text)));
    return row;
}

static json_t *x_axis(const char *field, const nw_strip_style *style)
{
    json_t *scale = style->log ? json_pack("{s:s}", "type", "log")
                               : json_pack("{s:b, s:b}", "zero", 1, "nice", 1);
    return json_pack("{s:s, s:s, s:s, s:o, s:{s:i, s:s}}", "field", field, "type", "quantitative",
                     "title", style->title, "scale", scale, "axis", "tickCount", 5, "format", "~r");
}

/* A layer over data `values` with one mark; from `lo` to `hi` where hi is given. */
static json_t *strip_layer(json_t *values, json_t *names, const char *lo, const char *hi,
                           const nw_strip_style *style, json_t *mark)
{
    json_t *enc = json_pack("{s:o, s:{s:s, s:s, s:O, s:n, s:{s:b, s:b, s:b}}, s:{s:s, s:s, s:n}}",
                            "x", x_axis(lo, style), "y", "field", "c", "type", "nominal", "sort",
                            names, "title", "axis", "domain", 0, "ticks", 0, "grid", 0, "color",
                            "field", "k", "type", "nominal", "scale");
    if (hi != NULL) {
        (void)json_object_set_new(enc, "x2", json_pack("{s:s}", "field", hi));
    }
    return json_pack("{s:{s:O}, s:o, s:o}", "data", "values", values, "mark", mark, "encoding",
                     enc);
}

static void add_rule(json_t *layers, const nw_strip_style *style)
{
    json_t *data = json_pack("[{s:f, s:s}]", "v", style->rule, "t", style->rule_text);

    (void)json_array_append_new(layers,
                                json_pack("{s:{s:O}, s:{s:s, s:s, s:[i, i]}, s:{s:o}}", "data",
                                          "values", data, "mark", "type", "rule", "color", NW_FAINT,
                                          "strokeDash", 4, 3, "encoding", "x", x_axis("v", style)));
    (void)json_array_append_new(
        layers, json_pack("{s:{s:O}, s:{s:s, s:s, s:s, s:i, s:i, s:i}, s:{s:o, s:{s:i}, s:{s:s}}}",
                          "data", "values", data, "mark", "type", "text", "align", "right",
                          "baseline", "top", "dx", -4, "dy", 2, "fontSize", 10, "encoding", "x",
                          x_axis("v", style), "y", "value", 0, "text", "field", "t"));
    json_decref(data);
}

static json_t *median_mark(json_t *sums, json_t *names, const nw_strip_style *style)
{
    json_t *label =
        strip_layer(sums, names, "p50", NULL, style,
                    json_pack("{s:s, s:i, s:i}", "type", "text", "dy", -13, "fontSize", 11));
    json_t *enc = json_object_get(label, "encoding");

    (void)json_object_del(enc, "color");
    (void)json_object_set_new(enc, "text", json_pack("{s:s}", "field", "label"));
    return label;
}

static json_t *strip_layers(json_t *ticks, json_t *sums, json_t *names, const nw_strip_style *style)
{
    json_t *tick = json_pack("{s:s, s:i, s:f, s:f, s:i}", "type", "tick", "size", 9, "thickness",
                             1.0, "opacity", 0.45, "yOffset", 13);
    json_t *thin = json_pack("{s:s, s:f}", "type", "rule", "size", 1.5);
    json_t *thick = json_pack("{s:s, s:i}", "type", "rule", "size", 6);
    json_t *dot = json_pack("{s:s, s:b, s:i, s:f, s:s}", "type", "point", "filled", 0, "size", 50,
                            "opacity", 1.0, "fill", NW_PAPER);
    json_t *layers = json_array();

    (void)json_array_append_new(layers, strip_layer(ticks, names, "v", NULL, style, tick));
    (void)json_array_append_new(layers, strip_layer(sums, names, "p10", "p90", style, thin));
    (void)json_array_append_new(layers, strip_layer(sums, names, "p25", "p75", style, thick));
    (void)json_array_append_new(layers, strip_layer(sums, names, "p50", NULL, style, dot));
    (void)json_array_append_new(layers, median_mark(sums, names, style));
    if (!isnan(style->rule)) {
        add_rule(layers, style);
    }
    return layers;
}

json_t *nw_figure_strip(const nw_strip_row *rows, size_t n, const nw_strip_style *style)
{
    json_t *names = json_array();
    json_t *ticks = json_array();
    json_t *sums = json_array();
    json_t *spec = NULL;
    size_t n_rows = 0;

    for (size_t i = 0; i < n; i++) {
        if (rows[i].n > 0) {
            (void)json_array_append_new(names, json_string(rows[i].name));
            (void)json_array_append_new(sums, summary_row(&rows[i], style));
            add_ticks(ticks, &rows[i], style);
            n_rows++;
        }
    }
    if (n_rows > 0) {
        spec =
            nw_figure_spec(STRIP_W, (int)n_rows * ROW_PX, strip_layers(ticks, sums, names, style));
    }
    json_decref(names);
    json_decref(ticks);
    json_decref(sums);
    return spec;
}

typedef struct {
    double y;
    size_t at;
} label_at;

static int by_y(const void *a, const void *b)
{
    const double x = ((const label_at *)a)->y;
    const double y = ((const label_at *)b)->y;
    return (x > y) - (x < y);
}

/* Labels that touch form a block, which is centred on what its labels wanted (pool adjacent violators
 * on y[i] - i * gap). */
void nw_figure_spread(double *y, size_t n, double gap)
{
    label_at *l = calloc(n + 1, sizeof *l);
    double *sum = calloc(n + 1, sizeof *sum);
    size_t *count = calloc(n + 1, sizeof *count);
    size_t n_blocks = 0;

    if (l != NULL && sum != NULL && count != NULL) {
        for (size_t i = 0; i < n; i++) {
            l[i] = (label_at){y[i], i};
        }
        qsort(l, n, sizeof *l, by_y);
        for (size_t i = 0; i < n; i++) {
            sum[n_blocks] = l[i].y - (double)i * gap;
            count[n_blocks++] = 1;
            while (n_blocks > 1 && sum[n_blocks - 1] / (double)count[n_blocks - 1] <
                                       sum[n_blocks - 2] / (double)count[n_blocks - 2]) {
                sum[n_blocks - 2] += sum[n_blocks - 1];
                count[n_blocks - 2] += count[n_blocks - 1];
                n_blocks--;
            }
        }
        for (size_t b = 0, i = 0; b < n_blocks; b++) {
            for (size_t k = 0; k < count[b]; k++, i++) {
                y[l[i].at] = sum[b] / (double)count[b] + (double)i * gap;
            }
        }
    }
    free(l);
    free(sum);
    free(count);
}
