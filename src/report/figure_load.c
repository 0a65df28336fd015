/* The load-goodput curve, and what the memory is used for.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "report/figures.h"

#define WIDTH     270
#define HEIGHT    240
#define LABEL_GAP 14 /* pixels between the names at the ends of the lines */
#define BAR_PX    34

static double highest_rate(const nw_facts *f)
{
    double top = 0;

    for (size_t i = 0; i < f->n; i++) {
        for (size_t k = 0; k < f->c[i].n_load; k++) {
            top = fmax(top, f->c[i].load[k].offered_rps);
            top = isnan(f->c[i].load[k].goodput_rps.hi) ? top
                                                        : fmax(top, f->c[i].load[k].goodput_rps.hi);
        }
    }
    return top;
}

static json_t *axis(const char *field, const char *title, double top)
{
    return json_pack("{s:s, s:s, s:s, s:{s:[i, f]}, s:{s:i}}", "field", field, "type",
                     "quantitative", "title", title, "scale", "domain", 0, top, "axis", "tickCount",
                     5);
}

static json_t *encoding(double top)
{
    return json_pack("{s:o, s:o}", "x", axis("x", "offered, requests/s", top), "y",
                     axis("y", "goodput, requests/s", top));
}

static json_t *points_of(const nw_facts_candidate *c)
{
    json_t *list = json_array();

    for (size_t k = 0; k < c->n_load; k++) {
        const nw_load_point *p = &c->load[k];
        if (p->n > 0) {
            (void)json_array_append_new(list,
                                        json_pack("{s:f, s:f, s:f, s:f}", "x", p->offered_rps, "y",
                                                  p->goodput_rps.value, "lo", p->goodput_rps.lo,
                                                  "hi", p->goodput_rps.hi));
        }
    }
    return list;
}

static void add_layer(json_t *layers, json_t *data, json_t *mark, json_t *enc)
{
    (void)json_array_append_new(layers, json_pack("{s:{s:O}, s:o, s:o}", "data", "values", data,
                                                  "mark", mark, "encoding", enc));
}

static void add_candidate(json_t *layers, const nw_facts *f, size_t i, double top)
{
    json_t *data = points_of(&f->c[i]);
    const char *color = nw_figure_color(i);

    if (json_array_size(data) > 0) {
        json_t *whisker = encoding(top);
        (void)json_object_set_new(whisker, "y", axis("lo", "goodput, requests/s", top));
        (void)json_object_set_new(whisker, "y2", json_pack("{s:s}", "field", "hi"));
        add_layer(layers, data,
                  json_pack("{s:s, s:s, s:f, s:f}", "type", "rule", "color", color, "size", 1.5,
                            "opacity", 0.7),
                  whisker);
        add_layer(layers, data,
                  json_pack("{s:s, s:s, s:f, s:o}", "type", "line", "color", color, "strokeWidth",
                            1.8, "strokeDash", nw_figure_dash(i)),
                  encoding(top));
        add_layer(layers, data,
                  json_pack("{s:s, s:s, s:b, s:i, s:s, s:f}", "type", "point", "color", color,
                            "filled", 1, "size", 48, "shape", nw_figure_shape(i), "opacity", 1.0),
                  encoding(top));
    }
    json_decref(data);
}

/* Names stand right of the plot, at the height of the last point, moved apart where they touch. */
static void add_names(json_t *layers, const nw_facts *f, double top)
{
    double *y = calloc(f->n + 1, sizeof *y);
    size_t n = 0;

    for (size_t i = 0; y != NULL && i < f->n; i++) {
        const nw_facts_candidate *c = &f->c[i];
        if (c->n_load > 0) {
            const double v = c->load[c->n_load - 1].goodput_rps.value;
            y[n++] = isnan(v) ? HEIGHT : HEIGHT * (1 - v / top);
        }
    }
    if (n > 0) {
        nw_figure_spread(y, n, LABEL_GAP);
    }
    for (size_t i = 0, k = 0; y != NULL && i < f->n; i++) {
        if (f->c[i].n_load > 0) {
            json_t *data = json_pack("[{s:s}]", "t", f->c[i].label);
            add_layer(layers, data,
                      json_pack("{s:s, s:s, s:s, s:i}", "type", "text", "align", "left", "color",
                                nw_figure_color(i), "limit", 120),
                      json_pack("{s:{s:i}, s:{s:f}, s:{s:s}}", "x", "value", WIDTH + 8, "y",
                                "value", y[k++], "text", "field", "t"));
            json_decref(data);
        }
    }
    free(y);
}

json_t *nw_figure_load(const nw_facts *f)
{
    const double top = highest_rate(f) * 1.04;
    json_t *layers = json_array();

    if (top <= 0) {
        json_decref(layers);
        return NULL;
    }
    json_t *ideal = json_pack("[{s:i, s:i}, {s:f, s:f}]", "x", 0, "y", 0, "x", top, "y", top);
    add_layer(layers, ideal,
              json_pack("{s:s, s:s, s:[i, i], s:i}", "type", "line", "color", NW_FAINT,
                        "strokeDash", 2, 3, "strokeWidth", 1),
              encoding(top));
    json_decref(ideal);
    for (size_t i = 0; i < f->n; i++) {
        add_candidate(layers, f, i, top);
    }
    add_names(layers, f, top);
    return nw_figure_spec(WIDTH, HEIGHT, layers);
}

static json_t *memory_layer(json_t *data, json_t *names, const char *field, json_t *mark)
{
    return json_pack(
        "{s:{s:O}, s:o, s:{s:{s:s, s:s, s:s, s:{s:i}}, s:{s:s, s:s, s:O, s:n, s:{s:b, s:b}},"
        " s:{s:s, s:s, s:n}}}",
        "data", "values", data, "mark", mark, "encoding", "x", "field", field, "type",
        "quantitative", "title", "memory, MiB", "axis", "tickCount", 5, "y", "field", "c", "type",
        "nominal", "sort", names, "title", "axis", "domain", 0, "ticks", 0, "color", "field", "k",
        "type", "nominal", "scale");
}

json_t *nw_figure_memory(const nw_facts *f)
{
    json_t *data = json_array();
    json_t *names = json_array();
    json_t *spec = NULL;

    for (size_t i = 0; i < f->n; i++) {
        const nw_facts_candidate *c = &f->c[i];
        if (!isnan(c->peak_rss_bytes) && !isnan(c->weight_bytes)) {
            (void)json_array_append_new(names, json_string(c->label));
            (void)json_array_append_new(data, json_pack("{s:s, s:s, s:f, s:f}", "c", c->label, "k",
                                                        nw_figure_color(i), "peak",
                                                        c->peak_rss_bytes / 1048576, "weights",
                                                        c->weight_bytes / 1048576));
        }
    }
    const size_t n = json_array_size(data);
    if (n > 0) {
        json_t *layers = json_pack(
            "[o, o]",
            memory_layer(data, names, "peak",
                         json_pack("{s:s, s:i, s:f}", "type", "bar", "size", 16, "opacity", 0.3)),
            memory_layer(data, names, "weights",
                         json_pack("{s:s, s:i, s:f}", "type", "bar", "size", 16, "opacity", 1.0)));
        spec = nw_figure_spec(300, (int)n * BAR_PX, layers);
    }
    json_decref(data);
    json_decref(names);
    return spec;
}
