/* The frontier of a regime: cost of a request against the change of the worst slice, as decide left
 * them in the record. Filled: passes every gate. Hollow: not decided. Crossed: failed a gate.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "report/figures.h"

#define WIDTH      300
#define HEIGHT     230
#define CHAR_PX    6.2 /* mean width of a letter of 11 px */
#define LINE_PX    14.0
#define MAX_POINTS 32
#define QUALITY    "worst slice" /* the objective that decide calls so */

typedef struct {
    const char *name;
    size_t look;
    bool eligible, hollow;
    nw_estimate cost, quality;
    double x, y; /* pixels */
} point;

typedef struct {
    point p[MAX_POINTS];
    size_t n;
    char x_title[96];
    double x0, x1, y0, y1; /* domains */
} plot;

static double number(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static size_t look_of(const nw_facts *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++) {
        if (strcmp(f->c[i].row.name, name) == 0 || strcmp(f->c[i].label, name) == 0) {
            return i;
        }
    }
    return f->n;
}

static void add_point(const nw_facts *f, plot *pl, const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "candidate"));
    const json_t *list = json_object_get(row, "objectives");
    size_t k = 0;
    json_t *o = NULL;

    if (name == NULL || pl->n == MAX_POINTS || look_of(f, name) == f->n) {
        return;
    }
    point p = {.name = f->c[look_of(f, name)].label,
               .look = look_of(f, name),
               .eligible = json_is_true(json_object_get(row, "eligible")),
               .hollow = json_is_true(json_object_get(row, "hollow")),
               .cost = {number(row, "cost"), number(row, "cost_lo"), number(row, "cost_hi")},
               .quality = {(double)NAN, (double)NAN, (double)NAN}};
    json_array_foreach(list, k, o)
    {
        const char *what = json_string_value(json_object_get(o, "name"));
        if (what != NULL && strcmp(what, QUALITY) == 0) {
            p.quality = (nw_estimate){number(o, "value"), number(o, "lo"), number(o, "hi")};
        }
    }
    if (!isnan(p.cost.value) && !isnan(p.quality.value)) {
        pl->p[pl->n++] = p;
    }
}

static void widen(double v, double *lo, double *hi)
{
    if (!isnan(v)) {
        *lo = fmin(*lo, v);
        *hi = fmax(*hi, v);
    }
}

/* Domains with a margin, so that marks and names stay inside. */
static void place(plot *pl)
{
    pl->x0 = pl->y0 = (double)INFINITY;
    pl->x1 = pl->y1 = -(double)INFINITY;
    widen(0, &pl->y0, &pl->y1);
    for (size_t i = 0; i < pl->n; i++) {
        const point *p = &pl->p[i];
        const double xs[] = {p->cost.value, p->cost.lo, p->cost.hi};
        const double ys[] = {p->quality.value, p->quality.lo, p->quality.hi};
        for (size_t k = 0; k < NW_COUNT(xs); k++) {
            widen(xs[k], &pl->x0, &pl->x1);
            widen(ys[k], &pl->y0, &pl->y1);
        }
    }
    const double dx = pl->x1 > pl->x0 ? pl->x1 - pl->x0 : fmax(fabs(pl->x1), 1e-9);
    const double dy = pl->y1 > pl->y0 ? pl->y1 - pl->y0 : 1;
    pl->x0 -= 0.12 * dx;
    pl->x1 += 0.18 * dx;
    pl->y0 -= 0.10 * dy;
    pl->y1 += 0.12 * dy;
    for (size_t i = 0; i < pl->n; i++) {
        point *p = &pl->p[i];
        p->x = WIDTH * (p->cost.value - pl->x0) / (pl->x1 - pl->x0);
        p->y = HEIGHT * (pl->y1 - p->quality.value) / (pl->y1 - pl->y0);
    }
}

typedef struct {
    double x0, y0, x1, y1;
} box;

static double overlap(const box *a, const box *b)
{
    const double w = fmin(a->x1, b->x1) - fmax(a->x0, b->x0);
    const double h = fmin(a->y1, b->y1) - fmax(a->y0, b->y0);
    return w > 0 && h > 0 ? w * h : 0;
}

/* What a label at `b` would cover: other labels, marks, whiskers, and the edge of the plot. */
static double covered(const plot *pl, const box *done, size_t n_done, const box *b)
{
    const box inside = {0, 0, WIDTH + 40, HEIGHT};
    double sum = 4 * ((b->x1 - b->x0) * (b->y1 - b->y0) - overlap(b, &inside));

    const double y = HEIGHT * pl->y1 / (pl->y1 - pl->y0); /* of the line at 0 */
    const box zero = {0, y - 1, WIDTH, y + 1};
    sum += overlap(b, &zero);
    for (size_t i = 0; i < n_done; i++) {
        sum += 4 * overlap(b, &done[i]);
    }
    for (size_t i = 0; i < pl->n; i++) {
        const point *p = &pl->p[i];
        const double sx = WIDTH / (pl->x1 - pl->x0);
        const double sy = HEIGHT / (pl->y1 - pl->y0);
        const box mark = {p->x - 7, p->y - 7, p->x + 7, p->y + 7};
        const box across = {sx * (p->cost.lo - pl->x0), p->y - 1, sx * (p->cost.hi - pl->x0),
                            p->y + 1};
        const box up = {p->x - 1, sy * (pl->y1 - p->quality.hi), p->x + 1,
                        sy * (pl->y1 - p->quality.lo)};
        sum += 3 * overlap(b, &mark) + overlap(b, &across) + overlap(b, &up);
    }
    return sum;
}

/* The best of eight places for the name of point i; the box is where the text stands. */
static box name_box(const plot *pl, const box *done, size_t n_done, size_t i)
{
    static const struct {
        double dx, dy; /* of the nearest edge, and of the middle line */
        int side;      /* 1 right of the point, -1 left, 0 centred */
    } places[] = {{9, -11, 1},  {9, 11, 1},  {9, 0, 1},   {-9, -11, -1},
                  {-9, 11, -1}, {-9, 0, -1}, {0, -18, 0}, {0, 18, 0}};
    const point *p = &pl->p[i];
    const double w = CHAR_PX * (double)strnlen(p->name, 18);
    box best = {0, 0, 0, 0};
    double least = (double)INFINITY;

    for (size_t k = 0; k < NW_COUNT(places); k++) {
        const double left = places[k].side > 0   ? p->x + places[k].dx
                            : places[k].side < 0 ? p->x + places[k].dx - w
                                                 : p->x - w / 2;
        const box b = {left, p->y + places[k].dy - LINE_PX / 2, left + w,
                       p->y + places[k].dy + LINE_PX / 2};
        const double c = covered(pl, done, n_done, &b);
        if (c < least) {
            least = c;
            best = b;
        }
    }
    return best;
}

static json_t *axis(const char *field, const char *title, double lo, double hi)
{
    return json_pack("{s:s, s:s, s:s, s:{s:[f, f], s:b, s:b}, s:{s:i}}", "field", field, "type",
                     "quantitative", "title", title, "scale", "domain", lo, hi, "nice", 0, "zero",
                     0, "axis", "tickCount", 5);
}

static json_t *xy(const plot *pl, const char *x, const char *y)
{
    return json_pack("{s:o, s:o}", "x", axis(x, pl->x_title, pl->x0, pl->x1), "y",
                     axis(y, "change of the worst slice, %", pl->y0, pl->y1));
}

static void add_layer(json_t *layers, json_t *data, json_t *mark, json_t *enc)
{
    (void)json_array_append_new(layers, json_pack("{s:{s:O}, s:o, s:o}", "data", "values", data,
                                                  "mark", mark, "encoding", enc));
}

static void add_whisker(json_t *layers, const plot *pl, json_t *data, const char *color,
                        bool vertical)
{
    json_t *enc = vertical ? xy(pl, "x", "y0") : xy(pl, "x0", "y");

    (void)json_object_set_new(enc, vertical ? "y2" : "x2",
                              json_pack("{s:s}", "field", vertical ? "y1" : "x1"));
    add_layer(layers, data,
              json_pack("{s:s, s:s, s:f, s:f}", "type", "rule", "color", color, "size", 1.5,
                        "opacity", 0.6),
              enc);
}

static void add_mark(json_t *layers, const plot *pl, const point *p)
{
    const char *color = nw_figure_color(p->look);
    const bool crossed = !p->eligible && !p->hollow;
    json_t *data = json_pack("[{s:f, s:f}]", "x", p->cost.value, "y", p->quality.value);

    if (!isnan(p->cost.lo) && !isnan(p->cost.hi)) {
        (void)json_object_update_new(json_array_get(data, 0),
                                     json_pack("{s:f, s:f}", "x0", p->cost.lo, "x1", p->cost.hi));
        add_whisker(layers, pl, data, color, false);
    }
    if (!isnan(p->quality.lo) && !isnan(p->quality.hi) && p->quality.hi > p->quality.lo) {
        (void)json_object_update_new(
            json_array_get(data, 0),
            json_pack("{s:f, s:f}", "y0", p->quality.lo, "y1", p->quality.hi));
        add_whisker(layers, pl, data, color, true);
    }
    json_t *mark =
        json_pack("{s:s, s:s, s:s, s:i, s:f, s:s, s:f}", "type", "point", "shape",
                  crossed ? "cross" : nw_figure_shape(p->look), "stroke", color, "size", 110,
                  "strokeWidth", 1.8, "fill", p->hollow ? NW_PAPER : color, "opacity", 1.0);
    if (crossed) {
        (void)json_object_set_new(mark, "angle", json_integer(45));
    }
    add_layer(layers, data, mark, xy(pl, "x", "y"));
    json_decref(data);
}

static void add_names(json_t *layers, const plot *pl)
{
    box done[MAX_POINTS];

    for (size_t i = 0; i < pl->n; i++) {
        done[i] = name_box(pl, done, i, i);
        json_t *data = json_pack("[{s:s}]", "t", pl->p[i].name);
        add_layer(layers, data,
                  json_pack("{s:s, s:s, s:s, s:i}", "type", "text", "align", "left", "baseline",
                            "middle", "limit", 120),
                  json_pack("{s:{s:f}, s:{s:f}, s:{s:s}}", "x", "value", done[i].x0, "y", "value",
                            (done[i].y0 + done[i].y1) / 2, "text", "field", "t"));
        json_decref(data);
    }
}

static json_t *draw(const plot *pl)
{
    json_t *layers = json_array();
    json_t *zero = json_pack("[{s:i}]", "y", 0);

    add_layer(
        layers, zero,
        json_pack("{s:s, s:s, s:[i, i]}", "type", "rule", "color", NW_FAINT, "strokeDash", 4, 3),
        json_pack("{s:o}", "y", axis("y", "change of the worst slice, %", pl->y0, pl->y1)));
    json_decref(zero);
    for (size_t i = 0; i < pl->n; i++) {
        add_mark(layers, pl, &pl->p[i]);
    }
    add_names(layers, pl);
    return nw_figure_spec(WIDTH, HEIGHT, layers);
}

static const nw_rec_decision *decision_of(const nw_facts *f, const char *regime)
{
    for (size_t i = 0; i < f->n_decisions; i++) {
        if (strcmp(f->decisions[i].regime, regime) == 0) {
            return &f->decisions[i];
        }
    }
    return NULL;
}

json_t *nw_figure_frontier(const nw_facts *f, const char *regime)
{
    const nw_rec_decision *d = decision_of(f, regime);
    nw_error ignored = {0};
    json_t *doc = NULL;
    json_t *row = NULL;
    json_t *spec = NULL;
    plot pl = {.n = 0};
    size_t k = 0;

    if (d == NULL || d->json == NULL ||
        nw_json_parse("decision", d->json, strlen(d->json), &doc, &ignored) != NW_OK) {
        return NULL;
    }
    json_array_foreach(json_object_get(doc, "points"), k, row)
    {
        add_point(f, &pl, row);
    }
    if (pl.n > 0) {
        const char *cost = json_string_value(json_object_get(doc, "cost_name"));
        const char *unit = json_string_value(json_object_get(doc, "cost_unit"));
        (void)snprintf(pl.x_title, sizeof pl.x_title, "%.60s, %.20s", cost != NULL ? cost : "cost",
                       unit != NULL ? unit : "");
        place(&pl);
        spec = draw(&pl);
    }
    json_decref(doc);
    return spec;
}
