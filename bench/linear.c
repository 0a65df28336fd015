/* See linear.h. A round is: a raw read, the kernel over the next matrices of the pool, the peak.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random_matrix.h"

#define POOL_BYTES   ((size_t)160 << 20) /* beyond any cache here */
#define ITEM_PANELS  8u                  /* of one call, as the engine cuts its matrices */
#define ROUND_S      2e-3
#define MAX_ROUNDS   400u
#define PLAIN_PANELS 16u /* that differ; the rest are copies */

const nw_linear_kind nw_linear_kinds[] = {
    {"bf16", false},         {"bf16-12", false},      {"fp8-e4m3", false},
    {"fp8-e5m2", false},     {"int8", false},         {"int8", true},
    {"int8-g16", false},     {"int8-g16", true},      {"int8-g32", false},
    {"int8-g32", true},      {"int8-g64", false},     {"int8-g64", true},
    {"int8-g128", false},    {"int8-g128", true},     {"int8-g32-min", false},
    {"int8-g32-min", true},  {"int8-g16-k", false},   {"int8-g16-k", true},
    {"int8-g32-k", false},   {"int8-g32-k", true},    {"int4-g32", false},
    {"int4-g32", true},      {"int4-g64", false},     {"int4-g64", true},
    {"int4-g128", false},    {"int4-g128", true},     {"int4-g32-zp", false},
    {"int4-g32-zp", true},   {"int4-g128-zp", false}, {"int4-g128-zp", true},
    {"int4-g32-min", false}, {"int4-g32-min", true},  {"int4-g32-k", false},
    {"int4-g32-k", true},    {"nvfp4", false},        {"nvfp4", true},
    {"mxfp4", false},        {"mxfp4", true},         {"f32", false},
};
const size_t n_linear_kinds = NW_COUNT(nw_linear_kinds);

static void fill_weights(nw_linear_job *j, nw_panel_type *type, nw_linear_shape s)
{
    const uint32_t panels = nw_panel_count(s.n_rows);
    const nw_random_matrix m =
        nw_random_matrix_of(*type, NW_NORMAL, PLAIN_PANELS * NW_PANEL_ROWS, s.n_cols, 1);
    size_t panel = 0;

    *type = m.type;
    if (!nw_panel_bytes(*type, s.n_cols, &panel)) {
        exit(2);
    }
    j->matrix_bytes = panel * panels;
    j->n_matrices = s.cached ? 1 : (uint32_t)(POOL_BYTES / j->matrix_bytes);
    j->pool_bytes = j->matrix_bytes * j->n_matrices;
    j->pool = nw_big_new(j->pool_bytes + 4096);
    for (size_t p = 0; p < (size_t)panels * j->n_matrices; p++) {
        if (p < PLAIN_PANELS) {
            nw_random_panel(&m, (uint32_t)p, j->pool + p * panel);
        } else {
            memcpy(j->pool + p * panel, j->pool + p % PLAIN_PANELS * panel, panel);
        }
    }
}

void nw_linear_open(nw_linear_job *j, const nw_kernels *kernels, nw_linear_kind kind,
                    nw_linear_shape s)
{
    nw_panel_type type = {0};
    nw_rng rng = nw_rng_seed(2);

    *j = (nw_linear_job){.kernels = kernels};
    if (!nw_panel_parse(kind.type, &type)) {
        exit(2);
    }
    fill_weights(j, &type, s);
    const nw_act_kind act = kernels->act_kind(type, kind.a8);
    const size_t x_bytes = (size_t)s.n_tokens * s.n_cols * sizeof(float);
    float *x = nw_big_new(x_bytes);
    for (size_t i = 0; i < (size_t)s.n_tokens * s.n_cols; i++) {
        x[i] = (float)nw_rng_normal(&rng);
    }
    j->act_bytes = nw_act_bytes(act, s.n_tokens, s.n_cols);
    j->y_bytes = (size_t)s.n_tokens * s.n_rows * sizeof(float);
    void *packed = nw_big_new(j->act_bytes);
    j->y = nw_big_new(j->y_bytes);
    kernels->act_pack(act, x, s.n_cols, 0, s.n_tokens, s.n_cols, packed);
    nw_big_free(x, x_bytes);
    j->act = (nw_act){act, s.n_tokens, s.n_cols, packed};
    j->weight = (nw_weight){type, j->pool, s.n_rows, s.n_cols};
    j->peak = act == NW_ACT_F32 ? NW_PEAK_F32 : act == NW_ACT_BF16 ? NW_PEAK_BF16 : NW_PEAK_INT8;
    j->dots = nw_kernels_dots(kernels, type, act);
}

void nw_linear_close(nw_linear_job *j)
{
    union { /* the packed tokens are const for the kernels */
        const void *packed;
        void *mine;
    } act = {j->act.data};
    nw_big_free(j->pool, j->pool_bytes + 4096);
    nw_big_free(act.mine, j->act_bytes);
    nw_big_free(j->y, j->y_bytes);
}

/* Items [first, first + n) of the pool, an item being ITEM_PANELS panels, in order over all matrices. */
typedef struct {
    const nw_linear_job *job;
    size_t first, n, per_matrix;
} span;

static void run_items(void *ctx, unsigned part, unsigned n_parts)
{
    const span *s = ctx;
    const nw_linear_job *j = s->job;
    const uint32_t panels = nw_panel_count(j->weight.n_rows);
    const size_t end = s->n * (part + 1) / n_parts;

    for (size_t i = s->n * part / n_parts; i < end; i++) {
        const size_t item = (s->first + i) % (s->per_matrix * j->n_matrices);
        const uint32_t p0 = (uint32_t)(item % s->per_matrix) * ITEM_PANELS;
        nw_weight w = j->weight;
        w.data = j->pool + item / s->per_matrix * j->matrix_bytes;
        j->kernels->linear(&w, &j->act, p0, p0 + ITEM_PANELS < panels ? p0 + ITEM_PANELS : panels,
                           j->y, w.n_rows);
    }
}

static double spread(double *x, size_t n)
{
    const double middle = nw_median(x, n); /* and in order */
    return middle > 0 ? (x[n * 3 / 4] - x[n / 4]) / middle : 0;
}

nw_linear_result nw_linear_time(nw_linear_job *j, nw_pool *pool, unsigned rounds)
{
    const uint32_t panels = nw_panel_count(j->weight.n_rows);
    static double raw[MAX_ROUNDS], of_raw[MAX_ROUNDS], of_peak[MAX_ROUNDS], of_roof[MAX_ROUNDS];
    static double speed[MAX_ROUNDS], macs_s[MAX_ROUNDS], peak[MAX_ROUNDS];
    const double item_bytes = (double)j->matrix_bytes / panels * ITEM_PANELS;
    const double item_macs = (double)ITEM_PANELS * 16 * j->weight.n_cols * j->act.n_tokens;
    span s = {.job = j, .per_matrix = (panels + ITEM_PANELS - 1) / ITEM_PANELS};
    const size_t n_items = s.per_matrix * j->n_matrices;

    rounds = rounds < MAX_ROUNDS ? rounds : MAX_ROUNDS;
    s.n = 2 * nw_pool_threads(pool);
    const double once = nw_probe_run(pool, run_items, &s) / (double)nw_pool_threads(pool);
    s.n = (size_t)fmax(1, ROUND_S / once) * s.n;
    s.n = s.n < n_items || n_items < 8 ? s.n : n_items;
    for (unsigned i = 0; i < rounds; i++) {
        const size_t read = (size_t)((double)s.n * item_bytes);
        const size_t bytes = read < j->pool_bytes ? read : j->pool_bytes;
        const size_t at = s.first * (size_t)item_bytes % (j->pool_bytes - bytes + 1) / 64 * 64;
        const double r = nw_probe_read(pool, j->pool + at, bytes) / (double)bytes;
        s.first = (s.first + n_items / 2) % n_items; /* not what was just read */
        const double t = nw_probe_run(pool, run_items, &s) / (double)s.n;
        const double m = nw_probe_peak(pool, j->peak) * item_macs * j->dots;
        s.first = (s.first + s.n) % n_items;
        raw[i] = r;
        peak[i] = m;
        of_raw[i] = r * item_bytes / t;
        of_peak[i] = m / t;
        of_roof[i] = fmax(of_raw[i], of_peak[i]);
        speed[i] = item_bytes / t;
        macs_s[i] = item_macs / t;
    }
    return (nw_linear_result){.of_raw = nw_median(of_raw, rounds),
                              .of_peak = nw_median(of_peak, rounds),
                              .of_roof = nw_median(of_roof, rounds),
                              .bytes_s = nw_median(speed, rounds),
                              .macs_s = nw_median(macs_s, rounds),
                              .raw_spread = spread(raw, rounds),
                              .peak_spread = spread(peak, rounds)};
}
